"""All that a function's code can reach without being given it.

Where Python is skipped, everything counts that a call may depend on, or change: names in closures
and globals, of the functions that it calls as well, and what objects, classes and containers there
hold. Modules tell by themselves that something was set on them. What can be reached and may change
without being seen is told of too.
"""

from __future__ import annotations

import copy
import functools
import types
from typing import Any, NamedTuple

from ..core.device import device
from ..core.dtype import dtype
from ..engine.generator import Generator
from ..engine.tensor import Size, Tensor
from .names import (
    LONG,
    MANY,
    SCALARS,
    SIZE,
    attributes_of,
    codes_in,
    is_library,
    is_module,
    is_ours,
    names_in,
    scalars_in,
    taken,
)

_ROWS = 1_000       # names that are looked at
_DEPTH = 12         # objects in objects
_NUMBERS = 1_000    # in a list, that are compared in every call
#: code that uses these may mean any attribute
_BY_ANY_NAME = {"getattr", "setattr", "vars", "__dict__", "eval", "exec", "asdict", "attrgetter"}
#: modules of which nothing that code reads ever changes
_LASTING = ("math", "cmath", "operator", "typing")
#: what has no attributes, and is always the same; what a generator draws is part of programs
_STATELESS = (dtype, device, Size, slice, range, type(Ellipsis), types.BuiltinFunctionType,
              types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType,
              types.ClassMethodDescriptorType, types.GetSetDescriptorType, Generator)
#: classes that have nothing of their own
_PLAIN = (object, types.SimpleNamespace)
#: what functions become in a class
_METHODS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
#: attributes of classes that no call of a model or a step comes to
_UNCALLED = frozenset((
    *vars(object), "__dict__", "__weakref__", "__module__", "__annotations__", "__qualname__",
    "__slots__", "__firstlineno__", "__static_attributes__", "__parameters__", "__orig_bases__",
    "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__abstractmethods__",
    "__getstate__", "__setstate__")) - {"__getattribute__", "__eq__", "__hash__", "__format__"}
_PYTHONS_OWN = 1 << 9   # the flag of a class that was written in Python


class Everything(NamedTuple):
    """What a search has found, in rows: see names.py."""

    by_value: list
    by_itself: list
    tensors: list
    codes: set              # the code of all functions there
    unsure: str | None      # what may change without being seen, if there is such a thing


def everything(function, ran: set | None = None) -> Everything:
    """All that a function's code can reach; by way of code that has run, if that is known."""
    search = _Search(ran)
    if isinstance(function, types.FunctionType):
        search.look_into_function(function, 0)
    else:
        search.look_into(function, 0)
    tensors = {id(x): x for x in search.tensors}
    return Everything(search.rows(search.by_value), search.rows(search.by_itself),
                      [*tensors.values()], search.codes, search.unseen())


