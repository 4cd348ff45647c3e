"""Inverses, determinants, linear systems and least squares."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from .declare import T, composite, engine, library, registry
from .decompose import (
    NO_INVERSE,
    NO_SOLUTION,
    fits,
    require_floating,
    require_success,
    same_dtype,
)
from .product import HALF, conjugate, matmul, mH, require_matrix, require_square
from .spectrum import eigh, svd

# -- inverses --------------------------------------------------------------------------------------


@library(where="linalg")
def inv_ex(A: T, *, check_errors=False):
    """(inverse, info); info says where a singular matrix failed."""
    require_square("linalg.inv_ex", A)
    require_floating("linalg.inv", A)
    return [(tuple(A.shape), A.dtype), (tuple(A.shape[:-2]), dt.int32)]


@inv_ex.gradient
def inv_ex(g, out):
    if g[0] is None:
        return None
    adjoint = mH(out[0])
    return -matmul(adjoint, matmul(g[0], adjoint))


@composite(where="linalg")
def inv(A):
    """The inverse of a square matrix."""
    require_square("linalg.inv", A)
    found, info = inv_ex(A)
    require_success("linalg.inv", info, NO_INVERSE)
    return found


@composite
def inverse(input):
    """The inverse of a square matrix."""
    return inv(input)


# -- determinants ----------------------------------------------------------------------------------


@library(where="linalg")
def det(A: T):
    """The determinant of a square matrix."""
    require_square("linalg.det", A)
    require_floating("linalg.det", A)
    return tuple(A.shape[:-2])


@det.gradient
def det(g, A, out):
    g = g.unsqueeze(-1).unsqueeze(-1)
    if not A.numel():
        return engine.zeros_like(A)
    if bool((out.detach() != 0).all()):
        return g * mH(inv_ex(A)[0] * out.unsqueeze(-1).unsqueeze(-1))
    return g * mH(adjugate(A))


def adjugate(A):
    """det(A) A^-1 of any square matrix, singular or not, from its singular values."""
    U, S, Vh = svd(A, False)
    n = S.shape[-1]
    # Each singular value is left out in turn: ones on the diagonal of n copies of them.
    eye = engine.eye(n, dtype=S.dtype)
    others = (S.unsqueeze(-2) * (1 - eye) + eye).prod(-1)
    turn = det(U) * det(Vh)
    middle = engine.cast(others, A.dtype).unsqueeze(-2) * mH(Vh)
    return turn.unsqueeze(-1).unsqueeze(-1) * matmul(middle, mH(U))


@library(where="linalg")
def slogdet(A: T):
    """(sign, logarithm of the absolute value) of the determinant."""
    require_square("linalg.slogdet", A)
    require_floating("linalg.slogdet", A)
    batch = tuple(A.shape[:-2])
    return [(batch, A.dtype), (batch, A.dtype.to_real())]


@slogdet.gradient
def slogdet(g, A, out):
    to_sign, to_log = g
    if to_log is None and (to_sign is None or not A.dtype.is_complex):
        return engine.zeros_like(A)
    factor = None if to_log is None else engine.cast(to_log, A.dtype)
    if A.dtype.is_complex and to_sign is not None:
        turn = registry["imag"](to_sign * conjugate(out[0]))
        turned = engine.cast(turn, A.dtype) * 1j
        factor = turned if factor is None else factor + turned
    return factor.unsqueeze(-1).unsqueeze(-1) * mH(inv_ex(A)[0])


@composite(name="det")
def tensor_det(input):
    """The determinant of a square matrix."""
    return det(input)


@composite(name="slogdet")
def tensor_slogdet(input):
    """(sign, logarithm of the absolute value) of the determinant."""
    return engine.named(registry["slogdet"], tuple(slogdet(input)))


@composite
def logdet(input):
    """The logarithm of the determinant; nan if that is negative."""
    require_square("logdet", input)
    sign, logabs = slogdet(input)
    if input.dtype.is_complex:
        return registry["log"](sign) + logabs
    nothing = engine.full((), float("nan"), logabs.dtype)
    return registry["where"](sign.detach() == -1, nothing, logabs)


# -- systems ---------------------------------------------------------------------------------------


@library(method=False, function_form=False, backward="LinalgSolveExBackward0")
def solve_matrices(A: T, B: T):
    """(X, info) with A X = B, for matrices."""
    batch = sh.broadcast("linalg.solve", tuple(A.shape[:-2]), tuple(B.shape[:-2]))
    return [((*batch, *B.shape[-2:]), A.dtype), (tuple(batch), dt.int32)]


@solve_matrices.gradient
def solve_matrices(g, A, A_meta, B_meta, out):
    if g[0] is None:
        return None, None
    gB = solve_matrices(mH(A), g[0])[0]
    return (lambda: engine.sum_to(-matmul(gB, mH(out[0])), A_meta.shape),
            lambda: engine.sum_to(gB, B_meta.shape))


def _solved(name: str, A, B, left: bool):
    """(X, info); B may be vectors, one for each matrix of A."""
    require_square(name, A)
    require_floating(name, A)
    same_dtype(name, A, B)
    vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and tuple(B.shape) == tuple(A.shape[:-1]))
    if vector and not left:
        raise RuntimeError(f"{name}: Vector broadcasting of the left hand side is not supported "
                           "for left=False. In this case linalg.solve is equivalent to "
                           "B / A.squeeze(-1)")
    if not vector:
        require_matrix(name, B, "B")
        fits(name, A, B, left)
    elif A.shape[-1] != B.shape[-1]:
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation AX = B "
                           f"({A.shape[-2]}x{A.shape[-1]} and {B.shape[-1]}x1)")
    if vector:
        X, info = solve_matrices(A, B.unsqueeze(-1))
        return X.squeeze(-1), info
    if left:
        return tuple(solve_matrices(A, B))
    X, info = solve_matrices(A.transpose(-2, -1), B.transpose(-2, -1))
    return X.transpose(-2, -1), info


@composite(where="linalg")
def solve(A, B, *, left=True):
    """X with A X = B, or X A = B."""
    X, info = _solved("linalg.solve", A, B, left)
    require_success("linalg.solve", info, NO_SOLUTION)
    return X


@composite(where="linalg")
def solve_ex(A, B, *, left=True, check_errors=False):
    """(result, info) of A X = B."""
    X, info = _solved("linalg.solve_ex", A, B, left)
    if check_errors:
        require_success("linalg.solve_ex", info, NO_SOLUTION)
    return engine.named(registry["linalg.solve_ex"], (X, info))


@composite(where="linalg")
def tensorinv(A, ind=2):
    """The inverse of a tensor, its first `ind` dimensions taken as rows."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', got {ind}")
    rows, cols = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    height, width = _product(rows), _product(cols)
    if height != width:
        raise RuntimeError("linalg.tensorinv: Expected self to satisfy the requirement "
                           f"prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {width} != "
                           f"{height}")
    return inv(A.reshape((height, width))).reshape((*cols, *rows))


