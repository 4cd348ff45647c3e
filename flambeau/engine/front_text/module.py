"""The modules that the fronts are compiled in."""

from __future__ import annotations

from ..front_parts import EXTERNAL, GLOBALS, INFERRING, OWN, offsets
from . import FORMS
from .again import again
from .binary import binary
from .change import change
from .common import common, fresh
from .entries import entries, ways_in
from .place import place
from .reduce import reduce
from .ternary import ternary
from .unary import unary
from .view import view


def module_text(node: type) -> str:
    """The fronts of ops, with all that is known by name."""
    t, n, g = offsets(node)
    tables = "".join(f"@contexts{form} = global [{count} x ptr] zeroinitializer\n"
                     for form, count in FORMS.items())
    return (_names("global i64 0", f"global [{INFERRING} x i64] zeroinitializer") + tables
            + common(t, n) + unary(t, g) + binary(t, g) + view(t) + reduce(t, g) + change(t)
            + again(t) + place(t, g) + fresh(g) + ways_in() + entries())


def ternary_text(node: type) -> str:
    """The front of three tensors; what is known by name is in the other module."""
    t, n, _ = offsets(node)
    return (_names("external global i64", f"external global [{INFERRING} x i64]")
            + common(t, n) + ternary(t))


def _names(word: str, inferring: str) -> str:
    """What fronts call of Python's functions, and the variables that all of them share."""
    declared = "".join(f"declare {kind.split(' ')[0]} @{name}{kind[kind.index('('):]}\n"
                       for name, kind in (EXTERNAL | OWN).items())
    variables = "".join(f"@g_{name} = {word}\n" for name in GLOBALS)
    return f"{declared}{variables}@g_inferring = {inferring}\n"
