"""Sums, products, counts: elements folded into one."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as e
from .declare import FLOAT, INDEX, SAME, SUM, composite, engine, reduction, registry
from .refusal import spoken


def refuses(name: str, kinds: str, error: type[Exception] = NotImplementedError):
    """A check that raises for dtypes of some kinds."""
    def check(given: dt.dtype, chosen: bool = False) -> None:
        if given.kind in kinds:
            raise error(f"\"{name}\" not implemented for '{spoken(given)}'")
    return check


def needs_float(name: str):
    """A check that raises for integers and bool, in the words of a mean."""
    def check(given: dt.dtype, chosen: bool = False) -> None:
        if given.kind in "biu":
            which = "Optional" if chosen else "Input"
            raise RuntimeError(f"{name}(): could not infer output dtype. {which} dtype must be "
                               f"either a floating point or complex dtype. Got: {spoken(given)}")
    return check


# -- gradients of reductions -----------------------------------------------------------------------


def dims_listed(dim, rank: int) -> list[int]:
    """The reduced dimensions in rising order; None and () mean all."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return list(range(rank))
    return sorted(d % rank for d in ((dim,) if isinstance(dim, int) else dim)) if rank else []


def restored(value, meta, dim, keepdim):
    """A value of reduced shape with the reduced dimensions back, of size 1."""
    if not keepdim:
        for d in dims_listed(dim, meta.rank):
            value = registry["unsqueeze"](value, d)
    return value


def spread(g, meta, dim, keepdim):
    """A gradient of reduced shape seen at the full shape: a view, nothing is copied."""
    if dim is not None or keepdim:
        g = restored(g, meta, dim, keepdim)
    elif not engine.recording():
        return engine.repeated(g, meta)
    return registry["expand"](g, tuple(meta.shape))


def count_of(meta, dim) -> int:
    """How many elements go into one."""
    count = 1
    for d in dims_listed(dim, meta.rank):
        count *= meta.shape[d]
    return count


def conj(x):
    return registry["conj"](x) if x.dtype.kind == "c" else x


# -- sums ------------------------------------------------------------------------------------------


@reduction(SUM, start=0, wide=True, typed=True, numbered=True)
def sum(total, x):
    """Sum over `dim`, or over everything."""
    return total + x


@sum.gradient
def sum(g, x_meta, dim, keepdim):
    return spread(engine.cast(g, x_meta.dtype), x_meta, dim, keepdim)


@reduction(FLOAT, start=0, finish=lambda total, count: total / count, wide=True, typed=True,
           numbered=True, accepts=needs_float("mean"))
def mean(total, x):
    """Mean over `dim`, or over everything."""
    return total + x


@mean.gradient
def mean(g, x_meta, dim, keepdim):
    g = engine.cast(g / count_of(x_meta, dim), x_meta.dtype) if x_meta.numel else g
    return spread(g, x_meta, dim, keepdim)


def _total(one, other):
    return one + other


@reduction(SUM, start=0, merge=_total, wide=True, typed=True,
           accepts=refuses("nansum", "c", RuntimeError))
def nansum(total, x):
    """Sum over `dim`, NaN counting as zero."""
    return total + e.where(e.isnan(x), e.const(0, x.dtype), x)


@nansum.gradient
def nansum(g, x, x_meta, dim, keepdim):
    g = spread(engine.cast(g, x_meta.dtype), x_meta, dim, keepdim)
    return g * (x == x)


@composite
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """Mean over `dim` of what is not NaN."""
    needs_float("nanmean")(dtype or input.dtype)
    counted = input.detach()
    return nansum(input, dim, keepdim, dtype=dtype) / sum(counted == counted, dim, keepdim)


@reduction(INDEX, start=lambda d: e.const(0, dt.int64), merge=_total)
def count_nonzero(count, x):
    """How many elements are not zero."""
    return count + e.cast(x != 0, dt.int64)


# -- products --------------------------------------------------------------------------------------


@reduction(SUM, start=1, wide=True, typed=True, numbered=True)
def prod(product, x):
    """Product over `dim`, or over everything."""
    return product * x


#: so many factors are multiplied anew for each of them, without a look at where zeros are
_FEW = 8


@prod.gradient
def prod(g, x, out, x_meta, dim, keepdim):
    values = engine.cast(x, out.dtype)
    if not x_meta.rank:
        return engine.cast(g, x_meta.dtype)
    g = restored(g, x_meta, dim, keepdim)
    few = dim is not None and x_meta.shape[dim] <= _FEW
    if not few and not (values == 0).any():
        return engine.cast(g * conj(restored(out, x_meta, dim, keepdim) / values), x_meta.dtype)
    if dim is None:
        parts = engine.reshape(_others_product(engine.reshape(values, (-1,)), 0), x_meta.shape)
    else:
        parts = _others_product(values, dim)
    return engine.cast(g * conj(parts), x_meta.dtype)


def _others_product(x, dim: int):
    """At each place the product of all the others along a dimension, whatever zeros there are."""
    before = _product_before(x, dim)
    after = registry["flip"](_product_before(registry["flip"](x, (dim,)), dim), (dim,))
    return before * after


def _product_before(x, dim: int):
    shape = list(x.shape)
    size = shape[dim]
    shape[dim] = min(size, 1)
    first = engine.full(shape, 1, x.dtype)
    if size <= 1:
        return first
    return registry["cat"]([first, registry["cumprod"](x.narrow(dim, 0, size - 1), dim)], dim)


# -- truth -----------------------------------------------------------------------------------------


def _truth_dtype(given: dt.dtype) -> dt.dtype:
    return given if given is dt.uint8 else dt.bool_


@reduction(SAME, start=lambda d: e.const(False, dt.bool_), merge=lambda a, b: a | b,
           result=_truth_dtype, bare=True)
def any(found, x):
    """Whether some element is not zero."""
    return found | (x != 0)


@reduction(SAME, start=lambda d: e.const(True, dt.bool_), merge=lambda a, b: a & b,
           result=_truth_dtype, bare=True)
def all(so_far, x):
    """Whether no element is zero."""
    return so_far & (x != 0)


# -- hashes ----------------------------------------------------------------------------------------


@reduction(SAME, start=lambda d: e.const(0, dt.uint64), merge=lambda a, b: a ^ b, empty=False,
           result=lambda d: dt.uint64, accepts=refuses("xor_sum_cpu", "c"), said="hash_tensor",
           method=False, function_form=False)
def exclusive_or(so_far, x):
    """The bits of all elements, as float64 or int64, combined by exclusive or."""
    if x.dtype.kind == "f":
        return so_far ^ e.make("bitcast", (e.cast(x, dt.float64),), None, dt.uint64)
    return so_far ^ e.cast(e.cast(x, dt.int64), dt.uint64)


@composite
def hash_tensor(input, dim=None, *, keepdim=False, mode=0):
    """A number that differs where elements do: their bits, combined by exclusive or."""
    if mode:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    return exclusive_or(input, dim, keepdim)
