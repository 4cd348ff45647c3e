"""A few of the largest or smallest eigenvalues of a symmetric matrix that is only multiplied with.

Locally optimal block preconditioned conjugate gradients: in every step the best block is taken
from what the last one, its residuals and its last change span.
"""

from __future__ import annotations

import flambeau
from flambeau import Tensor
from flambeau.autograd import Function

__all__ = ["lobpcg"]

EPSILON = {flambeau.float32: 1.2e-07, flambeau.float64: 2.23e-16}
MOST_STEPS = 1000
METHODS = ("basic", "ortho")


def lobpcg(A, k=None, B=None, X=None, n=None, iK=None, niter=None, tol=None, largest=None,
           method=None, tracker=None, ortho_iparams=None, ortho_fparams=None, ortho_bparams=None):
    """(values, vectors): k extreme eigenpairs of A x = value B x, A and B symmetric, B positive.

    X is a first guess at the vectors, iK a preconditioner (about the inverse of A), n how many
    vectors are iterated. Both methods that torch knows are this one; a tracker is not called.
    """
    dtype = A.dtype if A.dtype in EPSILON else flambeau.float32
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if n is None else n) if X is None else X.shape[-1]
    _check(A, B, m, n, k, method)
    if X is None:
        X = flambeau.randn((*A.shape[:-2], m, n), dtype=dtype, device=A.device)
    options = (EPSILON[dtype] if tol is None else tol, MOST_STEPS if niter is None else niter,
               largest is None or bool(largest))
    if A.requires_grad and flambeau.is_grad_enabled():
        if B is not None or A.is_sparse:
            raise ValueError("lobpcg: gradients are for dense A and no B")
        values, vectors = _Extreme.apply(A, X, iK, options)
    else:
        with flambeau.no_grad():
            values, vectors = _of_all(A, B, X, iK, options)
    return values[..., :k], vectors[..., :k]


def _check(A, B, m: int, n: int, k: int, method) -> None:
    if A.dim() < 2 or A.shape[-2] != m:
        raise ValueError(f"lobpcg: A must be square, got {tuple(A.shape)}")
    if B is not None and B.shape != A.shape:
        raise ValueError(f"lobpcg: B must be of A's shape {tuple(A.shape)}, got {tuple(B.shape)}")
    if m < 3 * n:
        raise ValueError(f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is "
                         f"smaller than 3 x the number of requested eigenpairs (={n})")
    if k > n:
        raise ValueError(f"lobpcg: {k} pairs were asked for, and {n} vectors are iterated")
    if method is not None and method not in METHODS:
        raise ValueError(f"Unknown method name: {method}; known are {', '.join(METHODS)}")


def _of_all(A, B, X, iK, options):
    """The pairs of each matrix of a batch."""
    if A.dim() == 2:
        return _of_one(A, B, X, iK, options)
    batch = A.shape[:-2]
    parts = [None if t is None else t.reshape(-1, *t.shape[-2:]) for t in (A, B, X, iK)]
    found = [_of_one(*(None if t is None else t[i] for t in parts), options)
             for i in range(parts[0].shape[0])]
    values, vectors = (flambeau.stack(column) for column in zip(*found, strict=True))
    return values.reshape(*batch, -1), vectors.reshape(*batch, *vectors.shape[-2:])


def _of_one(A, B, X, iK, options):
    tol, niter, largest = options
    dtype, n = X.dtype, X.shape[-1]
    A, B, X, iK = (None if t is None else t.double() for t in (A, B, X, iK))
    size = (A * A).sum().sqrt()
    values, X = _best(A, B, X, n, largest)
    change: tuple = ()
    for _ in range(niter):
        residual = A @ X - _weighed(B, X) * values
        if bool((residual.norm(dim=0) <= tol * (size + values.abs())).all()):
            break
        search = residual if iK is None else iK @ residual
        values, new = _best(A, B, flambeau.cat((X, search, *change), 1), n, largest)
        change = (new - X @ (X.mT @ _weighed(B, new)),)
        X = new
    return values.to(dtype), X.to(dtype)


def _weighed(B, X):
    return X if B is None else B @ X


def _best(A, B, span, n: int, largest: bool):
    """The n extreme pairs among all combinations of some columns."""
    span = span / span.norm(dim=0).clamp(min=1e-300)
    for _ in range(2):  # the second time, what the first one's rounding left
        weights, turn = flambeau.linalg.eigh(span.mT @ _weighed(B, span))
        kept = weights > 1e-14 * weights.max()
        span = span @ (turn[:, kept] * weights[kept].rsqrt())
    values, turn = flambeau.linalg.eigh(span.mT @ (A @ span))
    chosen = flambeau.arange(values.numel())
    chosen = chosen.flip(0)[:n] if largest else chosen[:n]
    return values[chosen], span @ turn[:, chosen]


class _Extreme(Function):
    """The same as a step of the graph: its gradient is that of the full decomposition."""

    @staticmethod
    def forward(ctx, A: Tensor, X, iK, options):
        values, vectors = _of_all(A.detach(), None, X, iK, options)
        ctx.save_for_backward(A, vectors)
        ctx.largest = options[2]
        return values, vectors

    @staticmethod
    def backward(ctx, of_values, of_vectors):
        A, vectors = ctx.saved_tensors
        n = vectors.shape[-1]
        with flambeau.enable_grad():
            whole = A.detach().requires_grad_()
            every, turned = flambeau.linalg.eigh(whole)
            if ctx.largest:
                every, turned = every.flip(-1), turned.flip(-1)
            every, turned = every[..., :n], turned[..., :n]
            sign = (turned.detach() * vectors).sum(-2, keepdim=True).sign()
            (found,) = flambeau.autograd.grad((every, turned * sign), whole,
                                              (of_values, of_vectors))
        return found, None, None, None
