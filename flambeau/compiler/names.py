"""What a function's code can reach without being given it, and whether that is what it was.

A row is (owner, name, value): who can say what a name stands for, and what it stood for. With
fullgraph=True Python is skipped, so everything counts that a call may depend on, or change: names
in closures and globals, of the functions that it calls as well, and what objects and containers
there hold. Modules tell by themselves that something was set on them.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Iterator
from typing import Any

from ..engine.tensor import Tensor

SCALARS = (bool, int, float, str, bytes, complex, type(None))
_MANY = 10_000      # scalars in a list, or a list of lists, that are still compared
_ROWS = 1_000       # names that are looked at
_DEPTH = 5          # objects in objects
_LONG = 64          # elements of a container that are looked at one by one
#: code that uses these may mean any attribute
_BY_ANY_NAME = {"getattr", "setattr", "vars", "__dict__", "eval", "exec", "asdict", "attrgetter"}
_NOTHING = object()
_SIZE = "number of elements"


def around(function) -> list[tuple]:
    """Rows of what has tensors and is named by a function's code, or by that of functions of the
    user's that it calls or wraps."""
    found: list[tuple] = []
    met, waiting = {id(function)}, [function]
    while waiting and len(met) < _LONG:
        for row in _taken(waiting.pop()):
            owner, _, value = row
            if holders(value) or (owner.__class__ is types.CellType and not isinstance(
                    value, (*SCALARS, types.ModuleType, types.FunctionType, type))):
                found.append(row)  # or may have some later; what cells have is soon compared
            elif isinstance(value, types.FunctionType) and not (
                    id(value) in met or _is_library(value)):
                met.add(id(value))
                waiting.append(value)
    return found


def holders(value) -> list:
    """Tensors and modules that a value is, or has: a method, or a container that is not long."""
    if isinstance(value, types.MethodType):
        value = value.__self__
    elif isinstance(value, (list, tuple, dict)) and len(value) <= _LONG:
        parts = value.values() if isinstance(value, dict) else value
        return [v for v in parts if isinstance(v, Tensor) or _is_module(v)]
    return [value] if isinstance(value, Tensor) or _is_module(value) else []


def everything(function) -> tuple[list, list]:
    """What a function's code takes from its closure and globals, and all that can be reached from
    there: scalars, known by their value, and all else that may hold tensors, known by itself."""
    search = _Search()
    search.look_into(function, 0)
    return search.rows(search.by_value), search.rows(search.by_itself)


def changed(bound) -> bool:
    """Whether any of these names stands for something else now."""
    try:
        for owner, name, value in bound:
            kind = owner.__class__
            if kind is dict:
                found = owner.get(name, _NOTHING)
            else:
                found = owner.cell_contents if kind is types.CellType else now(owner, name)
            if found is not value:
                return True
    except ValueError:  # a cell is empty
        return any(now(owner, name) is not value for owner, name, value in bound)
    return False


def changed_name(scalars, bound) -> str | None:
    """A name that stands for something else than it did, if there is one."""
    rows = [row for row in scalars if now(*row[:2]) != row[2]]
    rows += [row for row in bound if changed([row])]
    if not rows:
        return None
    owner, name, _ = rows[0]
    if isinstance(name, str) and name is not _SIZE and owner.__class__ is not types.CellType:
        return repr(name)
    return "a variable around it" if owner.__class__ is types.CellType else (
        f"a {type(owner).__name__}")


def now(owner, name):
    """What a cell or a container has under a name; `_NOTHING` if nothing."""
    if owner.__class__ is types.CellType:
        return _contents(owner)
    if name is _SIZE:
        return len(owner)
    if isinstance(owner, dict):
        return owner.get(name, _NOTHING)
    return owner[name] if name < len(owner) else _NOTHING


def tensors_of(function, bound) -> list[Tensor]:
    """Tensors among what a function's code names, and those of modules there, or of the module
    that it is a method of."""
    found = [v for value in (function, *[value for _, _, value in bound]) for v in holders(value)]
    tensors = {id(v): v for v in found if isinstance(v, Tensor)}
    for m in found:
        if not isinstance(m, Tensor):
            tensors |= {id(t): t for t in (*m.parameters(), *m.buffers())}
    return list(tensors.values())


