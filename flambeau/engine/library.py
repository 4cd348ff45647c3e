"""The front of library ops: shapes by the op's rule, then a routine of the device.

What the rule said of arguments, all by their signatures and values, is remembered: those that come
again are neither bound nor looked at as closely.
"""

from __future__ import annotations

from typing import Any

from ..core import dtype as dt
from ..core.device import CPU, META
from ..core.lazily import np
from ..devices.cpu import routines
from ..devices.cpu.remember import keep
from ..ops.declare import Op
from .eager import engine, new_table, same_place
from .formula import bind, flat, record, tensors_of, wants_gradient
from .fresh import empty
from .interception import intercepted, tracers
from .modes import modes
from .storage import adopt
from .tensor import Signature, Tensor, make, signature


def library_front(op: Op):
    known = new_table()  # arguments -> what was ruled, and the arguments that were not given

    def front(*args, **kwargs):
        key = None if tracers else key_of((*args, *kwargs.values()) if kwargs else args)
        if kwargs and key is not None:
            key = (key, *kwargs)
        if key is not None and (found := known.get(key)) is not None:
            ruled, rest = found
            bound = dict(zip(op.names, args, strict=False))
            if kwargs:
                bound.update(kwargs)
            bound.update(rest)
            return finished(bound, ruled)
        answered = intercepted(op, args, kwargs)
        if answered is not None:
            return answered[0]
        bound = bind(op, args, kwargs)
        tensors = tensors_of(op, bound)
        for name, t in zip(op.tensor_names, tensors, strict=True):
            check_tensor(op, name, t)
        same_place(op, flat(tensors))
        ruled = Ruled(op, bound)
        out = finished(bound, ruled)
        if key is not None and kwargs.keys() <= bound.keys():
            given = {*op.names[:len(args)], *kwargs}
            rest = {name: bound[name] for name in op.names if name not in given}
            keep(known, key, (ruled, rest))
        return out

    def finished(bound: dict, ruled: Ruled):
        outs = computed(op, bound, ruled)
        if watched:
            watched[-1].append((op, bound, ruled, outs))
        if op.formula is not None and modes.grad and wants_gradient(tensors_of(op, bound)):
            record(op, bound, outs)
        return outs if isinstance(outs, Tensor) else engine.named(op, outs)

    return front


#: lists of calls of library ops, told to whoever watches
watched: list[list] = []

#: arguments that are known by their type and value
_VALUES = frozenset((int, float, bool, complex, str, type(None), dt.dtype))


def key_of(args: tuple) -> tuple | None:
    """What arguments are known by, and the dtype that integers may become; None if they are not
    plain."""
    key: list = [dt.default_float()]
    for a in args:
        if isinstance(a, Tensor):
            sig = a.sig
            if sig.tag is not None or sig.device is not CPU:
                return None
            key.append(sig)
        elif a.__class__ in _VALUES:
            key.append((a.__class__, a))
        elif a.__class__ is tuple:
            inner = key_of(a)
            if inner is None:
                return None
            key.append(inner)
        else:
            return None
    return tuple(key)


def check_tensor(op: Op, name: str, value) -> None:
    optional = op.body.__annotations__.get(name) == "T | None" or (
        name in op.defaults and op.defaults[name] is None)
    ok = isinstance(value, (Tensor, list, tuple)) or (value is None and optional)
    if not ok:
        position = op.names.index(name) + 1
        raise TypeError(f"{op.said}(): argument '{name}' (position {position}) must be Tensor, not "
                        f"{type(value).__name__}")


class Ruled:
    """What an op's rule says of its results: one signature, several, or that values decide."""

    __slots__ = ("on_meta", "several", "sigs")

    def __init__(self, op: Op, bound: dict):
        said = op.body(**{k: _signature_of(v) for k, v in bound.items()})
        first = next((t for t in flat(tensors_of(op, bound)) if isinstance(t, Tensor)), None)
        dtype = dt.RULES[op.rule](first.sig.dtype) if first is not None else dt.default_float()
        self.on_meta = first is not None and first.sig.device is META
        self.several = isinstance(said, list)
        self.sigs: tuple[Signature, ...] | None = None if said is None else tuple(
            [_ruled_signature(r, dtype, META if self.on_meta else CPU)
             for r in (said if self.several else [said])])


def _ruled_signature(said, dtype: dt.dtype, device) -> Signature:
    if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], dt.dtype):
        said, dtype = said
    return signature(dtype, tuple(said), None, device)


def _signature_of(value):
    if isinstance(value, Tensor):
        return value.sig
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return [v.sig for v in value]
    return value


def computed(op: Op, bound: dict, ruled: Ruled):
    """What the device makes of it: native code if there is some that can, else its routine."""
    sigs = ruled.sigs
    if ruled.on_meta:
        if sigs is None:
            raise RuntimeError(f"{op.said}: the shape of the result depends on values that a meta "
                               "tensor does not have")
        outs = [empty(s) for s in sigs]
        return outs if ruled.several else outs[0]
    native = routines.NATIVE.get(op.name)
    if native is not None and sigs is not None:
        done = native(sigs if ruled.several else sigs[0], bound)
        if done is not None:
            return done
    result = routines.ROUTINES[op.name](**{k: _array_of(v) for k, v in bound.items()})
    if isinstance(result, (tuple, list)):
        wanted: Any = [s.dtype for s in sigs] if ruled.several and sigs else [None] * len(result)
        return [from_array(r, w) for r, w in zip(result, wanted, strict=True)]
    return from_array(result, None if sigs is None else sigs[0].dtype)


def _array_of(value):
    """A tensor's elements as numpy sees them; half types widened where numpy lacks them."""
    if isinstance(value, Tensor):
        return engine.to_array(value)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return [engine.to_array(v) for v in value]
    return value


def from_array(array, wanted: dt.dtype | None) -> Tensor:
    """A tensor over an array's own memory."""
    array = np.asarray(array)
    if wanted is dt.bfloat16:
        return engine.cast(from_array(array.astype(np.float32, copy=False), dt.float32), wanted)
    if wanted is not None and array.dtype != wanted.numpy:
        array = array.astype(wanted.numpy)
    if not array.ndim:
        array = array.copy()
    elif not array.flags.carray:  # in order, aligned, and its own to write to
        array = np.require(array, requirements=["C", "W", "A"])
    sig = signature(dt.from_numpy(array.dtype), array.shape)
    if sig.nbytes < 1 << 16:  # small results go to pooled memory, so that their array may go
        out = empty(sig)
        routines.copy_bytes(out.ptr, array)
        return out
    return make(sig, adopt(array.ctypes.data, array.nbytes, array))
