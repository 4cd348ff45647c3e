"""Many values folded into the places that indices name."""

from __future__ import annotations

from .arithmetic import mul
from .compare import eq, where
from .declare import T, composite, engine
from .index import (
    _along,
    _both,
    _check_source,
    _raised,
    _rows,
    _same_dtype,
    _scatter,
    _source,
)
from .shape import reshape

#: what a place holds before anything is folded into it, where it does not count itself
_START = {"sum": 0, "mean": 0, "prod": 1}
_COMBINE = {"sum": "add", "mean": "add", "prod": "mul", "amax": "amax", "amin": "amin"}


def _selected(name: str, x, dim, index, src, rowwise: bool):
    """(selection, values) of scatter_reduce or of index_reduce."""
    if rowwise:
        _same_dtype(name, x, src, RuntimeError)
        chosen, d = _rows(name, x, dim, index)
        _check_source(name, x, d, index, src, RuntimeError)
        return chosen, _raised(src)
    chosen, _ = _along(name, x, dim, index, src)
    return chosen, _source(x, index, src, name)


@composite(method=False, function_form=False)
def _scatter_fold(x: T, dim, index, src: T, reduce, include_self, rowwise):
    """scatter_reduce and index_reduce, with one gradient for both."""
    name = "index_reduce" if rowwise else "scatter_reduce"
    chosen, values = _selected(name, x, dim, index, src, rowwise)
    out = _raised(x)
    if not include_self:
        out = engine.put(out, chosen, _first(out, chosen, values, reduce), None, name)
    out = engine.put(out, chosen, values, _COMBINE[reduce], name)
    if reduce == "mean":
        counts = _counts(out, chosen, include_self)
        out = engine.divide(out, counts) if out.sig.dtype.kind in "fc" else (
            engine.floor_divide(out, counts))
    return out if x.sig.rank else reshape(out, ())


def _first(x, chosen, values, reduce: str):
    """What the selected places start from: nothing yet, or one of the values for them."""
    if reduce in _START:
        return engine.full((), _START[reduce], x.sig.dtype, x.sig.device)
    return values


def _counts(x, chosen, include_self: bool):
    """How many values each place is the mean of; 1 where nothing was folded in."""
    one = engine.full((), 1, x.sig.dtype, x.sig.device)
    ones = engine.full(x.sig.shape, 1, x.sig.dtype, x.sig.device)
    if not include_self:
        zero = engine.full((), 0, x.sig.dtype, x.sig.device)
        ones = engine.put(ones, chosen, zero, None, "count")
        ones = engine.put(ones, chosen, one, "add", "count")
        return ones
    return engine.put(ones, chosen, one, "add", "count")


@_scatter_fold.gradient
def _scatter_fold(g, x, dim, index, src, reduce, include_self, rowwise, out):
    name = "index_reduce" if rowwise else "scatter_reduce"
    rank, given = x.sig.rank, src.sig
    g, x, out, src = (_raised(t) for t in (g, x, out, src))
    chosen, values = _selected(name, x, dim, index, src, rowwise)

    def product(start, factors):
        return _scatter_fold(start, dim, index, factors, "prod", include_self, rowwise)

    into_x, into_values = _PULL[reduce](g, x, values, out, chosen, include_self, product)
    if not include_self:
        into_x = engine.put(into_x, chosen, engine.full((), 0, g.sig.dtype), None, name)
    return (into_x if rank else reshape(into_x, ()), _spread(into_values, src, given))


def _spread(part, src, given):
    """The gradient of the values used, with zeros for those that were not."""
    if tuple(part.sig.shape) != tuple(src.sig.shape):
        hole = tuple(part.sig.shape)
        part = engine.with_view("scatter_reduce", engine.zeros_of(src.sig), part,
                                lambda whole: _corner(whole, hole))
    return part if part.sig.rank == given.rank else reshape(part, tuple(given.shape))


def _corner(x, shape):
    for d, n in enumerate(shape):
        x = engine.narrow(x, d, 0, n)
    return x


def _at(x, chosen):
    return engine.taken(x, chosen, "scatter_reduce")


def _pull_sum(g, x, values, out, chosen, include_self, product):
    return g, _at(g, chosen)


def _pull_mean(g, x, values, out, chosen, include_self, product):
    share = engine.divide(g, _counts(x, chosen, include_self))
    return share, _at(share, chosen)


