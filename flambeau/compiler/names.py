"""Names that a function's code takes from around it, and whether they stand for what they did.

A row is (owner, name, value): who can say what a name stands for, and what it stood for.
"""

from __future__ import annotations

import types
from collections.abc import Iterator

from ..engine.tensor import Tensor

SCALARS = (bool, int, float, str, bytes, complex, type(None))
MANY = 10_000       # scalars in a list, or a list of lists, that are still compared
LONG = 64           # elements of a container that are looked at one by one
SIZE = "number of elements"
_NOTHING = object()


def around(function) -> list[tuple]:
    """Rows of what has tensors and is named by a function's code, or by that of functions of the
    user's that it calls or wraps."""
    found: list[tuple] = []
    met, waiting = {id(function)}, [function]
    while waiting and len(met) < LONG:
        for row in taken(waiting.pop()):
            owner, _, value = row
            if holders(value) or (owner.__class__ is types.CellType and not isinstance(
                    value, (*SCALARS, types.ModuleType, types.FunctionType, type))):
                found.append(row)  # or may have some later; what cells have is soon compared
            elif isinstance(value, types.FunctionType) and not (
                    id(value) in met or is_library(value)):
                met.add(id(value))
                waiting.append(value)
    return found


def holders(value) -> list:
    """Tensors and modules that a value is, or has: a method, or a container that is not long."""
    if isinstance(value, types.MethodType):
        value = value.__self__
    elif isinstance(value, (list, tuple, dict)) and len(value) <= LONG:
        parts = value.values() if isinstance(value, dict) else value
        return [v for v in parts if isinstance(v, Tensor) or is_module(v)]
    return [value] if isinstance(value, Tensor) or is_module(value) else []


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


def differ(scalars) -> bool:
    """Whether any of these names has another value now; 1.0 is another one than 1."""
    for owner, name, value in scalars:
        found = now(owner, name)
        if found.__class__ is not value.__class__ or found != value:
            return True
    return False


def changed_name(scalars, bound) -> str | None:
    """A name that stands for something else than it did, if there is one."""
    rows = [row for row in scalars if differ([row])]
    rows += [row for row in bound if changed([row])]
    if not rows:
        return None
    owner, name, _ = rows[0]
    if isinstance(name, str) and name is not SIZE and owner.__class__ is not types.CellType:
        return repr(name)
    return "a variable around it" if owner.__class__ is types.CellType else (
        f"a {type(owner).__name__}")


def now(owner, name):
    """What a cell or a container has under a name; `_NOTHING` if nothing."""
    if owner.__class__ is types.CellType:
        return _contents(owner)
    if name is SIZE:
        return len(owner)
    if isinstance(owner, (dict, types.MappingProxyType)):
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


def taken(function) -> Iterator[tuple]:
    """Rows of a function's closure and globals."""
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    if code is None:
        return
    for cell in inner.__closure__ or ():
        yield cell, "cell_contents", _contents(cell)
    there = inner.__globals__
    for name in names_in(code):
        if name in there:
            yield there, name, there[name]


def is_ours(module: str) -> bool:
    """Whether a module is the library, or comes with Python and keeps nothing of the user's."""
    return module.partition(".")[0] in ("flambeau", "torch", "builtins", "functools")


def is_library(value) -> bool:
    """Whether a value belongs to the library and holds nothing of the user's."""
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        return is_ours(value.__module__ or "builtins")
    return type(value).__module__.startswith("flambeau.compiler")


def attributes_of(value) -> dict:
    """The attributes of an object, without asking it."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def is_module(value) -> bool:
    return "_registered" in attributes_of(value)


def scalars_in(value) -> int:
    """How many scalars a value consists of; 0 if there is anything else in it, or too much."""
    if isinstance(value, SCALARS):
        return 1
    if type(value) not in (list, tuple) or len(value) > MANY:
        return 0
    counts = [scalars_in(v) for v in value]
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


def names_in(code) -> set[str]:
    """Names of variables and attributes in code."""
    return {name for one in codes_in(code) for name in one.co_names}


def codes_in(code) -> set[types.CodeType]:
    """Code, and that of functions and comprehensions in it."""
    if code is None:
        return set()
    return {code}.union(*[codes_in(c) for c in code.co_consts if isinstance(c, types.CodeType)])
