"""Modes that see every op of a program by its name in torch.ops.aten.

A mode stands behind the public names, as those of __torch_function__ do (see _function_mode): it is
told of an op whose public function or method is called, also by modules and by functions that are
written in Python. What torch makes of several ops (`linear`, `matmul`, convolutions) is told of as
those. Steps back are not told of: they are formulas here, and no calls.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau import Tensor, _assemble, _function_mode
from flambeau._function_mode import Access, Seen, ask, stack
from flambeau.assemble import declarations

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]

Known: Any = declarations.namespaces.Known
KnownOverload: Any = declarations.namespaces.KnownOverload
Packet: Any = declarations.namespaces.Packet
aten = declarations.namespaces.namespace("aten")

#: how names of a space begin in aten
PREFIXES = {"flambeau.linalg": "linalg_", "flambeau.fft": "fft_", "flambeau.special": "special_"}
#: files whose functions make, move or write tensors and are no declared ops
MAKING = tuple(f"flambeau.engine.{part}" for part in (
    "again", "assignment", "basic_index", "copying", "create", "create_like", "from_data",
    "inplace", "indexing", "random", "sampling", "sequence"))
RENAMED = {"__getitem__": "index", "__setitem__": "index_put_", "true_divide": "div",
           "__eq__": "eq", "__pow__": "pow", "__floordiv__": "floor_divide",
           "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
           "__invert__": "bitwise_not"}
#: files whose functions return the tensor itself where there is nothing to do
MOVING = ("flambeau.engine.moves", "flambeau.engine.cuts")
#: methods that end as forms in place do and compute nothing
NO_OPS = frozenset(("requires_grad_", "detach_", "share_memory_", "apply_", "map_", "map2_",
                    "tensor", "as_tensor", "from_numpy", "__len__", "__repr__", "__format__",
                    "__bool__"))

# -- overloads -------------------------------------------------------------------------------------


def _by_other(args: tuple) -> str:
    return "Tensor" if isinstance(args[-1], Tensor) else "Scalar"


def _of_pow(args: tuple) -> str:
    if not isinstance(args[0], Tensor):
        return "Scalar"
    return f"Tensor_{_by_other(args)}"


def _along(name: str) -> Callable[[tuple], str]:
    return lambda args: name if len(args) > 1 and args[1] is not None else "default"


_ARITHMETIC = ("add", "sub", "mul", "div", "bitwise_and", "bitwise_or", "bitwise_xor", "remainder",
               "fmod")
_COMPARING = ("eq", "ne", "lt", "le", "gt", "ge", "masked_fill", "fill_")
#: name -> the overload that is meant by some arguments, where there is more than one
OVERLOADS: dict[str, Callable[[tuple], str]] = {
    **dict.fromkeys(_ARITHMETIC, lambda args: "Tensor"),
    **dict.fromkeys([f"{name}_" for name in _ARITHMETIC], lambda args: "Tensor"),
    **dict.fromkeys(_COMPARING, _by_other),
    "pow": _of_pow, "sum": _along("dim_IntList"), "mean": _along("dim"), "max": _along("dim"),
    "min": _along("dim"), "any": _along("dim"), "all": _along("dim"),
    "index": lambda args: "Tensor", "split": lambda args: "Tensor", "slice": lambda args: "Tensor",
    "softmax": lambda args: "int", "log_softmax": lambda args: "int",
    "flatten": lambda args: "using_ints", "transpose": lambda args: "int",
    "select": lambda args: "int", "where": lambda args: "self",
}


def overload(name: str, args: tuple, kwargs: dict, function: Callable | None = None) -> Any:
    """torch.ops.aten.<name>.<the overload that takes these arguments>"""
    if not hasattr(aten, name) and function is not None:
        aten._packets[name] = Known("aten", name, function)
    choose, packet = OVERLOADS.get(name), getattr(aten, name)
    kind = "default" if choose is None else choose((*args, *kwargs.values()))
    known = getattr(packet, kind)
    is_method = bool(args) and isinstance(args[0], Tensor) and hasattr(Tensor, name)
    if function is None or packet._function is function or (
            is_method and len(args) < 3 and "inplace" not in kwargs):
        return known
    return Called(known, function)


class Called(KnownOverload):
    """An overload whose public function has other arguments than that of the same name in torch."""

    def __init__(self, known: KnownOverload, function: Callable):
        super().__init__(known.overloadpacket, known._overloadname)
        self.known, self.function = known, function

    def run(self, args: tuple, kwargs: dict) -> Any:
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return getattr(other, "known", other) is self.known

    def __hash__(self) -> int:
        return hash(self.known)


# -- what torch makes of several ops ---------------------------------------------------------------


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    turned = weight.t()
    if input.dim() == 1:
        found = flambeau.mv(weight, input)
        return found if bias is None else found + bias
    rows = input if input.dim() == 2 else input.reshape(-1, input.shape[-1])
    found = flambeau.mm(rows, turned) if bias is None else flambeau.addmm(bias, rows, turned)
    return found if input.dim() == 2 else found.view(*input.shape[:-1], weight.shape[0])


def _matmul(input: Tensor, other: Tensor) -> Tensor:
    ranks = input.dim(), other.dim()
    if ranks in _PRODUCTS:
        return _PRODUCTS[ranks](input, other)
    if ranks[1] <= 2 < ranks[0]:
        rows = input.reshape(-1, input.shape[-1])
        if ranks[1] == 1:
            return flambeau.mv(rows, other).view(input.shape[:-1])
        return flambeau.mm(rows, other).view(*input.shape[:-1], other.shape[-1])
    if ranks[0] == 1:
        return _matmul(input.unsqueeze(0), other).squeeze(-2)
    if ranks[1] == 1:
        return _matmul(input, other.unsqueeze(1)).squeeze(-1)
    batch = flambeau.broadcast_shapes(input.shape[:-2], other.shape[:-2])
    one, two = (x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:])
                for x in (input, other))
    return flambeau.bmm(one, two).view(*batch, input.shape[-2], other.shape[-1])


_PRODUCTS: dict[tuple, Callable] = {
    (1, 1): lambda x, y: flambeau.dot(x, y),
    (2, 1): lambda x, y: flambeau.mv(x, y),
    (2, 2): lambda x, y: flambeau.mm(x, y),
    (3, 3): lambda x, y: flambeau.bmm(*(
        z.expand(*flambeau.broadcast_shapes(x.shape[:1], y.shape[:1]), *z.shape[1:])
        for z in (x, y))),
}


def _convolution(n: int) -> Callable:
    def several(value: Any) -> list:
        return [value] * n if isinstance(value, int) else list(value)

    def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        if isinstance(padding, str) or input.dim() != n + 2:
            return NotImplemented
        return aten.convolution.default(input, weight, bias, several(stride), several(padding),
                                        several(dilation), False, [0] * n, groups)

    return conv


def _converted(dtype: Any = None) -> Callable:
    def to(input, *args, **kwargs):
        wanted = dtype or kwargs.get("dtype") or next(
            (a for a in args if isinstance(a, flambeau.dtype)), None)
        if wanted is None or wanted is input.dtype or kwargs.get("copy"):
            return NotImplemented
        return aten._to_copy.default(input, dtype=wanted)

    return to


def _getitem(input: Tensor, key: Any) -> Any:
    """A view taken piece by piece; an index by tensors where they are all of it."""
    items = key if isinstance(key, tuple) else (key,)
    if items and all(isinstance(k, Tensor) for k in items):
        return aten.index.Tensor(input, list(items))
    if not all(k is None or type(k) in (int, slice) for k in items):
        return NotImplemented
    dim = 0
    for k in items:
        if type(k) is int:
            input = input.select(dim, k)
            continue
        if k is None:
            input = input.unsqueeze(dim)
        elif k != slice(None):
            step = () if k.step in (None, 1) else (k.step,)
            input = aten.slice.Tensor(input, dim, k.start or 0,
                                      sys.maxsize if k.stop is None else k.stop, *step)
        dim += 1
    return input


def _reshaped(input: Tensor, *shape: Any) -> Any:
    return input.view(*shape) if input.is_contiguous() else NotImplemented


def _flattened(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    if (start_dim, end_dim) != (0, -1) or not input.is_contiguous():
        return NotImplemented
    return input if input.dim() == 1 else input.view(-1)


def _turned(input: Tensor) -> Tensor:
    return input.permute(*range(input.dim() - 1, -1, -1))


def _softmax(name: str) -> Callable:
    def softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dim is None or dtype is not None:
            return NotImplemented
        return getattr(aten, name).default(input, dim, False)

    return softmax


#: public name -> the same in terms of others; NotImplemented where it is told of as it is
DECOMPOSED: dict[str, Callable] = {
    "linear": _linear, "matmul": _matmul, "__rmatmul__": lambda x, y: _matmul(y, x),
    **{f"conv{n}d": _convolution(n) for n in (1, 2, 3)},
    "__getitem__": _getitem, "reshape": _reshaped, "flatten": _flattened,
    "softmax": _softmax("_softmax"), "log_softmax": _softmax("_log_softmax"),
    "item": lambda x: aten._local_scalar_dense.default(x),
    "to": _converted(), "float": _converted(flambeau.float32), "long": _converted(flambeau.int64),
    "double": _converted(flambeau.float64), "half": _converted(flambeau.float16),
    "bfloat16": _converted(flambeau.bfloat16), "bool": _converted(flambeau.bool),
    "int": _converted(flambeau.int32),
}


#: those that a mode is told of as the pieces in any case
FREE = frozenset(("__getitem__", "item", "to", "float", "double", "half", "bfloat16", "bool", "int",
                  "long"))


# -- modes -----------------------------------------------------------------------------------------


class TorchDispatchMode:
    """Is told of every op inside it, and answers for it.

    >>> class Loud(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> with Loud():
    ...     x = flambeau.ones(2, 2) @ flambeau.ones(2, 2) + 1
    aten.ones.default
    aten.ones.default
    aten.mm.default
    aten.add.Tensor
    """

    decomposes = True  # whether it is told of `linear` and others as what torch makes of them

    def __init__(self, _dispatch_key: Any = None):
        self._dispatch_key = _dispatch_key

    def __torch_dispatch__(self, func: Any, types: tuple, args: tuple = (), kwargs: Any = None):
        raise NotImplementedError

    def __enter__(self):
        _function_mode.names.begin()
        stack.modes = (*stack.modes, _Listener(self))
        return self

    def __exit__(self, *failure: Any) -> None:
        stack.modes = stack.modes[:-1]
        _function_mode.names.end()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any):
        """An instance, as older programs make them."""
        return cls(*args, **kwargs)


class _Listener:
    """What hears of public functions for a mode, and tells it of ops."""

    def __init__(self, mode: TorchDispatchMode):
        self.mode = mode

    def __torch_function__(self, func: Any, types: tuple, args: tuple = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if isinstance(func, KnownOverload):
            return self.mode.__torch_dispatch__(func, types, args, kwargs)
        if isinstance(func, Access):
            seen = ATTRIBUTES.get(id(func.__self__)) if func.__name__ == "__get__" else None
            if seen is None:
                return func(*args, **kwargs)  # of what is no op
            with self._on():
                return seen(args[0])
        name, original = func.__name__, func.original
        if name in (DECOMPOSED if self.mode.decomposes else FREE) and args and (
                isinstance(args[0], Tensor)):
            with self._on():
                found = DECOMPOSED[name](*args, **kwargs)
            if found is not NotImplemented:
                return found
        if getattr(original, "__module__", None) in MOVING:
            found = original(*args, **kwargs)
            if not isinstance(found, Tensor) or found is args[0]:
                return found
        elif not _is_op(func):
            with self._on() if _is_python(original) else contextlib.nullcontext():
                return original(*args, **kwargs)
        if name.startswith("__r") and name.endswith("__"):
            name, args, original = f"__{name[3:]}", args[::-1], None
        name = RENAMED.get(name, name.strip("_") if name.startswith("__") else name)
        name = PREFIXES.get(func.home, "") + name
        if func.home == _function_mode.HOME:
            original = None if hasattr(aten, name) else original
        elif kwargs:  # what functions for networks have beside the op's arguments
            kwargs = {k: v for k, v in kwargs.items() if (k, v) != ("inplace", False)
                      and k != "_stacklevel"}
        return self.mode.__torch_dispatch__(overload(name, args, kwargs, original), types, args,
                                            kwargs)

    @contextlib.contextmanager
    def _on(self) -> Iterator[None]:
        """Told of what is called inside."""
        before, stack.modes = stack.modes, (*stack.modes, self)
        try:
            yield
        finally:
            stack.modes = before


def _attribute(name: str) -> int:
    value = vars(Tensor)[name]
    return id(getattr(value, "original", value))  # a mode may be on already


#: attributes of tensors that are ops, in terms of such
ATTRIBUTES: dict[int, Callable] = {
    _attribute("T"): _turned, _attribute("mT"): lambda x: x.transpose(-2, -1),
    _attribute("H"): lambda x: x.t().conj(), _attribute("mH"): lambda x: x.adjoint(),
    _attribute("real"): lambda x: flambeau.real(x), _attribute("imag"): lambda x: flambeau.imag(x),
    _attribute("data"): lambda x: x.detach(),
}


def _is_op(func: Seen) -> bool:
    name = func.__name__
    if name in NO_OPS:
        return False
    key = f"{func.home.removeprefix('flambeau').removeprefix('.')}.{name}"
    public = _assemble.functions
    return (key in public or name in public or f"nn.functional.{name}" in public
            or name in RENAMED or name in _assemble.OPERATORS
            or getattr(func.original, "__module__", None) in MAKING
            or (func.home == _function_mode.HOME and name.endswith("_")
                and not name.endswith("__")))


def _is_python(function: Any) -> bool:
    """Whether a function is written in terms of other public ones."""
    return str(getattr(function, "__module__", "")).startswith("flambeau.nn")


def _through_modes(called: KnownOverload, args: tuple, kwargs: dict):
    """torch.ops.aten.f.default(...), which the modes around are told of."""
    if stack.modes:
        return ask(called, (), args, kwargs)
    return called.run(args, kwargs)


KnownOverload.through = staticmethod(_through_modes)


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    """The innermost mode."""
    modes = _get_current_dispatch_mode_stack()
    return modes[-1] if modes else None


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return [m.mode for m in stack.modes if isinstance(m, _Listener)]


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list]:
    """Inside, no mode is told of anything."""
    with _function_mode.without_modes():
        yield []


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor is a wrapper around others that says how it is taken apart."""
    return isinstance(t, Tensor) and type(t) is not Tensor and all(
        hasattr(t, name) for name in ("__tensor_flatten__", "__tensor_unflatten__"))
