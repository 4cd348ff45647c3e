"""Order: sorting, the k largest, medians, modes, distinct values, places in a sorted sequence."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from .declare import T, composite, engine, library, registry
from .extremes import evenly, selected
from .refusal import no_kernel


def _pair(shape, dtype: dt.dtype) -> list:
    """The shape rule of values and their positions."""
    return [(tuple(shape), dtype), (tuple(shape), dt.int64)]


def _without(shape, dim: int, keepdim: bool) -> tuple[int, ...]:
    return tuple(1 if d == dim else n for d, n in enumerate(shape) if keepdim or d != dim)


def _picked(g, out, input_meta, dim, keepdim):
    return selected(g[0], out[1], input_meta, dim, keepdim)


def _nonempty(name: str, input, dim: int) -> int:
    d = sh.wrap_dim(dim, input.rank, name)
    if input.rank and not input.shape[d]:
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size, but the "
                         f"input has shape {tuple(input.shape)}.")
    return d


# -- sorting -------------------------------------------------------------------------------------


@library
def sort(input: T, dim=-1, descending=False, stable=False):
    """Values in order along `dim`, and where each came from; NaN counts as the largest."""
    if input.dtype.kind == "c":
        raise RuntimeError(f"sort: Sort does not support complex dtypes on CPU, got {input.dtype}")
    sh.wrap_dim(dim, input.rank, "sort")
    return _pair(input.shape, input.dtype)


@sort.gradient
def sort(g, out, input_meta, dim):
    return _picked(g, out, input_meta, dim, True)


@composite
def argsort(input, dim=-1, descending=False, stable=False):
    """Where each value of the sorted sequence is."""
    return sort(input.detach(), dim, descending, stable)[1]


@composite
def msort(input):
    """Values in order along the first dimension."""
    return sort(input, 0)[0]


@library
def topk(input: T, k, dim=-1, largest=True, sorted=True):
    """The k largest or smallest along `dim`, and where they are."""
    if input.dtype.kind in "bc":
        kind = "bool" if input.dtype.kind == "b" else "complex"
        raise RuntimeError(f"topk does not support {kind} dtypes on CPU, got {input.dtype}")
    d = sh.wrap_dim(dim, input.rank, "topk")
    size = input.shape[d] if input.rank else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"topk: selected index k out of range; k is {k}, and dimension {dim} "
                           f"has size {size}")
    return _pair([k if n == d else s for n, s in enumerate(input.shape)], input.dtype)


@topk.gradient
def topk(g, out, input_meta, dim):
    return _picked(g, out, input_meta, dim, True)


# -- one by its rank -----------------------------------------------------------------------------


@library
def kthvalue(input: T, k, dim=-1, keepdim=False):
    """The k-th smallest along `dim`, and where it is."""
    if input.dtype.kind in "bc":
        raise no_kernel("kthvalue_cpu", input.dtype)
    d = _nonempty("kthvalue", input, dim)
    size = input.shape[d] if input.rank else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}; k is "
                           f"{k}, and the dimension has size {size}")
    return _pair(_without(input.shape, d, keepdim), input.dtype)


@library
def mode(input: T, dim=-1, keepdim=False):
    """The most frequent value along `dim` (the smallest of several), and its last position."""
    if input.dtype.kind == "c":
        raise no_kernel("mode_cpu", input.dtype)
    d = _nonempty("mode", input, dim)
    return _pair(_without(input.shape, d, keepdim), input.dtype)


def _median_rule(name: str, input, dim, keepdim):
    if input.dtype.kind in "bc":
        raise no_kernel("median_cpu", input.dtype)
    d = _nonempty(name, input, dim)
    return _pair(_without(input.shape, d, keepdim), input.dtype)


@library(method=False, function_form=False, backward="MedianBackward1")
def median_along(input: T, dim, keepdim=False):
    """The lower median along `dim`, and where it is; NaN if there is one."""
    return _median_rule("median", input, dim, keepdim)


@library(method=False, function_form=False, backward="NanmedianBackward1")
def nanmedian_along(input: T, dim, keepdim=False):
    """The lower median along `dim` of what is not NaN, and where it is."""
    return _median_rule("nanmedian", input, dim, keepdim)


median_along.results_name, nanmedian_along.results_name = "median", "nanmedian"

for _op in (kthvalue, mode, median_along, nanmedian_along):
    _op.gradient(_picked)


def _of_all(along):
    def body(input: T):
        """The lower median of everything."""
        if not input.numel():
            if input.dtype.kind in "bc":
                raise no_kernel("median_cpu", input.dtype)
            return engine.full((), float("nan") if input.dtype.kind == "f" else
                               dt.iinfo(input.dtype).min, input.dtype)
        return along(engine.reshape(input, (-1,)), 0)[0]
    return body


def _evenly(g, input, out, input_meta):
    return evenly(g, input, out, input_meta, None, False)


_UNLISTED = {"method": False, "function_form": False}
median_all = composite(name="median_all", backward="MedianBackward0", **_UNLISTED)(
    _of_all(median_along)).gradient(_evenly)
nanmedian_all = composite(name="nanmedian_all", backward="NanmedianBackward0", **_UNLISTED)(
    _of_all(nanmedian_along)).gradient(_evenly)


@composite
def median(input, dim=None, keepdim=False):
    """The lower median of everything, or along `dim` with its position."""
    return median_all(input) if dim is None else median_along(input, dim, keepdim)


@composite
def nanmedian(input, dim=None, keepdim=False):
    """The lower median of what is not NaN, or along `dim` with its position."""
    return nanmedian_all(input) if dim is None else nanmedian_along(input, dim, keepdim)


# -- distinct values -----------------------------------------------------------------------------


def _distinct_rule(input, dim):
    if input.dtype.kind == "c":
        raise no_kernel("unique", input.dtype)
    if dim is not None:
        d = sh.wrap_dim(dim, input.rank, "unique")
        if not input.numel and input.rank and not input.shape[d] and any(
                not n for k, n in enumerate(input.shape) if k != d):
            raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique "
                               f"cannot be applied; the input has shape {tuple(input.shape)}")


@library(method=False, function_form=False)
def distinct(input: T, dim=None):
    """Distinct values in order, where each element is among them, and how often each occurs."""
    _distinct_rule(input, dim)


@library(method=False, function_form=False)
def distinct_runs(input: T, dim=None):
    """The same of runs of equal neighbours."""
    _distinct_rule(input, dim)


def _asked(found, dtype: dt.dtype, return_inverse: bool, return_counts: bool):
    values = engine.cast(found[0], dtype)
    chosen = [found[1]] * return_inverse + [found[2]] * return_counts
    return (values, *chosen) if chosen else values


@composite
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct values, in order."""
    if dim is not None and not input.dim():
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    found = distinct(input.detach(), dim)
    return _asked(found, input.dtype, return_inverse, return_counts)


