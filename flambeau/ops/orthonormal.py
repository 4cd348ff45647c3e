"""Orthogonal decompositions and their derivatives: QR and products of reflections."""

from __future__ import annotations

from .declare import T, composite, engine, library, registry
from .decompose import require_floating, solve_triangular
from .product import conjugate, matmul, mH, require_matrix
from .refusal import spoken


def diagonal_of(x):
    return x.diagonal(0, -2, -1)


def diagonal_matrix(x):
    return registry["diag_embed"](x)


@library(where="linalg")
def qr(A: T, mode="reduced"):
    """(Q, R) with A = Q R, Q orthonormal and R upper triangular."""
    require_matrix("linalg.qr", A)
    require_floating("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' "
                           "(default), 'r', or 'complete'")
    *batch, m, n = A.shape
    k = m if mode == "complete" else min(m, n)
    Q = (0,) if mode == "r" else (*batch, m, k)
    return [(Q, A.dtype), ((*batch, k, n), A.dtype)]


@qr.gradient
def qr(g, out, A_meta, mode):
    m, n = A_meta.shape[-2:]
    if mode == "r":
        raise RuntimeError("The derivative of linalg.qr depends on Q, which is not computed when "
                           "mode='r'. Please use linalg.qr(A, mode='reduced') if you are going to "
                           "require gradients.")
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and "
                           f"nrows > ncols; A has {m} rows and {n} columns")
    (gQ, gR), (Q, R) = g, out
    gQ = engine.zeros_like(Q) if gQ is None else gQ
    gR = engine.zeros_like(R) if gR is None else gR
    if m >= n:
        return _qr_back(gQ, gR, Q, R)
    # The columns beyond the square part are Q R2, so they add to the gradient of Q.
    gR2, R2 = gR.narrow(-1, m, n - m), R.narrow(-1, m, n - m)
    gQ = gQ + matmul(matmul(Q, R2), mH(gR2))
    square = _qr_back(gQ, gR.narrow(-1, 0, m), Q, R.narrow(-1, 0, m))
    return engine.cat([square, matmul(Q, gR2)], -1)


def _qr_back(gQ, gR, Q, R):
    M = (matmul(gR, mH(R)) - matmul(mH(Q), gQ)).triu()
    sym = M + mH(M) - diagonal_matrix(_real_part(diagonal_of(M)))
    return solve_triangular(mH(R), gQ + matmul(Q, sym), upper=False, left=False)


def _real_part(x):
    return engine.cast(registry["real"](x), x.dtype) if x.dtype.is_complex else x


@composite(name="qr")
def reduced_qr(input, some=True):
    """(Q, R) with input = Q R."""
    Q, R = qr(input, "reduced" if some else "complete")
    return engine.named(registry["qr"], (Q, R))



@library
def geqrf(input: T):
    """(a, tau): R above the diagonal, and the reflections that make Q below it."""
    require_matrix("geqrf", input, "input")
    require_floating("geqrf", input)
    k = min(input.shape[-2:])
    return [(tuple(input.shape), input.dtype), ((*input.shape[:-2], k), input.dtype)]


@composite(where="linalg")
def householder_product(A, tau):
    """The first columns of a product of reflections 1 - tau v v^H."""
    _check_reflections("torch.linalg.householder_product", A, tau)
    return _rotated(A, tau, engine.eye(*A.shape[-2:], dtype=A.dtype))


def _rotated(A, tau, x, adjoint: bool = False):
    """H_0 H_1 ... x with the reflections H_i = 1 - tau_i v_i v_i^H, or the adjoint of it.

    The product is 1 - V T V^H with V = (v_0 v_1 ...) and a triangular T, for which (1 + D S) T = D:
    D has tau on its diagonal, and S what v_i^H v_j are above it. So reflections are not made one
    by one, and none of tau is divided by.
    """
    m, k = A.shape[-2], tau.shape[-1]
    V = A.narrow(-1, 0, k).tril(-1) + engine.eye(m, k, dtype=A.dtype)
    D, S = tau.unsqueeze(-1), matmul(mH(V), V).triu(1)
    if adjoint:
        inner = conjugate(D) * solve_triangular(mH(D * S), matmul(mH(V), x), upper=False,
                                                unitriangular=True)
    else:
        inner = solve_triangular(D * S, D * matmul(mH(V), x), upper=True, unitriangular=True)
    return x - matmul(V, inner)


def _check_reflections(name: str, A, tau) -> None:
    require_matrix(name, A, "input")
    m, n = A.shape[-2:]
    if m < n:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to "
                           f"input.shape[-1], but got {m} and {n}")
    if tau.shape[-1] > n:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to "
                           f"tau.shape[-1], but got {n} and {tau.shape[-1]}")
    if tau.dim() != A.dim() - 1 or tuple(tau.shape[:-1]) != tuple(A.shape[:-2]):
        raise RuntimeError(f"{name}: Expected tau to have one dimension less than input and the "
                           f"same batch, but got tau of shape {list(tau.shape)} and input of shape "
                           f"{list(A.shape)}")
    if tau.dtype is not A.dtype:
        raise RuntimeError(f"{name}: tau dtype {spoken(tau.dtype)} does not match input dtype "
                           f"{spoken(A.dtype)}")


@composite
def orgqr(input, input2):
    """The first columns of a product of reflections."""
    return householder_product(input, input2)


@composite
def ormqr(input, tau, other, left=True, transpose=False):
    """`other` multiplied by the product of reflections, or by its adjoint, from either side."""
    side = -2 if left else -1
    if input.dim() < 2:
        raise RuntimeError("torch.ormqr: input must have at least 2 dimensions, but it has "
                           f"{input.dim()}.")
    require_matrix("ormqr", other, "other")
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(f"ormqr: other.shape[{side}] must be equal to input.shape[-2], but got "
                           f"{other.shape[side]} and {input.shape[-2]}")
    if tau.dim() and tau.shape[-1] != min(other.shape[side], input.shape[-1]):
        raise RuntimeError(f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{side}], "
                           f"input.shape[-1]), but got {tau.shape[-1]}, {other.shape[side]} and "
                           f"{input.shape[-1]}")
    if tau.dtype is not input.dtype or (
            other.dtype is not input.dtype) or tau.dim() != input.dim() - 1:
        raise RuntimeError(f"ormqr: tau of shape {list(tau.shape)} and dtype {spoken(tau.dtype)} "
                           f"does not fit input of shape {list(input.shape)} and other of dtype "
                           f"{spoken(other.dtype)}")
    if not left:  # C Q is (Q^H C^H)^H
        return mH(_rotated(input, tau, mH(other), not transpose))
    return _rotated(input, tau, other, transpose)