@composite(where="linalg")
def tensorsolve(A, B, dims=None):
    """X with tensordot(A, X, X.dim()) = B."""
    if dims is not None:
        dims = [d % A.dim() for d in dims]
        kept = [d for d in range(A.dim()) if d not in dims]
        A = A.permute((*kept, *dims))
    shape = tuple(A.shape[B.dim():])
    if _product(shape) != B.numel():
        raise RuntimeError("linalg.tensorsolve: Expected self to satisfy the requirement "
                           "prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but "
                           f"got {_product(shape)} != {B.numel()}")
    return solve(A.reshape((B.numel(), -1)), B.reshape(-1)).reshape(shape)


def _product(sizes) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


# -- least squares and pseudo-inverses -------------------------------------------------------------


@composite(method=False, function_form=False, backward="LinalgPinvBackward0")
def pseudo_inverse(A: T, atol, rtol):
    """The pseudo-inverse, without singular values below a tolerance."""
    U, S, Vh = svd(A, False)
    tolerance = tolerance_of("linalg.pinv", A, _largest(S), atol, rtol).unsqueeze(-1)
    inverse = registry["where"](tolerance < S, 1 / S, engine.full((), 0.0, S.dtype))
    return matmul(mH(Vh) * engine.cast(inverse, A.dtype).unsqueeze(-2), mH(U))


@pseudo_inverse.gradient
def pseudo_inverse(g, A, out):
    return pinv_gradient(g, A, out)


def pinv_gradient(g, A, P):
    """-P* g P* + (1 - A P) g* P P* + P* P g* (1 - P A), with * for the adjoint."""
    Ph, gh = mH(P), mH(g)
    tall = matmul(gh, matmul(P, Ph))
    wide = matmul(matmul(Ph, P), gh)
    return (-matmul(Ph, matmul(g, Ph)) + tall - matmul(A, matmul(P, tall))
            + wide - matmul(matmul(wide, P), A))


