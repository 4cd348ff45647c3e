"""Fourier transforms by machine code, one dimension after another; numpy answers long ones.

A transform of real numbers begins with its last dimension, one that makes real numbers ends with
it, and all between go over complex numbers.
"""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..core.device import CPU
from ..devices.cpu.fourier_plan import Plan, fourier_plan, has_code
from ..devices.cpu.routines import NATIVE
from ..ops.declare import Op, registry
from .convolve import plain_values
from .eager import new_table
from .formula import record
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .tensor import Signature, Tensor, signature


def _planned(name: str, sig: Signature, out: Signature, given: tuple):
    """[(plan, signature of its result)] of a transform from one signature to another, both
    contiguous, as the arguments of its op say; None where there is no code."""
    sizes, dims, scale, *told = given
    forward = told[0] if told else name == "fft_r2c"
    largest = max(sig.numel, out.numel)
    if not dims or not sig.numel or len(set(dims)) != len(dims) or not all(
            [has_code(-(-largest // n), n, math.prod(out.shape[d + 1:]))
             for d, n in zip(dims, sizes, strict=True)]):
        return None
    factor = {"none": 1.0, "root": 1 / math.sqrt(math.prod(sizes)), "n": 1 / math.prod(sizes)}
    pairs = [*zip(dims, sizes, strict=True)]
    pairs = pairs if name == "fft_c2r" else pairs[::-1]
    real, kinds, steps = out.dtype.to_real(), {True: "complex", False: "real"}, []
    shape, kind = list(sig.shape), kinds[sig.dtype.kind == "c"]
    for k, (d, n) in enumerate(pairs):
        last = k == len(pairs) - 1
        made = kinds[out.dtype.kind == "c" or not last]
        taken, kept = shape[d], out.shape[d] if name != "fft_c2r" or last else n
        inner = math.prod(shape[d + 1:])
        plan = fourier_plan(kind, made, real.name, math.prod(shape[:d]) * inner, inner, n, taken,
                            kept, not forward, factor[scale] if last else 1.0)
        shape[d], kind = kept, made
        steps.append((plan, out if last else signature(real.to_complex(), tuple(shape))))
    return steps


def _run(steps: list[tuple[Plan, Signature]], x: Tensor) -> Tensor:
    for plan, sig in steps:
        out = empty(sig)
        plan.function(out.ptr, x.ptr, plan.address, plan.work)
        x = out
    return x


def _native(name: str):
    """The routine of one of the three transforms."""
    def transform(out: Signature, bound: dict):
        x, *given = [bound[parameter] for parameter in registry[name].names]
        real = out.dtype.to_real()
        if out.device is not CPU or real not in (dt.float32, dt.float64):
            return None
        wanted = real if name == "fft_r2c" or (
            name == "fft_c2c" and x.sig.dtype.kind != "c") else real.to_complex()
        steps = _planned(name, signature(wanted, tuple(x.sig.shape)), out, tuple(given))
        return None if steps is None else _run(steps, plain_values(x, wanted))

    return transform


_NAMES = ("fft_c2c", "fft_r2c", "fft_c2r")
NATIVE.update({name: _native(name) for name in _NAMES})


def _front(op: Op, otherwise):
    """One lookup where such a tensor was transformed before."""
    known = new_table()

    def met(x: Tensor, *given) -> Tensor:
        sig, out = x.sig, otherwise(x, *given)
        plain = sig.tag is None and sig.device is CPU and sig.contiguous and (
            sig.dtype in _KINDS[op.name])
        known[sig, given] = (plain and _planned(op.name, sig, out.sig, given)) or False
        return out

    def front(x, *given, **named):
        if named or tracers or type(x) not in PLAIN:
            return otherwise(x, *given, **named)
        steps = known.get((x.sig, given))
        if steps is None:
            return met(x, *given)
        if steps is False:
            return otherwise(x, *given)
        out = _run(steps, x)
        if x.node is not None and modes.grad:
            record(op, dict(zip(op.names, (x, *given), strict=True)), out)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


_REALS, _COMPLEX = (dt.float32, dt.float64), (dt.complex64, dt.complex128)
_KINDS = {"fft_c2c": _REALS + _COMPLEX, "fft_r2c": _REALS, "fft_c2r": _COMPLEX}
FRONTS = dict.fromkeys(_NAMES, _front)
