"""Subclasses of Tensor, and whatever else answers ops itself: the __torch_function__ protocol.

A tensor whose class takes part has a tagged signature, so every fast path misses and the slow path
asks here. What a class does not answer runs on the same memory seen as plain tensors, and results
become instances of the class.
"""

from __future__ import annotations

import contextlib
import threading

from ..core.device import device
from ..core.dtype import default_float, dtype
from . import legacy, protocol
from .interception import PLAIN, interceptors
from .modes import modes
from .node import edge_of, new_node
from .tensor import LEAF, Signature, Size, Tensor, keep_room, make, signature

#: types known not to take part; grows as others are met
_plain: set[type] = {Tensor, int, float, bool, complex, str, type(None), slice, dtype, device, Size,
                     type(...), dict}
functions: dict = {}  # op -> the public function that stands for it


class Asking(threading.local):
    """Whether a thread lets subclasses answer."""

    on = True


asking = Asking()


def disabled_torch_function(func, types, args=(), kwargs=None):
    """As a class's __torch_function__: the class takes no part, and results are plain tensors."""
    before, asking.on = asking.on, False
    try:
        return func(*args, **(kwargs or {}))
    finally:
        asking.on = before


def takes_part(cls: type) -> bool:
    """Whether instances of a class answer ops themselves, or want results of their own type."""
    if cls in _plain:
        return False
    handler = getattr(cls, "__torch_function__", None)
    if handler is None or handler is disabled_torch_function:
        _plain.add(cls)
        return False
    return True


def tagged(sig: Signature, cls: type) -> Signature:
    """The signature of an instance of a class."""
    tag = cls if takes_part(cls) else None
    if sig.tag is tag:
        return sig
    return signature(sig.dtype, tuple(sig.shape), tuple(sig.strides), sig.device, tag)


# -- asking --------------------------------------------------------------------------------------


def overloaded(args) -> list:
    """The arguments that take part, one of each type, subclasses before their bases."""
    found: list = []
    for a in args:
        kind = type(a)
        if kind in _plain:
            continue
        if kind is list or kind is tuple:
            inner = overloaded(a) if a and type(a[0]) not in (int, float) else []
        else:
            inner = [a] if takes_part(kind) else []
        for each in inner:
            _insert(found, each)
    return found


def _insert(found: list, value) -> None:
    if any(type(f) is type(value) for f in found):
        return
    place = next((i for i, f in enumerate(found) if isinstance(value, type(f))), len(found))
    found.insert(place, value)


def function_of(op):
    """The public function that stands for an op, or the method of that name."""
    found = functions.get(op)
    if found is None:  # of a derived op, or of what is no op: remembered, so that it leads back
        found = functions[op] = getattr(op, "run", None) or getattr(
            Tensor, op.name, None) or getattr(Tensor, f"__{op.name}__")
    return found


def ask(op, args, kwargs):
    """(result,) if an argument answers this call, else None."""
    taking_part = overloaded(args)
    if kwargs:
        for each in overloaded(kwargs.values()):
            _insert(taking_part, each)
    if not taking_part:
        for kind in map(type, args):
            if kind not in PLAIN and issubclass(kind, Tensor):
                PLAIN.add(kind)
        return None
    args, kwargs = _as_given(op, args, kwargs)
    if not asking.on and all(isinstance(a, Tensor) for a in taking_part):
        return (_unasked(function_of(op), args, kwargs),)
    return (dispatch(function_of(op), taking_part, args, kwargs, op.name),)


def _unasked(func, args, kwargs):
    """A call in which subclasses have no say: results are plain tensors."""
    unwrapped = Unwrapped()
    result = func(*unwrapped.plain(tuple(args)), **unwrapped.plain(kwargs))
    unwrapped.settle()
    return unwrapped.aliases.get(id(result), result)


def _as_given(op, args, kwargs):
    """Arguments without the defaults that a front has filled in."""
    names, defaults = getattr(op, "names", ()), getattr(op, "defaults", {})
    args = list(args)
    while len(args) > 1 and len(args) <= len(names) and names[len(args) - 1] in defaults and (
            args[-1] is defaults[names[len(args) - 1]]):
        args.pop()
    if not kwargs:
        return args, {}
    required = set(names) - set(defaults)
    return args, {k: v for k, v in kwargs.items() if k in required or (
        v is not None and (k not in defaults or v is not defaults[k]))}


