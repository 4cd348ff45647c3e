"""What a mask holds of: elements, rows and places, by native code."""

from __future__ import annotations

from array import array
from typing import Any

from ..core import dtype as dt
from ..core.device import CPU
from ..core.lazily import Lazily
from .eager import engine
from .fresh import empty
from .tensor import Signature, Tensor, make, signature

routines: Any = Lazily("flambeau.devices.cpu.ordering")

_SIZES = {1: "mask_take_1", 2: "mask_take_2", 4: "mask_take_4", 8: "mask_take_8",
          16: "mask_take_16"}


def covers(mask: Signature, x: Signature) -> bool:
    """Whether a mask is one of the leading dimensions of a tensor that native code can read."""
    return mask.dtype is dt.bool_ and 0 < mask.rank <= x.rank and (
        mask.shape == x.shape[:mask.rank] and x.device is CPU and mask.device is CPU
        and x.tag is None and mask.tag is None)


def _in_a_row(x: Tensor) -> Tensor:
    if x.sig.contiguous:
        return x
    return engine.without_grad(engine.contiguous, make(x.sig, x.mem, x.ptr))


def chosen(x: Tensor, mask: Tensor) -> Tensor:
    """The elements, or rows of them, where a mask that covers x holds. Unrecorded."""
    x, mask = _in_a_row(x), _in_a_row(mask)
    code, sig, n = routines.masks(), x.sig, mask.sig.numel
    count = code["mask_count"](mask.ptr, n)
    out = empty(signature(sig.dtype, (count, *sig.shape[mask.sig.rank:])))
    if not out.sig.numel:
        return out
    width = sig.nbytes // n
    take = _SIZES.get(width)
    if take is not None:
        code[take](mask.ptr, x.ptr, out.ptr, count, n)
    else:
        code["mask_take_rows"](mask.ptr, x.ptr, out.ptr, width, n)
    return out


def places(mask: Tensor) -> Tensor:
    """Coordinates of where a mask of at least one dimension holds, one row each."""
    mask = _in_a_row(mask)
    code, sig = routines.masks(), mask.sig
    count = code["mask_count"](mask.ptr, sig.numel)
    out = empty(signature(dt.int64, (count, sig.rank)))
    if count and sig.rank == 1:
        code["mask_places"](mask.ptr, out.ptr, 0, 1, count, sig.numel)
    elif count:
        shape = array("q", sig.shape)
        code["mask_places"](mask.ptr, out.ptr, shape.buffer_info()[0], sig.rank, count, sig.numel)
    return out
