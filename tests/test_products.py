"""Matrix products against numpy: ranks, layouts, dtypes, gradients, errors."""

from __future__ import annotations

import itertools
import math
import threading

import numpy as np
import pytest

import flambeau as torch

RANKS = [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)),
         ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((6, 3, 4), (4,)), ((4,), (6, 4, 5)),
         ((1, 4), (4, 5)), ((3, 4), (4, 1)), ((0, 4), (4, 3)), ((3, 0), (0, 3)),
         ((2, 0, 4), (4, 5))]
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1}


def array(shape, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape) * 2
    if dtype.startswith("complex"):
        found = found + 1j * rng.standard_normal(shape)
    return found.astype("float32" if dtype == "bfloat16" else dtype)


def layouts(a: np.ndarray):
    """The same elements, laid out in memory in ways BLAS can and cannot read."""
    yield torch.tensor(a)
    if a.ndim > 1:
        yield torch.tensor(np.ascontiguousarray(a.swapaxes(-1, -2))).transpose(-1, -2)
    spread = np.zeros((*a.shape[:-1], a.shape[-1] * 2), a.dtype)
    spread[..., ::2] = a
    yield torch.tensor(spread)[..., ::2]
    yield torch.tensor(np.concatenate([a, a], -1))[..., :a.shape[-1]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int64",
                                   "uint8", "float16", "bfloat16"])
@pytest.mark.parametrize(("left", "right"), RANKS)
def test_matmul_agrees_with_numpy(left, right, dtype):
    a, b = array(left, dtype), array(right, dtype, 1)
    x, w = (torch.tensor(t).to(getattr(torch, dtype)) for t in (a, b))
    found = x @ w
    assert found.dtype is getattr(torch, dtype)
    wanted = np.matmul(a.astype(np.float32), b.astype(np.float32)) if dtype == "float16" else a @ b
    tolerance = TOLERANCE.get(dtype, 1e-4)
    numbers = found.float().numpy() if dtype in TOLERANCE else found.numpy()
    np.testing.assert_allclose(numbers, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("left", "right"), RANKS)
def test_layouts(left, right):
    a, b = array(left), array(right, seed=1)
    for x, w in itertools.product(layouts(a), layouts(b)):
        for _ in range(2):  # the second call runs the plan the first one made
            np.testing.assert_allclose((x @ w).numpy(), a @ b, rtol=1e-12, atol=1e-12)


def differences(function, arrays, i, cotangent, step=1e-6):
    """The gradient with respect to arrays[i], by central differences."""
    found = np.zeros_like(arrays[i])
    for index in np.ndindex(*arrays[i].shape):
        sides = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[i][index] += sign * step
            sides.append((function(*moved) * cotangent).sum())
        found[index] = (sides[0] - sides[1]) / (2 * step)
    return found


@pytest.mark.parametrize(("left", "right"), [pair for pair in RANKS if 0 not in pair[0]])
def test_gradients(left, right):
    a, b = array(left), array(right, seed=1)
    x, w = (torch.tensor(t, requires_grad=True) for t in (a, b))
    out = x @ w
    g = array(out.shape, seed=2)
    out.backward(torch.tensor(g))
    for i, t in enumerate((x, w)):
        np.testing.assert_allclose(t.grad.numpy(), differences(np.matmul, [a, b], i, g), atol=1e-6)


@pytest.mark.parametrize("lead", [(), (5,), (2, 5), (0,)])
@pytest.mark.parametrize("biased", [True, False])
def test_linear(lead, biased):
    a, b, c = array((*lead, 4)), array((3, 4), seed=1), array((3,), seed=2)
    x, w, bias = (torch.tensor(t, requires_grad=True) for t in (a, b, c))
    given = (x, w, bias) if biased else (x, w)
    for _ in range(2):
        out = torch.nn.functional.linear(*given)
        np.testing.assert_allclose(out.detach().numpy(), a @ b.T + c * biased, atol=1e-12)
    g = array(out.shape, seed=3)
    out.backward(torch.tensor(g))
    flat_g, flat_a = g.reshape(-1, 3), a.reshape(-1, 4)
    np.testing.assert_allclose(w.grad.numpy(), flat_g.T @ flat_a, atol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), g @ b, atol=1e-12)
    if biased:
        np.testing.assert_allclose(bias.grad.numpy(), flat_g.sum(0), atol=1e-12)


def test_what_is_kept_is_watched():
    x, w = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
    out = x @ w
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        out.sum().backward()


def test_nan_in_recycled_memory_does_not_leak():
    for shape in ((16, 16), (16,)):
        bad = torch.full((16, 16) if len(shape) == 2 else (16,), float("nan"))
        del bad
        out = torch.ones(16, 16) @ torch.ones(*shape)
        assert out.min().item() == out.max().item() == 16


