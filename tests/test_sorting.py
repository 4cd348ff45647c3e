"""Sorting, selection, distinct values, histograms and quantiles against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as torch


def sample(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable(dim, descending):
    a = np.random.default_rng(3).integers(0, 4, (9, 30))
    values, indices = torch.from_numpy(a).sort(dim, descending)
    order = np.argsort(-a if descending else a, axis=dim, kind="stable")
    assert (indices.numpy() == order).all()
    assert (values.numpy() == np.take_along_axis(a, order, dim)).all()


def test_nan_sorts_last():
    x = torch.tensor([math.nan, 1.0, -math.inf])
    assert x.argsort().tolist() == [2, 1, 0]
    assert x.argsort(descending=True).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("k", "size"), [(1, 5), (3, 100), (50, 100), (0, 4)])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(k, size, largest):
    a = sample((6, size))
    values, indices = torch.from_numpy(a).topk(k, largest=largest)
    wanted = np.sort(a, 1)[:, ::-1][:, :k] if largest else np.sort(a, 1)[:, :k]
    assert (values.numpy() == wanted).all()
    assert (np.take_along_axis(a, indices.numpy(), 1) == wanted).all()


def test_topk_out_of_range():
    with pytest.raises(RuntimeError, match="k out of range"):
        torch.ones(3).topk(4)


def test_sort_gradient_returns_home():
    x = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    (x.sort().values * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [100.0, 1.0, 10.0]


def test_medians():
    nan = math.nan
    x = torch.tensor([[4.0, 1.0, 3.0, 2.0], [nan, 1.0, 5.0, 2.0]])
    values, indices = x.median(1)
    assert values[0].item() == 2.0 and math.isnan(values[1].item())
    assert indices.tolist() == [3, 0]
    assert x.nanmedian(1).values.tolist() == [2.0, 2.0]
    assert x.nanmedian().item() == 2.0


def test_mode_and_kthvalue():
    x = torch.tensor([2, 1, 2, 1, 0])
    assert x.mode().values.item() == 1
    assert x[x.mode().indices.item()].item() == 1
    assert x.kthvalue(4).values.item() == 2
    with pytest.raises(RuntimeError, match="k out of range"):
        x.kthvalue(6)


def test_unique():
    x = torch.tensor([[3, 1], [1, 3]])
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 3] and inverse.tolist() == [[1, 0], [0, 1]]
    assert counts.tolist() == [2, 2]
    rows = torch.tensor([[1, 2], [0, 5], [1, 2]]).unique(dim=0)
    assert rows.tolist() == [[0, 5], [1, 2]]
    runs = torch.tensor([1, 1, 2, 2, 1]).unique_consecutive(return_counts=True)
    assert [r.tolist() for r in runs] == [[1, 2, 1], [2, 2, 1]]


def test_places():
    edges = torch.tensor([1.0, 3.0, 5.0])
    assert torch.bucketize(torch.tensor([0.0, 1.0, 4.0]), edges).tolist() == [0, 0, 2]
    assert torch.bucketize(torch.tensor([1.0]), edges, right=True).tolist() == [1]
    rows = torch.tensor([[1, 3], [2, 4]])
    assert torch.searchsorted(rows, torch.tensor([[2, 9], [2, 3]])).tolist() == [[1, 2], [0, 1]]
    assert torch.isin(torch.tensor([1, 2, 3]), torch.tensor([3, 1])).tolist() == [True, False, True]


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(interpolation):
    a = sample((8, 11)).astype(np.float64)
    q = [0.0, 0.13, 0.5, 1.0]
    found = torch.from_numpy(a).quantile(torch.tensor(q, dtype=torch.float64), 1,
                                         interpolation=interpolation)
    np.testing.assert_allclose(found.numpy(), np.quantile(a, q, axis=1, method=interpolation))


def test_histograms():
    a = sample((500,))
    hist, edges = torch.histogram(torch.from_numpy(a), 7, range=(-2.0, 2.0))
    wanted, borders = np.histogram(a, 7, (-2, 2))
    assert hist.tolist() == wanted.tolist()
    np.testing.assert_allclose(edges.numpy(), borders, rtol=1e-6)
    assert torch.histc(torch.tensor([0.0, 1.0, 1.0, 4.0]), 4, 0, 4).tolist() == [1, 2, 0, 1]
    assert torch.bincount(torch.tensor([1, 1, 3]), minlength=6).tolist() == [0, 2, 0, 1, 0, 0]


def test_covariance():
    a = sample((4, 30)).astype(np.float64)
    x = torch.from_numpy(a)
    np.testing.assert_allclose(torch.cov(x).numpy(), np.cov(a))
    np.testing.assert_allclose(torch.corrcoef(x).numpy(), np.corrcoef(a))


def test_equality():
    x = torch.tensor([1.0, 2.0])
    assert torch.equal(x, x.clone()) is True
    assert torch.equal(x, torch.tensor([1.0])) is False
    assert torch.allclose(x, x + 1e-9) is True
    assert x.allclose(x + 1) is False


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_selection_along_any_dimension(dim):
    a = np.random.default_rng(5).integers(0, 5, (3, 60, 4)).astype(np.float32)
    x = torch.from_numpy(a)
    order = np.sort(a, axis=dim)
    size = a.shape[dim]
    assert (x.sort(dim).values.numpy() == order).all()
    assert (x.median(dim).values.numpy() == order.take((size - 1) // 2, dim)).all()
    assert (x.kthvalue(2, dim).values.numpy() == order.take(1, dim)).all()
    top = x.topk(2, dim).values.numpy()
    assert (top == np.flip(order, dim).take([0, 1], dim)).all()
    counted = np.apply_along_axis(lambda row: np.bincount(row.astype(int)).argmax(), dim, a)
    assert (x.mode(dim).values.numpy() == counted).all()


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "int8", "uint8", "bool"])
def test_long_rows_of_every_dtype(dtype):
    a = (np.random.default_rng(7).standard_normal(3000) * 50).astype(dtype)
    values, indices = torch.from_numpy(a).sort()
    assert (indices.numpy() == np.argsort(a, kind="stable")).all()
    assert values.dtype is getattr(torch, dtype) and (values.numpy() == np.sort(a)).all()


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 500, 2000])
def test_membership_of_few_and_many(dtype, count):
    rng = np.random.default_rng(count)
    x, y = rng.integers(0, 90, (count, 2)).astype(dtype), rng.integers(0, 90, 20).astype(dtype)
    if dtype.startswith("f"):
        x[0, 0] = y[0] = y[1] = np.nan
    for invert in (False, True):
        found = torch.isin(torch.tensor(x), torch.tensor(y), invert=invert)
        assert np.array_equal(found.numpy(), np.isin(x, y, invert=invert))
    assert not torch.isin(torch.tensor(x), torch.tensor(y[:0])).any()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i2", "u1", "?"])
def test_distinct_slices_are_those_of_numpy(dtype):
    rng = np.random.default_rng(4)
    for shape in ((40, 2), (6, 5, 3), (9,), (3, 0)):
        x = rng.integers(0 if dtype in "u1?" else -2, 2, shape).astype(dtype)
        if dtype[0] == "f":
            x = np.where(x == 0, -x, x)  # zeros of both signs are one value
        for dim in range(x.ndim):
            if not x.size and x.shape[dim]:
                continue
            given = torch.from_numpy(x)
            found = torch.unique(given, dim=dim, return_inverse=True, return_counts=True)
            wanted = np.unique(x, axis=dim, return_inverse=True, return_counts=True)
            for a, b in zip(found, wanted, strict=True):
                assert np.array_equal(a.numpy().reshape(b.shape), b)


def test_slices_with_nan_are_all_distinct():
    x = torch.tensor([[1.0, float("nan")], [0.0, 2.0], [1.0, float("nan")], [0.0, 2.0]])
    assert torch.unique(x, dim=0).shape == (3, 2)
