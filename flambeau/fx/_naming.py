"""What things are called: nodes, each by a name of its own, and functions, by torch's names.

The code of a graph says `torch.relu` whether it is read here or there, so functions of flambeau go
by the names they have in torch, the places in its compiled core among them.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import math
import re
import types
from typing import Any

import flambeau
from flambeau import _assemble, _function_mode
from flambeau.fx._whole import parameters

_COUNTED = re.compile(r"(.*)_(\d+)$")
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_HUMP = re.compile(r"(?<=[a-z])([A-Z])")

#: names that code may use without importing them
GIVEN: dict[str, Any] = {"inf": math.inf, "nan": math.nan, "NoneType": type(None),
                         "torch": flambeau, "device": flambeau.device}
#: first parts of the names of our own modules; a few classes go by torch's
OURS = ("flambeau", "torch")
RESERVED = frozenset({*GIVEN, "fx_pytree", "pytree"})

#: functions that are Python in torch, and hand on what they are given
PYTHON = tuple(f"torch.nn.functional.{name}" for name in (
    "linear_cross_entropy", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "sigmoid", "tanh", "threshold", "upsample", "upsample_bilinear",
    "upsample_nearest"))
#: functions that are loaded when they are first used -> their names in torch
LATE = {"cond": "torch.cond", "while_loop": "torch._higher_order_ops.while_loop.while_loop"}
#: space -> how its functions are called in torch, for the first space that has a function
PLACES = (
    ("flambeau.functional",    "torch.functional.{}"),
    ("flambeau",               "torch.{}"),
    ("flambeau.nn.functional", "torch._C._nn.{}"),
    ("flambeau.linalg",        "torch._C._linalg.linalg_{}"),
    ("flambeau.fft",           "torch._C._fft.fft_{}"),
    ("flambeau.special",       "torch._C._special.special_{}"),
    ("flambeau.nn.init",       "torch.nn.init.{}"),
)  # fmt: skip


class Namespace:
    """Gives out names, none of them twice.

    >>> names = Namespace()
    >>> [names.create_name("relu", None) for _ in range(3)]
    ['relu', 'relu_1', 'relu_2']
    """

    def __init__(self) -> None:
        self._named: dict[Any, str] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """A name like this one for an object; the one it has, if it has been here before."""
        if obj is not None and obj in self._named:
            return self._named[obj]
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        counted = _COUNTED.match(candidate)
        base, number = (counted[1], int(counted[2])) if counted else (candidate, 0)
        number = number or self._counts.get(base, 0)
        while candidate in self._used or self._is_taken(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._counts[base] = number
        if obj is not None:
            self._named[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Know an object by a name that is given out already."""
        self._named[obj] = name

    def rename_object(self, obj: Any, name: str) -> None:
        """Know an object by another name."""
        self._named[obj] = name
        self._used.add(name)

    @staticmethod
    def _is_taken(name: str, obj: Any) -> bool:
        """Whether a name means something else to Python, or in every generated code."""
        return keyword.iskeyword(name) or name in RESERVED or (
            hasattr(builtins, name) and getattr(builtins, name) is not obj)


def snake_case(name: str) -> str:
    """A name in small letters, humps marked."""
    return _HUMP.sub(r"_\1", name).lower()


def is_magic(name: str) -> bool:
    """Whether Python itself asks for a method of this name."""
    return name.startswith("__") and name.endswith("__")


def hint_of(target: Any) -> str:
    """What a node with this target would be called if it were the only one."""
    if callable(target):
        known = public_names().get(id(target))
        name = known.rpartition(".")[2] if known else target.__name__
    else:
        name = str(target)
        if is_magic(name):
            name = name[2:-2]
    return snake_case(name.replace(".", "_"))


# -- functions and types -----------------------------------------------------------------------


@functools.cache
def public_names() -> dict[int, str]:
    """The id of each function that has a public name -> that name in torch."""
    found: dict[int, str] = {}
    for name, there in LATE.items():
        _add(found, getattr(flambeau, name), there)
    spaces = {name: vars(space) for name, space in _function_mode.spaces().items()}
    for name in (*parameters(), *PYTHON):  # before the same functions under the top's names
        space, _, last = name.replace("torch", "flambeau", 1).rpartition(".")
        if last in spaces[space]:
            _add(found, spaces[space][last], name)
    for space, pattern in PLACES:
        for name, value in spaces[space].items():
            if inspect.isroutine(value) or (space == "flambeau" and callable(value)):
                _add(found, value, pattern.format(name))
    prefix = "nn.functional."  # ops under functions that have more parameters than they
    for name, value in _assemble.functions.items():
        if name.startswith(prefix):
            _add(found, value, f"torch._C._nn.{name.removeprefix(prefix)}")
    return found


def _add(found: dict[int, str], value: Any, name: str) -> None:
    value = getattr(value, "original", value)  # while a mode is on, stand-ins are there
    home = getattr(value, "__module__", None) or "flambeau"
    if home.partition(".")[0] in OURS:
        found.setdefault(id(value), name)


def is_ours(value: Any) -> bool:
    """Whether a function or class is flambeau's, so that `torch` leads to it."""
    home = getattr(value, "__module__", None)
    return id(value) in public_names() or (
        isinstance(home, str) and home.partition(".")[0] in OURS)


def qualified_name(function: Any) -> str:
    """Where a function is found: its module and name."""
    name = getattr(function, "__name__", type(function).__name__)
    if getattr(builtins, name, None) is function:
        return name
    known = public_names().get(id(function))
    if known is not None:
        return known
    if isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType):
        return f"{type_repr(function.__objclass__)}.{name}"
    if name == "<lambda>":
        name = inspect.getsource(function).split("=")[0].strip()
    module = getattr(function, "__module__", None)
    if module is None:
        raise RuntimeError(f"cannot find module for {function}")
    return f"{as_torch(module)}.{name}"


def as_torch(module: str) -> str:
    """The name that a module of flambeau has in torch; others keep theirs."""
    first, dot, rest = module.partition(".")
    return f"torch{dot}{rest}" if first == "flambeau" else module


def type_repr(kind: Any) -> str:
    """A type as annotations show it."""
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        if kind.__module__ == "builtins":
            return kind.__qualname__
        return public_names().get(id(kind)) or f"{as_torch(kind.__module__)}.{kind.__qualname__}"
    if kind is ...:
        return "..."
    return kind.__name__ if isinstance(kind, types.FunctionType) else repr(kind)
