"""Resampling by native code: upsampling, and means over windows that share a plane out."""

from __future__ import annotations

from math import prod

from ..devices.cpu import resample_plan
from ..devices.cpu.routines import NATIVE
from .convolve import plain_values
from .eager import new_table
from .fresh import empty
from .pooling import has_code
from .tensor import Signature


def _resample(sig: Signature, bound: dict):
    return _run(sig, bound["input"], bound["sizes"], bound, False)


def _resample_back(sig: Signature, bound: dict):
    return _run(sig, bound["g"], bound["sizes"], bound, True)


def _run(sig: Signature, x, sizes, bound: dict, back: bool):
    """None where there is no code: another dtype, or nothing to compute."""
    scales = bound["scales"]
    key = (x.sig, sig, tuple(sizes), bound["mode"], bool(bound["align_corners"]),
           None if scales is None else tuple(scales), back)
    try:
        plan = _plans[key]
    except KeyError:
        plan = _plans[key] = _planned(*key) if has_code(x, len(sizes)) and sig.numel else None
    if plan is None:
        return None
    out, plain = empty(sig), plain_values(x, sig.dtype)
    plan.run(out.ptr, plain.ptr)
    return out


_plans = new_table()


def _planned(x: Signature, sig: Signature, sizes: tuple, mode, align: bool, scales, back: bool):
    n = len(sizes)
    given = tuple(x.shape[-n:])
    small, large = (sizes, given) if back else (given, sizes)
    return resample_plan.resample_plan(sig.dtype.name, prod(x.shape[:-n]), small, large, mode,
                                       align, scales, back)


NATIVE.update({"resample": _resample, "resample_back": _resample_back})
