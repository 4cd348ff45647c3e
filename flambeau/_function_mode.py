"""Modes that see every call of a public function, and cost nothing while there is none.

A trace is asked by ops on tensors of its own, so a plan is never in the way of it. A mode is to see
functions that make tensors and tensors that it never met: so while one is on, other objects stand
under the public names, which ask it; when the last one is left the functions are back.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from typing import Any

import flambeau.autograd
from flambeau import Tensor
from flambeau.assemble import subclass as _protocol

#: where functions have public names
SPACES = ("flambeau", "flambeau.functional", "flambeau.nn.functional", "flambeau.linalg",
          "flambeau.fft", "flambeau.special", "flambeau.nn.init")
#: functions of the first of them that are about the library, not about tensors
STATE = ("are_", "autocast_", "broadcast_shapes", "can_cast", "clear_", "compile", "from_dlpack",
         "get_", "init", "is_anomaly", "is_autocast", "is_deterministic", "is_grad",
         "is_inference_", "is_storage", "is_tensor", "is_warn", "load", "manual_seed",
         "promote_types", "save", "seed", "set_", "sym_", "thread_safe_generator", "to_dlpack",
         "typename", "use_", "vmap")
#: what Python itself asks of a class, and what makes tensors of one
ALONE = frozenset("""__new__ __init__ __getattribute__ __setattr__ __delattr__ __hash__ __class__
    __init_subclass__ __subclasshook__ __torch_function__ __dir__ __sizeof__ __reduce__
    __reduce_ex__ __getattr__ __setstate__ __iter__ _make_subclass as_subclass""".split())
HOME = "flambeau.Tensor"
#: operators -> the method that a mode is told of, as torch's are
METHODS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div",
    "__itruediv__": "div_", "__matmul__": "matmul", "__neg__": "neg", "__abs__": "abs",
    "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__mod__": "remainder", "__imod__": "remainder_", "__ifloordiv__": "floor_divide_",
}
NUMBERS = (Tensor, bool, int, float, complex)


class _Stack(threading.local):
    """The modes of a thread, innermost last."""

    modes: tuple = ()


stack = _Stack()


def ask(func: Any, types_seen: tuple, args: tuple, kwargs: dict):
    """What the innermost mode answers to a call; meanwhile the modes around it are all there is."""
    modes = stack.modes
    stack.modes = modes[:-1]
    try:
        result = modes[-1].__torch_function__(func, types_seen, args, kwargs)
        if result is not NotImplemented:
            return result
        taking_part = _protocol.overloaded((*args, *kwargs.values()))
        for each in taking_part:
            result = each.__torch_function__(func, types_seen, args, kwargs)
            if result is not NotImplemented:
                return result
    finally:
        stack.modes = modes
    tried = "\n".join([f"  - mode object {modes[-1]!r}", *(
        f"  - tensor subclass {type(each)!r}" for each in taking_part)])
    raise TypeError(f"Multiple dispatch failed for '{name_of(func) or func.__name__}'; all "
                    f"__torch_function__ handlers returned NotImplemented:\n\n{tried}")


class Seen:
    """Stands under the public name of a function; equal to it, so that tables find either."""

    def __init__(self, original: Any, home: str, name: str):
        self.original, self.home, self.__name__ = original, home, name
        self.__doc__ = original.__doc__

    def __call__(self, *args: Any, **kwargs: Any):
        if not stack.modes:
            return self.unless_answered(self.original, args, kwargs)
        kinds = tuple(map(type, _protocol.overloaded((*args, *kwargs.values()))))
        return ask(self, kinds, args, kwargs)

    def unless_answered(self, run: Any, args: tuple, kwargs: dict):
        """What something among the arguments answers that is no tensor, or what `run` returns."""
        found = answering((args, kwargs)) if names.listeners else []
        if found:
            return _protocol.dispatch(self, found, args, kwargs, self.__name__)
        return run(*args, **kwargs)

    def __get__(self, x: Any, owner: Any = None):
        return self if x is None else types.MethodType(self, x)

    def __getattr__(self, name: str):
        return getattr(self.original, name)

    def __eq__(self, other: object) -> bool:
        return self is other or self.original is getattr(other, "original", other)

    def __hash__(self) -> int:
        return hash(self.original)

    def __reduce__(self):
        return str(self.__name__)

    def __repr__(self) -> str:
        return repr(self.original)


def answering(value: Any) -> list:
    """What answers calls itself and is no tensor, in nested arguments, one of each type."""
    if isinstance(value, (list, tuple)):
        inside = value
    elif isinstance(value, dict):
        inside = tuple(value.values())
    elif isinstance(value, slice):
        inside = (value.start, value.stop, value.step)
    else:
        return [] if isinstance(value, Tensor) else _protocol.overloaded((value,))
    return _protocol.overloaded([found for each in inside for found in answering(each)])


class SeenOperator(Seen):
    """Stands for an operator: a mode is told of the method that does the same."""

    def __init__(self, original: Any, home: str, name: str, method: Seen):
        super().__init__(original, home, name)
        self.method = method

    def __call__(self, *args: Any, **kwargs: Any):
        if stack.modes and all(isinstance(a, NUMBERS) for a in args):
            return self.method(*args, **kwargs)
        return self.method.unless_answered(self.original, args, kwargs)


class Hidden(Seen):
    """Stands for a function whose own calls are nobody's business: those of gradients."""

    def __call__(self, *args: Any, **kwargs: Any):
        with without_modes():
            return self.original(*args, **kwargs)


