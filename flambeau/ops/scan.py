"""Running results along a dimension: sums, products, extremes, and what is built on them."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from .declare import T, composite, engine, library, registry
from .reduce import conj, prod, refuses, sum


def _along(name: str, input, dim: int) -> int:
    return sh.wrap_dim(dim, input.rank, name)


def _summed(given: dt.dtype, wanted) -> dt.dtype:
    return wanted or (given if given.kind in "fc" else dt.int64)


def reversed_along(x, dim: int):
    return registry["flip"](x, (dim,)) if x.dim() else x


@library(inplace=True)
def cumsum(input: T, dim, *, dtype=None):
    """Running sum along `dim`."""
    _along("cumsum", input, dim)
    return input.shape, _summed(input.dtype, dtype)


@cumsum.gradient
def cumsum(g, input_meta, dim):
    back = reversed_along(cumsum(reversed_along(g, dim), dim), dim)
    return engine.cast(back, input_meta.dtype)


@library(inplace=True)
def cumprod(input: T, dim, *, dtype=None):
    """Running product along `dim`."""
    _along("cumprod", input, dim)
    return input.shape, _summed(input.dtype, dtype)


@cumprod.gradient
def cumprod(g, input, out, input_meta, dim):
    x = engine.cast(input, out.dtype)
    if not input_meta.rank or not input_meta.numel:
        return engine.cast(g, input_meta.dtype)
    dim = dim % input_meta.rank
    if (x == 0).any():
        found = _products_without_each(g, x, dim)
    else:
        found = reversed_along(cumsum(reversed_along(g * conj(out), dim), dim), dim) / conj(x)
    return engine.cast(found, input_meta.dtype)


def _products_without_each(g, x, dim: int):
    """For each element: what follows from it on, as products that leave the element itself out."""
    size, parts = x.shape[dim], []
    for k in range(size):
        shape = list(x.shape)
        shape[dim] = 1
        rest = engine.full(shape, 1, x.dtype)
        if k + 1 < size:
            rest = registry["cat"]([rest, cumprod(x.narrow(dim, k + 1, size - k - 1), dim)], dim)
        if k:
            rest = rest * prod(x.narrow(dim, 0, k), dim, True)
        parts.append(sum(g.narrow(dim, k, size - k) * conj(rest), dim, True))
    return registry["cat"](parts, dim)


_cummax_accepts, _cummin_accepts = refuses("cummax_cpu", "c"), refuses("cummin_cpu", "c")


@library
def cummax(input: T, dim):
    """The largest so far along `dim`, and where it is."""
    _cummax_accepts(input.dtype)
    _along("cummax", input, dim)
    return [(input.shape, input.dtype), (input.shape, dt.int64)]


@library
def cummin(input: T, dim):
    """The smallest so far along `dim`, and where it is."""
    _cummin_accepts(input.dtype)
    _along("cummin", input, dim)
    return [(input.shape, input.dtype), (input.shape, dt.int64)]


def _given_back(g, out, input_meta, dim):
    if not input_meta.rank:
        return g[0]
    zeros = engine.full(tuple(input_meta.shape), 0, g[0].dtype, input_meta.device)
    return registry["scatter_add"](zeros, dim, out[1], g[0])


for _op in (cummax, cummin):
    _op.gradient(_given_back)


@library
def logcumsumexp(input: T, dim):
    """log of the running sum of exponentials along `dim`, without overflow."""
    refuses("logcumsumexp_out_cpu", "biu")(input.dtype)
    _along("logcumsumexp", input, dim)
    return input.shape


@logcumsumexp.gradient
def logcumsumexp(g, input, out, input_meta, dim):
    if not input_meta.rank or not input_meta.numel:
        return g
    if input_meta.dtype.kind == "c":
        back = reversed_along(cumsum(reversed_along(g * conj(registry["exp"](-out)), dim), dim), dim)
        return back * conj(registry["exp"](input))
    return _share(g, input, out, dim) - _share(-g, input, out, dim)


def _share(g, x, out, dim: int):
    """The part of the gradient from where g is positive, in logarithms all the way."""
    positive = g > 0
    logs = registry["where"](positive, registry["log"](registry["where"](positive, g, 1.0)),
                             float("-inf"))
    run = reversed_along(logcumsumexp(reversed_along(logs - out, dim), dim), dim)
    return registry["exp"](run + x)


# -- differences and areas -----------------------------------------------------------------------------


@composite
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Differences of neighbours along `dim`, n times over."""
    if not input.dim():
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = sh.wrap_dim(dim, input.dim(), "diff")
    parts = [p for p in (prepend, input, append) if p is not None]
    for part in parts:
        if part.dim() != input.dim():
            raise RuntimeError("diff expects prepend or append to be the same dimension as input, "
                               f"got {part.dim()} and {input.dim()} dimensions")
    if n == 0:
        return engine.clone(input)
    x = registry["cat"](parts, dim) if len(parts) > 1 else input
    n = n if n < x.shape[dim] else x.shape[dim]
    for _ in range(n):
        size = x.shape[dim] - 1
        later, earlier = x.narrow(dim, 1, size), x.narrow(dim, 0, size)
        x = later ^ earlier if x.dtype.kind == "b" else later - earlier
    return x


def _areas(name: str, y, x, dx, dim: int):
    """The areas between neighbouring points along `dim`."""
    dim = sh.wrap_dim(dim, y.dim(), name)
    size = y.shape[dim] - 1 if y.dim() else 0
    if size < 0:
        size = 0
    pairs = y.narrow(dim, 0, size) + y.narrow(dim, y.shape[dim] - size, size)
    if x is None:
        return pairs * (dx / 2), dim
    if x.dtype.kind == "b":
        raise RuntimeError(f"{name}: received a bool input for `x`, but bool is not supported")
    if x.dim() == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point, got "
                               f"{x.shape[0]} for {y.shape[dim]}")
        widths = engine.reshape(diff(x), [-1 if d == dim else 1 for d in range(y.dim())])
    else:
        widths = diff(x, dim=dim if x.dim() == y.dim() else dim - y.dim())
    return pairs * widths / 2, dim


def _one_spacing(name: str, x, dx):
    if x is not None and dx is not None:
        raise TypeError(f"{name}() takes x or dx, not both")
    if isinstance(dx, bool):
        raise RuntimeError(f"{name}: Currently, we only support dx as a real number, got a bool")
    return 1 if dx is None else dx


@composite
def trapezoid(y, x=None, *, dx=None, dim=-1):
    """The area under y along `dim` by the trapezoidal rule."""
    dx = _one_spacing("trapezoid", x, dx)
    if y.dtype.kind == "b":
        raise RuntimeError("trapezoid: received a bool input for `y`, but bool is not supported")
    if y.dim() and y.shape[dim] == 0:
        shape = [n for d, n in enumerate(y.shape) if d != dim % y.dim()]
        return engine.full(shape, 0, y.dtype)
    areas, dim = _areas("trapezoid", y, x, dx, dim)
    return sum(areas, dim)


@composite
def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """The running area under y along `dim` by the trapezoidal rule."""
    dx = _one_spacing("cumulative_trapezoid", x, dx)
    if y.dtype.kind == "b":
        raise RuntimeError("cumulative_trapezoid: received a bool input for `y`, but bool is not "
                           "supported")
    areas, dim = _areas("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(areas, dim)
