"""Reductions of segments: stretches of a dimension, given by their lengths or their borders."""

from __future__ import annotations

import math

from ..core import shape as sh
from ..core.lazily import np
from .declare import composite, engine, registry
from .refusal import no_kernel

#: reduction -> (what folds elements into places, what a segment without elements is)
_FOLDS = {
    "sum":  ("sum",  0.0),
    "mean": ("sum",  0.0),
    "max":  ("amax", -math.inf),
    "min":  ("amin", math.inf),
    "prod": ("prod", 1.0),
}  # fmt: skip


@composite(method=False, backward="SegmentReduceBackward0")
def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False,
                   initial=None):
    """The elements of each segment along `axis` added, averaged or multiplied, or an extreme."""
    if reduce not in _FOLDS:
        raise RuntimeError(f"segment_reduce(): reduce must be one of {', '.join(_FOLDS)}, got "
                           f"{reduce}")
    if data.dtype.kind != "f":
        raise no_kernel("_segment_reduce_cpu", data.dtype)
    d = sh.wrap_dim(axis, data.dim(), "segment_reduce")
    starts, counts = _segments(lengths, indices, offsets, d)
    if not unsafe:
        _check(data, starts, counts, d, lengths is not None)
    fold, start = _FOLDS[reduce]
    places, chosen = _places(starts, counts, data.shape[d])
    size = counts.shape[-1]
    shape = (*data.shape[:d], size + 1, *data.shape[d + 1:])  # the last takes what is in none
    whole = engine.full(shape, start if initial is None else initial, data.dtype)
    tail = (1,) * (data.dim() - d - 1)
    index = np.broadcast_to(np.where(chosen, places, size).reshape(*places.shape, *tail),
                            tuple(data.shape))
    found = registry["scatter_reduce"](whole, d, engine.tensor(np.ascontiguousarray(index)), data,
                                       fold)
    found = found.narrow(d, 0, size)
    if reduce != "mean":
        return found
    # Nothing at all has no mean, unless it was said what to begin with.
    least = 0.0 if initial is None else 1.0
    divisor = np.maximum(counts, least).reshape(*counts.shape, *tail)
    return found / engine.cast(engine.tensor(np.ascontiguousarray(divisor)), data.dtype)


def _segments(lengths, indices, offsets, axis: int):
    """(starts, counts) of all segments, as arrays of integers."""
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    given = offsets if lengths is None else lengths
    if given is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    role = "offsets" if lengths is None else "lengths"
    if given.dtype.kind != "i" or given.dtype.itemsize < 4:
        raise no_kernel(f"_segment_reduce_{role}_cpu_kernel1", given.dtype)
    if axis != given.dim() - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {role} "
                           f"but got {axis}.")
    numbers = engine.to_array(given)
    if lengths is None:
        return numbers[..., :-1], np.diff(numbers, axis=-1)
    return np.cumsum(numbers, -1) - numbers, numbers


def _check(data, starts, counts, axis: int, by_lengths: bool) -> None:
    if by_lengths and counts.size and counts.min() < 0:
        raise RuntimeError("lengths contains negative value!")
    if starts.shape[:-1] != tuple(data.shape[:axis]):
        raise RuntimeError(f"segment_reduce(): expected segments for data of shape "
                           f"{list(data.shape)} along axis {axis}, but they are of shape "
                           f"{list(counts.shape)}")
    if by_lengths and (counts.sum(-1) != data.shape[axis]).any():
        raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to "
                           "data.size(lengths.dim()-1) when !unsafe.")


def _places(starts, counts, size: int):
    """The segment of each place along the dimension, and whether it lies in one."""
    at = np.arange(size)
    ends = starts + counts
    after = (ends[..., None, :] <= at[:, None]).sum(-1)  # segments that end before a place
    inside = after < starts.shape[-1]
    after = np.minimum(after, starts.shape[-1] - 1) if starts.shape[-1] else after
    begun = np.take_along_axis(starts, after, -1) <= at if starts.shape[-1] else inside
    return after, inside & begun
