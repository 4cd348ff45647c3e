"""Order of what native fronts leave: 0-d, empty and meta-like cases, distinct slices, membership.

Elements in a row are sorted, selected and searched by machine code (see engine/ordered.py).
"""

from __future__ import annotations

from ...core.lazily import np
from .ordering import sorted_rows
from .routines import routine


def _scalar_pair(x):
    return x.copy(), np.zeros((), np.int64)


@routine
def sort(input, dim, descending, stable):
    if not input.ndim:
        return _scalar_pair(input)
    if not input.size:
        return input, np.zeros(input.shape, np.int64)
    found = sorted_rows(np.swapaxes(input, dim, -1), bool(descending))
    return tuple(np.swapaxes(part, -1, dim) for part in found)


@routine
def topk(input, k, dim, largest, sorted):
    """Many of each row, which is sorted for them; or none."""
    if not input.ndim:
        return _scalar_pair(input)
    rows = np.swapaxes(input, dim, -1)
    if not k or not rows.size:
        found = tuple(np.zeros((*rows.shape[:-1], k), kind) for kind in (input.dtype, np.int64))
    else:
        found = tuple(part[..., :k] for part in sorted_rows(rows, bool(largest)))
    return tuple(np.swapaxes(part, -1, dim) for part in found)


def _none_of(input, dim: int, keepdim: bool):
    """What one element of each row is, where there are no rows, or of a 0-d tensor."""
    if not input.ndim:
        return _scalar_pair(input)
    shape = [1 if d == dim % input.ndim else n for d, n in enumerate(input.shape)
             if keepdim or d != dim % input.ndim]
    return np.empty(shape, input.dtype), np.empty(shape, np.int64)


@routine
def kthvalue(input, k, dim, keepdim):
    return _none_of(input, dim, keepdim)


@routine
def mode(input, dim, keepdim):
    return _none_of(input, dim, keepdim)


@routine
def median_along(input, dim, keepdim):
    return _none_of(input, dim, keepdim)


@routine
def nanmedian_along(input, dim, keepdim):
    return _none_of(input, dim, keepdim)


# -- distinct values -----------------------------------------------------------------------------


@routine
def distinct(input, dim):
    if dim is None:
        values, inverse, counts = np.unique(input, return_inverse=True, return_counts=True,
                                            equal_nan=False)
        return values, inverse.reshape(input.shape), counts
    if not input.ndim:
        return input.copy(), np.zeros((), np.int64), np.ones((), np.int64)
    if not input.size or (input.dtype.kind == "f" and np.isnan(input).any()):
        values, inverse, counts = np.unique(input, axis=dim, return_inverse=True,
                                            return_counts=True, equal_nan=False)
        return values, inverse.reshape(-1), counts
    slices = np.moveaxis(input, dim, 0)
    rows = np.ascontiguousarray(slices.reshape(len(slices), -1))
    words = _ordered_words(rows)
    order = words.argsort(kind="stable")
    there = words[order]
    first = np.ones(len(there), bool)
    first[1:] = there[1:] != there[:-1]
    inverse = np.empty(len(there), np.int64)
    inverse[order] = np.cumsum(first) - 1
    starts = np.flatnonzero(first)
    counts = np.diff(starts, append=len(there))
    return np.moveaxis(slices[order[starts]], 0, dim), inverse, counts


def _ordered_words(rows):
    """One string of bytes for each row of numbers, in the order of the rows."""
    size = rows.dtype.itemsize
    bits = (rows + 0 if rows.dtype.kind == "f" else rows).view(f"u{size}")  # -0 is 0
    top = bits.dtype.type(1 << (8 * size - 1))
    if rows.dtype.kind == "f":
        bits = np.where(bits & top, ~bits, bits | top)
    elif rows.dtype.kind == "i":
        bits = bits ^ top
    return bits.astype(f">u{size}").view(f"S{size * rows.shape[1]}").reshape(-1)


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
