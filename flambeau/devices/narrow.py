"""Floats of eight bits: what lies in memory and the float32 it stands for, as exprs of each other.

The same exprs serve every device. A row of the table says how a dtype spends its bits; e8m0fnu has
nothing but an exponent.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ..core import dtype as dt
from ..core import expr
from ..core.expr import Expr, where


class Layout(NamedTuple):
    """The numbers that describe an eight-bit float."""

    fraction: int          # stored bits of the significand
    bias: int              # what is added to the exponent
    infinite: int          # what all that is too large becomes
    undefined: int         # NaN, or the first of them
    signed: bool = True    # whether zero and NaN have a sign


#                                 fraction bias infinite  NaN
LAYOUTS = {
    dt.float8_e4m3fn:   Layout(3,  7, 0x7E, 0x7F),
    dt.float8_e5m2:     Layout(2, 15, 0x7C, 0x7D),
    dt.float8_e4m3fnuz: Layout(3,  8, 0x80, 0x80, False),
    dt.float8_e5m2fnuz: Layout(2, 16, 0x80, 0x80, False),
}  # fmt: skip
_EXPONENT = 0x7F800000     # of a float32: all bits of its exponent
_ONLY_NAN = 0x7F800001     # what torch widens a NaN to where there is but one


def _int(value: int) -> Expr:
    return expr.const(value, dt.int32)


def _as_float(bits: Expr) -> Expr:
    return expr.make("bitcast", (bits,), None, dt.float32)


def _as_bits(x: Expr) -> Expr:
    return expr.make("bitcast", (x,), None, dt.int32)


@functools.cache
def widened(dtype: dt.dtype) -> Expr:
    """The float32 of an eight-bit float whose bits are input 0, an int32."""
    code = expr.input(0, dt.int32)
    if dtype is dt.float8_e8m0fnu:
        bits = where(code == 0xFF, _int(_ONLY_NAN), code << 23)
        return _as_float(where(code == 0, _int(0x00400000), bits))
    kind = LAYOUTS[dtype]
    size = code & 0x7F
    bits = (size << (23 - kind.fraction)) + ((127 - kind.bias) << 23)
    small = expr.cast(size, dt.float32) * 2.0 ** (1 - kind.bias - kind.fraction)
    bits = where(size < 1 << kind.fraction, _as_bits(small), bits)
    if kind.signed:
        quiet = where(size >= kind.undefined, _int(_EXPONENT | 0x400000), _int(_EXPONENT))
        first = min(kind.undefined, 0x7C) if kind.fraction == 2 else kind.undefined
        bits = where(size >= first, bits | quiet, bits)
    bits = bits | ((code & 0x80) << 24)
    return _as_float(bits if kind.signed else where(code == 0x80, _int(_ONLY_NAN), bits))


@functools.cache
def narrowed(dtype: dt.dtype) -> Expr:
    """The bits, an int32, of the eight-bit float next to input 0, a float32; ties go to even."""
    x = expr.input(0, dt.float32)
    bits = _as_bits(x)
    size = bits & 0x7FFFFFFF
    if dtype is dt.float8_e8m0fnu:
        exponent, rest = size >> 23, size & 0x7FFFFF
        above = (rest > 0x400000) | ((rest == 0x400000) & (exponent > 0))
        code = exponent + where(above, _int(1), _int(0))
        return where(size >= _EXPONENT, _int(0xFF), code)
    kind = LAYOUTS[dtype]
    drop = 23 - kind.fraction
    usual = (size + ((size >> drop) & 1) + ((1 << (drop - 1)) - 1)) >> drop
    usual = usual - ((127 - kind.bias) << kind.fraction)
    # Below the normal numbers a sum with this rounds to a multiple of the smallest.
    unit = _int((127 - kind.bias + drop + 1) << 23)
    small = _as_bits(_as_float(size) + _as_float(unit)) - unit
    code = where(size < (128 - kind.bias) << 23, small, usual)
    largest = 0x7F if kind.infinite == 0x80 else kind.infinite
    code = where((code > largest) | (size >= _EXPONENT), _int(kind.infinite), code)
    sign = (bits >> 24) & 0x80
    if not kind.signed:
        code = where(code == 0, _int(0), code | sign)
        return where(size > _EXPONENT, _int(kind.undefined), code)
    return where(size > _EXPONENT, _int(0x7F), code) | sign
