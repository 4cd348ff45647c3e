"""Images as columns of patches: what all patches see is the image under other strides, copied."""

from __future__ import annotations

from ..core.device import CPU
from ..devices.cpu.remember import remembered
from ..devices.cpu.routines import NATIVE
from ..ops.declare import registry
from . import pointwise as pw
from .eager import engine
from .fresh import empty
from .tensor import Signature, Tensor, make, signature


@remembered
def _copy(x: Signature, kernel, dilation, stride) -> pw.Plan:
    """The plan that copies every patch, tap after tap."""
    *lead, high, wide = x.shape
    *steps, row, column = x.strides
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip(
        (high, wide), kernel, dilation, stride, strict=True)]
    shape = (*lead, *kernel, *counts)
    seen = signature(x.dtype, shape, (*steps, dilation[0] * row, dilation[1] * column,
                                      stride[0] * row, stride[1] * column))
    return pw.plan(engine.identity, (seen,), (), signature(x.dtype, shape))


def _columns(sig: Signature, bound: dict) -> Tensor | None:
    """The routine of im2col."""
    x, (down, across) = bound["input"], bound["padding"]
    if sig.device is not CPU or not sig.numel:
        return None
    if down or across:
        x = engine.without_grad(registry["constant_pad_nd"].run, make(x.sig, x.mem, x.ptr),
                                (across, across, down, down), 0)
    plan = _copy(x.sig, bound["kernel_size"], bound["dilation"], bound["stride"])
    out = empty(sig)
    plan[2](out.ptr, x.ptr, plan[3])
    return out


NATIVE["im2col"] = _columns
