"""Values put in the place of others: what a first call plans has to give the same as the usual way,
against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as torch

DTYPES = ["float16", "float32", "float64", "int64", "int32", "uint8", "bool", "complex64",
          "complex128"]
#: the first call plans, later ones follow
TURNS = 3


def sample(shape, dtype="float32", seed=0):
    drawn = np.random.default_rng(seed).standard_normal(shape) * 20
    return np.array(drawn > 0 if dtype == "bool" else abs(drawn) if dtype == "uint8" else drawn,
                    dtype)


def again(function, *args):
    """The results of the call that plans and of those that follow are the same; one of them."""
    results = [function(*args) for _ in range(TURNS)]
    for r in results[1:]:
        assert r.dtype is results[0].dtype and r.stride() == results[0].stride()
        assert r.tolist() == results[0].tolist()
    assert len({r.data_ptr() for r in results}) == TURNS
    return results[-1]


# -- diagonals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1, -1, 3, -4])
@pytest.mark.parametrize("step", [1, 2])
def test_diag(dtype, offset, step):
    a = sample(10, dtype)[::step]
    found = again(torch.diag, torch.from_numpy(sample(10, dtype))[::step], offset)
    assert found.is_contiguous() and np.array_equal(found.numpy(), np.diag(a, offset))


def test_diag_gradient():
    x, w = torch.randn(4, requires_grad=True), torch.randn(6, 6)
    for _ in range(TURNS):
        x.grad = None
        out = torch.diag(x, -2)
        (out * w).sum().backward()
        assert out.grad_fn.name() == "DiagEmbedBackward0"
        assert torch.equal(x.grad, w.diagonal(-2))
    with torch.no_grad():
        assert torch.diag(x).grad_fn is None


def test_diag_elsewhere():
    for _ in range(TURNS):
        assert torch.diag(torch.empty(3, device="meta")).shape == (3, 3)
        assert torch.diag(torch.zeros(0)).shape == (0, 0)
        assert torch.diag(torch.arange(3), diagonal=1).tolist()[1] == [0, 0, 1, 0]
        assert torch.diag(torch.arange(4).view(2, 2)).tolist() == [0, 3]
        out = torch.empty(2, 2)
        assert torch.diag(torch.ones(2), out=out) is out and out.tolist() == [[1, 0], [0, 1]]
        with pytest.raises(RuntimeError, match="1D or 2D"):
            torch.diag(torch.ones(1, 1, 1))


# -- masks and indices -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (33,), (5, 7), (2, 3, 4)])
def test_masked_scatter(dtype, shape):
    x, y, mask = sample(shape, dtype), sample(shape, dtype, 1), sample(shape, "bool", 2)
    wanted = x.copy()
    wanted[mask] = y.ravel()[:mask.sum()]
    exact = y.ravel()[:max(mask.sum(), 1)]  # a source that ends with the last one wanted
    given = torch.from_numpy(x)
    for source in (y, exact):
        found = again(torch.masked_scatter, given, torch.from_numpy(mask), torch.tensor(source))
        assert np.array_equal(found.numpy(), wanted)
    assert np.array_equal(given.numpy(), x)


def test_masked_scatter_of_other_layouts_and_errors():
    x, y = torch.from_numpy(sample((6, 6))), torch.from_numpy(sample(36, seed=1))
    mask = torch.from_numpy(sample((6, 6), "bool", 2))
    wanted = x.T.clone()
    wanted[mask] = y[:mask.sum()]
    assert torch.equal(again(torch.masked_scatter, x.T, mask, y), wanted)
    row = torch.zeros(6, 6)
    row[:, 1] = y[:6]
    assert torch.equal(again(torch.masked_scatter, torch.zeros(6, 6), torch.arange(6) == 1, y), row)
    every, none = torch.ones(4, dtype=torch.bool), torch.zeros(4, dtype=torch.bool)
    for _ in range(TURNS):  # values decide: first what fits, then what does not
        assert torch.zeros(4).masked_scatter(none, torch.ones(2)).tolist() == [0] * 4
        with pytest.raises(RuntimeError, match="at least the number of ones"):
            torch.zeros(4).masked_scatter(every, torch.ones(2))
        with pytest.raises(RuntimeError, match="same dtypes"):
            torch.zeros(4).masked_scatter(every, torch.ones(4).double())


def test_masked_scatter_gradients():
    mask = torch.tensor([True, False, True, False])
    for _ in range(TURNS):
        x, y = torch.zeros(4), torch.arange(3.0)
        x.masked_scatter(mask, y)
        x.requires_grad_()
        y.requires_grad_()
        x.masked_scatter(mask, y).mul(torch.tensor([1.0, 2, 3, 4])).sum().backward()
        assert x.grad.tolist() == [0, 2, 0, 4] and y.grad.tolist() == [1, 3, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("value", [1.0, 2, True, 0])
def test_index_fill(dtype, dim, value):
    a, index = sample((4, 5), dtype), [3, 0, 3]
    wanted = a.copy()
    wanted[tuple([index if d == dim % 2 else slice(None) for d in range(2)])] = value
    given = torch.from_numpy(a)
    found = again(torch.index_fill, given, dim, torch.tensor(index), value)
    assert np.array_equal(found.numpy(), wanted)
    turned = again(torch.index_fill, torch.from_numpy(a.T.copy()).T, dim, torch.tensor(index),
                   value)
    assert np.array_equal(turned.numpy(), wanted)
    assert np.array_equal(given.numpy(), a)


def test_index_fill_looks_at_every_index_and_value():
    x = torch.zeros(4, requires_grad=True)
    for _ in range(TURNS):
        for k, value in ((1, 2.0), (-1, 3.0), (0, -1.5)):
            found = torch.zeros(4).index_fill(0, torch.tensor([k]), value)
            assert found.tolist() == [value if i == k % 4 else 0 for i in range(4)]
        with pytest.raises(IndexError, match="out of bounds"):
            torch.zeros(4).index_fill(0, torch.tensor([4]), 1.0)
        with pytest.raises(IndexError, match="int64"):
            torch.zeros(4).index_fill(0, torch.tensor([1], dtype=torch.int32), 1.0)
        x.grad = None
        x.index_fill(0, torch.tensor([1]), 1.0).sum().backward()
        assert x.grad.tolist() == [1, 0, 1, 1]


# -- numbers that are none -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int32"])
def test_nan_to_num(dtype):
    a = sample((3, 4), dtype)
    if dtype != "int32":
        a[0] = [np.nan, np.inf, -np.inf, 0]
    x = torch.from_numpy(a)
    for given, wanted in ((x, a), (x.T, a.T)):
        found = again(torch.nan_to_num, given)
        assert np.array_equal(found.numpy(), np.nan_to_num(wanted))
        told = [torch.nan_to_num(given, 1.0, 2.0, -3.0) for _ in range(TURNS)]
        assert np.array_equal(told[-1].numpy(), np.nan_to_num(wanted, True, 1.0, 2.0, -3.0))


def test_nan_to_num_gradient():
    for _ in range(TURNS):
        x = torch.tensor([float("nan"), 1.0, float("inf")], requires_grad=True)
        torch.nan_to_num(x).sum().backward()
        assert x.grad.tolist() == [0, 1, 0]
        with torch.no_grad():
            assert torch.nan_to_num(x).grad_fn is None


# -- compiled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["diag", "masked_scatter", "index_fill", "nan_to_num"])
def test_compiled_calls_see_new_values(name):
    calls = {
        "diag":           lambda x, k: torch.diag(x[0] * 2, 1) + 1,
        "masked_scatter": lambda x, k: (x * 2).masked_scatter(x > 0, x.flip(0) + 1),
        "index_fill":     lambda x, k: (x * 2).index_fill(1, k, 3.0) + 1,
        "nan_to_num":     lambda x, k: torch.nan_to_num(x / (x > 0)) + 1,
    }
    call = calls[name]
    compiled = torch.compile(call)
    for seed in range(5):
        x = torch.from_numpy(sample((4, 6), seed=seed))
        k = torch.from_numpy(np.random.default_rng(seed).integers(0, 6, 3))
        for _ in range(2):
            assert torch.equal(compiled(x, k), call(x, k))


def test_profilers_see_calls_by_their_names():
    x, k = torch.rand(3, 4), torch.tensor([1])
    calls = {
        "diag":                lambda: torch.diag(x[0]),
        "masked_scatter":      lambda: x.masked_scatter(x > 2, x),
        "index_fill":          lambda: x.index_fill(0, k, 1.0),
        "nan_to_num":          lambda: torch.nan_to_num(x),
        "isin":                lambda: torch.isin(k, k),
        "adaptive_max_pool1d": lambda: torch.nn.functional.adaptive_max_pool1d(x, 2),
        "adaptive_max_pool2d": lambda: torch.nn.functional.adaptive_max_pool2d(x[None], 2),
        "cholesky":            lambda: torch.linalg.cholesky(torch.eye(3)),
    }
    for name, call in calls.items():
        call()
        with torch.profiler.profile() as seen:
            call()
        assert f"aten::{name}" in [event.key for event in seen.key_averages()], name


def test_values_are_put_again_where_indices_say():
    i = torch.tensor([2, 0, -1])
    for k in range(3):
        x = torch.zeros(4, 3)
        x[i] = torch.full((3, 3), 1.0 + k)
        x[i, i] = torch.tensor([5.0, 6.0, 7.0])
        x.index_put_((i,), torch.ones(3, 3), accumulate=True)
        x[torch.tensor([1])] = 9.0 + k
        assert x.tolist() == [[7 + 0.0, 2 + k, 2 + k], [9 + k] * 3, [2 + k, 2 + k, 6.0],
                              [2 + k, 2 + k, 8.0]]
        assert x._version == 4
        with pytest.raises(IndexError):
            x[torch.tensor([2, 0, 4])] = torch.zeros(3, 3)
    leaf = torch.ones(4, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf[i] = torch.zeros(3, 3)
    y = leaf * 2
    y[i] = torch.zeros(3, 3)
    y.sum().backward()
    assert leaf.grad.tolist() == [[0.0] * 3, [2.0] * 3, [0.0] * 3, [0.0] * 3]
    whole = torch.arange(4)
    whole[whole[:2]] = whole[2:]
    assert whole.tolist() == [2, 3, 2, 3]


# -- copies that are written to where an index says ------------------------------------------------


def _by_numpy(name, x, index, source):
    out = x.copy()
    if name in ("scatter_add", "index_add"):
        np.add.at(out, index, source)
    else:
        out[index] = source
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64"])
@pytest.mark.parametrize("name", ["scatter", "scatter_add", "index_add", "index_copy"])
def test_copies_written_by_an_index(name, dtype):
    x, source, index = sample(9, dtype), sample(6, dtype, 1), np.array([0, 8, 3, 5, 2, 7])
    index = np.array([0, 8, 3, 3, 2, 0]) if name.endswith("add") else index
    given = torch.from_numpy(x.copy())
    found = again(getattr(torch, name), given, 0, torch.from_numpy(index),
                  torch.from_numpy(source))
    np.testing.assert_allclose(found.numpy(), _by_numpy(name, x, index, source), rtol=1e-6)
    assert np.array_equal(given.numpy(), x)


@pytest.mark.parametrize("name", ["scatter", "scatter_add", "index_add", "index_copy"])
def test_copies_written_by_an_index_go_back(name):
    index = torch.tensor([0, 2, 3])
    for _ in range(TURNS):
        x = torch.randn(5, dtype=torch.float64, requires_grad=True)
        source = torch.randn(3, dtype=torch.float64, requires_grad=True)
        out = getattr(torch, name)(x, 0, index, source)
        expected = "".join(w.capitalize() for w in name.split("_")) + "Backward0"
        assert out.grad_fn.name() == expected
        assert torch.autograd.gradcheck(lambda x, s: getattr(torch, name)(x, 0, index, s),
                                        (x, source))


def test_copies_of_turned_tensors_and_bad_indices():
    x, index = torch.rand(4, 3).t(), torch.tensor([[0, 1, 2, 0]])
    source = torch.ones(1, 4)
    wanted = x.contiguous().scatter(0, index, source)
    assert torch.equal(again(torch.scatter, x, 0, index, source), wanted)
    assert torch.equal(again(torch.index_fill, x, 1, index[0], 2.0),
                       x.contiguous().index_fill(1, index[0], 2.0))
    for _ in range(TURNS):
        with pytest.raises(RuntimeError):
            torch.scatter_add(torch.ones(3), 0, torch.tensor([3]), torch.ones(1))
    with pytest.raises(RuntimeError):
        good = torch.zeros(3).scatter_add(0, torch.tensor([2]), torch.ones(1))
        assert good.tolist() == [0, 0, 1]
        torch.zeros(3).scatter_add(0, torch.tensor([-1]), torch.ones(1))


@pytest.mark.parametrize("accumulate", [False, True])
def test_elements_put_by_their_numbers(accumulate):
    x, index = sample((3, 4)), np.array([[0, -1], [5, 5]])
    source = np.full((2, 2), 2.0, np.float32)
    want = x.copy()
    if accumulate:
        np.add.at(want.reshape(-1), index, source)
    else:
        want.reshape(-1)[index] = source
    arguments = torch.from_numpy(index), torch.from_numpy(source), accumulate
    found = again(torch.from_numpy(x.copy()).put, *arguments)
    np.testing.assert_allclose(found.numpy(), want)
    for _ in range(TURNS):
        changed = torch.from_numpy(x.copy())
        version = changed._version
        assert changed.put_(*arguments[:2], accumulate=accumulate) is changed
        assert changed._version > version
        np.testing.assert_allclose(changed.numpy(), want)
        with pytest.raises(IndexError):
            changed.put_(torch.tensor([[12, 0], [0, 0]]), arguments[1])
        with pytest.raises(RuntimeError):
            torch.zeros(3, 4, requires_grad=True).put_(*arguments)


# -- lists of places, elements by number, and tensors side by side ---------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0), (1, 1), (4, 4), (3, 7), (7, 3)])
@pytest.mark.parametrize("offset", [-9, -3, -1, 0, 1, 2, 9])
def test_places_of_triangles(rows, columns, offset):
    for name, mask in (("tril", np.tril), ("triu", np.triu)):
        want = np.stack(np.nonzero(mask(np.ones((rows, columns)), offset)))
        found = getattr(torch, f"{name}_indices")(rows, columns, offset)
        assert found.dtype is torch.int64 and np.array_equal(found.numpy(), want)
    assert torch.triu_indices(2, 2, dtype=torch.int32).dtype is torch.int32


def test_elements_taken_by_their_numbers():
    x, index = sample((3, 4)), np.array([[0, -1, 5], [11, -12, 5]])
    given = torch.from_numpy(x), torch.from_numpy(index)
    assert np.array_equal(again(torch.take, *given).numpy(), np.take(x, index, mode="wrap"))
    for _ in range(TURNS):
        with pytest.raises(IndexError):
            torch.take(given[0], torch.tensor([[0, 0, 0], [0, 0, 12]]))
        leaf = given[0].clone().requires_grad_()
        out = torch.take(leaf, given[1])
        out.sum().backward()
        assert out.grad_fn.name() == "TakeBackward0" and leaf.grad[1, 1] == 2
    turned = given[0].t()
    assert np.array_equal(again(torch.take, turned, given[1]).numpy(),
                          np.take(x.T, index, mode="wrap"))


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 1, 2, 2)])
def test_tensors_side_by_side(name, shape):
    parts = [sample(shape, seed=k) for k in range(3)]
    want = getattr(np, name)(parts)
    found = again(getattr(torch, name), [torch.from_numpy(p) for p in parts])
    assert np.array_equal(found.numpy(), want)
    leaves = [torch.from_numpy(p).requires_grad_() for p in parts]
    out = getattr(torch, name)(leaves)
    assert out.grad_fn.name() == "CatBackward0"
    out.sum().backward()
    assert all(torch.equal(leaf.grad, torch.ones(shape)) for leaf in leaves)


def test_tensors_that_do_not_fit_side_by_side():
    for name in ("hstack", "vstack", "dstack", "column_stack"):
        for parts in ((torch.ones(2, 3, 4), torch.ones(3, 2, 5)),
                      (torch.ones(2), torch.ones(2, 3))):
            if name == "hstack" or parts[0].dim() == 3:
                with pytest.raises(RuntimeError):
                    getattr(torch, name)(parts)
    assert torch.vstack((torch.ones(3), torch.zeros(2, 3))).shape == (3, 3)
    assert torch.hstack((torch.ones(3), torch.zeros(2, dtype=torch.int64))).dtype is torch.float32


def test_chains_of_products():
    for sizes in ((2, 3, 4), (5, 2, 7, 3), (4, 9, 1, 6, 2, 5)):
        chain = [sample(pair, "float64", k) for k, pair in enumerate(itertools.pairwise(sizes))]
        found = torch.linalg.multi_dot([torch.from_numpy(m) for m in chain])
        np.testing.assert_allclose(found.numpy(), np.linalg.multi_dot(chain), rtol=1e-12)
        found = torch.chain_matmul(*[torch.from_numpy(m) for m in chain])
        np.testing.assert_allclose(found.numpy(), np.linalg.multi_dot(chain), rtol=1e-12)
    ends = [torch.ones(3), torch.ones(3, 2), torch.ones(2)]
    assert torch.linalg.multi_dot(ends).shape == () and torch.linalg.multi_dot(ends) == 6
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.linalg.multi_dot([torch.ones(2, 3), torch.ones(2, 3)])
