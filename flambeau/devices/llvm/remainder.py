"""What a division of floats rounded towards zero leaves, exactly, on vectors.

With a whole quotient below 2^52 one fused product takes it off without rounding; where any lane has
a larger one, all are left to the C library. float32 is divided as float64.
"""

from __future__ import annotations

from ...core import dtype as dt
from ..text import Text
from .types import REGISTER, of_type, registers, splat
from .vectors import gathered, part

_NAMES = {dt.float32: ("float", "fmodf"), dt.float64: ("double", "fmod")}


def remainder(w: Text, dtype: dt.dtype, args, width: int) -> str:
    """A call of the function, which is defined in the same module."""
    type_ = registers(dtype, width)
    name = f"remainder_{dtype.name}_{width}"
    if name not in w.declared:
        inner = Text(w.declared)
        _write(inner, dtype, width)
        body = "\n".join(inner.lines)
        w.declared[name] = (f"define internal {type_} @{name}({type_} %x, {type_} %y) {{\n"
                            f"entry:\n{body}\n}}")
    return w.emit(f"call {type_} @{name}({type_} {args[0]}, {type_} {args[1]})")


def _write(w: Text, dtype: dt.dtype, width: int) -> None:
    type_, wide = registers(dtype, width), of_type("double", width)
    flag, vector = of_type("i1", width), f"v{width}" if width > 1 else ""
    single = dtype is dt.float32
    own = f"{vector}{'f32' if single else 'f64'}"
    x, y = (w.call(f"llvm.fabs.{own}", type_, [(type_, v)]) for v in ("%x", "%y"))
    a, b = (w.emit(f"fpext {type_} {v} to {wide}") if single else v for v in (x, y))
    quotient = w.emit(f"fdiv {wide} {a}, {b}")
    whole = w.call(f"llvm.trunc.{vector}f64", wide, [(wide, quotient)])
    minus = w.emit(f"fneg {wide} {whole}")
    rest = w.call(f"llvm.fma.{vector}f64", wide, [(wide, minus), (wide, b), (wide, a)])
    # A quotient that was rounded up to a whole number is one too large.
    below = w.emit(f"fcmp olt {wide} {rest}, {splat('0.0', 'double', width)}")
    more = w.emit(f"fadd {wide} {rest}, {b}")
    rest = w.emit(f"select {flag} {below}, {wide} {more}, {wide} {rest}")
    rest = w.emit(f"fptrunc {wide} {rest} to {type_}") if single else rest
    inside = w.emit(f"fcmp olt {type_} {x}, {y}")
    rest = w.emit(f"select {flag} {inside}, {type_} {x}, {type_} {rest}")
    found = w.call(f"llvm.copysign.{own}", type_, [(type_, rest), (type_, "%x")])
    far = w.emit(f"fcmp oge {wide} {quotient}, {splat('0x4330000000000000', 'double', width)}")
    infinite = splat("0x7FF0000000000000", REGISTER[dtype], width)
    finite = w.emit(f"fcmp one {type_} {x}, {infinite}")
    divided = w.emit(f"fcmp one {type_} {y}, {splat('0.0', REGISTER[dtype], width)}")
    far = w.emit(f"and {flag} {far}, {finite}")
    far = w.emit(f"and {flag} {far}, {divided}")
    if width > 1:
        far = w.call(f"llvm.vector.reduce.or.v{width}i1", "i1", [(flag, far)])
    w.do(f"br i1 {far}, label %slowly, label %done")
    w.start("done")
    w.do(f"ret {type_} {found}")
    w.start("slowly")
    w.do(f"ret {type_} {_by_lanes(w, dtype, width)}")


def _by_lanes(w: Text, dtype: dt.dtype, width: int) -> str:
    one, name = _NAMES[dtype]
    if width == 1:
        return w.call(name, one, [(one, "%x"), (one, "%y")])
    lanes = [w.call(name, one, [(one, part(w, v, dtype, width, lane, 1)) for v in ("%x", "%y")])
             for lane in range(width)]
    return gathered(w, lanes, dtype, width)
