"""Decompositions and solvers of the CPU: by numpy.linalg, or by LAPACK where that lacks them.

Routines take batches of matrices. Those that can fail say so in an array of infos, 0 for success.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from ...core.errors import LinAlgError
from ...core.lazily import np
from .blas import symbol
from .routines import routine

_LETTER = {"f": "s", "d": "d", "F": "c", "D": "z"}


def call(name: str, dtype: np.dtype, *args) -> int:
    """Call a Fortran routine: numbers by reference, characters, and arrays in Fortran order.

    The last argument of the routine, info, is supplied and returned.
    """
    info = ctypes.c_int(0)
    passed: list[Any] = []
    lengths: list[ctypes.c_size_t] = []
    for a in args:
        if isinstance(a, str):
            passed.append(ctypes.c_char_p(a.encode()))
            lengths.append(ctypes.c_size_t(1))
        elif isinstance(a, (int, np.integer)):
            passed.append(ctypes.byref(ctypes.c_int(int(a))))
        else:
            passed.append(ctypes.c_void_p(a.ctypes.data))
    symbol(f"{_LETTER[np.dtype(dtype).char]}{name}_")(*passed, ctypes.byref(info), *lengths)
    return info.value


def matrices(x: np.ndarray) -> np.ndarray:
    """A batch as one list of matrices."""
    return x.reshape((prod(x.shape[:-2]), *x.shape[-2:]))


def fortran(x: np.ndarray) -> np.ndarray:
    return np.array(x, order="F", copy=True)


def info_array(x: np.ndarray) -> np.ndarray:
    return np.zeros(x.shape[:-2], np.int32)


# -- triangular factors ----------------------------------------------------------------------------


@routine
def cholesky_ex(A, upper, check_errors):
    try:
        return np.linalg.cholesky(A, upper=upper), info_array(A)
    except np.linalg.LinAlgError:
        if check_errors:
            raise LinAlgError("linalg.cholesky_ex: The factorization could not be completed "
                              "because the input is not positive-definite.") from None
    out, info = np.zeros_like(A, order="C"), info_array(A)
    for k, matrix in enumerate(matrices(A)):
        work = fortran(matrix)
        info.reshape(-1)[k] = call("potrf", A.dtype, "U" if upper else "L", len(work), work,
                                   len(work))
        matrices(out)[k] = np.triu(work) if upper else np.tril(work)
    return out, info


@routine
def lu_factor_ex(A, pivot, check_errors):
    m, n = A.shape[-2:]
    out = np.array(A, order="C", copy=True)
    pivots = np.zeros((*A.shape[:-2], min(m, n)), np.int32)
    info = info_array(A)
    for k, matrix in enumerate(matrices(A)):
        if not matrix.size:
            continue
        if not pivot:
            _eliminate(matrices(out)[k])
            pivots.reshape(prod(A.shape[:-2]), min(m, n))[k] = np.arange(1, min(m, n) + 1)
            continue
        work, order = fortran(matrix), np.zeros(min(m, n), np.int32)
        info.reshape(-1)[k] = call("getrf", A.dtype, m, n, work, m, order)
        matrices(out)[k] = work
        pivots.reshape(prod(A.shape[:-2]), min(m, n))[k] = order
    return out, pivots, info


def _eliminate(a: np.ndarray) -> None:
    """Gaussian elimination in place, without exchanging rows."""
    with np.errstate(all="ignore"):
        for k in range(min(a.shape)):
            a[k + 1:, k] /= a[k, k]
            a[k + 1:, k + 1:] -= np.outer(a[k + 1:, k], a[k, k + 1:])


@routine
def permutation_of_pivots(pivots, rows):
    """Permutation matrices from LAPACK's row exchanges, counted from 1."""
    flat = pivots.reshape(prod(pivots.shape[:-1]), pivots.shape[-1])
    out = np.zeros((len(flat), rows, rows), np.float32)
    for k, exchanges in enumerate(flat):
        order = np.arange(rows)
        for i, j in enumerate(exchanges):
            order[[i, j - 1]] = order[[j - 1, i]]
        out[k, order, np.arange(rows)] = 1
    return out.reshape((*pivots.shape[:-1], rows, rows))


@routine
def ldl_factor_ex(A, hermitian, check_errors):
    name = "hetrf" if hermitian and A.dtype.kind == "c" else "sytrf"
    n = A.shape[-1]
    out, info = np.tril(A), info_array(A)
    pivots = np.zeros(A.shape[:-1], np.int32)
    for k, matrix in enumerate(matrices(A)):
        if not matrix.size:
            continue
        work, order = fortran(matrix), np.zeros(n, np.int32)
        scratch = np.zeros(64 * n, A.dtype)
        info.reshape(-1)[k] = call(name, A.dtype, "L", n, work, n, order, scratch, len(scratch))
        matrices(out)[k] = np.tril(work)
        pivots.reshape(prod(A.shape[:-2]), n)[k] = order
    return out, pivots, info


@routine
def ldl_solve(LD, pivots, B, hermitian):
    name = "hetrs" if hermitian and LD.dtype.kind == "c" else "sytrs"
    batch = np.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    n, right = B.shape[-2:]
    out = np.array(np.broadcast_to(B, (*batch, n, right)), order="C")
    factors = matrices(np.broadcast_to(LD, (*batch, n, n)))
    orders = np.broadcast_to(pivots, (*batch, n)).reshape(prod(batch), n)
    for k in range(len(factors)):
        if n and right:
            work, x = fortran(factors[k]), fortran(matrices(out)[k])
            call(name, LD.dtype, "L", n, right, work, n, np.ascontiguousarray(orders[k]), x, n)
            matrices(out)[k] = x
    return out


