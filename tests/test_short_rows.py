"""Rows shorter than lanes, walked as one: whatever repeats in them, wherever ranges are cut."""

import numpy
import pytest

import flambeau as torch

SHAPES = [(100_000, 10), (1000, 3), (37, 64), (33, 7), (5000, 63), (16, 2), (15, 2), (300, 65)]
DTYPES = ["float32", "float64", "int64", "int16", "uint8", "bool"]


def numbers(shape, dtype, seed):
    drawn = numpy.random.default_rng(seed).integers(0, 100, shape)
    return (drawn % 2 if dtype == "bool" else drawn).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_operand_that_repeats(shape, dtype):
    full, row = numbers(shape, dtype, 0), numbers(shape[1:], dtype, 1)
    x, r = torch.from_numpy(full), torch.from_numpy(row)
    assert ((x + r).numpy() == full + row).all()
    assert ((r > x).numpy() == (row > full)).all()
    chosen = torch.where(x > r, r, torch.tensor(1, dtype=x.dtype))
    assert (chosen.numpy() == numpy.where(full > row, row, numpy.ones((), dtype))).all()
    assert (r.expand(shape).contiguous().numpy() == numpy.broadcast_to(row, shape)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_in_place(shape):
    full, row = numbers(shape, "float32", 2), numbers(shape[1:], "float32", 3)
    x = torch.from_numpy(full.copy())
    x.mul_(torch.from_numpy(row)).sub_(x[0].clone())
    expected = full * row
    assert (x.numpy() == expected - expected[0]).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_that_lie_apart(shape):
    """Columns of something wider do not flow from row to row."""
    wide = numbers((shape[0], shape[1] + 3), "float32", 4)
    row, column = numbers(shape[1:], "float32", 5), numbers(shape[:1], "float32", 6)[:, None]
    x = torch.from_numpy(wide)[:, 1:-2]
    assert ((x * torch.from_numpy(row)).numpy() == wide[:, 1:-2] * row).all()
    assert ((x + torch.from_numpy(column)).numpy() == wide[:, 1:-2] + column).all()