@composite
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The values with repeated neighbours dropped."""
    found = distinct_runs(input.detach(), dim)
    return _asked(found, input.dtype, return_inverse, return_counts)


# -- places --------------------------------------------------------------------------------------


@library(method=False, function_form=False)
def places(sorted_sequence: T, input: T, right=False, sorter: T = None, out_int32=False):
    """Where each value would be put into sorted rows."""
    return input.shape, dt.int32 if out_int32 else dt.int64


def _right(right: bool, side) -> bool:
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted(): side can only be 'left' or 'right' but got {side!r}")
    if side == "left" and right:
        raise RuntimeError("searchsorted(): side and right can't be set to opposites, got side of "
                           "left while right was True")
    return right or side == "right"


def _check_order(given, kinds: str = "bc") -> None:
    if given.dtype.kind in kinds:
        raise no_kernel("searchsorted_out_cpu", given.dtype)


@composite(method=False)
def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Where to put each value into the sorted last dimension of a sequence."""
    right = _right(right, side)
    given = input
    if not hasattr(input, "dtype"):
        if sorted_sequence.dim() != 1:
            raise RuntimeError("searchsorted(): input value can be a scalar only when boundaries "
                               "tensor dimension is 1, but we got boundaries of "
                               f"{sorted_sequence.dim()} dimensions")
        given = engine.tensor(input)
    elif sorted_sequence.dtype is not input.dtype:
        raise RuntimeError("searchsorted(): boundary tensor and input value tensor should have "
                           f"same dtype, but got {sorted_sequence.dtype} and {input.dtype}")
    _check_places(sorted_sequence, given, sorter)
    _check_order(given)
    return places(sorted_sequence.detach(), given.detach(), right, sorter, out_int32)


