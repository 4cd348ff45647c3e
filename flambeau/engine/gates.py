"""Gates: what stands before an op for a while, and costs nothing while it does not.

A gate is a Python function that is called instead of an op's front. Closing it changes the front
itself, so everybody who holds the front meets the gate: a front in Python gets other code, a native
one an empty table of plans and another function to call when it finds nothing. `direct` goes
around the gate.
"""

from __future__ import annotations

import ctypes
import types
from abc import ABC, abstractmethod
from typing import Any

from .native import _make_function

_EMPTY: dict = {}
_METHOD_AT = 16  # in a built-in function: the address of its definition
_STAND_IN = "the gate"


class Gate(ABC):
    """Stands before a function; `guard(gate, args, kwargs)` answers for it while it is closed."""

    def __init__(self, front, guard, **notes):
        self.front, self.guard = front, guard
        self.name = front.__name__
        self.__dict__.update(notes)
        self._prepare()

    direct: Any  # the function as it was

    @abstractmethod
    def _prepare(self) -> None:
        """Find what is exchanged, and `direct`."""

    @abstractmethod
    def close(self) -> None:
        """Let the guard answer from now on."""

    @abstractmethod
    def open(self) -> None:
        """Let the function answer for itself again."""

    def enter(self, *args, **kwargs):
        return self.guard(self, args, kwargs)


class PythonGate(Gate):
    """Before a function written in Python: its code is exchanged."""

    def _prepare(self) -> None:
        front = self.front
        self.direct = types.FunctionType(front.__code__, front.__globals__, front.__name__,
                                         front.__defaults__, front.__closure__)
        self.direct.__kwdefaults__ = front.__kwdefaults__
        self.inside = _code(len(front.__closure__ or ()), self.enter, front.__code__)

    def close(self) -> None:
        self.front.__code__ = self.inside

    def open(self) -> None:
        self.front.__code__ = self.direct.__code__


def _code(free: int, enter, like: types.CodeType) -> types.CodeType:
    """Code that hands its arguments to `enter`, for a function with so many free variables."""
    names = [f"free{i}" for i in range(free)]
    assigned = "".join(f"    {name} = None\n" for name in names)
    used = f"        if False: {', '.join(names)}\n" if names else ""
    text = (f"def outer():\n{assigned}    def gate(*args, **kwargs):\n{used}"
            f"        enter = {_STAND_IN!r}\n        return enter(*args, **kwargs)\n"
            "    return gate\n")
    scope: dict = {}
    exec(compile(text, like.co_filename, "exec"), scope)
    made = scope["outer"]().__code__
    consts = tuple(enter if value == _STAND_IN else value for value in made.co_consts)
    return made.replace(co_consts=consts, co_name=like.co_name, co_firstlineno=like.co_firstlineno)


class NativeGate(Gate):
    """Before a native front: in its context, plans are hidden and the way out is another."""

    def _prepare(self) -> None:
        self.context = self.front.__self__
        definition = ctypes.c_void_p.from_address(id(self.front) + _METHOD_AT).value
        self.twin_context = self.context[:]
        self.direct = _make_function(definition, self.twin_context, None)
        self.entrance = self.enter  # kept: the context holds only its address

    def close(self) -> None:
        context = self.context
        context[0], context[1] = id(_EMPTY), id(self.entrance)
        if len(context) > 3:
            context[3] = id(_EMPTY)

    def open(self) -> None:
        self.context[:] = self.twin_context


def gate(front, guard, **notes) -> Gate:
    """A gate before a function, open."""
    kind = PythonGate if isinstance(front, types.FunctionType) else NativeGate
    return kind(front, guard, **notes)
