"""Reductions, softmax and scans against numpy, and what is peculiar to each."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as torch

SHAPES = [((7,), 0), ((5, 33), 0), ((5, 33), 1), ((4, 3, 40), 1), ((4, 3, 40), (0, 2)),
          ((6, 50), None)]
NUMPY = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min,
         "any": np.any, "all": np.all, "count_nonzero": np.count_nonzero, "nansum": np.nansum}


def sample(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_agrees_with_numpy(name, shape, dim):
    a = sample(shape)
    for array in (a, np.asfortranarray(a), a[..., ::2]):
        found = getattr(torch, name)(torch.from_numpy(array), dim)
        wanted = NUMPY[name](array, axis=dim)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("correction", [0, 1, 2])
def test_variance(shape, dim, correction):
    a = sample(shape) + 1000
    found = torch.from_numpy(a).var(dim, correction=correction, keepdim=True)
    wanted = np.var(a.astype(np.float64), axis=dim, ddof=correction, keepdims=True)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4)


def test_variance_over_too_few():
    assert math.isnan(torch.tensor([1.0]).var().item())
    assert torch.tensor([1.0, 3.0]).var(unbiased=False).item() == 1.0
    assert torch.tensor([1.0, 3.0]).std(False).item() == 1.0


def test_sum_of_many_float32_is_accurate():
    a = np.random.default_rng(1).random(1 << 20, np.float32)
    assert torch.from_numpy(a).sum().item() == pytest.approx(a.sum(dtype=np.float64), rel=1e-7)


def test_dtypes_of_sums():
    ones = torch.ones(3, dtype=torch.uint8)
    assert ones.sum().dtype is torch.int64
    assert ones.sum(dtype=torch.float32).dtype is torch.float32
    assert torch.tensor([True, True]).sum().item() == 2
    assert torch.any(ones).dtype is torch.uint8
    with pytest.raises(RuntimeError, match="mean"):
        ones.mean()


def test_reducing_nothing():
    none = torch.ones(2, 0)
    assert none.sum(1).tolist() == [0.0, 0.0]
    assert none.prod(1).tolist() == [1.0, 1.0]
    assert all(math.isnan(v) for v in none.mean(1).tolist())
    assert none.amax(0).shape == (0,)
    with pytest.raises(IndexError, match="non-zero size"):
        none.amax(1)
    with pytest.raises(RuntimeError, match="numel"):
        none.max()


@pytest.mark.parametrize("n", [1, 7, 64, 300])
def test_first_of_equals_wins(n):
    a = np.random.default_rng(n).integers(0, 3, (4, n))
    x = torch.from_numpy(a)
    assert x.argmax(1).tolist() == a.argmax(1).tolist()
    assert x.argmin(0).tolist() == a.argmin(0).tolist()
    assert x.t().argmax().item() == a.T.argmax()
    values, indices = x.max(dim=1)
    assert values.tolist() == a.max(1).tolist()
    assert indices.tolist() == a.argmax(1).tolist()


def test_nan_wins():
    x = torch.tensor([1.0, math.nan, 3.0, math.nan])
    assert math.isnan(x.max().item()) and math.isnan(x.amin().item())
    assert x.argmax().item() == x.argmin().item() == 1
    assert torch.tensor([-math.inf, -math.inf]).argmax().item() == 0


def test_named_results():
    found = torch.tensor([[1.0, 2.0]]).max(1)
    assert type(found) is torch.return_types.max
    assert found.values is found[0] and found.indices is found[1]
    assert repr(found) == ("torch.return_types.max(\nvalues=tensor([2.]),\nindices=tensor([1]))")
    with pytest.raises(TypeError, match="2-sequence"):
        torch.return_types.max((1,))


def test_gradient_of_ties():
    x = torch.tensor([2.0, 2.0, 1.0], requires_grad=True)
    x.amax().backward()
    assert x.grad.tolist() == [0.5, 0.5, 0.0]
    x.grad = None
    x.max(0).values.backward()
    assert x.grad.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_a_product_with_zeros(zeros):
    a = [3.0, 2.0, 5.0, 4.0]
    a[1:1 + zeros] = [0.0] * zeros
    x = torch.tensor(a, requires_grad=True)
    x.prod().backward()
    wanted = [math.prod(a[:k] + a[k + 1:]) for k in range(4)]
    assert x.grad.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("p", [0, 1, 2, 3, 2.5, math.inf, -math.inf])
def test_norms(p):
    a = sample((6, 40))
    found = torch.from_numpy(a).norm(p, dim=1)
    np.testing.assert_allclose(found.numpy(), np.linalg.norm(a, p, axis=1), rtol=1e-5)


def test_norm_at_the_origin_has_no_gradient():
    x = torch.zeros(3, requires_grad=True)
    x.norm().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


# -- softmax -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_large_numbers(dim):
    a = sample((9, 17)) * 300
    shifted = np.exp(a.astype(np.float64) - a.max(dim, keepdims=True))
    wanted = shifted / shifted.sum(dim, keepdims=True)
    x = torch.from_numpy(a)
    np.testing.assert_allclose(x.softmax(dim).numpy(), wanted, rtol=1e-4, atol=1e-30)
    logs = (a - a.max(dim, keepdims=True)) - np.log(shifted.sum(dim, keepdims=True))
    np.testing.assert_allclose(x.log_softmax(dim).numpy(), logs, rtol=1e-5, atol=1e-5)
    sums = np.log(shifted.sum(dim)) + a.max(dim)
    np.testing.assert_allclose(x.logsumexp(dim).numpy(), sums, rtol=1e-6)


def test_logsumexp_of_infinities():
    inf = math.inf
    x = torch.tensor([[-inf, -inf], [inf, 1.0], [0.0, -inf]])
    assert x.logsumexp(1).tolist() == [-inf, inf, 0.0]


# -- scans -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_scans(dim):
    a = sample((5, 6, 17))
    for array in (a, a[:, ::2]):
        x = torch.from_numpy(array)
        np.testing.assert_allclose(x.cumsum(dim).numpy(), array.cumsum(dim), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(x.cumprod(dim).numpy(), array.cumprod(dim), rtol=1e-4)
        values, indices = x.cummax(dim)
        wanted = np.maximum.accumulate(array, dim)
        assert (values.numpy() == wanted).all()
        assert (np.take_along_axis(array, indices.numpy(), dim) == wanted).all()


def test_running_extremes_keep_the_last_of_equals_and_nan():
    nan = math.nan
    values, indices = torch.tensor([1.0, 1.0, 0.0, nan, 5.0]).cummax(0)
    assert indices.tolist() == [0, 1, 1, 3, 3]
    assert math.isnan(values[-1].item())
    assert torch.tensor([2, 2, 3]).cummin(0).indices.tolist() == [0, 1, 1]


def test_running_sum_in_place():
    x = torch.tensor([1, 2, 3])
    assert x.cumsum_(0) is x
    assert x.tolist() == [1, 3, 6]
    with pytest.raises(TypeError):
        x.cumsum()


def test_gradient_of_running_product_with_zero():
    x = torch.tensor([2.0, 0.0, 3.0], requires_grad=True)
    x.cumprod(0).backward(torch.tensor([1.0, 1.0, 1.0]))
    assert x.grad.tolist() == [1.0, 8.0, 0.0]


# -- short rows and narrow columns ---------------------------------------------------------------


def softmax_of(a):
    raised = np.exp(a - a.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


BY_ROW = {
    "sum":         (lambda x: x.sum(1), lambda a: a.sum(1)),
    "amax":        (lambda x: x.amax(1), lambda a: a.max(1)),
    "argmax":      (lambda x: x.argmax(1), lambda a: a.argmax(1)),
    "var":         (lambda x: x.var(1, correction=0), lambda a: a.var(1)),
    "logsumexp":   (lambda x: x.logsumexp(1), lambda a: np.log(np.exp(a).sum(1))),
    "softmax":     (lambda x: x.softmax(1), softmax_of),
    "log_softmax": (lambda x: x.log_softmax(1), lambda a: np.log(softmax_of(a))),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_ROW)
def test_rows_too_short_for_a_vector(name):
    """Many at a time; where a row lies among the others does not matter."""
    ours, wanted = BY_ROW[name]
    for rows, columns in ((67, 10), (32, 1), (100, 31), (45, 32), (33, 7)):
        a = sample((rows, columns), rows)
        x = torch.from_numpy(a)
        found = ours(x).numpy()
        np.testing.assert_allclose(found, wanted(a.astype(np.float64)), rtol=2e-5, atol=2e-6)
        later = ours(torch.cat([x[-1:], x])).numpy()
        assert later[1:].tobytes() == found.tobytes()


@pytest.mark.parametrize("columns", [1, 3, 7, 8, 9, 15, 17, 63, 64, 65, 100, 131])
@pytest.mark.parametrize("rows", [1, 2, 5, 130, 20_000])
def test_sums_of_columns_that_do_not_fill_vectors(rows, columns):
    a = np.random.default_rng(columns).integers(-9, 9, (rows, columns)).astype(np.float32)
    x = torch.from_numpy(a)
    assert (x.sum(0).numpy() == a.sum(0)).all() and (x.amax(0).numpy() == a.max(0)).all()
    assert (x.argmin(0).numpy() == a.argmin(0)).all()


@pytest.mark.parametrize("n", [*range(1, 20), 31, 33, 63, 64, 65, 71, 95, 97, 130, 16_391])
def test_rows_of_any_length(n):
    a = np.random.default_rng(n).integers(-9, 9, (3, n)).astype(np.float32)
    x = torch.from_numpy(a)
    assert (x.sum(1).numpy() == a.sum(1)).all() and (x.amin(1).numpy() == a.min(1)).all()
    assert (x.argmax(1).numpy() == a.argmax(1)).all() and x.sum().item() == a.sum()


@pytest.mark.parametrize("count", [16384, 100_003, 1 << 20])
def test_long_sums_round_once(count):
    """Many float32 are summed as if in float64; asked for float64, not one is rounded before."""
    for array in (np.full(count, 0.1, np.float32), sample((count,)) + 1):
        x, wanted = torch.from_numpy(array), array.astype(np.float64).sum()
        assert abs(x.sum().item() - wanted) <= 1.5 * np.spacing(np.float32(wanted))
        assert abs(x.mean().item() * count - wanted) <= 2e-7 * wanted
    big = np.tile(np.array([2.0**30, 1.0, -(2.0**30), 1.0], np.float32), count // 4)
    assert torch.from_numpy(big).sum(dtype=torch.float64).item() == count // 4 * 2


def test_softmax_meets_what_is_not_finite():
    inf, nan = math.inf, math.nan
    rows = torch.tensor([[0.0, -inf, 1.0], [nan, 1.0, 2.0], [-inf, -inf, -inf], [inf, 0.0, 1.0],
                         [0.0, -86.0, -200.0]])
    found = torch.softmax(rows, 1)
    np.testing.assert_allclose(found[0].numpy(), [0.26894143, 0, 0.7310586], rtol=1e-6)
    assert found[0, 1] == 0 and torch.isnan(found[1:4]).any(1).all() and found[4, 2] == 0
    assert torch.isnan(torch.log_softmax(rows, 1)[1]).all()
    loss = torch.nn.functional.cross_entropy(torch.tensor([[1e30, -1e30, 1e30]]),
                                             torch.tensor([0]))
    assert loss.item() == pytest.approx(math.log(2))
