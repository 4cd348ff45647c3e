"""Images as columns of patches: what all patches see is the image under other strides, copied; and
back, where what all see at one place of a patch is added to the image under such strides."""

from __future__ import annotations

from typing import Any

from ..core.device import CPU
from ..devices.cpu.remember import remembered
from ..devices.cpu.routines import NATIVE
from ..ops.declare import registry
from . import pointwise as pw
from .create import filled
from .eager import baked_defaults, engine
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


@remembered
def _adding(columns: Signature, size, kernel, dilation, padding, stride) -> tuple:
    """(signature of the padded images, plan of adding what is seen at one place of all patches,
    (bytes into the images, into the columns) for each place, plan of the copy without padding)."""
    *lead, depth, blocks = columns.shape
    (high, wide), (down, across) = size, padding
    taps = kernel[0] * kernel[1]
    rows, row = high + 2 * down, wide + 2 * across
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip(
        (rows, row), kernel, dilation, stride, strict=True)]
    planes, itemsize = (*lead, depth // taps), columns.dtype.itemsize
    images = signature(columns.dtype, (*planes, rows, row))
    seen = signature(columns.dtype, (*planes, *counts), (
        *images.strides[:-2], stride[0] * row, stride[1]))
    given = signature(columns.dtype, (*planes, *counts), (
        *columns.strides[:-2], taps * blocks, counts[1], 1))
    adding: Any = registry["add"]
    plan = pw.plan(adding, (seen, given), baked_defaults(adding), seen)
    steps = [((i * dilation[0] * row + j * dilation[1]) * itemsize,
              (i * kernel[1] + j) * blocks * itemsize)
             for i in range(kernel[0]) for j in range(kernel[1])]
    inner = signature(columns.dtype, (*planes, high, wide), images.strides)
    copy = pw.plan(engine.identity, (inner,), (), signature(columns.dtype, inner.shape))
    return images, plan, steps, copy if down or across else None


def _images(sig: Signature, bound: dict) -> Tensor | None:
    """The routine of col2im."""
    x, padding = bound["input"], tuple(bound["padding"])
    if sig.device is not CPU or not sig.numel or sig.dtype.name not in ("float32", "float64") or (
            not x.sig.contiguous):
        return None
    images, plan, steps, copy = _adding(
        x.sig, tuple(bound["output_size"]), tuple(bound["kernel_size"]), tuple(bound["dilation"]),
        padding, tuple(bound["stride"]))
    out = filled(empty(images), 0)
    run, last, to, given = plan[2], plan[3], out.ptr, x.ptr
    for there, here in steps:
        run(to + there, to + there, given + here, last)
    if copy is None:
        return out
    part = empty(sig)
    inside = padding[0] * images.shape[-1] + padding[1]
    copy[2](part.ptr, to + inside * sig.dtype.itemsize, copy[3])
    return part


NATIVE["im2col"], NATIVE["col2im"] = _columns, _images