def tolerance_of(name: str, A, largest, atol, rtol):
    """The singular value below which all count as zero."""
    if rtol is None and atol is not None:
        positive = (atol > 0) if not hasattr(atol, "dim") else None
        if positive is None:
            default = _default_rtol(A)
            zero = engine.full((), 0.0, largest.dtype)
            rtol = registry["where"](atol > 0, zero, engine.full((), default, largest.dtype))
        else:
            rtol = 0.0 if positive else _default_rtol(A)
    elif rtol is None:
        rtol = _default_rtol(A)
    atol = 0.0 if atol is None else atol
    for argument, value in (("atol", atol), ("rtol", rtol)):
        if hasattr(value, "dtype") and value.dtype.is_complex:
            raise RuntimeError(f"{name}: {argument} tensor of complex type is not supported.")
    relative, absolute = rtol * largest, atol
    if not hasattr(absolute, "dim"):
        absolute = engine.full((), float(absolute), largest.dtype)
    return engine.cast(registry["maximum"](engine.cast(absolute, relative.dtype), relative),
                       largest.dtype)


def _default_rtol(A) -> float:
    return dt.finfo(A.dtype).eps * max(A.shape[-2:])


def _largest(S):
    if not S.shape[-1]:
        return engine.full(tuple(S.shape[:-1]), 0.0, S.dtype)
    return S.amax(-1)


