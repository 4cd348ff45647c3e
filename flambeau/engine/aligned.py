"""Losses of unaligned sequences, and their gradients, by native code."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.device import CPU
from ..core.lazily import np
from ..devices.cpu.alignments import KINDS, alignments, stride_of
from ..devices.cpu.routines import NATIVE, data_reader
from .convolve import plain_values
from .fresh import empty
from .tensor import Signature, Tensor, signature


def _likelihood(sig: Signature, bound: dict):
    """The routine of ctc_likelihood."""
    return _run(sig, bound, None)


def _slopes(sig: Signature, bound: dict):
    """The routine of ctc_slopes."""
    out = empty(sig)
    losses = signature(sig.dtype, (sig.shape[1],))
    return None if _run(losses, bound, out) is None else out


def _run(losses: Signature, bound: dict, slopes: Tensor | None) -> Tensor | None:
    x, dtype = bound["log_probs"], losses.dtype
    steps, count, classes = x.sig.shape
    if x.sig.device is not CPU or dtype.name not in KINDS or not steps * count:
        return None
    known = [np.ascontiguousarray(bound[name], np.int64)
             for name in ("targets", "input_lengths", "target_lengths")]
    width = 2 * known[0].shape[1] + 1
    stride = stride_of(width)
    out, x = empty(losses), plain_values(x, dtype)
    spare = empty(signature(dtype, (stride * (5 + steps),)))
    labels = empty(signature(dt.int64, (width,)))
    alignments(dtype.name)(
        out.ptr, (out if slopes is None else slopes).ptr, x.ptr, *map(data_reader(), known),
        spare.ptr, labels.ptr, steps, count, classes, width, stride, bound["blank"],
        int(slopes is not None), 8 * steps * count * width)
    return out


NATIVE["ctc_likelihood"], NATIVE["ctc_slopes"] = _likelihood, _slopes
