"""Decompositions and solvers: what they satisfy, their gradients, and what they refuse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as torch
from flambeau.compiler.api import report_of

KINDS = ["float64", "complex128"]


def matrix(shape, kind="float64", seed=0):
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape)
    return found + 1j * rng.standard_normal(shape) if kind == "complex128" else found


def positive(n, kind="float64"):
    a = matrix((n, n), kind)
    return a @ a.conj().T + n * np.eye(n)


def close(found, wanted, tolerance=1e-9):
    found = found.numpy() if hasattr(found, "numpy") else found
    wanted = wanted.numpy() if hasattr(wanted, "numpy") else wanted
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 5, 3), (0, 3)])
def test_products_of_factors(kind, shape):
    a = torch.tensor(matrix(shape, kind))
    Q, R = torch.linalg.qr(a)
    U, S, Vh = torch.linalg.svd(a, full_matrices=False)
    P, L, W = torch.linalg.lu(a)
    close(Q @ R, a)
    close((U * S.unsqueeze(-2)) @ Vh, a)
    close(P @ L @ W, a)


@pytest.mark.parametrize("kind", KINDS)
def test_symmetric_factors(kind):
    a = torch.tensor(positive(5, kind))
    L = torch.linalg.cholesky(a)
    w, V = torch.linalg.eigh(a)
    close(L @ L.mH, a)
    close(torch.linalg.cholesky(a, upper=True), L.mH)
    close((V * w) @ V.mH, a)
    LD, pivots = torch.linalg.ldl_factor(a, hermitian=True)
    b = torch.tensor(matrix((5, 2), kind, 1))
    close(a @ torch.linalg.ldl_solve(LD, pivots, b, hermitian=True), b)
    close(a @ torch.cholesky_solve(b, L), b)


@pytest.mark.parametrize("kind", KINDS)
def test_systems(kind):
    a, b = torch.tensor(matrix((2, 4, 4), kind)), torch.tensor(matrix((2, 4, 3), kind, 1))
    close(a @ torch.linalg.solve(a, b), b)
    close(torch.linalg.solve(a, b.mT, left=False) @ a, b.mT)
    LU, pivots = torch.linalg.lu_factor(a)
    for adjoint in (False, True):
        x = torch.linalg.lu_solve(LU, pivots, b, adjoint=adjoint)
        close((a.mH if adjoint else a) @ x, b)
    upper = a.triu()
    close(upper @ torch.linalg.solve_triangular(upper, b, upper=True), b)
    close(a @ torch.linalg.inv(a), np.broadcast_to(np.eye(4), (2, 4, 4)))


def test_numbers_of_matrices():
    a = matrix((4, 4))
    x = torch.tensor(a)
    close(torch.linalg.det(x), np.linalg.det(a))
    close(torch.linalg.slogdet(x)[1], np.linalg.slogdet(a)[1])
    close(torch.linalg.pinv(torch.tensor(matrix((5, 3)))), np.linalg.pinv(matrix((5, 3))))
    for order in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")):
        close(torch.linalg.matrix_norm(x, order), np.linalg.norm(a, order))
        close(torch.linalg.cond(x, order), np.linalg.cond(a, order))
    assert torch.linalg.matrix_rank(torch.tensor(np.outer(a[0], a[1]))).item() == 1
    close(torch.matrix_exp(torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)),
          [[np.cos(1), np.sin(1)], [-np.sin(1), np.cos(1)]])
    least = torch.linalg.lstsq(torch.tensor(matrix((6, 3))), torch.tensor(matrix((6, 2), seed=1)))
    close(least.solution, np.linalg.lstsq(matrix((6, 3)), matrix((6, 2), seed=1), rcond=None)[0])


def symmetric(x):
    return x @ x.mT + 3 * torch.eye(3, dtype=torch.float64)


SCALARS = {
    "cholesky": lambda x: (torch.linalg.cholesky(symmetric(x)) ** 3).sum(),
    "det": lambda x: torch.linalg.det(x),
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "inv": lambda x: (torch.linalg.inv(x) ** 2).sum(),
    "solve": lambda x: (torch.linalg.solve(x, x.mT + 1) ** 2).sum(),
    "triangular": lambda x: (torch.linalg.solve_triangular(x, x.mT, upper=True) ** 2).sum(),
    "lu": lambda x: sum((f ** 2).sum() for f in torch.linalg.lu(x)[1:]),
    "qr": lambda x: sum((f ** 3).sum() for f in torch.linalg.qr(x)),
    "eigh": lambda x: (torch.linalg.eigh(symmetric(x))[0] ** 2).sum(),
    "eig": lambda x: (torch.linalg.eig(x)[0].abs() ** 2).sum(),
    "svdvals": lambda x: (torch.linalg.svdvals(x) ** 3).sum(),
    "svd": lambda x: (torch.linalg.svd(x)[0].abs() ** 3).sum(),
    "pinv": lambda x: (torch.linalg.pinv(x[:, :2]) ** 2).sum(),
    "matrix_exp": lambda x: (torch.matrix_exp(x) ** 2).sum(),
    "lstsq": lambda x: (torch.linalg.lstsq(x[:, :2], x)[0] ** 2).sum(),
    "householder": lambda x: (torch.linalg.householder_product(x, x[0]) ** 3).sum(),
    "matrix_power": lambda x: torch.matrix_power(x, -2).sum(),
}


@pytest.mark.parametrize("name", SCALARS)
def test_gradients_by_differences(name):
    function, a = SCALARS[name], matrix((3, 3), seed=4) + 2 * np.eye(3)
    x = torch.tensor(a, requires_grad=True)
    (g,) = torch.autograd.grad(function(x), x, create_graph=True)
    step = 1e-6
    direction = matrix((3, 3), seed=5)
    sides = [torch.tensor(a + sign * step * direction, requires_grad=True) for sign in (1, -1)]
    slope = (function(sides[0]).item() - function(sides[1]).item()) / (2 * step)
    assert (g.detach().numpy() * direction).sum() == pytest.approx(slope, rel=1e-5, abs=1e-6)
    towards = torch.tensor(direction)
    (second,) = torch.autograd.grad((g * towards).sum(), x)
    ahead, behind = (torch.autograd.grad(function(s), s)[0].numpy() for s in sides)
    np.testing.assert_allclose(second.numpy(), (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-4)


def test_gradient_of_a_singular_determinant():
    x = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64, requires_grad=True)
    torch.linalg.det(x).backward()
    close(x.grad, [[4.0, -2.0], [-2.0, 1.0]])


@pytest.mark.parametrize(("function", "message"), [
    (lambda: torch.linalg.inv(torch.zeros(2, 2)), "singular"),
    (lambda: torch.linalg.solve(torch.zeros(2, 2, 2), torch.ones(2, 2, 1)), "Batch element 0"),
    (lambda: torch.linalg.cholesky(-torch.eye(2)), "not positive-definite")])
def test_failures_are_linalg_errors(function, message):
    with pytest.raises(torch.linalg.LinAlgError, match=message):
        function()


def test_infos_instead_of_failures():
    found = torch.linalg.cholesky_ex(torch.stack([torch.eye(2), -torch.eye(2)]))
    assert found.info.tolist() == [0, 1]
    assert torch.linalg.inv_ex(torch.zeros(2, 2)).info.item() == 1


@pytest.mark.parametrize("function", [
    lambda: torch.linalg.det(torch.ones(2, 3)), lambda: torch.linalg.eigh(torch.ones(3)),
    lambda: torch.linalg.inv(torch.ones(2, 2, dtype=torch.int64)),
    lambda: torch.linalg.qr(torch.ones(2, 2), mode="all"),
    lambda: torch.linalg.solve(torch.eye(2), torch.ones(3, 1)),
    lambda: torch.linalg.matrix_norm(torch.ones(2, 2), 3)])
def test_refusals(function):
    with pytest.raises(RuntimeError, match=r"linalg|qr"):
        function()


# -- factors of small matrices ---------------------------------------------------------------------


def definite(shape, dtype, seed=0):
    a = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return a @ a.swapaxes(-1, -2) + np.eye(shape[-1], dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (32, 32), (97, 97), (3, 7, 7), (2, 0, 4, 4)])
def test_cholesky_of_small_and_large(dtype, shape):
    a = definite(shape, dtype)
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-12}
    lower, upper = np.linalg.cholesky(a), np.linalg.cholesky(a, upper=True)
    half = torch.from_numpy(np.tril(a))  # only one triangle is looked at
    for x in (torch.from_numpy(a), torch.from_numpy(a).mT, half):
        found = torch.linalg.cholesky(x)
        assert found.is_contiguous() and found.dtype is x.dtype and found.shape == x.shape
        np.testing.assert_allclose(found.numpy(), lower, **near)
    for x in (torch.from_numpy(a), half.mT):
        np.testing.assert_allclose(torch.linalg.cholesky(x, upper=True).numpy(), upper, **near)
        np.testing.assert_allclose(torch.cholesky(x, True).numpy(), upper, **near)


def test_cholesky_of_what_has_none():
    x = torch.eye(5)
    x[3, 3] = -1
    for given in (x, x.double(), torch.stack([torch.eye(5), x])):
        where = "Batch element 1" if given.dim() == 3 else "order 4"
        with pytest.raises(torch.linalg.LinAlgError, match=where):
            torch.linalg.cholesky(given)
        assert torch.linalg.cholesky_ex(given).info.flatten().tolist()[-1] == 4
    with pytest.raises(RuntimeError, match="square"):
        torch.linalg.cholesky(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="at least 2"):
        torch.linalg.cholesky(torch.ones(2))
    out = torch.empty(5, 5)
    assert torch.linalg.cholesky(torch.eye(5) * 4, out=out) is out and out[2, 2] == 2
    assert torch.linalg.cholesky_ex(torch.empty(3, 3, device="meta")).L.is_meta


def test_cholesky_recorded_and_compiled():
    a = torch.from_numpy(definite((4, 4), "float64")).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: torch.linalg.cholesky((x + x.mT) / 2), (a,))
    compiled = torch.compile(lambda x: torch.linalg.cholesky(x) * 2)
    for seed in range(5):
        x = torch.from_numpy(definite((4, 4), "float64", seed))
        assert torch.allclose(compiled(x), torch.linalg.cholesky(x) * 2)
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(-x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(1, 1), (6, 4), (4, 6), (32, 32), (3, 7, 5), (40, 97), (96, 2),
                                   (2, 0, 3, 3)])
def test_qr_of_small_and_large(dtype, mode, shape):
    a = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    near = 1e-5 if dtype == "float32" else 1e-12
    turned = torch.from_numpy(np.ascontiguousarray(a.swapaxes(-1, -2))).mT
    for x in (torch.from_numpy(a), turned):
        Q, R = torch.linalg.qr(x, mode)
        wanted = np.linalg.qr(a, mode)
        np.testing.assert_allclose(R.numpy(), wanted if mode == "r" else wanted[1], atol=near)
        if mode != "r":
            np.testing.assert_allclose(Q.numpy(), wanted[0], atol=near)
            np.testing.assert_allclose((Q @ R).numpy(), a, atol=20 * near)
        assert (R.numpy() == np.triu(R.numpy())).all() and R.dtype is x.dtype


def test_qr_recorded_and_compiled():
    a = torch.from_numpy(np.random.default_rng(2).standard_normal((5, 3))).requires_grad_()
    assert torch.autograd.gradcheck(torch.linalg.qr, (a,))
    compiled = torch.compile(lambda x: torch.linalg.qr(x).R * 2)
    for seed in range(5):
        x = torch.from_numpy(np.random.default_rng(seed).standard_normal((5, 3)))
        assert torch.allclose(compiled(x), torch.linalg.qr(x).R * 2)
    assert torch.linalg.qr(torch.full((3, 3), float("nan"))).R.isnan().any()


BATCHES = [((), ()), ((3,), (3,)), ((), (4,)), ((4,), ()), ((2, 1), (1, 3))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("n, m", [(1, 1), (2, 3), (5, 2), (40, 40)])
def test_small_triangular_systems(n, m, batch, dtype):
    """By substitution, the last by BLAS: from both sides, of both triangles."""
    torch.manual_seed(0)
    A = torch.randn(*batch[0], n, n, dtype=dtype) * 0.2 + 2 * torch.eye(n, dtype=dtype)
    for upper, left, unit in itertools.product((False, True), repeat=3):
        B = torch.randn(*batch[1], *((n, m) if left else (m, n)), dtype=dtype)
        x = torch.linalg.solve_triangular(A, B, upper=upper, left=left, unitriangular=unit)
        matrix = A.triu(int(unit)) if upper else A.tril(-int(unit))
        matrix = matrix + unit * torch.eye(n, dtype=dtype)
        torch.testing.assert_close(matrix @ x if left else x @ matrix, B.expand(x.shape),
                                   rtol=1e-3, atol=1e-4)


def test_many_small_triangular_systems_are_one_native_call():
    A, B = torch.rand(4096, 2, 2).tril() + torch.eye(2), torch.randn(4096, 2, 1)
    step = torch.compile(lambda: torch.linalg.solve_triangular(A, B, upper=False) * 2)
    for _ in range(3):
        torch.testing.assert_close(A @ step() / 2, B)
    assert not report_of(step).breaks


# -- by native code, beside numpy ------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 8, 33, 96, 100])
@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_native_factors(n, batch, kind):
    """Small matrices are factored by native code, those of 100 rows by numpy."""
    near = {"rtol": 0.01, "atol": 2e-4 * n if kind == "float32" else 1e-10 * n}
    for shape in ((n, n), (n + 3, n), (n, n + 2)):
        a = torch.tensor(matrix((*batch, *shape)).astype(kind))
        k = min(shape)
        Q, R = torch.linalg.qr(a)
        eye = torch.eye(k, dtype=a.dtype).expand(*batch, k, k)
        assert torch.allclose(Q @ R, a, **near) and torch.allclose(Q.mT @ Q, eye, **near)
        assert not R.tril(-1).any()
        values = np.linalg.svd(a.numpy(), compute_uv=False)
        for full in (False, True):
            U, S, Vh = torch.linalg.svd(a, full_matrices=full)
            assert U.shape[-1] == (shape[0] if full else k)
            assert Vh.shape[-2] == (shape[1] if full else k)
            close(S, values, near["atol"])
            assert torch.allclose((U[..., :k] * S[..., None, :]) @ Vh[..., :k, :], a, **near)
        close(torch.linalg.svdvals(a), values, near["atol"])
        P, L, U = torch.linalg.lu(a)
        assert torch.allclose(P @ L @ U, a, **near)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("half", ["L", "U", "l"])
def test_native_spectra_read_one_triangle(kind, half):
    a = matrix((2, 7, 7)).astype(kind)
    w, V = torch.linalg.eigh(torch.tensor(a), UPLO=half)
    close(w, np.linalg.eigh(a, half.upper())[0], 1e-4 if kind == "float32" else 1e-10)
    whole = np.tril(a) if half in "Ll" else np.triu(a)
    whole = whole + whole.swapaxes(-1, -2) - np.stack([np.diag(np.diag(m)) for m in a])
    close((V * w[..., None, :]) @ V.mT, whole, 1e-4 if kind == "float32" else 1e-10)


@pytest.mark.parametrize("left", [(4, 4), (3, 4, 4), (2, 1, 4, 4)])
@pytest.mark.parametrize("right", [(4, 2), (3, 4, 2), (4, 1)])
def test_native_solutions_of_batches_that_broadcast(left, right):
    a, b = matrix(left), matrix(right, seed=1)
    close(torch.linalg.solve(torch.tensor(a), torch.tensor(b)), np.linalg.solve(a, b))


def test_a_singular_matrix_among_others():
    a = torch.eye(3).repeat(3, 1, 1)
    a[1, 2, 2] = 0
    with pytest.raises(torch.linalg.LinAlgError, match=r"Batch element 1.*diagonal element 3"):
        torch.linalg.solve(a, torch.ones(3, 3, 1))
    assert torch.linalg.solve_ex(a, torch.ones(3, 3, 1)).info.tolist() == [0, 3, 0]
    assert torch.linalg.lu_factor_ex(a).info.tolist() == [0, 3, 0]


def test_native_least_squares_and_their_rank():
    a = torch.tensor(matrix((2, 6, 3)))
    a[1, :, 2] = a[1, :, 0]
    b = torch.tensor(matrix((2, 6, 2), seed=1))
    plain = torch.linalg.lstsq(a, b)
    exact = torch.linalg.lstsq(a, b, driver="gelsd")
    close(plain.solution, exact.solution)
    assert plain.rank.tolist() == exact.rank.tolist() == [3, 2]
    assert plain.singular_values.shape == (0,) and exact.singular_values.shape == (2, 3)


def test_qr_of_columns_without_a_length():
    a = torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
    Q, R = torch.linalg.qr(a)
    assert R.tolist() == [[1.0, 2.0], [0.0, 0.0]] and Q.tolist() == [[1, 0], [0, 1], [0, 0]]
    large = torch.tensor([[3e200, 1.0], [4e200, 1.0]], dtype=torch.float64)
    close(torch.linalg.qr(large)[1][0, 0] / 1e200, torch.tensor(-5.0, dtype=torch.float64))
    assert torch.linalg.qr(torch.full((2, 2), float("nan")))[1].isnan().any()


def test_gradients_of_singular_values_alone():
    a = torch.tensor(matrix((2, 4, 3)), requires_grad=True)
    assert torch.autograd.gradcheck(torch.linalg.svdvals, a)
    assert torch.autograd.gradgradcheck(torch.linalg.svdvals, a)
    assert torch.autograd.gradcheck(torch.linalg.pinv, a)