class _Search:
    """Goes from value to value; meets each once."""

    def __init__(self, ran: set | None) -> None:
        self.ran = ran
        self.by_value: list[tuple] = []
        self.by_itself: list[tuple] = []
        self.met: set[int] = set()
        self.objects: set[int] = set()  # whose attributes are among the rows
        self.classes: dict[int, Any] = {}   # and those of classes
        self.names: set[str] = set()    # that are written in the code of functions
        self.tensors: list[Tensor] = []
        self.codes: set[types.CodeType] = set()
        self.aside: list[dict] = []     # attributes that are not among the rows
        self.reason: str | None = None

    def unsure(self, reason: str) -> None:
        """Something was found that may change without being seen."""
        self.reason = self.reason or reason

    def unseen(self) -> str | None:
        """What may change without being seen."""
        for own in self.aside:
            for name in own.keys() & self.names:
                self.unsure(f"the attribute {name!r} of what is no module")
        return self.reason

    def rows(self, found: list[tuple]) -> list[tuple]:
        """Without attributes that no code names, unless some looks for attributes by itself."""
        if self.names & _BY_ANY_NAME:
            return found
        return [(owner, name, value) for owner, name, value in found
                if not (id(owner) in self.objects or id(owner) in self.classes)
                or name in self.names or (id(owner) in self.classes and _is_implied(name))]

    def take(self, rows, depth: int) -> None:
        for owner, name, value in rows:
            if len(self.by_value) + len(self.by_itself) >= _ROWS:
                self.unsure("more names than are looked at")
                return
            count = scalars_in(value)
            if 0 < count < MANY:
                self.by_value.append((owner, name, copy.deepcopy(value)))
                if count > _NUMBERS:
                    self.unsure(f"{count} numbers in a {type(value).__name__}")
                continue
            if not isinstance(value, types.ModuleType):
                self.by_itself.append((owner, name, value))
            self.look_into(value, depth + 1)

    def look_into(self, value: Any, depth: int) -> None:
        """What can be reached from a value by its names."""
        if id(value) in self.met or isinstance(value, SCALARS) or is_library(value):
            return
        if depth > _DEPTH:
            self.unsure("objects in objects in objects")
            return
        if isinstance(value, type):
            self.look_into_class(value, depth)
            return
        self.met.add(id(value))
        own = attributes_of(value)
        if isinstance(value, Tensor) or "param_groups" in own:
            self.aside.append(own)
            if isinstance(value, Tensor):
                self.tensors.append(value)
        elif isinstance(value, (types.FunctionType, types.MethodType)):
            self.look_into_function(value, depth)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.look_into(part, depth)
        elif isinstance(value, tuple):
            for element in value:
                self.look_into(element, depth + 1)
        elif isinstance(value, (list, dict)):
            self.look_into_container(value, depth)
        elif isinstance(value, types.ModuleType):
            if not (is_ours(value.__name__) or value.__name__ in _LASTING):
                self.unsure(f"the module {value.__name__}")
        elif is_module(value):
            for module in value.modules():
                self.look_into_module(module, depth)
        elif own or _is_of_python(type(value)):
            if not any(is_ours(cls.__module__) for cls in type(value).__mro__[:-1]):
                self.objects.add(id(own))  # no code of the library reads them
            self.take([(own, name, v) for name, v in own.items()], depth)
            self.look_into_class(type(value), depth)
        elif not isinstance(value, _STATELESS):
            self.unsure(f"a {type(value).__name__}")

    def look_into_function(self, function, depth: int) -> None:
        """Names around it, and what its code is."""
        inner = getattr(function, "__func__", function)
        if not isinstance(inner, types.FunctionType):
            pass
        elif is_ours(inner.__globals__.get("__name__", "")):  # it stands around one of the user's
            self.take([row for row in taken(inner) if type(row[0]) is types.CellType], depth)
        elif self.has_run(inner):
            self.names |= names_in(inner.__code__)
            self.codes |= codes_in(inner.__code__)
            self.aside.append(inner.__dict__)
            if not all(map(_lasts, (*(inner.__defaults__ or ()),
                                    *(inner.__kwdefaults__ or {}).values()))):
                self.unsure(f"a value that {inner.__name__} has for a default")
            self.take(taken(function), depth)
        owner = getattr(function, "__self__", None)
        if owner is not None:
            self.look_into(owner, depth)

    def has_run(self, function: types.FunctionType) -> bool:
        """Whether the code of a function, or code within it, is part of calls."""
        return self.ran is None or not self.ran.isdisjoint(codes_in(function.__code__))

    def look_into_container(self, container, depth: int) -> None:
        """Its size, and its elements if there are not too many."""
        self.take([(container, SIZE, len(container))], depth)
        if len(container) > LONG:
            self.unsure(f"a {type(container).__name__} of {len(container)} elements")
            return
        pairs = container.items() if isinstance(container, dict) else enumerate(container)
        self.take([(container, name, value) for name, value in pairs], depth)

    def look_into_module(self, module, depth: int) -> None:
        """What hangs on a module, but for what it tells of when it changes, and its own tensors."""
        ours = type(module).__module__.startswith("flambeau")
        own = vars(module)
        self.objects.add(id(own))
        self.tensors += [v for v in own.values() if isinstance(v, Tensor)]
        self.take([(own, name, v) for name, v in own.items()
                   if not isinstance(v, (Tensor, *SCALARS)) and not is_module(v)
                   and not _is_registry(name, v) and not (ours and type(v) is tuple)], depth)
        self.look_into_class(type(module), depth)

    def look_into_class(self, cls: type, depth: int) -> None:
        """What it has, and names that its methods take from around them."""
        for one in cls.__mro__:
            if id(one) in self.met or one in _PLAIN or is_ours(one.__module__):
                continue
            self.met.add(id(one))
            if not one.__flags__ & _PYTHONS_OWN:
                self.unsure(f"the class {one.__name__}")
                continue
            own = vars(one)
            self.classes[id(own)] = own
            named = [(own, name, v) for name, v in own.items()
                     if not _is_dunder(name) or _is_implied(name)]
            self.take([row for row in named if not isinstance(row[2], _METHODS)], depth + 1)
            for row in [row for row in named if isinstance(row[2], _METHODS)]:
                functions = [f for f in _functions_of(row[2]) if self.has_run(f)]
                if functions:
                    self.by_itself.append(row)
                for function in functions:
                    self.look_into(function, depth + 1)


def _functions_of(method) -> list:
    """The functions that an attribute of a class runs."""
    found = [method]
    if isinstance(method, property):
        found = [method.fget, method.fset, method.fdel]
    elif isinstance(method, functools.cached_property):
        found = [method.func]
    elif isinstance(method, (staticmethod, classmethod)):
        found = [method.__func__]
    return [f for f in found if isinstance(f, types.FunctionType)]


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_implied(name: str) -> bool:
    """Whether Python, or the library, calls a method of this name without its being written."""
    return name == "forward" or (_is_dunder(name) and name not in _UNCALLED)


def _is_of_python(cls: type) -> bool:
    """Whether all of what an object holds is among its attributes."""
    return all(one in _PLAIN or (one.__flags__ & _PYTHONS_OWN and not vars(one).get("__slots__"))
               for one in cls.__mro__)


def _is_registry(name: str, value) -> bool:
    """Whether an attribute is where a module keeps what is registered with it."""
    return name in ("_registered", "_non_persistent_buffers_set") or (
        type(value).__module__.startswith("flambeau.nn"))


def _lasts(value) -> bool:
    """Whether a value that a function has for a default is always the same."""
    return isinstance(value, (type, *SCALARS, *_STATELESS)) or is_library(value) or (
        type(value) is tuple and all(map(_lasts, value)))