class _Search:
    """Goes from value to value; meets each once."""

    def __init__(self) -> None:
        self.by_value: list[tuple] = []
        self.by_itself: list[tuple] = []
        self.met: set[int] = set()
        self.objects: set[int] = set()  # whose attributes are among the rows
        self.names: set[str] = set()    # that are written in the code of functions

    def rows(self, found: list[tuple]) -> list[tuple]:
        """Without attributes that no code names, unless some looks for attributes by itself."""
        if self.names & _BY_ANY_NAME:
            return found
        return [row for row in found if id(row[0]) not in self.objects or row[1] in self.names]

    def take(self, rows, depth: int) -> None:
        for owner, name, value in rows:
            if len(self.by_value) + len(self.by_itself) >= _ROWS:
                return
            if 0 < _scalars_in(value) < _MANY:
                self.by_value.append((owner, name, copy.deepcopy(value)))
            elif not isinstance(value, (types.ModuleType, type)) and not _is_library(value):
                self.by_itself.append((owner, name, value))
                self.look_into(value, depth + 1)

    def look_into(self, value: Any, depth: int) -> None:
        """What can be reached from a value by its names."""
        if depth > _DEPTH or id(value) in self.met or isinstance(value, (Tensor, type)):
            return
        self.met.add(id(value))
        if isinstance(value, (types.FunctionType, types.MethodType)):
            self.names |= _names(getattr(value, "__code__", None))
            self.take(_taken(value), depth)
            self.look_into(getattr(value, "__self__", None), depth)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.look_into(part, depth)
        elif isinstance(value, (list, tuple, dict)):
            self.take(_elements(value), depth)
        elif _is_module(value):
            for module in value.modules():
                self.look_into_module(module, depth)
        elif (own := _own(value)) and "param_groups" not in own:
            if not any(is_ours(cls.__module__) for cls in type(value).__mro__[:-1]):
                self.objects.add(id(own))  # no code of the library reads them
            self.take([(own, name, v) for name, v in own.items()], depth)
            self.look_into_class(type(value), depth)

    def look_into_module(self, module, depth: int) -> None:
        """What hangs on a module, but for scalars, which it tells of, and its own tensors."""
        if type(module).__module__.startswith("flambeau"):
            return
        own = vars(module)
        self.objects.add(id(own))
        self.take([(own, name, v) for name, v in own.items()
                   if name[0] != "_" and not isinstance(v, SCALARS)
                   and not isinstance(v, Tensor) and not _is_module(v)], depth)
        self.look_into_class(type(module), depth)

    def look_into_class(self, cls: type, depth: int) -> None:
        """Names that its methods take from around them."""
        for one in cls.__mro__:
            if id(one) not in self.met and one is not object and not is_ours(one.__module__):
                self.met.add(id(one))
                for function in list(vars(one).values()):
                    if isinstance(function, types.FunctionType):
                        self.look_into(function, depth + 1)


def _taken(function) -> Iterator[tuple]:
    """Rows of a function's closure and globals."""
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    if code is None:
        return
    for cell in inner.__closure__ or ():
        yield cell, "cell_contents", _contents(cell)
    there = inner.__globals__
    for name in _names(code):
        if name in there:
            yield there, name, there[name]


def _elements(container) -> Iterator[tuple]:
    """Rows of a container, if it is not too long, and of its size."""
    if not isinstance(container, tuple):
        yield container, _SIZE, len(container)
    if len(container) > _LONG:
        return
    pairs = container.items() if isinstance(container, dict) else enumerate(container)
    for name, value in list(pairs):
        yield container, name, value


def is_ours(module: str) -> bool:
    """Whether a module is the library, or comes with Python and keeps nothing of the user's."""
    return module.partition(".")[0] in ("flambeau", "torch", "builtins", "functools")


def _is_library(value) -> bool:
    """Whether a value belongs to the library and holds nothing of the user's."""
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        return is_ours(value.__module__ or "builtins")
    return type(value).__module__.startswith("flambeau.compiler")


def _own(value) -> dict:
    """The attributes of an object, without asking it."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def _is_module(value) -> bool:
    return "_registered" in _own(value)


def _scalars_in(value) -> int:
    """How many scalars a value consists of; 0 if there is anything else in it, or too much."""
    if isinstance(value, SCALARS):
        return 1
    if type(value) not in (list, tuple) or len(value) > _MANY:
        return 0
    counts = [_scalars_in(v) for v in value]
    return sum(counts) if all(counts) else 0


def is_filled(cell) -> bool:
    """Whether a variable around a function has a value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code) -> set[str]:
    if code is None:
        return set()
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found