def test_large_products_from_threads():
    a = array((300, 300), "float32")
    x, wanted, found = torch.tensor(a), a @ a, {}

    def work(k):
        found[k] = (x @ x).numpy()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        np.testing.assert_allclose(found[k], wanted, rtol=1e-3, atol=1e-3)


EINSUMS = [("ij,jk->ik", (3, 4), (4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
           ("ii->i", (4, 4)), ("ij->", (3, 4)), ("ij->ji", (3, 4)), ("i,j", (3,), (4,)),
           ("...ij,jk->...ik", (2, 3, 4), (4, 5)), ("ij,ij->", (3, 4), (3, 4)),
           ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("i,ij,j->", (3,), (3, 4), (4,)),
           ("ij,jk", (3, 4), (4, 5)), ("abc,cd,de->abe", (2, 3, 4), (4, 5), (5, 6))]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda case: case[0])
def test_einsum(case):
    equation, *shapes = case
    arrays = [array(shape, seed=k) for k, shape in enumerate(shapes)]
    found = torch.einsum(equation, *[torch.tensor(a) for a in arrays])
    np.testing.assert_allclose(found.numpy(), np.einsum(equation, *arrays), atol=1e-10)


def test_einsum_by_numbers():
    a, b = torch.tensor(array((3, 4))), torch.tensor(array((4, 5), seed=1))
    assert torch.equal(torch.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)


def test_relatives():
    a, b, c = array((3, 4)), array((4, 5), seed=1), array((3, 5), seed=2)
    x, y, z = map(torch.tensor, (a, b, c))
    for found, wanted in [
            (torch.addmm(z, x, y, beta=2, alpha=3), 2 * c + 3 * (a @ b)),
            (torch.tensordot(x, y, 1), np.tensordot(a, b, 1)),
            (torch.kron(x, y), np.kron(a, b)),
            (torch.outer(x[0], y[0]), np.outer(a[0], b[0])),
            (torch.inner(x, x), np.inner(a, a)),
            (torch.linalg.multi_dot([x, y, z.T]), a @ b @ c.T),
            (torch.matrix_power(x[:, :3], 3), np.linalg.matrix_power(a[:, :3], 3)),
            (torch.matrix_power(x[:, :3], -2), np.linalg.matrix_power(a[:, :3], -2))]:
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-9)


def test_zero_times_beta_ignores_nan():
    bad = torch.full((2, 2), float("nan"))
    assert torch.addmm(bad, torch.ones(2, 3), torch.ones(3, 2), beta=0).tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize(("function", "message"), [
    (lambda: torch.ones(2, 3) @ torch.ones(4, 3), r"inner sizes 3 and 4 differ.*w\.mT"),
    (lambda: torch.mm(torch.ones(2), torch.ones(2, 2)), "must be a matrix"),
    (lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(3, 4, 5)), "batch2"),
    (lambda: torch.dot(torch.ones(2), torch.ones(3)), "same number of elements"),
    (lambda: torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.float64), "same dtype"),
    (lambda: torch.ones(2) @ torch.tensor(1.0), "at least 1D"),
    (lambda: torch.einsum("ij,jk->iz", torch.ones(2, 2), torch.ones(2, 2)), "output subscript"),
    (lambda: torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 5)), "features")])
def test_errors(function, message):
    with pytest.raises(RuntimeError, match=message):
        function()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dots_of_every_length(dtype):
    for n in [*range(1, 41), 1000, 4099]:
        a, b = (torch.randn(n, dtype=dtype) for _ in range(2))
        exact = math.fsum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
        close = 1e-5 if dtype is torch.float32 else 1e-12
        assert abs(a.dot(b).item() - exact) < close * n
    x, y = torch.randn(20, dtype=dtype)[::2], torch.randn(10, dtype=dtype, requires_grad=True)
    (x @ y).backward()  # what does not lie side by side goes another way
    assert torch.equal(y.grad, x)


@pytest.mark.parametrize("equation, shapes", [
    ("ij,kj->ik", [(3, 4), (5, 4)]), ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
    ("ij,jk", [(3, 4), (4, 5)]), ("ij,jk->ki", [(3, 4), (4, 5)]),
    ("abcd,cdef->efab", [(2, 3, 4, 5), (4, 5, 2, 3)]), ("i,i->", [(4,), (4,)]),
    ("ij,j->i", [(3, 4), (4,)]), ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]), ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("ij,jk->i", [(3, 4), (4, 5)]), ("ij,jk->ik", [(3, 1), (4, 5)]), ("ii,ij->j", [(3, 3), (3, 4)]),
    ("bij,jk->bik", [(2, 3, 4), (4, 5)]), ("ij,k->ijk", [(2, 3), (4,)])])
