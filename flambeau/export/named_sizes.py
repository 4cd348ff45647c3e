"""Sizes that may vary, as torch.export names them: Dim, what is computed of one, and hints."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

#: what a size has no upper bound by
UNBOUNDED = math.inf


class Hint:
    """What is to be found out about a size: whether it varies, that it does, that it does not."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"DimHint({self.name})"


class Dim:
    """A size with a name and bounds; Dim.AUTO, Dim.DYNAMIC and Dim.STATIC are hints.

    >>> Dim("batch", max=8)
    Dim('batch', max=8)
    """

    AUTO, DYNAMIC, STATIC = Hint("AUTO"), Hint("DYNAMIC"), Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None):
        self.__name__ = name
        self.min, self.max = min or 0, UNBOUNDED if max is None else max
        if self.max < self.min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")

    def __repr__(self) -> str:
        bounds = [f"min={self.min}"] if self.min not in (0, 2) or self.max == UNBOUNDED else []
        bounds += [f"max={self.max}"] if self.max != UNBOUNDED else []
        return f"Dim({', '.join([repr(self.__name__), *bounds])})"

    def __add__(self, other):
        return Derived(self, 1, _whole("+", other))

    def __sub__(self, other):
        return Derived(self, 1, -_whole("-", other))

    def __mul__(self, other):
        return Derived(self, _whole("*", other), 0)

    __radd__, __rmul__ = __add__, __mul__


class Derived:
    """rate * root + rest, of a Dim."""

    def __init__(self, root: Dim, rate: int, rest: int):
        self.root, self.rate, self.rest = root, rate, rest
        if rate < 1:
            raise NotImplementedError(f"Attempted to multiply {root.__name__} with {rate}, where a "
                                      "positive integer was expected")

    @property
    def __name__(self) -> str:
        return affine_text(self.root.__name__, self.rate, self.rest)

    def __repr__(self) -> str:
        return self.__name__

    def __add__(self, other):
        return Derived(self.root, self.rate, self.rest + _whole("+", other))

    def __sub__(self, other):
        return Derived(self.root, self.rate, self.rest - _whole("-", other))

    def __mul__(self, other):
        by = _whole("*", other)
        return Derived(self.root, self.rate * by, self.rest * by)

    __radd__, __rmul__ = __add__, __mul__


def affine_text(name: str, rate: int, rest: int) -> str:
    """rate * name + rest, as it is written."""
    text = name if rate == 1 else f"{rate}*{name}"
    return f"{text} {'+' if rest > 0 else '-'} {abs(rest)}" if rest else text


def _whole(sign: str, other: Any) -> int:
    if type(other) is not int:
        raise NotImplementedError(f"Attempted {sign} of a Dim and {other}, where an integer was "
                                  "expected. (Only linear operations of one Dim are supported.)")
    return other


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several Dims of the same bounds."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ValueRange(NamedTuple):
    """The bounds of a size."""

    lower: int
    upper: float

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper == UNBOUNDED else self.upper}]"
