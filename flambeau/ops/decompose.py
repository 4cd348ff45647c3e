"""Triangular decompositions and their derivatives: Cholesky, LU, LDL; triangular solutions."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from ..core.errors import LinAlgError
from .declare import T, composite, engine, library, registry
from .product import matmul, mH, require_matrix, require_square
from .refusal import no_kernel, spoken

#: what torch names where it finds out only in the kernel that there is none for a dtype
KERNELS = {
    "linalg.cholesky":         "cholesky_cpu",
    "linalg.cond":             "linalg_svd_cpu",
    "linalg.det":              "lu_cpu",
    "linalg.eig":              "linalg_eig_out_cpu",
    "linalg.eigh":             "linalg_eigh_cpu",
    "linalg.ldl_factor_ex":    "ldl_factor_kernel_cpu",
    "linalg.lu_factor_ex":     "lu_cpu",
    "linalg.qr":               "geqrf_cpu",
    "linalg.solve":            "lu_cpu",
    "linalg.solve_triangular": "triangular_solve_cpu",
    "linalg.svd":              "linalg_svd_cpu",
}  # fmt: skip
#: those that find out there of integers, too
LATE_FOR_INTEGERS = ("linalg.eigh", "linalg.lu_factor_ex", "linalg.solve_triangular")


def require_floating(name: str, x, argument: str = "A") -> None:
    """LAPACK's dtypes, or torch's error."""
    if name in LATE_FOR_INTEGERS and x.dtype.kind not in "fc":
        raise no_kernel(KERNELS[name], x.dtype)
    if x.dtype.kind not in "fc":
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got "
                           f"{spoken(x.dtype)}")
    if x.dtype in (dt.float16, dt.bfloat16):
        if name in KERNELS:
            raise no_kernel(KERNELS[name], x.dtype)
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {spoken(x.dtype)}")


def require_success(name: str, info, problem: str) -> None:
    """Raise for the first matrix of a batch whose info is not 0."""
    def refuse(code: int) -> Exception:
        codes = [info.item()] if not info.dim() else info.flatten().tolist()
        k = next((k for k, found in enumerate(codes) if found), 0)
        where = f"(Batch element {k}): " if info.dim() else ""
        return LinAlgError(f"{name}: {where}{problem.format(codes[k] or code)}")

    engine.check_bounds(info, 0, 1, refuse)


NOT_POSITIVE = ("The factorization could not be completed because the input is not "
                "positive-definite (the leading minor of order {} is not positive-definite).")
SINGULAR = ("The diagonal element {} is zero, the WORK could not be completed because the input "
            "matrix is singular.")
NO_SOLUTION, NO_INVERSE = (SINGULAR.replace("WORK", work) for work in ("solve", "inversion"))


# -- Cholesky --------------------------------------------------------------------------------------


@library(where="linalg", backward="LinalgCholeskyExBackward0")
def cholesky_ex(A: T, *, upper=False, check_errors=False):
    """(L, info) with A = L L^H; info says which leading minor is not positive."""
    require_square("linalg.cholesky_ex", A)
    require_floating("linalg.cholesky", A)
    return [(tuple(A.shape), A.dtype), (tuple(A.shape[:-2]), dt.int32)]


@cholesky_ex.gradient
def cholesky_ex(g, out, upper):
    gL, L = g[0], out[0]
    if gL is None:
        return None
    if upper:
        gL, L = mH(gL), mH(L)
    half = (matmul(mH(L), gL)).tril() * _half_diagonal(L)
    sym = 0.5 * (half + mH(half))
    left = solve_lower(L, sym, adjoint=True)
    return solve_triangular(L, left, upper=False, left=False)


def _half_diagonal(L):
    """1 below the diagonal, 1/2 on it."""
    n = L.shape[-1]
    eye = engine.eye(n, dtype=L.dtype.to_real())
    return 1 - 0.5 * eye


def solve_lower(L, B, adjoint: bool = False):
    return solve_triangular(mH(L), B, upper=True) if adjoint else (
        solve_triangular(L, B, upper=False))


@composite(where="linalg")
def cholesky(A, *, upper=False):
    """The lower triangular L with A = L L^H, or its adjoint."""
    require_square("linalg.cholesky", A)
    L, info = cholesky_ex(A, upper=upper)
    require_success("linalg.cholesky", info, NOT_POSITIVE)
    return L


@composite(name="cholesky")
def tensor_cholesky(input, upper=False):
    """The Cholesky factor, as torch.cholesky gives it."""
    require_square("cholesky", input)
    L, info = cholesky_ex(input, upper=upper)
    require_success("cholesky", info, NOT_POSITIVE)
    return L


@composite
def cholesky_inverse(input, upper=False):
    """The inverse of the matrix whose Cholesky factor is given."""
    require_square("cholesky_inverse", input)
    require_floating("cholesky_inverse", input)
    eye = registry["expand"](engine.eye(input.shape[-1], dtype=input.dtype), tuple(input.shape))
    return cholesky_solve(eye, input, upper)


@composite
def cholesky_solve(input, input2, upper=False):
    """The solution of A X = B, given B and the Cholesky factor of A."""
    require_square("cholesky_solve", input2)
    require_matrix("cholesky_solve", input)
    if input2.shape[-1] != input.shape[-2]:
        raise RuntimeError("cholesky_solve: Incompatible matrix sizes for cholesky_solve: each A "
                           f"matrix is {input2.shape[-1]} by {input2.shape[-1]} but each b matrix "
                           f"is {input.shape[-2]} by {input.shape[-1]}")
    require_floating("cholesky_solve", input)
    first, second = (mH(input2), input2) if upper else (input2, mH(input2))
    return solve_triangular(second, solve_triangular(first, input, upper=False), upper=True)


# -- triangular solutions --------------------------------------------------------------------------


@library(where="linalg")
def solve_triangular(A: T, B: T, *, upper, left=True, unitriangular=False):
    """X with A X = B, or X A = B, for a triangular A."""
    require_square("linalg.solve_triangular", A)
    require_matrix("linalg.solve_triangular", B, "B")
    same_dtype("linalg.solve_triangular", A, B)
    require_floating("linalg.solve_triangular", A)
    fits("linalg.solve_triangular", A, B, left)
    return batched_shape("linalg.solve_triangular", A, B)


@solve_triangular.gradient
def solve_triangular(g, A, A_meta, B_meta, out, upper, left, unitriangular):
    gB = solve_triangular(mH(A), g, upper=not upper, left=left, unitriangular=unitriangular)

    def to_A():
        gA = matmul(-gB, mH(out)) if left else -matmul(mH(out), gB)
        inside = int(unitriangular)
        gA = gA.triu(inside) if upper else gA.tril(-inside)
        return engine.sum_to(gA, A_meta.shape)

    return to_A, lambda: engine.sum_to(gB, B_meta.shape)


def same_dtype(name: str, A, B) -> None:
    if A.dtype is not B.dtype:
        raise RuntimeError(f"{name}: Expected A and B to have the same dtype, but found A of type "
                           f"{spoken(A.dtype)} and B of type {spoken(B.dtype)} instead")


def fits(name: str, A, B, left: bool = True) -> None:
    if A.shape[-2] != B.shape[-2 if left else -1]:
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation "
                           f"{'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{A.shape[-1]} and "
                           f"{B.shape[-2]}x{B.shape[-1]})")


def batched_shape(name: str, A, B) -> tuple[int, ...]:
    """The shape of B for the batch both broadcast to."""
    return (*sh.broadcast(name, tuple(A.shape[:-2]), tuple(B.shape[:-2])), *B.shape[-2:])


@composite
def triangular_solve(input, A, upper=True, transpose=False, unitriangular=False):
    """(X, A) with A X = input for a triangular A, or its transpose."""
    require_square("triangular_solve", A)
    require_matrix("triangular_solve", input, "b")
    matrix = A.transpose(-2, -1) if transpose else A
    found = solve_triangular(matrix, input, upper=upper is not transpose if transpose else upper,
                             unitriangular=unitriangular)
    batch = found.shape[:-2]
    cloned = engine.clone(registry["expand"](A, (*batch, *A.shape[-2:])))
    return engine.named(registry["triangular_solve"], (found, cloned))


# -- LU --------------------------------------------------------------------------------------------


@library(where="linalg")
def lu_factor_ex(A: T, *, pivot=True, check_errors=False):
    """(LU, pivots, info): both factors in one matrix, and the rows that were exchanged."""
    require_matrix("linalg.lu_factor_ex", A)
    require_floating("linalg.lu_factor_ex", A)
    k = min(A.shape[-2:])
    batch = tuple(A.shape[:-2])
    return [(tuple(A.shape), A.dtype), ((*batch, k), dt.int32), (batch, dt.int32)]


@lu_factor_ex.gradient
def lu_factor_ex(g, out):
    if g[0] is None:
        return None
    LU, pivots, _ = out
    m, n = LU.shape[-2:]
    k = min(m, n)
    P = engine.cast(permutation_of_pivots(pivots, m), LU.dtype)
    gL, gU = g[0].tril(-1).narrow(-1, 0, k), g[0].triu().narrow(-2, 0, k)
    L, U = _lower(LU, k), LU.triu().narrow(-2, 0, k)
    return matmul(P, _lu_back(gL, gU, L, U, m, n, k))


def _lower(LU, k: int):
    """The unit lower factor out of the compact form."""
    lower = LU.tril(-1).narrow(-1, 0, k)
    return lower + engine.eye(LU.shape[-2], k, dtype=LU.dtype)


def _lu_back(gL, gU, L, U, m: int, n: int, k: int):
    L1, U1 = L.narrow(-2, 0, k), U.narrow(-1, 0, k)
    below = matmul(mH(L1), gL.narrow(-2, 0, k))
    above = matmul(gU.narrow(-1, 0, k), mH(U1))
    if n > k:  # the columns beyond the square part
        gU2, U2 = gU.narrow(-1, k, n - k), U.narrow(-1, k, n - k)
        below = below - matmul(gU2, mH(U2))
    if m > k:  # the rows beyond it
        gL2, L2 = gL.narrow(-2, k, m - k), L.narrow(-2, k, m - k)
        above = above - matmul(mH(L2), gL2)
    middle = below.tril(-1) + above.triu()
    square = solve_triangular(mH(U1), solve_triangular(mH(L1), middle, upper=True,
                                                       unitriangular=True), upper=False, left=False)
    if n > k:
        rest = solve_triangular(mH(L1), gU2, upper=True, unitriangular=True)
        return engine.cat([square, rest], -1)
    if m > k:
        rest = solve_triangular(mH(U1), gL2, upper=False, left=False)
        return engine.cat([square, rest], -2)
    return square


@library(method=False, function_form=False)
def permutation_of_pivots(pivots: T, rows):
    """Permutation matrices P, with A = P L U, from exchanges of rows."""
    return (*pivots.shape[:-1], rows, rows), dt.float32


@composite(where="linalg")
def lu_factor(A, *, pivot=True):
    """(LU, pivots): both factors in one matrix, and the rows that were exchanged."""
    require_matrix("linalg.lu_factor", A)
    LU, pivots, _ = lu_factor_ex(A, pivot=pivot)
    return engine.named(registry["linalg.lu_factor"], (LU, pivots))


@composite(where="linalg")
def lu(A, *, pivot=True):
    """(P, L, U) with A = P L U."""
    require_matrix("linalg.lu", A)
    LU, pivots, _ = lu_factor_ex(A, pivot=pivot)
    P, L, U = unpacked(LU, pivots)
    if not pivot:
        P = engine.full((0,), 0.0, A.dtype)
    return engine.named(registry["linalg.lu"], (P, L, U))


def unpacked(LU, pivots):
    m, n = LU.shape[-2:]
    k = min(m, n)
    P = engine.cast(permutation_of_pivots(pivots, m), LU.dtype)
    return P, _lower(LU, k), LU.triu().narrow(-2, 0, k)


@composite(name="lu")
def compact_lu(self, pivot=True, get_infos=False):
    """(LU, pivots), and infos if asked for."""
    found = lu_factor_ex(self, pivot=pivot)
    return found if get_infos else tuple(found[:2])


@composite(method=False)
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """(P, L, U) out of the compact form."""
    if LU_pivots.dtype is not dt.int32:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of "
                           "torch.int32 dtype. Note: this function is intended to be used with the "
                           "output produced by torch.linalg.lu_factor")
    P, L, U = unpacked(LU_data, LU_pivots)
    nothing = engine.full((0,), 0.0, LU_data.dtype)
    P = P if unpack_pivots else nothing
    L, U = (L, U) if unpack_data else (nothing, nothing)
    return engine.named(registry["lu_unpack"], (P, L, U))


@composite(where="linalg")
def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """X with A X = B (or X A = B, or A^H X = B), given the factors of A."""
    require_square("linalg.lu_solve", LU, "LU")
    require_matrix("linalg.lu_solve", B, "B")
    same_dtype("linalg.lu_solve", LU, B)
    fits("linalg.lu_solve", LU, B, left)
    if not left:  # X A = B is A^H X^H = B^H
        return mH(_lu_solved(LU, pivots, mH(B), not adjoint))
    return _lu_solved(LU, pivots, B, adjoint)


def _lu_solved(LU, pivots, B, adjoint: bool):
    P, L, U = unpacked(LU, pivots)
    if adjoint:
        inner = solve_triangular(mH(U), B, upper=False)
        return matmul(P, solve_triangular(mH(L), inner, upper=True, unitriangular=True))
    inner = solve_triangular(L, matmul(P.transpose(-2, -1), B), upper=False, unitriangular=True)
    return solve_triangular(U, inner, upper=True)


@composite(name="lu_solve")
def solved_by_lu(self, LU_data, LU_pivots):
    """X with A X = self, given the factors of A."""
    return lu_solve(LU_data, LU_pivots, self)


# -- LDL, of which no derivative is known to torch -------------------------------------------------


@library(where="linalg")
def ldl_factor_ex(A: T, *, hermitian=False, check_errors=False):
    """(LD, pivots, info) of a symmetric or hermitian matrix."""
    require_square("linalg.ldl_factor_ex", A)
    require_floating("linalg.ldl_factor_ex", A)
    return [(tuple(A.shape), A.dtype), (tuple(A.shape[:-1]), dt.int32),
            (tuple(A.shape[:-2]), dt.int32)]


@composite(where="linalg")
def ldl_factor(A, *, hermitian=False):
    """(LD, pivots) of a symmetric or hermitian matrix."""
    LD, pivots, _ = ldl_factor_ex(A, hermitian=hermitian)
    return engine.named(registry["linalg.ldl_factor"], (LD, pivots))


@library(where="linalg")
def ldl_solve(LD: T, pivots: T, B: T, *, hermitian=False):
    """X with A X = B, given the LDL factors of A."""
    require_square("linalg.ldl_solve", LD, "LD")
    require_matrix("linalg.ldl_solve", B, "B")
    same_dtype("linalg.ldl_solve", LD, B)
    fits("linalg.ldl_solve", LD, B)
    return batched_shape("linalg.ldl_solve", LD, B)
