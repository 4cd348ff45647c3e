"""How LLVM spells dtypes, vectors and constants."""

from __future__ import annotations

import struct

from ...core import dtype as dt

#: as a value in a register
REGISTER = {
    dt.bool_:    "i1",
    dt.uint8:    "i8",
    dt.int8:     "i8",
    dt.int16:    "i16",
    dt.int32:    "i32",
    dt.int64:    "i64",
    dt.uint16:   "i16",
    dt.uint32:   "i32",
    dt.uint64:   "i64",
    dt.float32:  "float",
    dt.float64:  "double",
}  # fmt: skip

#: as an element in memory
MEMORY = {**REGISTER, dt.bool_: "i8", dt.float16: "half", dt.bfloat16: "i16"}


def of_type(name: str, width: int) -> str:
    return name if width == 1 else f"<{width} x {name}>"


def registers(dtype: dt.dtype, width: int) -> str:
    """The type of a register that holds so many lanes of a dtype."""
    return REGISTER[dtype] if width == 1 else f"<{width} x {REGISTER[dtype]}>"


def splat(value: str, type_: str, width: int) -> str:
    """A constant in every lane."""
    return value if width == 1 else f"splat ({type_} {value})"


def number(value, dtype: dt.dtype) -> str:
    """A constant as LLVM spells it."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        return str(value)
    if dtype is dt.float32:  # LLVM wants a float's bits as those of the equal double
        value = struct.unpack("f", struct.pack("f", _clip_float32(value)))[0]
    return "0x" + struct.pack(">d", value).hex().upper()


def _clip_float32(value: float) -> float:
    if value == value and abs(value) > 3.4028235677973366e38:
        return float("inf") if value > 0 else float("-inf")
    return value


def numbers(value, dtype: dt.dtype, width: int) -> str:
    """A constant of a dtype in every lane."""
    return splat(number(value, dtype), REGISTER[dtype], width)


def flatten(shapes, states) -> list[tuple[str, str]]:
    """(type, register) of each part of each state; a shape is a dtype and a number of lanes."""
    flat = []
    for (dtype, width), value in zip(shapes, states, strict=True):
        parts = value if isinstance(value, tuple) else (value,)
        type_ = registers(dtype.to_real() if dtype.kind == "c" else dtype, width)
        flat += [(type_, part) for part in parts]
    return flat


def regroup(shapes, values) -> list:
    """States out of registers: two of them are a complex number."""
    it = iter(values)
    return [(next(it), next(it)) if dtype.kind == "c" else next(it) for dtype, _ in shapes]
