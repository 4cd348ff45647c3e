"""Special functions of two arguments by native code: half types in float32, all else as it is.

Their fronts run tensors that lie alike, unrecorded, at once; the rest is the library's front's.
"""

from __future__ import annotations

from ..core import dtype as dt
from ..core.device import CPU
from ..devices.cpu.converging import NAMES, converging
from ..devices.cpu.routines import NATIVE
from ..ops.declare import Op
from .convolve import plain_values
from .eager import engine, new_table
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .tensor import Signature, Tensor, make, signature

_WIDE = (dt.float32, dt.float64)


def _routine(name: str):
    def native(sig: Signature, bound: dict) -> Tensor:
        dtype = sig.dtype if sig.dtype in _WIDE else dt.float32
        x, y = (_spread(bound[key], sig, dtype) for key in ("input", "other"))
        out = empty(signature(dtype, tuple(sig.shape)))
        if sig.numel:
            converging(name, dtype.name)(out.ptr, x.ptr, y.ptr, sig.numel)
        return out if dtype is sig.dtype else engine.without_grad(engine.cast, out, sig.dtype)

    return native


def _spread(x: Tensor, sig: Signature, dtype: dt.dtype) -> Tensor:
    """An operand at every place of the result."""
    if x.sig.shape != sig.shape:
        x = engine.without_grad(_expanded, make(x.sig, x.mem, x.ptr), tuple(sig.shape))
    return plain_values(x, dtype)


def _expanded(x: Tensor, shape: tuple) -> Tensor:
    return x.expand(shape)


NATIVE.update({name: _routine(name) for name in NAMES})


def _front(op: Op, otherwise):
    """A function of two tensors, by the name of its routine."""
    name = {"igamma": "lower_gamma_ratio", "igammac": "upper_gamma_ratio",
            "zeta": "hurwitz_zeta"}[op.name]
    plans, op.takes_out = new_table(), True

    def front(*args, **named):
        if named or len(args) != 2 or tracers or Tensor not in PLAIN:
            return otherwise(*args, **named)
        x, y = args
        if type(x) is not Tensor or type(y) is not Tensor or (
                modes.grad and (x.node is not None or y.node is not None)):
            return otherwise(x, y)
        sig = x.sig
        try:
            run = plans[sig, y.sig]
        except KeyError:
            run = plans[sig, y.sig] = _planned(sig, y.sig, name)
        if run is None:
            return otherwise(x, y)
        out = empty(sig)
        run(out.ptr, x.ptr, y.ptr, sig.numel)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _planned(x: Signature, y: Signature, name: str):
    """The machine code for tensors that lie alike; None for others."""
    if x is not y or x.tag is not None or x.device is not CPU or not x.contiguous or (
            x.dtype not in _WIDE or not x.numel):
        return None
    return converging(name, x.dtype.name)


FRONTS = {"igamma": _front, "igammac": _front, "zeta": _front}