def _check_places(sequence, input, sorter) -> None:
    if not sequence.dim():
        raise RuntimeError("searchsorted(): boundaries tensor should have at least 1 dimension")
    if sequence.dim() > 1 and tuple(sequence.shape[:-1]) != tuple(input.shape[:-1]):
        raise RuntimeError("searchsorted(): boundaries tensor should be 1 dimension or the first "
                           "N-1 dimensions of boundaries tensor and input value tensor must match, "
                           f"but we got {tuple(sequence.shape)} and {tuple(input.shape)}")
    if sorter is None:
        return
    if tuple(sorter.shape) != tuple(sequence.shape):
        raise RuntimeError("searchsorted(): boundary and sorter must have the same size, but got "
                           f"{tuple(sequence.shape)} and {tuple(sorter.shape)}")
    if sorter.dtype is not dt.int64:
        raise RuntimeError("searchsorted(): sorter must be a tensor of long dtype but got "
                           f"{sorter.dtype}")
    if sorter.numel() and (int(sorter.min()) < 0 or int(sorter.max()) >= sequence.shape[-1]):
        raise RuntimeError("searchsorted(): sorter index out of range")


@composite(method=False)
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The number of the interval between boundaries in which each value lies."""
    if boundaries.dim() != 1:
        raise RuntimeError("bucketize(): boundaries tensor must be 1 dimension, but got dim("
                           f"{boundaries.dim()})")
    given = input if hasattr(input, "dtype") else engine.tensor(input)
    _check_order(given, "c")
    return places(boundaries.detach(), given.detach(), right, None, out_int32)


@library(method=False, function_form=False)
def member(elements: T, test_elements: T, invert=False):
    """Whether each element is among the others."""
    return elements.shape, dt.bool_


#: integers up to which looking them up in order is quicker than by a table
_FEW = 512


@composite(method=False)
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Whether each element is among the test elements."""
    if not hasattr(elements, "dtype") and not hasattr(test_elements, "dtype"):
        raise TypeError("isin() received an invalid combination of arguments - got two numbers, "
                        "but expected at least one Tensor")
    values, among = (v.detach() if hasattr(v, "dtype") else engine.tensor(v)
                     for v in (elements, test_elements))
    for v in (values, among):
        if v.dtype.kind in "bc":
            raise RuntimeError(f"isin(): Unsupported input type encountered: {v.dtype}")
    if values.dtype is among.dtype and values.dtype.kind in "iu" and among.numel() and (
            0 < values.numel() <= _FEW and not values.is_meta):
        return _found_in_order(values, among.reshape(-1), invert)
    return member(values, among, invert)


def _found_in_order(values, among, invert: bool):
    """Each integer compared with the one at whose place it would be put."""
    row = sort(among)[0]
    at = registry["clamp"](places(row, values), None, row.numel() - 1)
    near = row[at]
    return near != values if invert else near == values


@composite
def equal(input, other):
    """Whether two tensors have the same size and elements."""
    if not hasattr(other, "dtype"):
        raise TypeError(f"equal(): argument 'other' (position 2) must be Tensor, not "
                        f"{type(other).__name__}")
    if tuple(input.shape) != tuple(other.shape):
        return False
    return bool(registry["all"](input.detach() == other.detach()))


@composite
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close: |x - y| <= atol + rtol |y|."""
    return bool(registry["all"](registry["isclose"](input.detach(), other.detach(), rtol, atol,
                                                    equal_nan)))
