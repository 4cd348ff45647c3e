"""The calls of a path made again, for real, one by one."""

from __future__ import annotations

import struct

from ..engine import subclass
from ..engine.modes import modes
from ..engine.tensor import Tensor
from .casting import recast, within
from .segment import Result, Same, Several, Step


def made_again(step: Step, outside: list[Tensor], numbers: list[float],
               twins: list | dict, run, take) -> None:
    """Make the calls of a path as they were made: run makes each, take has its new tensors.

    Those are expected to be put into `twins`. Gradients of leaves are what they were before each
    call, and in the end what they are now.
    """
    given = iter(numbers)

    def real(a):
        return _real(a, outside, twins, given)

    mode, cast = modes.grad, within()
    now = [(x, getattr(x, "_grad", None)) for x in outside]
    try:
        for each in step.path():
            modes.grad = each.grad
            if each.cast != within():
                recast(each.cast)
            for k, before in each.grads:
                outside[k]._grad = real(before)
            work = each.op.run if each.backward else subclass.function_of(each.op)
            args, plain = [real(a) for a in each.args], len(each.args) - len(each.names)
            result = run(work, args[:plain], dict(zip(each.names, args[plain:], strict=True)))
            take([outside[k]._grad for k, _ in each.result] if each.backward
                 else _made_by(each.result, result))
    finally:
        modes.grad = mode
        if cast != within():
            recast(cast)
        for x, g in now:
            x._grad = g


def _real(a, outside: list[Tensor], twins: list | dict, given):
    """What a coded argument stands for."""
    if type(a) is Same:
        return twins[a.code] if a.code >= 0 else outside[-1 - a.code]
    if type(a) is Several:
        parts = [_real(v, outside, twins, given) for v in a.parts]
        return slice(*parts) if a.kind is slice else a.kind(parts)
    return next(given) if type(a) is float else a


def call(work, args, kwargs):
    return work(*args, **kwargs)


def _made_by(template, result) -> list[Tensor]:
    """New tensors in a result, in the order of their numbers."""
    if type(template) is Result:
        return [result]
    if type(template) is Several:
        return [x for t, r in zip(template.parts, result, strict=True) for x in _made_by(t, r)]
    return []


def another(value: float) -> float:
    """The same number as an object of its own, so that it is known where it goes."""
    return struct.unpack("d", struct.pack("d", value))[0]
