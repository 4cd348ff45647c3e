"""Matrices of all sizes, turned or not, alone or in a batch: LAPACK against numpy."""

import numpy as np
import pytest

import flambeau as torch

SIZES = [(1,), (5,), (40,), (130,), (3, 7), (2, 3, 4)]
DTYPES = [np.float32, np.float64]


def sample(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(found, want, dtype, scale=1.0):
    limit = (2e-4 if dtype is np.float32 else 1e-10) * scale
    np.testing.assert_allclose(np.asarray(found.numpy()), want, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(("batch", "n", "m"), [
    ((), 1, 3), ((), 6, 2), ((), 60, 9), ((), 130, 2), ((3,), 5, 4), ((2,), 60, 7),
    ((2, 2), 30, 30)])
def test_triangular_solutions(dtype, turned, upper, left, unit, batch, n, m):
    a = sample((*batch, n, n), dtype) / n + 2 * np.eye(n, dtype=dtype)
    a = np.triu(a) if upper else np.tril(a)
    b = sample((*batch, n, m) if left else (*batch, m, n), dtype, 1)
    given = torch.from_numpy(a)
    if turned:
        given = torch.from_numpy(np.ascontiguousarray(np.swapaxes(a, -1, -2))).mT
    found = torch.linalg.solve_triangular(given, torch.from_numpy(b), upper=upper, left=left,
                                          unitriangular=unit)
    whole = a.astype(np.float64)
    if unit:
        whole = whole - np.eye(n) * whole + np.eye(n)
    product = whole @ found.numpy() if left else found.numpy() @ whole
    np.testing.assert_allclose(product, b, atol=2e-4 if dtype is np.float32 else 1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SIZES)
def test_spectra(dtype, shape):
    n = shape[-1]
    a = sample((*shape, n), dtype) / n
    found = torch.linalg.eigvals(torch.from_numpy(a)).numpy()
    want = np.linalg.eigvals(a.astype(np.float64))
    order = [np.lexsort((v.imag.round(3), v.real.round(3)), axis=-1) for v in (found, want)]
    if dtype is np.float64:
        close(torch.from_numpy(np.take_along_axis(found, order[0], -1)),
              np.take_along_axis(want, order[1], -1), dtype, 1e3)
    w, v = torch.linalg.eig(torch.from_numpy(a))
    assert w.dtype is (torch.complex64 if dtype is np.float32 else torch.complex128)
    np.testing.assert_allclose(a @ v.numpy(), v.numpy() * w.numpy()[..., None, :],
                               atol=1e-4 if dtype is np.float32 else 1e-12)
    np.testing.assert_allclose(np.linalg.norm(v.numpy(), axis=-2), 1, rtol=1e-4)
    even = a + np.swapaxes(a, -1, -2)
    values = torch.linalg.eigvalsh(torch.from_numpy(even))
    close(values, np.linalg.eigvalsh(even.astype(np.float64)), dtype)
    close(torch.linalg.eigvalsh(torch.from_numpy(np.triu(even)), "U"), values.numpy(), dtype)


def test_spectra_go_back():
    a = torch.from_numpy(sample((2, 4, 4), np.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: torch.linalg.eigvalsh(a + a.mT), (a,))
    assert torch.autograd.gradcheck(lambda a: torch.linalg.eigvals(a).abs(), (a,))
    assert torch.autograd.gradcheck(torch.linalg.svdvals, (a,))
    assert torch.autograd.gradgradcheck(torch.linalg.svdvals, (a,))
    grad = torch.func.grad(lambda a: torch.linalg.eigvalsh(a + a.mT).square().sum())
    assert torch.allclose(grad(a.detach()), 8 * (a + a.mT).detach() / 2)


def test_spectra_of_what_is_not_finite_are_refused():
    a = torch.ones(3, 3)
    a[1, 1] = float("nan")
    for function in (torch.linalg.eig, torch.linalg.eigvals):
        with pytest.raises(RuntimeError):
            function(a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 5), (150, 120), (120, 150), (3, 6, 4)])
def test_reflections(dtype, shape):
    x = sample(shape, dtype)
    k = min(shape[-2:])
    q, r = torch.linalg.qr(torch.from_numpy(x))
    close(q @ r, x, dtype)
    close(q.mT @ q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), dtype)
    assert torch.equal(r, r.triu()) and r.shape == (*shape[:-2], k, shape[-1])
    found, taus = torch.geqrf(torch.from_numpy(x))
    close(found.triu()[..., :k, :], r.numpy(), dtype)
    if shape[-2] >= shape[-1]:
        rotation = torch.linalg.householder_product(found, taus)
        close(rotation, q.numpy(), dtype)
        recorded = torch.linalg.householder_product(found.clone().requires_grad_(), taus)
        close(rotation, recorded.detach().numpy(), dtype)


@pytest.mark.parametrize("n", [130, 300])
def test_large_systems(n):
    a = sample((n, n), np.float64) + 3 * np.eye(n)
    b, even = sample((n, 3), np.float64, 1), a @ a.T + np.eye(n)
    x, s = torch.from_numpy(a), torch.from_numpy(even)
    close(torch.linalg.solve(x, torch.from_numpy(b)), np.linalg.solve(a, b), np.float64, 1e3)
    close(torch.linalg.inv(x), np.linalg.inv(a), np.float64, 1e3)
    factor = torch.linalg.cholesky(s)
    close(factor, np.linalg.cholesky(even), np.float64)
    close(torch.cholesky_solve(torch.from_numpy(b), factor), np.linalg.solve(even, b), np.float64,
          1e3)
    close(torch.cholesky_inverse(factor.mT.contiguous(), True), np.linalg.inv(even), np.float64,
          1e3)
    close(torch.linalg.lstsq(x, torch.from_numpy(b))[0], np.linalg.solve(a, b), np.float64, 1e3)
    close(torch.linalg.svdvals(x), np.linalg.svd(a, compute_uv=False), np.float64, 1e3)
    w, v = torch.linalg.eigh(s)
    close(v * w @ v.mT, even, np.float64, 1e3)