# -- solvers ---------------------------------------------------------------------------------------


@routine
def inv_ex(A, check_errors):
    try:
        return np.linalg.inv(A), info_array(A)
    except np.linalg.LinAlgError:
        if check_errors:
            raise LinAlgError("linalg.inv_ex: The inversion could not be completed because the "
                              "input matrix is singular.") from None
    out, info = np.array(A, order="C"), info_array(A)
    for k, matrix in enumerate(matrices(A)):
        info.reshape(-1)[k] = _singular(matrix)
        if not info.reshape(-1)[k]:
            matrices(out)[k] = np.linalg.inv(matrix)
    return out, info


def _singular(matrix: np.ndarray) -> int:
    """LAPACK's info of the LU factorisation: which diagonal element is zero, from 1."""
    n = len(matrix)
    return call("getrf", matrix.dtype, n, n, fortran(matrix), n, np.zeros(n, np.int32)) if n else 0


@routine
def solve_matrices(A, B):
    """(X, info) of A X = B for batches that broadcast."""
    batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    info = np.zeros(batch, np.int32)
    try:
        return np.linalg.solve(A, B), info
    except np.linalg.LinAlgError:
        pass
    A, B = (np.broadcast_to(t, (*batch, *t.shape[-2:])) for t in (A, B))
    out = np.array(B, order="C")
    for k, matrix in enumerate(matrices(A)):
        info.reshape(-1)[k] = _singular(matrix)
        if not info.reshape(-1)[k]:
            matrices(out)[k] = np.linalg.solve(matrix, matrices(B)[k])
    return out, info


@routine
def solve_triangular(A, B, upper, left, unitriangular):
    batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    rows, cols = B.shape[-2:]
    factors = matrices(np.broadcast_to(A, (*batch, *A.shape[-2:])))
    out = np.array(np.broadcast_to(B, (*batch, rows, cols)), order="C")
    one = np.ones(1, A.dtype)
    name = f"{_LETTER[A.dtype.char]}trsm_"
    for k in range(len(factors)):
        if rows and cols:
            work, x = fortran(factors[k]), fortran(matrices(out)[k])
            _trsm(name, "L" if left else "R", "U" if upper else "L", "U" if unitriangular else "N",
                  one, work, x)
            matrices(out)[k] = x
    return out


def _trsm(name, side, half, diagonal, one, a, x) -> None:
    text = [ctypes.c_char_p(c.encode()) for c in (side, half, "N", diagonal)]
    number = [ctypes.byref(ctypes.c_int(n)) for n in (*x.shape, len(a), len(x))]
    place = [ctypes.c_void_p(t.ctypes.data) for t in (one, a, x)]
    symbol(name)(*text, *number[:2], place[0], place[1], number[2], place[2], number[3],
                 *[ctypes.c_size_t(1)] * 4)


@routine
def least_squares(A, B, rcond, values):
    """(solutions, ranks, singular values) of batches of the same shape."""
    m, n = A.shape[-2:]
    right = B.shape[-1]
    solution = np.zeros((*A.shape[:-2], n, right), A.dtype)
    rank = np.zeros(A.shape[:-2], np.int64)
    spectra = np.zeros((*A.shape[:-2], min(m, n)), A.dtype.char.lower())
    for k, (a, b) in enumerate(zip(matrices(A), matrices(B), strict=True)):
        x, _, r, s = np.linalg.lstsq(a, b, rcond=rcond)
        matrices(solution)[k] = x
        rank.reshape(-1)[k] = r
        spectra.reshape(prod(A.shape[:-2]), min(m, n))[k] = s
    return solution, rank, spectra if values else spectra.reshape(-1)[:0]


# -- orthogonal factors and spectra ----------------------------------------------------------------


@routine
def geqrf(input):
    """Householder vectors below R, and their factors."""
    m, n = input.shape[-2:]
    out = np.array(input, order="C", copy=True)
    tau = np.zeros((*input.shape[:-2], min(m, n)), input.dtype)
    for k, matrix in enumerate(matrices(input)):
        if matrix.size:
            raw, factors = np.linalg.qr(matrix, mode="raw")
            matrices(out)[k] = raw.T
            tau.reshape(prod(input.shape[:-2]), min(m, n))[k] = factors
    return out, tau


@routine
def qr(A, mode):
    if mode == "r":
        return np.zeros(0, A.dtype), np.linalg.qr(A, mode="r")
    return tuple(np.linalg.qr(A, mode=mode))


@routine
def eigh(A, UPLO):
    return tuple(_converged("linalg.eigh", np.linalg.eigh, A, UPLO))


@routine
def symmetric_values(A, UPLO):
    return _converged("linalg.eigh", np.linalg.eigvalsh, A, UPLO)


@routine
def eigenvalues(A):
    return _converged("linalg.eig", np.linalg.eigvals, A)


@routine
def eig(A):
    return tuple(_converged("linalg.eig", np.linalg.eig, A))


@routine
def svd(A, full_matrices, driver):
    return tuple(_converged("linalg.svd", np.linalg.svd, A, full_matrices))


@routine
def singular_values(A):
    return _converged("linalg.svd", lambda x: np.linalg.svd(x, compute_uv=False), A)


def _converged(name: str, function, *args):
    try:
        return function(*args)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{name}: The algorithm failed to converge because the input matrix is "
                          f"ill-conditioned or contains values that are not finite ({error})"
                          ) from None


@routine
def slogdet(A):
    return tuple(np.linalg.slogdet(A))


@routine
def det(A):
    return np.linalg.det(A)
