"""Floats of one byte (float8_e4m3fn, float8_e5m2) from and to float32."""

from __future__ import annotations

from ...core import dtype as dt
from ..text import Text
from .types import numbers, of_type, splat

#: bits of the fraction, bias of the exponent, and the last number: the largest, or infinity
SHAPES = {dt.float8_e4m3fn: (3, 7, 0x7E), dt.float8_e5m2: (2, 15, 0x7C)}
NAN = 0x7F


class _Lanes:
    """Instructions on as many lanes of 32 bits as there are."""

    def __init__(self, w: Text, width: int):
        self.w, self.width = w, width
        self.i32, self.float = of_type("i32", width), of_type("float", width)

    def whole(self, code: str, a: str, b: int | str) -> str:
        right = splat(str(b), "i32", self.width) if isinstance(b, int) else b
        return self.w.emit(f"{code} {self.i32} {a}, {right}")

    def bits(self, value: str) -> str:
        return self.w.emit(f"bitcast {self.float} {value} to {self.i32}")

    def number(self, bits: str) -> str:
        return self.w.emit(f"bitcast {self.i32} {bits} to {self.float}")

    def pick(self, flag: str, then: str, other: str, kind: str) -> str:
        return self.w.emit(f"select {of_type('i1', self.width)} {flag}, {kind} {then}, "
                           f"{kind} {other}")

    def constant(self, number: int) -> str:
        return splat(str(number), "i32", self.width)


def loaded(w: Text, raw: str, dtype: dt.dtype, width: int) -> str:
    """Bytes as float32, exactly: numbers below the normal ones are counted in their last place."""
    lanes = _Lanes(w, width)
    fraction, bias, _ = SHAPES[dtype]
    wide = w.emit(f"zext {of_type('i8', width)} {raw} to {lanes.i32}")
    size = lanes.whole("and", wide, 0x7F)
    normal = lanes.whole("add", lanes.whole("shl", size, 23 - fraction), (127 - bias) << 23)
    counted = w.emit(f"uitofp {lanes.i32} {size} to {lanes.float}")
    last = numbers(2.0 ** (1 - bias - fraction), dt.float32, width)
    small = lanes.bits(w.emit(f"fmul {lanes.float} {counted}, {last}"))
    value = lanes.pick(lanes.whole("icmp ult", size, 1 << fraction), small, normal, lanes.i32)
    if dtype is dt.float8_e5m2:  # the highest exponent is that of infinity and NaN
        value = lanes.pick(lanes.whole("icmp uge", size, 0x7C),
                           lanes.whole("or", normal, 0x7F800000), value, lanes.i32)
    else:
        value = lanes.pick(lanes.whole("icmp eq", size, NAN), lanes.constant(0x7FC00000), value,
                           lanes.i32)
    sign = lanes.whole("shl", lanes.whole("and", wide, 0x80), 24)
    return lanes.number(lanes.whole("or", value, sign))


def stored(w: Text, value: str, dtype: dt.dtype, width: int) -> str:
    """float32 as bytes: rounded to the nearest, ties to even."""
    lanes = _Lanes(w, width)
    fraction, bias, last = SHAPES[dtype]
    cut = 23 - fraction
    bits = lanes.bits(value)
    size = lanes.whole("and", bits, 0x7FFFFFFF)
    odd = lanes.whole("and", lanes.whole("lshr", size, cut), 1)
    shifted = lanes.whole("add", size, ((bias - 127) << 23) + (1 << (cut - 1)) - 1)
    normal = lanes.whole("lshr", lanes.whole("add", shifted, odd), cut)
    # added to a power of two whose last place is theirs, small numbers are rounded by the addition
    power = 2.0 ** (1 - bias - fraction + 23)
    lifted = w.emit(f"fadd {lanes.float} {lanes.number(size)}, {numbers(power, dt.float32, width)}")
    small = lanes.whole("and", lanes.bits(lifted), 0xFF)
    kept = lanes.pick(lanes.whole("icmp ult", size, (128 - bias) << 23), small, normal, lanes.i32)
    kept = lanes.pick(lanes.whole("icmp ugt", kept, last), lanes.constant(last), kept, lanes.i32)
    nan = lanes.whole("icmp ugt", size, 0x7F800000)
    kept = lanes.pick(nan, lanes.constant(NAN), kept, lanes.i32)
    sign = lanes.whole("lshr", lanes.whole("and", bits, -0x80000000), 24)
    return w.emit(f"trunc {lanes.i32} {lanes.whole('or', kept, sign)} to {of_type('i8', width)}")
