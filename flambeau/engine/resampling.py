"""Resampling by native code: upsampling, and means over windows that share a plane out."""

from __future__ import annotations

from math import prod

from ..devices.cpu import resample_plan
from ..devices.cpu.routines import NATIVE
from .convolve import plain_values
from .fresh import empty
from .pooling import has_code
from .tensor import Signature


def _resample(sig: Signature, bound: dict):
    return _run(sig, bound["input"], bound["sizes"], bound, False)


def _resample_back(sig: Signature, bound: dict):
    return _run(sig, bound["g"], bound["sizes"], bound, True)


def _run(sig: Signature, x, sizes, bound: dict, back: bool):
    """None where there is no code: another dtype, or nothing to compute."""
    n = len(sizes)
    if not has_code(x, n) or not sig.numel:
        return None
    given, scales = tuple(x.sig.shape[-n:]), bound["scales"]
    small, large = (tuple(sizes), given) if back else (given, tuple(sizes))
    plan = resample_plan.resample_plan(
        sig.dtype.name, prod(x.sig.shape[:-n]), small, large, bound["mode"],
        bool(bound["align_corners"]), None if scales is None else tuple(scales), back)
    out, plain = empty(sig), plain_values(x, sig.dtype)
    plan.run(out.ptr, plain.ptr)
    return out


NATIVE.update({"resample": _resample, "resample_back": _resample_back})
