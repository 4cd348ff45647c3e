"""The largest and the smallest: amax, max, argmax and their likes."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as e
from .declare import INDEX, SAME, composite, engine, reduction, registry
from .reduce import dims_listed, refuses, restored

_NEVER = 2**63 - 1  # a position after every other


def lowest(d: dt.dtype) -> e.Expr:
    """What every element of a dtype is at least as large as."""
    if d.kind == "f":
        return e.const(float("-inf"), d)
    return e.const(0 if d.kind == "b" else dt.iinfo(d).min, d)


def highest(d: dt.dtype) -> e.Expr:
    """What every element of a dtype is at most as large as."""
    if d.kind == "f":
        return e.const(float("inf"), d)
    return e.const(1 if d.kind == "b" else dt.iinfo(d).max, d)


def _larger(best, x, position):
    return _taken(best, x, position, lambda a, b: a > b)


def _smaller(best, x, position):
    return _taken(best, x, position, lambda a, b: a < b)


def _taken(best, x, position, beats):
    """(value, position) after one more element: the first of equals, and of NaNs, stays."""
    value, at = best
    earlier = position < at
    better = beats(x, value) | ((x == value) & earlier)
    if x.dtype.kind == "f":
        unknown = e.isnan(value)
        better = better | (e.isnan(x) & (~unknown | earlier))
    return e.where(better, x, value), e.where(better, position, at)


def _never(extreme):
    return lambda d: (extreme(d), e.const(_NEVER, dt.int64))


def evenly(g, x, out, meta, dim, keepdim):
    """The gradient of an extreme: equal shares for all the elements that reach it."""
    value = restored(out, meta, dim, keepdim)
    ties = x == value
    if x.dtype.kind == "f":
        ties = ties | ((x != x) & (value != value))
    dims = tuple(dims_listed(dim, meta.rank))
    count = registry["sum"](ties, dims, True) if dims else 1
    return restored(g, meta, dim, keepdim) * ties / count


def selected(g, indices, meta, dim, keepdim):
    """The gradient of picked elements: each goes to where it was picked from."""
    if not meta.rank:
        return g
    if not keepdim:
        g, indices = (registry["unsqueeze"](v, dim) for v in (g, indices))
    zeros = engine.full(tuple(meta.shape), 0, g.dtype, meta.device)
    return registry["scatter"](zeros, dim, indices, g)


# -- values only ---------------------------------------------------------------------------------


@reduction(SAME, start=lowest, empty=False, accepts=refuses("max_values_cpu", "c"))
def amax(best, x):
    """The largest over `dim`; NaN if there is one."""
    return e.maximum(best, x)


@reduction(SAME, start=highest, empty=False, accepts=refuses("min_values_cpu", "c"))
def amin(best, x):
    """The smallest over `dim`; NaN if there is one."""
    return e.minimum(best, x)


@reduction(SAME, start=lowest, empty=False, accepts=refuses("max_all", "c"), named="max",
           method=False, function_form=False, backward="MaxBackward1", said="max")
def max_all(best, x):
    """The largest of all."""
    return e.maximum(best, x)


@reduction(SAME, start=highest, empty=False, accepts=refuses("min_all", "c"), named="min",
           method=False, function_form=False, backward="MinBackward1", said="min")
def min_all(best, x):
    """The smallest of all."""
    return e.minimum(best, x)


def _even_gradient(g, x, out, x_meta, dim, keepdim):
    return evenly(g, x, out, x_meta, dim, keepdim)


for _op in (amax, amin, max_all, min_all):
    _op.gradient(_even_gradient)


@reduction(SAME, start=lambda d: (highest(d), lowest(d)), empty=False, named="aminmax",
           merge=lambda a, b: (e.minimum(a[0], b[0]), e.maximum(a[1], b[1])),
           results={"min": SAME, "max": SAME}, accepts=refuses("aminmax_cpu", "c"),
           method=False, function_form=False, backward="AminmaxBackward0", said="aminmax")
def both_extremes(best, x):
    """The smallest and the largest."""
    return e.minimum(best[0], x), e.maximum(best[1], x)


@both_extremes.gradient
def both_extremes(g, x, out, x_meta, dim, keepdim):
    parts = [evenly(part, x, value, x_meta, dim, keepdim)
             for part, value in zip(g, out, strict=True) if part is not None]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@composite
def aminmax(input, *, dim=None, keepdim=False):
    """The smallest and the largest, in one go."""
    if dim is None and not input.numel():
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the "
                           f"operation has no identity; the input has shape {tuple(input.shape)}")
    return both_extremes(input, dim, keepdim)


# -- with positions ------------------------------------------------------------------------------


def _order(name: str, kinds: str = "bc"):
    def check(given: dt.dtype, chosen: bool = False) -> None:
        if given.kind in kinds:
            kind = "bool" if given.kind == "b" else "complex"
            raise RuntimeError(f"{name}(): does not support {kind} input")
    return check


@reduction(INDEX, start=_never(lowest), merge=lambda a, b: _larger(a, *b), empty=False,
           indexed=True, finish=lambda best: best[1], accepts=_order("argmax"))
def argmax(best, x, position):
    """Where the largest is: the first of equals, or the first NaN."""
    return _larger(best, x, position)


@reduction(INDEX, start=_never(highest), merge=lambda a, b: _smaller(a, *b), empty=False,
           indexed=True, finish=lambda best: best[1], accepts=_order("argmin"))
def argmin(best, x, position):
    """Where the smallest is: the first of equals, or the first NaN."""
    return _smaller(best, x, position)


@reduction(SAME, start=_never(lowest), merge=lambda a, b: _larger(a, *b), empty=False, indexed=True,
           results={"values": SAME, "indices": INDEX}, named="max", accepts=_order("max", "c"),
           method=False, function_form=False, backward="MaxBackward0", said="max")
def max_along(best, x, position):
    """The largest along a dimension, and where it is."""
    return _larger(best, x, position)


@reduction(SAME, start=_never(highest), merge=lambda a, b: _smaller(a, *b), empty=False,
           indexed=True, results={"values": SAME, "indices": INDEX}, named="min",
           accepts=_order("min", "c"), method=False, function_form=False, backward="MinBackward0",
           said="min")
def min_along(best, x, position):
    """The smallest along a dimension, and where it is."""
    return _smaller(best, x, position)


def _picked_gradient(g, out, x_meta, dim, keepdim):
    return selected(g[0], out[1], x_meta, dim, keepdim)


for _op in (max_along, min_along):
    _op.gradient(_picked_gradient)


def _forms(name: str, everything, along, binary: str):
    """The three forms of max and min: of all, along a dimension, of two tensors."""
    def choose(input, dim=None, keepdim=False, *, other=None):
        if not hasattr(input, "dtype"):
            raise TypeError(f"{name}() received an invalid combination of arguments - got "
                            f"{type(input).__name__} as input, but expected a Tensor")
        other = dim if other is None and hasattr(dim, "dtype") else other
        if other is not None:
            return registry[binary](input, other)
        if dim is None:
            return everything(input)
        if not isinstance(dim, int) or isinstance(dim, bool):
            raise TypeError(f"{name}() received an invalid combination of arguments - got dim "
                            f"{dim!r}, but expected an int, or a Tensor `other`")
        return along(input, dim, keepdim)

    choose.__name__ = name
    choose.__doc__ = f"{along.doc[:-1]}; without a dimension that of all, or of two tensors."
    return composite(name=name)(choose)


max = _forms("max", max_all, max_along, "maximum")
min = _forms("min", min_all, min_along, "minimum")
