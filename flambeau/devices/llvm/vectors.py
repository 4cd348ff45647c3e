"""Lanes of registers: one value in all of them, some of them, one out of many.

A complex value is a pair of registers, here and wherever values are passed on.
"""

from __future__ import annotations

from ...core import dtype as dt
from ..text import Text
from .types import REGISTER, registers


def spread(w: Text, value, dtype: dt.dtype, width: int, have: int = 1):
    """One value in every lane."""
    if width == have:
        return value
    if have != 1:
        raise ValueError(f"cannot spread {have} lanes over {width}")
    if isinstance(value, tuple):
        return tuple(spread(w, v, dtype.to_real(), width) for v in value)
    type_ = registers(dtype, width)
    first = w.emit(f"insertelement {type_} poison, {REGISTER[dtype]} {value}, i32 0")
    return w.emit(f"shufflevector {type_} {first}, {type_} poison, "
                  f"<{width} x i32> zeroinitializer")


def part(w: Text, value, dtype: dt.dtype, width: int, start: int, count: int):
    """`count` lanes of a vector from `start`."""
    if isinstance(value, tuple):
        return tuple(part(w, v, dtype.to_real(), width, start, count) for v in value)
    type_ = registers(dtype, width)
    if count == 1:
        return w.emit(f"extractelement {type_} {value}, i32 {start}")
    mask = ", ".join(f"i32 {start + i}" for i in range(count))
    return w.emit(f"shufflevector {type_} {value}, {type_} poison, <{count} x i32> <{mask}>")


def gathered(w: Text, lanes, dtype: dt.dtype, width: int):
    """Values side by side in one vector."""
    if dtype.kind == "c":
        return tuple(gathered(w, [lane[i] for lane in lanes], dtype.to_real(), width)
                     for i in (0, 1))
    type_, value = registers(dtype, width), "poison"
    for i, lane in enumerate(lanes):
        value = w.emit(f"insertelement {type_} {value}, {REGISTER[dtype]} {lane}, i32 {i}")
    return value