class Access:
    """Reading or writing an attribute as a function: what `Tensor.grad.__get__` is."""

    def __init__(self, attribute: property, way: str):
        self.__self__, self.__name__ = attribute, way

    def __call__(self, x: Tensor, *value: Any):
        run = getattr(self.__self__, self.__name__)
        return ask(self, (type(x),), (x, *value), {}) if stack.modes else run(x, *value)

    def __eq__(self, other: object) -> bool:
        return getattr(other, "__self__", None) is self.__self__ and (
            getattr(other, "__name__", None) == self.__name__)

    def __hash__(self) -> int:
        return hash(getattr(self.__self__, self.__name__))

    def __repr__(self) -> str:
        return repr(getattr(self.__self__, self.__name__))


class SeenAttribute:
    """Stands for an attribute of tensors."""

    def __init__(self, original: property):
        self.original = original
        self.read, self.write = Access(original, "__get__"), Access(original, "__set__")

    def __get__(self, x: Any, owner: Any = None):
        return self.original if x is None else self.read(x)

    def __set__(self, x: Tensor, value: Any) -> None:
        self.write(x, value)


# -- which names -----------------------------------------------------------------------------------


def is_seen(name: str, value: Any) -> bool:
    """Whether a function of a public space is about tensors."""
    return inspect.isroutine(value) and not name.startswith("_") and (
        name == "get_device" or not name.startswith(STATE))


def spaces() -> dict:
    """Each public space by its name."""
    return {name: importlib.import_module(name) for name in SPACES}


def name_of(func: Any) -> str | None:
    """What a function is called, with where it lives, as in torch."""
    if isinstance(func, Seen):
        return f"torch{func.home.removeprefix('flambeau')}.{func.__name__}"
    way = getattr(func, "__name__", "")
    if way in ("__get__", "__set__"):
        found = next((name for name, value in vars(Tensor).items()
                      if getattr(value, "original", value) is func.__self__), None)
        return None if found is None else f"torch.Tensor.{found}.{way}"
    owners: dict[str, Any] = {**spaces(), "flambeau.Tensor": Tensor}
    if way.endswith("_"):  # forms that work in place are methods first
        owners = {"flambeau.Tensor": Tensor, **owners}
    return next((f"torch{space.removeprefix('flambeau')}.{name}" for space, owner in owners.items()
                 for name, value in vars(owner).items()
                 if getattr(value, "original", value) is func), None)