@composite(where="linalg")
def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The pseudo-inverse of a matrix."""
    require_matrix("linalg.pinv", A)
    require_floating("linalg.pinv", A)
    rtol = rcond if rtol is None else rtol
    if not A.numel():
        shape = (*A.shape[:-2], A.shape[-1], A.shape[-2])
        return engine.full(shape, 0.0, A.dtype) + 0 * A.sum()
    if hermitian:
        require_square("linalg.pinv", A)
        return _hermitian_pinv(A, atol, rtol)
    return pseudo_inverse(A, atol, rtol)


def _hermitian_pinv(A, atol, rtol):
    w, V = eigh(A)
    size = registry["abs"](w)
    tolerance = tolerance_of("linalg.pinv", A, _largest(size), atol, rtol).unsqueeze(-1)
    keep = size > tolerance
    safe = registry["where"](keep, w, engine.full((), 1.0, w.dtype))
    inverse = registry["where"](keep, 1 / safe, engine.full((), 0.0, w.dtype))
    return matmul(V * engine.cast(inverse, A.dtype).unsqueeze(-2), mH(V))


@composite
def pinverse(input, rcond=1e-15):
    """The pseudo-inverse of a matrix."""
    return pinv(input, rcond)


@library(method=False, function_form=False, backward="LinalgLstsqBackward0")
def least_squares(A: T, B: T, rcond, values):
    """(solution, rank, singular values, if they are wanted) of matrices in batches of one shape."""
    *batch, m, n = A.shape
    return [((*batch, n, B.shape[-1]), A.dtype), (tuple(batch), dt.int64),
            ((*batch, min(m, n)) if values else (0,), A.dtype.to_real())]


@least_squares.gradient
def least_squares(g, A, B):
    gX = g[0]
    if gX is None:
        return None, None
    P = pinv(A)
    return (lambda: pinv_gradient(matmul(gX, mH(B)), A, P), lambda: matmul(mH(P), gX))


@composite(where="linalg")
def lstsq(A, B, rcond=None, *, driver=None):
    """(solution, residuals, rank, singular_values) that make A X as near to B as can be."""
    _check_lstsq(A, B, driver)
    vector = A.dim() - 1 == B.dim() and tuple(A.shape[:-1]) == tuple(B.shape)
    B2 = B.unsqueeze(-1) if vector else B
    m, n = A.shape[-2:]
    batch = sh.broadcast("linalg.lstsq", tuple(A.shape[:-2]), tuple(B2.shape[:-2]))
    A2 = A if tuple(A.shape[:-2]) == tuple(batch) else registry["expand"](A, (*batch, m, n))
    if tuple(B2.shape[:-2]) != tuple(batch):
        B2 = registry["expand"](B2, (*batch, *B2.shape[-2:]))
    limit = _default_rtol(A) if rcond is None else rcond
    driver = driver or "gelsy"
    X, rank, values = least_squares(A2, B2, limit, driver in ("gelsd", "gelss"))
    flat = (registry["abs"](X) if X.dtype.is_complex else X).reshape(-1)
    residuals = flat.narrow(0, 0, 0)  # nothing, but part of the graph
    if m > n and driver != "gelsy" and (driver == "gels" or bool((rank == n).all())):
        missed = matmul(A2, X) - B2
        residuals = (registry["abs"](missed) ** 2).sum(-2)
        residuals = residuals if not vector else residuals.squeeze(-1)
    X = X.squeeze(-1) if vector else X
    rank = engine.full((0,), 0, dt.int64) if driver == "gels" else rank
    return engine.named(registry["linalg.lstsq"], (X, residuals, rank, values))


def _check_lstsq(A, B, driver) -> None:
    require_matrix("torch.linalg.lstsq", A, "input")
    require_floating("torch.linalg.lstsq", A)
    if B.dim() < 1:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
    same_dtype("torch.linalg.lstsq", A, B)
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, "
                           f"gelsd, gelss), got {driver!r}")
    difference = A.dim() - B.dim()
    if not 0 <= difference <= 1:
        raise RuntimeError("torch.linalg.lstsq: input.dim() must be greater or equal to "
                           "other.dim() and (input.dim() - other.dim()) <= 1, but got "
                           f"{A.dim()} and {B.dim()}")
    vector = difference == 1 and tuple(A.shape[:-1]) == tuple(B.shape)
    rows = B.shape[-1] if vector else B.shape[-2] if B.dim() > 1 else None
    if rows != A.shape[-2]:
        raise RuntimeError("torch.linalg.lstsq: input.size(-2) should match "
                           f"other.size({-1 if vector else -2}), but got {A.shape[-2]} and {rows}")


@composite(where="linalg")
def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    """How many singular values are above a tolerance."""
    require_matrix("linalg.matrix_rank", A)
    if atol is None and rtol is None and tol is not None:
        atol, rtol = tol, 0.0
    if not A.numel():
        return engine.full(tuple(A.shape[:-2]), 0, dt.int64)
    A = A.detach()
    S = registry["abs"](eigh(A)[0]) if hermitian else registry["linalg.svdvals"](A)
    tolerance = tolerance_of("linalg.matrix_rank", A, _largest(S), atol, rtol)
    return (tolerance.unsqueeze(-1) < S).sum(-1)


# -- the exponential -------------------------------------------------------------------------------


#: Pade coefficients of order 13, and the norm up to which they are exact in float64
PADE = (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800,
        129060195264000, 10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960,
        16380, 182, 1)
PADE_NORM = 5.371920351148152


@composite(backward="LinalgMatrixExpBackward0")
def matrix_exp(input: T):
    """The exponential of a square matrix: sum of A^k / k!."""
    require_square("linalg.matrix_exp", input)
    if input.dtype in HALF:
        return engine.cast(matrix_exp(engine.cast(input, dt.float32)), input.dtype)
    require_floating("linalg.matrix_exp", input)
    if not input.numel():
        return engine.clone(input)
    if input.shape[-1] == 1:
        return registry["exp"](input)
    size = float(registry["abs"](input).sum(-1).amax())
    halvings = 0
    while size > PADE_NORM and size != float("inf"):
        size /= 2
        halvings += 1
    out = _pade(input * 0.5 ** halvings)
    for _ in range(halvings):
        out = matmul(out, out)
    return out


def _pade(A):
    b = PADE
    eye = engine.eye(A.shape[-1], dtype=A.dtype)
    A2 = matmul(A, A)
    A4 = matmul(A2, A2)
    A6 = matmul(A4, A2)
    odd = matmul(A6, b[13] * A6 + b[11] * A4 + b[9] * A2) + b[7] * A6 + b[5] * A4 + b[3] * A2
    odd = matmul(A, odd + b[1] * eye)
    even = (matmul(A6, b[12] * A6 + b[10] * A4 + b[8] * A2) + b[6] * A6 + b[4] * A4 + b[2] * A2
            + b[0] * eye)
    return solve_matrices(even - odd, even + odd)[0]


@matrix_exp.gradient
def matrix_exp(g, input):
    # The exponential of [[A, g], [0, A]] has the derivative of exp at A towards g in its corner.
    A, n = mH(input), input.shape[-1]
    zeros = engine.zeros_like(A)
    above, below = engine.cat([A, g], -1), engine.cat([zeros, A], -1)
    return matrix_exp(engine.cat([above, below], -2)).narrow(-2, 0, n).narrow(-1, n, n)

