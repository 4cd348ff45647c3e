"""Running results along a dimension: sums, products, extremes, and what is built on them."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as e
from ..core import shape as sh
from .declare import INDEX, SAME, SUM, T, composite, engine, library, reduction, registry
from .extremes import highest, lowest
from .reduce import conj, prod, refuses, sum


def reversed_along(x, dim: int):
    return registry["flip"](x, (dim,)) if x.dim() else x


@reduction(SUM, start=0, running=True, wide=True, typed=True, inplace=True)
def cumsum(total, x):
    """Running sum along `dim`."""
    return total + x


@cumsum.gradient
def cumsum(g, x_meta, dim):
    back = reversed_along(cumsum(reversed_along(g, dim), dim), dim)
    return engine.cast(back, x_meta.dtype)


@reduction(SUM, start=1, running=True, wide=True, typed=True, inplace=True)
def cumprod(product, x):
    """Running product along `dim`."""
    return product * x


@cumprod.gradient
def cumprod(g, x, out, x_meta, dim):
    if not x_meta.rank or not x_meta.numel:
        return engine.cast(g, x_meta.dtype)
    x, dim = engine.cast(x, out.dtype), dim % x_meta.rank
    if (x == 0).any():
        found = _products_without_each(g, x, dim)
    else:
        found = reversed_along(cumsum(reversed_along(g * conj(out), dim), dim), dim) / conj(x)
    return engine.cast(found, x_meta.dtype)


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


def _latest(beats):
    """The step of a running extreme: the last of equals, and NaN from the first one on."""
    def step(best, x, position):
        value, at = best
        taken = beats(x, value) | e.isnan(x) if x.dtype.kind == "f" else beats(x, value)
        return e.where(taken, x, value), e.where(taken, position, at)
    return step


def _running_extreme(name: str, start, beats, doc: str):
    step = _latest(beats)
    step.__name__, step.__doc__ = name, doc
    return reduction(SAME, start=lambda d: (start(d), e.const(0, dt.int64)), merge=lambda a, b: a,
                     running=True, indexed=True, results={"values": SAME, "indices": INDEX},
                     accepts=refuses(f"{name}_cpu", "c"))(step)


cummax = _running_extreme("cummax", lowest, lambda x, best: x >= best,
                          "The largest so far along `dim`, and where it is.")
cummin = _running_extreme("cummin", highest, lambda x, best: x <= best,
                          "The smallest so far along `dim`, and where it is.")


def _given_back(g, out, x_meta, dim):
    if not x_meta.rank:
        return g[0]
    zeros = engine.full(tuple(x_meta.shape), 0, g[0].dtype, x_meta.device)
    return registry["scatter_add"](zeros, dim, out[1], g[0])


for _op in (cummax, cummin):
    _op.gradient(_given_back)


@library
def logcumsumexp(input: T, dim):
    """log of the running sum of exponentials along `dim`, without overflow."""
    refuses("logcumsumexp_out_cpu", "biu")(input.dtype)
    sh.wrap_dim(dim, input.rank, "logcumsumexp")
    return input.shape


@logcumsumexp.gradient
def logcumsumexp(g, input, out, input_meta, dim):
    if not input_meta.rank or not input_meta.numel:
        return g
    if input_meta.dtype.kind == "c":
        turned = reversed_along(g * conj(registry["exp"](-out)), dim)
        return reversed_along(cumsum(turned, dim), dim) * conj(registry["exp"](input))
    return _share(g, input, out, dim) - _share(-g, input, out, dim)


def _share(g, x, out, dim: int):
    """The part of the gradient from where g is positive, in logarithms all the way."""
    positive = g > 0
    # The lowest number, not -infinity, whose distance to itself would be NaN.
    logs = registry["where"](positive, registry["log"](registry["where"](positive, g, 1.0)),
                             dt.finfo(g.dtype).min)
    run = reversed_along(logcumsumexp(reversed_along(logs - out, dim), dim), dim)
    return registry["exp"](run + x)


# -- differences and areas -----------------------------------------------------------------------


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
    if not y.dim():
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if x is None:  # the sum of all, the ends counted half
        ends = y.select(dim, 0) + y.select(dim, -1)
        return (sum(y, dim) - ends * 0.5) * dx
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
