"""Row programs: every way a tensor lies over rows, every layout, one kernel."""

import numpy as np
import pytest

import flambeau as torch
from flambeau.core import expr as e
from flambeau.core.rows import along, each, once, row_program

RNG = np.random.default_rng(0)


@row_program
def affine_softmax(rows, x: each, shift: once, scale: along, *, power):
    """exp(scale (x - shift)) over the sum of those, and the sums."""
    raised = rows.draft(e.call("exp", scale * (x - shift) * power))
    total = rows.sum(raised)
    return rows.each(raised / total), rows.once(total), rows.kept(rows.max(raised))


@row_program
def at_position(rows, x: each, place: once):
    """The element of a row at a position."""
    return rows.once(rows.sum(e.where(rows.position == place, x, 0)))


@row_program
def two_sums(rows, x: each):
    """The sum, and the sum of squares."""
    return tuple(rows.once(total) for total in rows.sums(x, x * x))


def over(array, dims, places):
    """A tensor for some of the dimensions, seen against all of them."""
    shape = [n if d in places else 1 for d, n in enumerate(array.shape)]
    values = RNG.standard_normal(shape)
    return torch.tensor(values.reshape([array.shape[d] for d in places])), values


@pytest.mark.parametrize("dims", [(1,), (0,), (0, 2), (1, 2), (0, 1, 2), ()])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "expanded", "sliced"])
def test_programs_over_any_dimensions_and_layout(dims, layout):
    x = RNG.standard_normal((3, 5, 40))
    given = {
        "contiguous": lambda: torch.tensor(x),
        "transposed": lambda: torch.tensor(x.transpose(2, 0, 1).copy()).permute(1, 2, 0),
        "expanded":   lambda: torch.tensor(x[:1]).expand(3, 5, 40),
        "sliced":     lambda: torch.tensor(np.repeat(x, 2, axis=2))[:, :, ::2],
    }[layout]()
    x = given.numpy()
    kept = tuple(d for d in range(3) if d not in dims)
    shift, shift_over = over(x, dims, kept)
    scale, scale_over = over(x, dims, dims)
    out, total, largest = affine_softmax(given, shift, scale, dims=dims, power=0.5)
    raised = np.exp(scale_over * (x - shift_over) * 0.5)
    sums = raised.sum(dims, keepdims=True)
    np.testing.assert_allclose(out.numpy(), raised / sums)
    np.testing.assert_allclose(total.numpy(), sums.reshape([x.shape[d] for d in kept]))
    np.testing.assert_allclose(largest.numpy(), raised.max(dims, keepdims=True))


@pytest.mark.parametrize("shape", [(7, 3), (4, 100), (2, 33, 9)])
def test_a_program_knows_where_in_a_row_it_is(shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    place = RNG.integers(0, shape[1], (shape[0], *shape[2:]))
    got = at_position(torch.tensor(x), torch.tensor(place), dims=(1,))
    np.testing.assert_array_equal(got.numpy(), np.take_along_axis(x, place[:, None], 1)[:, 0])


def test_long_rows_are_summed_wide():
    x = np.full((2, 1 << 20), 0.1, np.float32)
    total, squares = two_sums(torch.tensor(x), dims=(1,))
    np.testing.assert_allclose(total.numpy(), x.astype(np.float64).sum(1), rtol=1e-7)
    np.testing.assert_allclose(squares.numpy(), (x.astype(np.float64) ** 2).sum(1), rtol=1e-6)


def test_half_rows_are_computed_in_single_precision():
    x = torch.tensor(RNG.standard_normal((3, 50)), dtype=torch.bfloat16)
    out, total, _ = affine_softmax(x, torch.zeros(3), torch.ones(50), dims=(1,), power=1.0)
    wide = np.exp(x.float().numpy())
    assert out.dtype is total.dtype is torch.bfloat16
    np.testing.assert_allclose(out.float().numpy(), wide / wide.sum(1, keepdims=True), rtol=4e-3)


def test_rows_of_nothing_and_no_rows():
    total, squares = two_sums(torch.zeros(3, 0), dims=(1,))
    assert total.tolist() == squares.tolist() == [0, 0, 0]
    assert two_sums(torch.zeros(0, 3), dims=(1,))[0].shape == (0,)


def test_a_tensor_that_does_not_lie_over_the_rows_is_refused():
    with pytest.raises(RuntimeError, match="does not lie over"):
        at_position(torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64), dims=(1,))
