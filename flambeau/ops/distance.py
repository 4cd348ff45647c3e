"""Lengths of vectors: norms of any order, and what is made with them."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..core import expr as e
from .declare import REAL, T, composite, engine, reduction, registry
from .reduce import dims_listed, restored, sum


def _zero(d: dt.dtype) -> e.Expr:
    return e.const(0, d.to_real())


def _added(a, b):
    return a + b


def _declared(body, **options):
    return reduction(REAL, start=options.pop("start", _zero), merge=options.pop("merge", _added),
                     method=False, function_form=False, said="norm", **options)(body)


def norm_zero(total, x):
    """How many are not zero."""
    return total + e.cast(x != 0, total.dtype)


def norm_one(total, x):
    """The sum of absolute values."""
    return total + e.call("abs", x) if x.dtype.kind != "c" else total + _length(x)


def norm_two(total, x):
    """The root of the sum of squares."""
    return total + _squared(x)


def norm_power(total, x, *, p=3.0):
    """The p-th root of the sum of p-th powers."""
    return total + e.call("pow", _length(x), p)


def norm_largest(best, x):
    """The largest absolute value."""
    return e.maximum(best, _length(x))


def norm_smallest(best, x):
    """The smallest absolute value."""
    return e.minimum(best, _length(x))


def _squared(x):
    if x.dtype.kind != "c":
        return x * x
    real, imag = e.real(x), e.imag(x)
    return real * real + imag * imag


def _length(x):
    if x.dtype.kind != "c":
        return e.call("abs", x)
    return e.call("hypot", e.real(x), e.imag(x))


#: order -> the fold that computes it
FOLDS = {
    0:         _declared(norm_zero),
    1:         _declared(norm_one, wide=True),
    2:         _declared(norm_two, wide=True, finish=lambda total: e.call("sqrt", total)),
    math.inf:  _declared(norm_largest, merge=e.maximum),
    -math.inf: _declared(norm_smallest, merge=e.minimum,
                         start=lambda d: e.const(math.inf, d.to_real())),
}
POWER = _declared(norm_power, wide=True, finish=lambda total, p: e.call("pow", total, 1 / p))


@composite(where="linalg", backward="LinalgVectorNormBackward0")
def vector_norm(x: T, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The length of vectors: (sum of |x|^ord)^(1/ord) over `dim`."""
    _check(x, ord, dim, dtype)
    x = x if dtype is None else engine.cast(x, dtype)
    fold = FOLDS.get(ord)
    if fold is not None:
        return fold(x, dim, keepdim)
    return POWER(x, dim, keepdim, p=ord)


def _check(x, ord, dim, dtype) -> None:
    for given, what in ((x.dtype, "input"), (dtype, "dtype")):
        if given is not None and given.kind not in "fc":
            raise RuntimeError("linalg.vector_norm: Expected a floating point or complex tensor as "
                               f"input. Got {given} as {what}")
    if dtype is not None and (x.dtype.kind == "c") != (dtype.kind == "c"):
        raise RuntimeError("linalg.vector_norm: dtype should be complex for complex inputs and "
                           f"real for real ones, but got {dtype} for {x.dtype}")
    if isinstance(ord, (str, complex)):
        raise RuntimeError("linalg.vector_norm: Expected a non-complex scalar as the order of "
                           f"norm, got {ord!r}.")
    if not x.numel() and (ord < 0 or ord == math.inf):
        for d in dims_listed(dim, x.dim()):
            if not x.shape[d]:
                raise RuntimeError(f"linalg.vector_norm cannot compute the {ord} norm on the "
                                   f"dimension {d} because this dimension is empty and the "
                                   "operation does not have an identity")


@vector_norm.gradient
def vector_norm(g, x, out, x_meta, ord, dim, keepdim):
    given = x
    x = engine.cast(x, _as_wide(x.dtype, out.dtype))
    g, out = (restored(v, x_meta, dim, keepdim) for v in (g, out))
    return engine.cast(_norm_back(g, x, out, x_meta, ord, dim), given.dtype)


def _as_wide(given: dt.dtype, result: dt.dtype) -> dt.dtype:
    return result.to_complex() if given.kind == "c" else result


def _where(condition, value, otherwise):
    return registry["where"](condition, value, otherwise)


def _norm_back(g, x, out, meta, p, dim):
    """How |x|_p moves with x: sgn(x) |x|^(p-1) / |x|_p^(p-1), and 0 at the origin."""
    if p == 0:
        return engine.zeros_like(x)
    if p == 1:
        return registry["sgn"](x) * g
    if p == 2:
        return _where(out == 0, 0.0, g * (x / out))
    if abs(p) == math.inf:
        ties = registry["abs"](x) == out
        ties = ties | ((x != x) & (out != out))
        dims = tuple(dims_listed(dim, meta.rank))
        count = sum(ties, dims, True) if dims else 1
        return registry["sgn"](x) * (g / count * ties)
    if p < 1:
        powers = _where(x == 0, 0.0, registry["abs"](x) ** (p - 1))
        return registry["sgn"](x) * powers * (g * out ** (1 - p))
    scale = _where(out == 0, 0.0, g / out ** (p - 1))
    if p < 2:
        return registry["sgn"](x) * registry["abs"](x) ** (p - 1) * scale
    return x * registry["abs"](x) ** (p - 2) * scale


@composite
def norm(input, p="fro", dim=None, keepdim=False, *, dtype=None):
    """A norm of vectors, or with p="nuc" of matrices."""
    if p == "nuc":
        dim = tuple(range(input.dim())) if dim is None else dim
        return registry["linalg.matrix_norm"](input, "nuc", dim, keepdim, dtype=dtype)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"norm(): p should be a number, 'fro' or 'nuc', but got {p!r}")
    p = 2 if p in (None, "fro") else p
    if dtype is None:
        return vector_norm(input, p, dim, keepdim)
    return vector_norm(input, p, dim, keepdim, dtype=dtype)


@composite(backward="DistBackward0")
def dist(input, other, p=2):
    """The p-norm of input - other."""
    return vector_norm(input - other, p)


@composite(inplace=True)
def renorm(input, p, dim, maxnorm):
    """Slices along `dim` shrunk so that their p-norm is at most maxnorm."""
    for fits, said in (
            (p > 0, f"non-positive-norm not supported, got p={p}"),
            (maxnorm >= 0, f"expected maxnorm to be >= 0 but got {maxnorm}"),
            (input.dim() >= 2, f"input needs at least 2 dimensions, got {input.dim()} dimensions")):
        if not fits:
            raise RuntimeError(f"renorm: {said}")
    kept = dim % input.dim() if -input.dim() <= dim < input.dim() else None
    if kept is None:
        raise IndexError(f"renorm: Dimension out of range (expected to be in range of "
                         f"[{-input.dim()}, {input.dim() - 1}], but got {dim})")
    others = tuple([d for d in range(input.dim()) if d != kept])
    lengths = vector_norm(input, p, others, True)
    return input * _where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)


@composite(where="nn.functional")
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """Vectors along `dim` divided by their p-norm."""
    lengths = registry["clamp_min"](vector_norm(input, p, dim, True), eps)
    return input / registry["expand"](lengths, tuple(input.shape))