class Names:
    """The public names, what they mean, and what stands there while a mode is on."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, str, Any, Any]] = []
        self.stand_ins: dict[int, Seen] = {}  # id of a function -> what stands for it
        self.size = self.users = self.listeners = 0
        self.lock = threading.Lock()

    def begin(self, listener: bool = False) -> None:
        with self.lock:
            if not self.users:
                if self.size != len(sys.modules):
                    self._collect()
                for owner, name, _, seen in self.rows:
                    setattr(owner, name, seen)
            self.users += 1
            self.listeners += listener

    def end(self, listener: bool = False) -> None:
        with self.lock:
            self.users -= 1
            self.listeners -= listener
            if self.users == 0:
                for owner, name, original, _ in self.rows:
                    setattr(owner, name, original)

    def _collect(self) -> None:
        importlib.import_module("flambeau.amp")  # which asks native functions what they are
        stand_ins: dict[int, Seen] = {}
        own: dict[tuple[str, str], Seen] = {}  # a function may be public in several spaces
        for home, space in spaces().items():
            for name, value in vars(space).items():
                if is_seen(name, value):
                    own[home, name] = seen = Seen(value, home, name)
                    stand_ins.setdefault(id(value), seen)
        for function in (flambeau.autograd.grad, flambeau.autograd.backward):
            stand_ins[id(function)] = Hidden(function, "flambeau.autograd", function.__name__)
        self.rows = [(module, name, value, own.get((home, name), stand_ins[id(value)]))
                     for home, module in _users() for name, value in vars(module).items()
                     if id(value) in stand_ins]
        self.rows += _of_tensors() + _of_modules(stand_ins)
        self.stand_ins = stand_ins
        self.size = len(sys.modules)


def _users() -> list:
    """Modules that call public functions by names of their own, the public spaces among them."""
    below = tuple(f"flambeau.{part}" for part in (
        "_function_mode", "assemble", "compiler", "core", "devices", "engine", "export", "fx",
        "jit", "onnx", "ops", "overrides"))
    return [(name, module) for name, module in list(sys.modules.items())
            if name in ("flambeau", "torch")  # which may be us under another name
            or (name.startswith("flambeau.") and not name.startswith(below))]


def _of_modules(stand_ins: dict[int, Seen]) -> list[tuple[Any, str, Any, Any]]:
    """Classes of modules that are told apart by the function they call."""
    kinds = [kind for name, module in list(sys.modules.items())
             if name.startswith("flambeau.nn.modules") for kind in vars(module).values()
             if isinstance(kind, type)]
    return [(kind, "_function", held, staticmethod(stand_ins[id(held.__func__)]))
            for kind in dict.fromkeys(kinds)
            if isinstance(held := vars(kind).get("_function"), staticmethod)
            and id(held.__func__) in stand_ins]


def _of_tensors() -> list[tuple[Any, str, Any, Any]]:
    rows: dict[str, tuple[Any, str, Any, Any]] = {}
    for name, value in vars(Tensor).items():
        if name in ALONE or isinstance(value, (staticmethod, classmethod)):
            continue
        if isinstance(value, property):
            rows[name] = (Tensor, name, value, SeenAttribute(value))
        elif callable(value):
            rows[name] = (Tensor, name, value, Seen(value, HOME, name))
    for name, method in METHODS.items():
        value = rows[name][2]
        rows[name] = (Tensor, name, value, SeenOperator(value, HOME, name, rows[method][3]))
    return list(rows.values())


names = Names()


@contextlib.contextmanager
def listening(programs: Iterable[dict[str, Any]] = ()) -> Iterator[None]:
    """Inside, functions first ask what else than a tensor is among the arguments they are given.

    Elsewhere they ask where they first miss, with defaults filled in. `programs` are the globals
    of modules that may have names of their own for public functions.
    """
    names.begin(listener=True)
    own = [(space, name, value) for space in programs for name, value in space.items()
           if id(value) in names.stand_ins]
    try:
        for space, name, value in own:
            space[name] = names.stand_ins[id(value)]
        yield
    finally:
        for space, name, value in own:
            space[name] = value
        names.end(listener=True)


# -- modes -----------------------------------------------------------------------------------------


class TorchFunctionMode:
    """Sees every call of a public function made inside it; overridden where it answers.

    >>> class Loud(TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> with Loud():
    ...     x = flambeau.ones(2) + 1
    ones
    add
    """

    inner: Any = None

    def __torch_function__(self, func: Any, types: tuple, args: tuple = (), kwargs: Any = None):
        raise NotImplementedError

    def __enter__(self):
        names.begin()
        stack.modes = (*stack.modes, self)
        return self

    def __exit__(self, *failure: Any) -> None:
        stack.modes = stack.modes[:-1]
        names.end()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any):
        """An instance, as older programs make them."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """Sees every call and lets it be."""

    def __torch_function__(self, func: Any, types: tuple, args: tuple = (), kwargs: Any = None):
        return func(*args, **(kwargs or {}))


class without_modes:
    """Inside, this thread has no modes."""

    def __enter__(self) -> None:
        self.before, stack.modes = stack.modes, ()

    def __exit__(self, *failure: Any) -> None:
        stack.modes = self.before
