"""Inverses of small matrices by native code; numpy answers for large ones, and for those that have
none."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.device import CPU
from ..devices.cpu.inverse import KINDS, MOST, inverse
from ..devices.cpu.routines import NATIVE
from .convolve import plain_values
from .fresh import empty
from .tensor import Signature, signature


def _inverse(sigs: tuple[Signature, Signature], bound: dict):
    """The routine of inv_ex."""
    sig, infos = sigs
    if sig.device is not CPU or sig.dtype.name not in KINDS or not 0 < sig.shape[-1] <= MOST or (
            not sig.numel):
        return None
    n, count = sig.shape[-1], infos.numel
    x, out, info = plain_values(bound["A"], sig.dtype), empty(sig), empty(infos)
    two, pivots = empty(signature(dt.float64, (2, n, n))), empty(signature(dt.int32, (n,)))
    failed = inverse(sig.dtype.name)(out.ptr, info.ptr, x.ptr, two.ptr, pivots.ptr, n, count,
                                     count * n * n * n)
    return None if failed else [out, info]


NATIVE["inv_ex"] = _inverse
