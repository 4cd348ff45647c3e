"""Order, distinct values, masks, places and running results by native code, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as torch

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
#: shapes with rows sorted by networks of every size, by radix, short and long ones, and columns
SHAPES = ((1,), (2,), (16,), (17,), (3, 33), (65,), (256,), (257,), (3, 129, 5), (3, 300, 5),
          (40, 70), (5000,))


def sample(dtype: str, shape, seed: int = 0, spread: float = 1.0):
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("float"):
        x = (rng.standard_normal(shape) * spread).astype(dtype)
        odd = [math.nan, -0.0, 0.0, math.inf, -math.inf, math.nan]
        x.reshape(-1)[: min(len(odd), x.size)] = odd[: x.size]
        return rng.permuted(x, axis=-1)
    kind = np.iinfo(dtype)
    return rng.integers(kind.min, kind.max, shape, dtype=dtype)


def positions(x, axis: int, falling: bool):
    """Stable order with NaN as the largest."""
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    return np.argsort(-ranks if falling else ranks, axis=axis, kind="stable")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_sort_of_every_dtype(dtype, shape):
    x = sample(dtype, shape)
    for dim in {0, len(shape) - 1}:
        for falling in (False, True):
            values, places = torch.tensor(x).sort(dim, falling, stable=True)
            order = positions(x, dim, falling)
            assert np.array_equal(places.numpy(), order)
            assert values.numpy().tobytes() == np.take_along_axis(x, order, dim).tobytes()
            assert torch.equal(torch.tensor(x).argsort(dim, falling), places)


@pytest.mark.parametrize("build", [
    lambda r: r.integers(0, 3, 3000) << 60 | r.integers(0, 2**20, 3000),   # long ties above
    lambda r: np.where(r.random(3000) < 0.9, r.integers(0, 2**28), r.integers(0, 2**62, 3000)),
    lambda r: r.integers(-5, 5, 3000),
    lambda r: np.arange(3000)[::-1].copy(),
    lambda r: np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max] * 1500),
])
def test_sort_of_wide_integers(build):
    x = build(np.random.default_rng(1)).astype(np.int64)
    order = np.argsort(x, kind="stable")
    values, places = torch.tensor(x).sort()
    assert np.array_equal(places.numpy(), order) and np.array_equal(values.numpy(), x[order])


def test_sort_of_close_doubles():
    x = 1 + np.random.default_rng(0).integers(0, 2**40, 4000) * 2.0**-52
    x[::7] *= 1e300
    assert np.array_equal(torch.tensor(x).sort().values.numpy(), np.sort(x))


def test_sort_of_bfloat16_and_strided():
    x = sample("float32", (60, 50))
    half = torch.tensor(x).bfloat16()
    assert torch.equal(half.sort(0).indices, half.float().sort(0, stable=True).indices)
    turned = torch.tensor(x).t()
    assert np.array_equal(turned.sort(1).indices.numpy(), positions(x.T, 1, False))


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("k", [1, 5, 16, 17, 100, 300])
def test_topk_and_kthvalue(dtype, k):
    x = sample(dtype, (3, 300, 4))
    for largest in (True, False):
        values, places = torch.tensor(x).topk(k, 1, largest)
        order = positions(x, 1, largest)[:, :k]
        taken = np.take_along_axis(x, order, 1)
        assert np.array_equal(values.numpy(), taken, equal_nan=x.dtype.kind == "f")
        found = np.take_along_axis(x, places.numpy(), 1)
        assert np.array_equal(found, taken, equal_nan=x.dtype.kind == "f")
    value, place = torch.tensor(x).kthvalue(k, 1)
    assert np.array_equal(place.numpy(), positions(x, 1, False)[:, k - 1])
    assert value.shape == (3, 4)


def test_topk_of_rising_numbers():
    """Every element beats the best so far."""
    x = np.arange(20_000, dtype=np.float32)
    assert torch.tensor(x).topk(200).indices.tolist() == list(range(19_999, 19_799, -1))
    assert torch.tensor(x).topk(3).indices.tolist() == [19_999, 19_998, 19_997]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("n", [1, 2, 9, 400, 3001])
def test_medians_and_modes(dtype, n):
    x = np.random.default_rng(n).integers(0, 50, (7, n)).astype(dtype)
    order = np.sort(x, 1)
    assert np.array_equal(torch.tensor(x).median(1).values.numpy(), order[:, (n - 1) // 2])
    assert torch.tensor(x).median().item() == np.sort(x, None)[(x.size - 1) // 2]
    values, places = torch.tensor(x).mode(1)
    for row, value, place in zip(x, values.tolist(), places.tolist(), strict=True):
        found, counts = np.unique(row, return_counts=True)
        assert value == found[counts.argmax()]
        assert place == np.flatnonzero(row == value)[-1]


#: rows that a sample misleads, in which little differs, or that lie at the ends of their dtype
ROWS = {
    "random":   lambda r, n: r.standard_normal(n) * 1e6,
    "few":      lambda r, n: r.integers(0, 3, n),
    "same":     lambda r, n: np.full(n, 7),
    "rising":   lambda r, n: np.arange(n),
    "sampled":  lambda r, n: np.where(np.isin(np.arange(n), np.arange(64) * n // 64),
                                      -1000, r.integers(0, 10**6, n)),
    "ends":     lambda r, n: np.where(r.random(n) < 0.5, -2**31, 2**31 - 1 - r.integers(0, 9, n)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("n", [31, 127, 129, 257, 1000, 20_011])
def test_any_rank_of_any_row(dtype, rows, n):
    x = np.stack([ROWS[rows](np.random.default_rng(n + k), n) for k in range(3)]).astype(dtype)
    order = np.argsort(x, axis=1, kind="stable")
    for k in (1, 2, n // 3, (n + 1) // 2, n):
        for t, dim in ((torch.tensor(x), 1), (torch.tensor(x.T.copy()), 0)):
            value, place = t.kthvalue(k, dim)
            assert np.array_equal(place.numpy(), order[:, k - 1])
            assert np.array_equal(value.numpy(), np.sort(x, 1)[:, k - 1])
    assert torch.tensor(x).median().item() == np.sort(x, None)[(x.size - 1) // 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [5, 100, 700])
def test_medians_of_rows_with_nan(dtype, n):
    x = torch.randn(4, n).to(dtype)
    x[1, n // 2] = x[2, 0] = x[2, n - 1] = math.nan
    x[3] = math.nan
    value, place = x.median(1)
    assert place[1:].tolist() == [n // 2, 0, 0] and value.isnan().tolist() == [False] + [True] * 3
    value, place = x.nanmedian(1)
    for row in range(3):
        numbers = sorted(v for v in x[row].tolist() if v == v)
        assert value[row].item() == x[row, place[row]].item() == numbers[(len(numbers) - 1) // 2]
    assert math.isnan(value[3].item())


def test_medians_with_nan():
    x = torch.tensor([[3.0, math.nan, 1.0, math.nan], [2.0, 1.0, 5.0, 4.0]])
    assert x.median(1).indices.tolist() == [1, 1 - 1]
    assert x.nanmedian(1).values.tolist() == [1.0, 2.0]
    assert math.isnan(x.median().item()) and x.nanmedian().item() == 2.0
    assert math.isnan(torch.full((600,), math.nan).nanmedian().item())


# -- distinct values -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_unique(dtype, spread):
    x = sample(dtype, (30, 40), spread=spread)
    values, inverse, counts = torch.tensor(x).unique(return_inverse=True, return_counts=True)
    wanted = np.unique(x, return_inverse=True, return_counts=True, equal_nan=False)
    assert np.array_equal(values.numpy(), wanted[0], equal_nan=x.dtype.kind == "f")
    assert np.array_equal(counts.numpy(), wanted[2])
    again = values.numpy()[inverse.numpy()]
    assert np.array_equal(again, x, equal_nan=x.dtype.kind == "f")
    assert torch.tensor(x).unique().shape == values.shape


def test_unique_of_far_integers():
    x = np.random.default_rng(0).integers(-2**62, 2**62, 500).repeat(3)
    values, counts = torch.tensor(x).unique(return_counts=True)
    assert np.array_equal(values.numpy(), np.unique(x)) and set(counts.tolist()) == {3}


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32"])
def test_unique_consecutive(dtype):
    x = np.random.default_rng(0).integers(0, 2, 500).astype(dtype)
    starts = np.flatnonzero(np.r_[True, x[1:] != x[:-1]])
    values, inverse, counts = torch.tensor(x).unique_consecutive(True, True)
    assert np.array_equal(values.numpy(), x[starts])
    assert np.array_equal(counts.numpy(), np.diff(np.r_[starts, len(x)]))
    assert np.array_equal(values.numpy()[inverse.numpy()], x)
    assert np.array_equal(torch.tensor(x).unique_consecutive().numpy(), x[starts])
    assert len(torch.tensor([math.nan, math.nan]).unique_consecutive()) == 2


# -- masks and places ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", "int64", "complex64", "complex128"])
def test_masks(dtype):
    rng = np.random.default_rng(0)
    x, mask = (rng.standard_normal((9, 31)) * 9).astype(dtype), rng.random((9, 31)) < 0.3
    a, m = torch.tensor(x), torch.tensor(mask)
    assert np.array_equal(a[m].numpy(), x[mask])
    assert np.array_equal(a.t()[m.t()].numpy(), x.T[mask.T])
    assert np.array_equal(a[m[:, 0]].numpy(), x[mask[:, 0]])
    assert np.array_equal(a.masked_select(m).numpy(), x[mask])
    assert a[torch.zeros_like(m)].shape == (0,)
    assert np.array_equal(a.nonzero().numpy(), np.argwhere(x))


@pytest.mark.parametrize("shape", [(0,), (70,), (6, 35), (2, 3, 4, 5), (4, 0)])
def test_nonzero(shape):
    x = np.random.default_rng(0).integers(0, 2, shape)
    assert np.array_equal(torch.tensor(x).nonzero().numpy(), np.argwhere(x))
    assert torch.tensor(3).nonzero().shape == (1, 0)


def test_mask_gradient():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    (x[x > 2] * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [1, 2, 3]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "float16"])
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(dtype, right):
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, 40, (3, 17)), 1).astype(dtype)
    x = rng.integers(0, 45, (3, 29)).astype(dtype)
    side = "right" if right else "left"
    wanted = np.stack([np.searchsorted(r, v, side) for r, v in zip(rows, x, strict=True)])
    found = torch.searchsorted(torch.tensor(rows), torch.tensor(x), right=right)
    assert np.array_equal(found.numpy(), wanted)
    flat = torch.bucketize(torch.tensor(x), torch.tensor(rows[0]), right=right, out_int32=True)
    assert flat.dtype is torch.int32
    assert np.array_equal(flat.numpy(), np.searchsorted(rows[0], x, side))
    strided = torch.searchsorted(torch.tensor(rows[0])[::2], torch.tensor(x).t(), right=right)
    assert np.array_equal(strided.numpy(), np.searchsorted(rows[0][::2], x.T, side))


def test_searchsorted_puts_nan_last():
    row, x = torch.tensor([1.0, 2.0]), torch.tensor([math.nan, 1.5])
    assert torch.searchsorted(row, x).tolist() == [2, 1]


@pytest.mark.parametrize("size", [5, 300, 5000])
def test_counts(size):
    x = np.random.default_rng(0).integers(0, size, 4000)
    assert np.array_equal(torch.tensor(x).bincount().numpy(), np.bincount(x))
    assert len(torch.tensor(x).bincount(minlength=size + 9)) == size + 9
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.tensor([-1, 3]).bincount()
    y = np.random.default_rng(0).standard_normal(4000)
    assert np.array_equal(torch.tensor(y).histc(10, -2, 2).numpy(), np.histogram(y, 10, (-2, 2))[0])


# -- running results -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 8, 9, 100, 1001])
def test_running_sums_and_products(n):
    rng = np.random.default_rng(n)
    for dtype in ("float32", "float64", "int32", "int64", "bool"):
        x = (rng.standard_normal((3, n)) * 2).astype(dtype)
        wide = x.astype(np.float64) if dtype.startswith("float") else x.astype(np.int64)
        found = torch.tensor(x).cumsum(1).numpy()
        np.testing.assert_allclose(found, wide.cumsum(1), 1e-5, 1e-5)
        small = np.clip(wide, -1, 1)
        found = torch.tensor(small.astype(dtype)).cumprod(1).numpy()
        products = small.astype(dtype).astype(wide.dtype).cumprod(1)
        np.testing.assert_allclose(found, products, 1e-5, 1e-30)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8"])
@pytest.mark.parametrize("n", [1, 7, 8, 33, 500])
def test_running_extremes(dtype, n):
    x = np.random.default_rng(n).integers(-9, 9, (4, n)).astype(dtype)
    for name, best in (("cummax", np.maximum), ("cummin", np.minimum)):
        values, places = getattr(torch.tensor(x), name)(1)
        run = best.accumulate(x, 1)
        assert np.array_equal(values.numpy(), run)
        # The last place so far at which the extreme is.
        at = np.maximum.accumulate(np.where(x == run, np.arange(n), -1), 1)
        assert np.array_equal(places.numpy(), at)


def test_running_extremes_keep_nan():
    values, places = torch.tensor([2.0, math.nan, 3.0, math.nan] + [1.0] * 20).cummax(0)
    assert values.isnan().tolist() == [False] + [True] * 23
    assert places.tolist() == [0, 1, 1, 3] + [3] * 20


@pytest.mark.parametrize("dim", [0, 1])
def test_running_logs(dim):
    x = np.random.default_rng(0).standard_normal((300, 7)) * 20
    x[5, 2], x[0, 3], x[100:, 4], x[50, 5] = 900.0, -np.inf, -2000.0, np.inf
    found = torch.tensor(x).logcumsumexp(dim).numpy()
    np.testing.assert_allclose(found, np.logaddexp.accumulate(x, dim), 1e-12)
    x[9, 1] = np.nan
    assert np.isnan(torch.tensor(x).logcumsumexp(0).numpy()[9:, 1]).all()


def test_results_do_not_depend_on_threads():
    x = torch.tensor(sample("float32", (300, 700)))
    before = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append([*x.sort(1), *x.sort(0), *x.topk(9, 1), x.cumsum(1), *x.kthvalue(50, 0),
                          x.logcumsumexp(1), *x.cummax(1), *x.mode(1)])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        assert one.numpy().tobytes() == two.numpy().tobytes()
