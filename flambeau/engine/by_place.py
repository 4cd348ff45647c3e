"""Functions and methods whose arguments may be given by name, and are put in their places natively:
see front_text/named.py."""

from __future__ import annotations

import sys
from types import FunctionType

from ..ops.declare import Op
from .interception import PLAIN
from .node import fronts

fronts.word("plain").value = id(PLAIN)

#: what says of code that it takes names that it does not know: inspect has it, and takes long
_ANY_NAME = 8


def places(op: Op) -> tuple[str, ...] | None:
    """The names of the parameters that have a place, if there are any after the first."""
    code = op.body.__code__
    by_name = code.co_varnames[code.co_argcount:code.co_argcount + code.co_kwonlyargcount]
    known = tuple([sys.intern(name) for name in op.names if name not in by_name])
    return known if len(known) > 1 else None


def _takes_any_name(function) -> bool:
    return isinstance(function, FunctionType) and bool(function.__code__.co_flags & _ANY_NAME)


def placed_forms(op: Op, function, method) -> tuple:
    """(function, method) of an op, either of which may be missing; what Python itself puts in
    places, by a signature of its own, is left as it is."""
    names = places(op)
    if names is None or not all([_takes_any_name(f) for f in (function, method) if f is not None]):
        return function, method
    native, context = fronts.adopt(function or method, {}, "n", op.name, op.doc, names=names)
    if method is not None:
        if method is not function:  # one that does not take `out=`, or by another way
            _, context = fronts.adopt(method, {}, "n", op.name, op.doc, names=names)
        method = fronts.method(context, "n", str(op.method), op.doc) or method
    return function and native, method
