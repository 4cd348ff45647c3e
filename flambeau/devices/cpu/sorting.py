"""Order: sorting, selection, distinct values and searching, as numpy computes them."""

from __future__ import annotations

from ...core.lazily import np
from .ordering import best_of_rows, ordered_rows
from .routines import routine

FEW = 128  # the k best are looked for one by one up to this k, and else found by sorting


def sorted_positions(x: np.ndarray, axis: int) -> np.ndarray:
    """Positions in stable order; NaN is the largest."""
    if not x.size:
        return np.zeros(x.shape, np.int64)
    return np.swapaxes(ordered_rows(np.swapaxes(x, axis, -1), False)[1], -1, axis)


def _scalar_pair(x):
    return x.copy(), np.zeros((), np.int64)


@routine
def sort(input, dim, descending, stable):
    if not input.ndim:
        return _scalar_pair(input)
    if not input.size:
        return input, np.zeros(input.shape, np.int64)
    found = ordered_rows(np.swapaxes(input, dim, -1), bool(descending))
    return tuple(np.swapaxes(part, -1, dim) for part in found)


@routine
def topk(input, k, dim, largest, sorted):
    if not input.ndim:
        return _scalar_pair(input)
    rows = np.swapaxes(input, dim, -1)
    if not k or not rows.size:
        found = tuple(np.zeros((*rows.shape[:-1], k), kind) for kind in (input.dtype, np.int64))
    elif k <= FEW:
        found = best_of_rows(rows, k, bool(largest))
    else:
        found = tuple(part[..., :k] for part in ordered_rows(rows, bool(largest)))
    return tuple(np.swapaxes(part, -1, dim) for part in found)


def _taken(input, at, dim, keepdim):
    """Elements at one position in each row."""
    at = np.expand_dims(at, dim)
    values = np.take_along_axis(input, at, dim)
    return (values, at) if keepdim else (values.squeeze(dim), at.squeeze(dim))


@routine
def kthvalue(input, k, dim, keepdim):
    if not input.ndim:
        return _scalar_pair(input)
    order = sorted_positions(input, dim)
    return _taken(input, np.take(order, k - 1, axis=dim), dim, keepdim)


@routine
def mode(input, dim, keepdim):
    if not input.ndim:
        return _scalar_pair(input)
    rows = np.moveaxis(input, dim, -1)
    order = sorted_positions(rows, -1)
    values = np.take_along_axis(rows, order, -1)
    place = np.arange(rows.shape[-1])
    starts = np.ones(rows.shape, bool)
    starts[..., 1:] = values[..., 1:] != values[..., :-1]
    begun = np.maximum.accumulate(np.where(starts, place, 0), axis=-1)
    longest = np.argmax(place - begun, axis=-1)
    at = np.take_along_axis(order, longest[..., None], -1)[..., 0]
    return _taken(input, at, dim, keepdim)


def _median(input, dim, keepdim, propagate: bool):
    if not input.ndim:
        return _scalar_pair(input)
    order = sorted_positions(input, dim)
    size = input.shape[dim]
    unknown = np.isnan(input) if input.dtype.kind == "f" else np.zeros(input.shape, bool)
    if propagate:
        rank = np.full(np.delete(input.shape, dim), (size - 1) // 2)
        # The first NaN is the first after all numbers in a stable order.
        numbers = size - unknown.sum(dim)
        rank = np.where(numbers < size, numbers, rank)
    else:
        rank = np.maximum(size - unknown.sum(dim) - 1, 0) // 2
    at = np.take_along_axis(order, np.expand_dims(rank, dim), dim).squeeze(dim)
    return _taken(input, at, dim, keepdim)


@routine
def median_along(input, dim, keepdim):
    return _median(input, dim, keepdim, True)


@routine
def nanmedian_along(input, dim, keepdim):
    return _median(input, dim, keepdim, False)


# -- distinct values -----------------------------------------------------------------------------


@routine
def distinct(input, dim):
    if dim is None:
        values, inverse, counts = np.unique(input, return_inverse=True, return_counts=True,
                                            equal_nan=False)
        return values, inverse.reshape(input.shape), counts
    if not input.ndim:
        return input.copy(), np.zeros((), np.int64), np.ones((), np.int64)
    values, inverse, counts = np.unique(input, axis=dim, return_inverse=True, return_counts=True,
                                        equal_nan=False)
    return values, inverse.reshape(-1), counts


@routine
def distinct_runs(input, dim):
    flat = input.reshape(-1) if dim is None else np.swapaxes(input, dim, 0) if input.ndim else (
        input.reshape(1))
    starts = np.ones(len(flat), bool)
    starts[1:] = (flat[1:] != flat[:-1]).any(tuple(range(1, flat.ndim)))
    inverse = np.cumsum(starts) - 1
    counts = np.bincount(inverse, minlength=int(starts.sum())) if len(flat) else inverse
    values = flat[starts]
    if dim is None:
        return values, inverse.reshape(input.shape), counts
    return np.swapaxes(values, 0, dim) if input.ndim else values, inverse, counts


# -- places --------------------------------------------------------------------------------------


@routine
def places(sorted_sequence, input, right, sorter, out_int32):
    side = "right" if right else "left"
    if sorter is not None:
        sorted_sequence = np.take_along_axis(sorted_sequence, sorter, -1)
    kind = np.int32 if out_int32 else np.int64
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, input, side).astype(kind)
    if not input.size:
        return np.empty(input.shape, kind)
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    wanted = input.reshape(len(rows), -1)
    found = [np.searchsorted(row, values, side) for row, values in zip(rows, wanted, strict=True)]
    return np.array(found, kind).reshape(input.shape)


@routine
def member(elements, test_elements, invert):
    return np.isin(elements, test_elements, invert=bool(invert))
