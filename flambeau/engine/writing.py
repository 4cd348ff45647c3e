"""Writing to memory that exists: what overlaps it, whether it may be, and which line did it."""

from __future__ import annotations

import sys

from ..core import shape as sh
from .caller import ours
from .interception import tracers
from .modes import modes
from .node import fronts
from .tensor import LEAF, Tensor, base_of


def overlaps(source: Tensor, target: Tensor) -> bool:
    """Whether writing to target in some order could change what is still to be read."""
    if source.mem is not target.mem or (source.ptr == target.ptr and source.sig is target.sig):
        return False
    one, other = extent(source), extent(target)
    return one[0] < other[1] and other[0] < one[1]


def demand_apart(source, target: Tensor) -> None:
    """Refuse to write over a part of what is read, as torch does where it sees it: of tensors that
    lie in one piece each."""
    if source.__class__ is Tensor and overlaps(source, target) and (
            source.sig.numel and target.sig.numel) and all(
            sh.is_dense(x.sig.shape, x.sig.strides) for x in (source, target)) and (
            extent(source) != extent(target) or source.sig.strides != target.sig.strides):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor "
            "refer to a single memory location. Please clone() the tensor before performing the "
            "operation.")


def extent(x: Tensor) -> tuple[int, int]:
    """First and last byte a tensor touches."""
    sig = x.sig
    reach = sum((n - 1) * s for n, s in zip(sig.shape, sig.strides, strict=True) if n)
    return x.ptr, x.ptr + (reach + 1) * sig.dtype.itemsize


def check_writable(x: Tensor, name: str) -> None:
    """torch's rules for changing a tensor that is part of a graph."""
    if tracers:
        tracers[-1].writes(x, name)
    if x.__class__.__dict__.get("read_only"):
        raise RuntimeError(f"{name}: this tensor is read-only")
    if x.mem.version < 0 and not modes.inference:
        raise RuntimeError(f"{name}: Inplace update to inference tensor outside InferenceMode is "
                           "not allowed. You can make a clone to get a normal tensor before doing "
                           "inplace update.")
    if not modes.grad:
        return
    base = base_of(x)
    if x.node is LEAF:
        raise RuntimeError(f"{name}: a leaf Variable that requires grad is being used in an "
                           "in-place operation. Change it under no_grad(), or work on a clone().")
    if base is not None and base.node is LEAF:
        raise RuntimeError(f"{name}: a view of a leaf Variable that requires grad is being used in "
                           "an in-place operation. Change it under no_grad(), or work on a "
                           "clone().")


def _changed(x: Tensor) -> None:
    """Count a change of a tensor's bytes, and remember the place in the code that made it.

    Which line that is takes time to find out, and is hardly ever asked: see `_changed_message`.
    """
    mem = x.mem
    mem.version += 1
    frame = sys._getframe(1)
    while ours[frame.f_code.co_filename]:
        if frame.f_back is None:
            break
        frame = frame.f_back
    mem.changed = frame.f_code, frame.f_lasti


changed = fronts.change_counter(_changed, ours)