def test_einsum_of_two_is_torch_s_with_gradients(equation, shapes):
    reference = pytest.importorskip("torch")
    given = [np.random.default_rng(0).standard_normal(s) for s in shapes]
    for _ in range(2):
        found = []
        for lib in (torch, reference):
            x, y = (lib.tensor(a, requires_grad=True) for a in given)
            out = lib.einsum(equation, x, y)
            (out * out).sum().backward()
            found.append([v.detach().numpy() for v in (out, x.grad, y.grad)])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    with pytest.raises(RuntimeError):
        torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 5))


@pytest.mark.parametrize(("first", "second"), [
    ((30, 7), (4, 7)), ((3, 27, 5), (3, 2, 5)), ((26, 3), (1, 3)), ((4, 6), (5, 6)),
    ((2, 1, 30, 3), (1, 4, 5, 3))])
def test_distances_of_rows(first, second):
    """Of few rows directly, of many from products; a row's distance to itself has no slope."""
    rng = np.random.default_rng(0)
    x, y = (torch.tensor(rng.standard_normal(s), requires_grad=True) for s in (first, second))
    a, b = x.detach().numpy()[..., :, None, :], y.detach().numpy()[..., None, :, :]
    assert np.allclose(torch.cdist(x, y).detach().numpy(), np.sqrt(((a - b) ** 2).sum(-1)))
    assert torch.autograd.gradcheck(torch.cdist, (x, y))
    torch.cdist(x, x).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(("equation", "shapes"), [
    ("i,j->ij", ((3,), (4,))), ("i,j->ji", ((3,), (4,))), ("ij,j->ij", ((3, 4), (4,))),
    ("ij,ji->ij", ((3, 4), (4, 3))), ("ab,cd->acbd", ((2, 3), (4, 5))), ("i,i->i", ((1,), (3,))),
    ("b...,b->b...", ((2, 3, 4), (2,))), ("ij->ji", ((3, 4),)), ("ij->", ((3, 4),)),
    ("ijk->ki", ((2, 3, 4),)), ("ii->i", ((4, 4),)), ("ba", ((3, 4),)),
    ("ij,k->kij", ((0, 2), (3,)))])
def test_einsum_without_products_of_matrices(equation, shapes):
    """Twice, as what was met before goes another way."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in shapes]
    for _ in range(2):
        found = torch.einsum(equation, *map(torch.tensor, arrays))
        want = np.einsum(equation, *arrays)
        assert found.shape == want.shape and np.allclose(found.numpy(), want)
    with pytest.raises(RuntimeError, match="does not appear"):
        torch.einsum("ij->k", torch.ones(2, 2))


@pytest.mark.parametrize(("equation", "shape"), [
    ("ii", (4, 4)), ("ii->i", (4, 4)), ("iji->j", (3, 2, 3)), ("iij->ji", (3, 3, 2)),
    ("iii", (3, 3, 3)), ("jiij->ij", (2, 3, 3, 2)), ("...ii->...", (2, 3, 3)),
    ("iijj", (2, 2, 3, 3)),
])
def test_einsum_of_one_operand_with_labels_twice(equation, shape):
    a = np.random.default_rng(0).standard_normal(shape)
    x = torch.from_numpy(a).requires_grad_()
    for _ in range(3):
        np.testing.assert_allclose(torch.einsum(equation, x).detach().numpy(),
                                   np.einsum(equation, a), atol=1e-12)
        with pytest.raises(RuntimeError, match="repeated for an operand but the sizes"):
            torch.einsum("ii", torch.ones(2, 3))
    assert torch.autograd.gradcheck(lambda x: torch.einsum(equation, x), (x,))
    compiled = torch.compile(lambda x: torch.einsum(equation, x * 2))
    for _ in range(3):
        assert torch.allclose(compiled(x), torch.einsum(equation, x * 2))


@pytest.mark.parametrize("dtype", ["i8", "i4", "i2", "u1"])
@pytest.mark.parametrize("largest", [90, 2**40])
def test_products_of_integers_are_exact_and_wrap(dtype, largest):
    rng = np.random.default_rng(5)
    most = min(largest, np.iinfo(dtype).max)
    for one, other in (((9, 33), (33, 4)), ((3, 5, 7), (3, 7, 6)), ((8, 9), (9,))):
        a, b = (rng.integers(0 if dtype == "u1" else -most, most, shape).astype(dtype)
                for shape in (one, other))
        found = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
        assert found.dtype == dtype and np.array_equal(found, a @ b)
        turned = torch.from_numpy(np.ascontiguousarray(a.T)).permute(*range(a.ndim)[::-1])
        assert np.array_equal((turned @ torch.from_numpy(b)).numpy(), a @ b)


def test_products_of_small_integers_are_not_left_to_python(monkeypatch):
    from flambeau.engine import product

    a, b = torch.arange(12).reshape(3, 4), torch.arange(8).reshape(4, 2)
    monkeypatch.setattr(product, "np", None)
    assert (a @ b).tolist() == [[28, 34], [76, 98], [124, 162]]