def _pull_extreme(g, x, values, out, chosen, include_self, product):
    """Shared evenly by all that are the extreme."""
    own, theirs = (engine.cast(eq(a, b), g.sig.dtype) for a, b in
                   ((x, out), (values, _at(out, chosen))))
    start = own if include_self else engine.put(
        own, chosen, engine.full((), 0, g.sig.dtype), None, "count")
    ties = engine.put(start, chosen, theirs, "add", "count")
    share = engine.divide(g, where(eq(ties, 0), engine.full((), 1, g.sig.dtype), ties))
    if not include_self:  # a place nothing was folded into keeps its own value
        own = engine.full(x.sig.shape, 1, g.sig.dtype)
    return mul(share, own), mul(_at(share, chosen), theirs)


def _pull_product(g, x, values, out, chosen, include_self, product):
    """out / factor, or the product of the others where that factor is the only zero."""
    one = engine.full((), 1, g.sig.dtype)
    x_zero, zero = eq(x, 0), eq(values, 0)
    safe, safe_x = where(zero, one, values), where(x_zero, one, x)
    others = product(safe_x, safe)
    zeros = engine.cast(x_zero, g.sig.dtype)
    if not include_self:
        zeros = engine.put(zeros, chosen, engine.full((), 0, g.sig.dtype), None, "count")
    zeros = engine.put(zeros, chosen, engine.cast(zero, g.sig.dtype), "add", "count")
    nothing = engine.full((), 0, g.sig.dtype)

    def slope(factor, is_zero, rest, count):
        alone = where(is_zero, where(eq(count, 1), rest, nothing), nothing)
        return where(is_zero, alone, where(eq(count, 0), engine.divide(rest, factor), nothing))

    into_x = mul(g, slope(safe_x, x_zero, others, zeros))
    if not include_self:
        into_x = g
    return into_x, mul(_at(g, chosen), slope(safe, zero, _at(others, chosen), _at(zeros, chosen)))


_PULL = {"sum": _pull_sum, "mean": _pull_mean, "prod": _pull_product, "amax": _pull_extreme,
         "amin": _pull_extreme}


@composite(backward="ScatterReduceBackward0")
def scatter_reduce(x, dim, index, src, reduce, *, include_self=True):
    """Values folded into places along a dimension, where an index says."""
    if reduce not in _COMBINE:
        raise RuntimeError("reduce argument must be either sum, prod, mean, amax or amin, got "
                           f"{reduce}")
    return _scatter_fold(x, dim, index, src, reduce, include_self, False)


@composite
def index_reduce(x, dim, index, source, reduce, *, include_self=True):
    """Slices folded into the places along a dimension that a vector names."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError("index_reduce(): Expected reduce to be one of prod, mean, amax or amin "
                           f"but got {reduce}.")
    return _scatter_fold(x, dim, index, source, reduce, include_self, True)


_plain, _plain_ = _both("scatter", _scatter, "ScatterBackward0", declared=False)


@composite
def scatter(x, dim, index, src=None, *, value=None, reduce=None):
    """A copy of the tensor after `scatter_`."""
    if reduce == "multiply" and engine.tracked(x, src):
        return _multiplied(x, dim, index, src if value is None else value)
    return _plain(x, dim, index, src, value=value, reduce=reduce)


@composite(function_form=False)
def scatter_(x, dim, index, src=None, *, value=None, reduce=None):
    """Write elements along a dimension, where an index says; or add, or multiply."""
    if reduce == "multiply" and engine.tracked(x, src):
        given = src if value is None else value
        return engine.overwrite(x, "scatter_", _multiplied, (dim, index, given), {})
    return _plain_(x, dim, index, src, value=value, reduce=reduce)


def _multiplied(x, dim, index, given):
    if not hasattr(given, "sig"):
        given = engine.full(index.sig.shape, given, x.sig.dtype, x.sig.device)
    return _scatter_fold(x, dim, index, given, "prod", True, False)


def _in_place(op):
    def form(x, *args, **kwargs):
        return engine.overwrite(x, f"{op.name}_", op.run, args, kwargs)

    form.__name__ = f"{op.name}_"
    form.__doc__ = f"In-place form of `{op.name}`."
    return composite(function_form=False)(form)


scatter_reduce_ = _in_place(scatter_reduce)
index_reduce_ = _in_place(index_reduce)