def dispatch(func, taking_part: list, args, kwargs, name: str):
    """The answer of the first argument that has one."""
    types = tuple(type(a) for a in taking_part)
    for a in taking_part:
        result = a.__torch_function__(func, types, tuple(args), kwargs or {})
        if result is not NotImplemented:
            return result
    raise TypeError(f"no implementation found for 'torch.{name}' on types that implement "
                    f"__torch_function__: {list(types)}")


# -- the default answer --------------------------------------------------------------------------


class _Through:
    """Goes back from a plain alias to the leaf it stands for."""

    def name(self) -> str:
        return "AliasBackward0"

    def pull(self, node, g):
        return [g]


class Unwrapped:
    """Arguments as plain tensors over the same memory, and the way back to what they stand for."""

    def __init__(self):
        self.pairs: dict[int, tuple[Tensor, Tensor, object]] = {}
        self.aliases: dict[int, Tensor] = {}

    def plain(self, value):
        if isinstance(value, Tensor):
            return self._alias(value) if takes_part(type(value)) else value
        if type(value) in (list, tuple):
            return type(value)(self.plain(v) for v in value)
        if type(value) is dict:
            return {k: self.plain(v) for k, v in value.items()}
        return value

    def _alias(self, x: Tensor) -> Tensor:
        if id(x) in self.pairs:
            return self.pairs[id(x)][1]
        out = make(tagged(x.sig, Tensor), x.mem, x.ptr)
        if x.node is LEAF:
            out.node = new_node(_Through(), (edge_of(x),), (), (out.sig,)) if modes.grad else None
        else:
            out.node = x.node
        self.pairs[id(x)] = (x, out, out.node)
        self.aliases[id(out)] = x
        return out

    def settle(self) -> None:
        """What an op did to an alias in place it did to the original."""
        for x, out, node in self.pairs.values():
            if out.node is not node:
                x.node = out.node
            if out.mem is not x.mem or out.sig.shape != x.sig.shape:
                x.sig, x.mem, x.ptr = tagged(out.sig, type(x)), out.mem, out.ptr

    def wrap(self, value, cls):
        if isinstance(value, Tensor):
            original = self.aliases.get(id(value))
            if original is not None:
                return original
            return value if isinstance(value, cls) else as_subclass(value, cls)
        if isinstance(value, (tuple, list)) and type(value) is not Size:
            parts = [self.wrap(v, cls) for v in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value


def default_torch_function(cls, func, types, args=(), kwargs=None):
    """Run on plain tensors; results become instances of this class."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    unwrapped = Unwrapped()
    result = func(*unwrapped.plain(tuple(args)), **unwrapped.plain(dict(kwargs or {})))
    unwrapped.settle()
    return unwrapped.wrap(result, cls)


# -- making instances ----------------------------------------------------------------------------


def as_subclass(self, cls):
    """The same tensor as an instance of a subclass."""
    if not issubclass(cls, Tensor):
        raise RuntimeError(f"as_subclass: cls must be a subclass of Tensor, got {cls.__name__}")
    out = object.__new__(cls)
    out.sig, out.mem, out.ptr = tagged(self.sig, cls), self.mem, self.ptr
    out.node = self.node
    if self.node is LEAF:
        out.node = new_node(_Through(), (edge_of(self),), (), (out.sig,)) if modes.grad else None
    with contextlib.suppress(AttributeError):
        out.base = self.base
    return out


def make_subclass(cls, data: Tensor, require_grad: bool = False):
    """A leaf of a subclass over a tensor's memory."""
    if require_grad and data.sig.dtype.kind not in "fc":
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    out = object.__new__(cls)
    out.sig, out.mem, out.ptr = tagged(data.sig, cls), data.mem, data.ptr
    out.node = LEAF if require_grad else None
    keep_room(out, data)
    return out


def construct(cls, *args, device=None):
    """torch.Tensor(...) and subclasses called alike."""
    x = legacy.legacy(None, default_float(), args, device)
    return x if cls is Tensor else make_subclass(cls, x)


def set_data(x: Tensor, value) -> None:
    """x.data = value: other memory, same class."""
    protocol._set_data(x, value)
    x.sig = tagged(x.sig, type(x))


def install(registry: dict, public: dict) -> None:
    Tensor.__new__ = staticmethod(construct)  # type: ignore[method-assign]
    Tensor.as_subclass, Tensor._make_subclass = as_subclass, staticmethod(make_subclass)
    Tensor.__torch_function__ = classmethod(default_torch_function)
    Tensor.data = property(protocol._data, set_data)
    if ask not in interceptors:
        interceptors.append(ask)
    for key, op in registry.items():
        functions[op] = public.get(key) or getattr(Tensor, str(op.method), op.run)

