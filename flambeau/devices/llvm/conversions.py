"""Values of one dtype as another, and as they lie in memory."""

from __future__ import annotations

from ...core import dtype as dt
from ..text import Text
from .types import REGISTER, numbers, of_type, registers, splat


def convert(w: Text, value, source: dt.dtype, target: dt.dtype, width: int):
    if source is target:
        return value
    if target.kind == "c":
        real = target.to_real()
        if source.kind == "c":
            return tuple(convert(w, v, source.to_real(), real, width) for v in value)
        return (convert(w, value, source, real, width), numbers(0.0, real, width))
    if source.kind == "c" and target is dt.bool_:  # either part will do
        parts = [convert(w, v, source.to_real(), target, width) for v in value]
        return w.emit(f"or {registers(target, width)} {parts[0]}, {parts[1]}")
    if source.kind == "c":
        return convert(w, value[0], source.to_real(), target, width)
    a, b = registers(source, width), registers(target, width)
    if target is dt.bool_:
        code = "fcmp une" if source.kind == "f" else "icmp ne"
        return w.emit(f"{code} {a} {value}, {numbers(0, source, width)}")
    if source.kind == "f" and target.kind == "f":
        code = "fpext" if target.itemsize > source.itemsize else "fptrunc"
    elif source.kind == "f":
        return _float_to_int(w, value, source, target, width)
    elif target.kind == "f":
        code = "uitofp" if source.kind in "bu" else "sitofp"
    elif source.itemsize == target.itemsize and source is not dt.bool_:
        return value
    elif target.itemsize < source.itemsize:
        code = "trunc"
    else:
        code = "zext" if source.kind in "bu" else "sext"
    return w.emit(f"{code} {a} {value} to {b}")


def _float_to_int(w: Text, value, source: dt.dtype, target: dt.dtype, width: int) -> str:
    """Truncate in 32 bits, or 64 for wide integers: what does not fit becomes the lowest integer.

    Narrower integers are cut from the 32 bits, as hardware conversions make them.
    """
    a, flag = registers(source, width), of_type("i1", width)
    bits = dt.converted_bits(target)
    whole = of_type(f"i{bits}", width)
    if target is dt.uint64:  # the upper half is reached from the lower one
        half = numbers(2.0**63, source, width)
        upper = w.emit(f"fcmp oge {a} {value}, {half}")
        lowered = w.emit(f"fsub {a} {value}, {half}")
        value = w.emit(f"select {flag} {upper}, {a} {lowered}, {a} {value}")
    low, high = (numbers(bound, source, width) for bound in (-2.0 ** (bits - 1), 2.0 ** (bits - 1)))
    above = w.emit(f"fcmp oge {a} {value}, {low}")
    below = w.emit(f"fcmp olt {a} {value}, {high}")
    fits = w.emit(f"and {flag} {above}, {below}")
    safe = w.emit(f"select {flag} {fits}, {a} {value}, {a} {low}")
    out = w.emit(f"fptosi {a} {safe} to {whole}")
    if target is dt.uint64:
        top, none = (splat(c, "i64", width) for c in (str(-2**63), "0"))
        lift = w.emit(f"select {flag} {upper}, {whole} {top}, {whole} {none}")
        return w.emit(f"xor {whole} {out}, {lift}")
    if target.itemsize * 8 == bits:
        return out
    return w.emit(f"trunc {whole} {out} to {registers(target, width)}")


def argument(w: Text, name: str, dtype: dt.dtype) -> str:
    """A number, which is passed as a double or an i64, in its dtype."""
    if dtype is dt.float32:
        return w.emit(f"fptrunc double {name} to float")
    if dtype.kind == "f" or REGISTER[dtype] == "i64":
        return name
    return w.emit(f"trunc i64 {name} to {REGISTER[dtype]}")


# -- memory ----------------------------------------------------------------------------------------


def from_memory(w: Text, raw: str, dtype: dt.dtype, width: int) -> str:
    """What was loaded, in the dtype that is computed in."""
    if dtype is dt.bool_:
        return w.emit(f"icmp ne {of_type('i8', width)} {raw}, zeroinitializer"
                      if width > 1 else f"icmp ne i8 {raw}, 0")
    if dtype is dt.float16:
        return w.emit(f"fpext {of_type('half', width)} {raw} to {of_type('float', width)}")
    if dtype is dt.bfloat16:
        bits = w.emit(f"zext {of_type('i16', width)} {raw} to {of_type('i32', width)}")
        high = w.emit(f"shl {of_type('i32', width)} {bits}, {splat('16', 'i32', width)}")
        return w.emit(f"bitcast {of_type('i32', width)} {high} to {of_type('float', width)}")
    return raw


def to_memory(w: Text, value: str, dtype: dt.dtype, width: int) -> str:
    """What is stored of a value in the dtype that is computed in."""
    if dtype is dt.bool_:
        return w.emit(f"zext {of_type('i1', width)} {value} to {of_type('i8', width)}")
    if dtype is dt.float16:
        return w.emit(f"fptrunc {of_type('float', width)} {value} to {of_type('half', width)}")
    if dtype is dt.bfloat16:
        return _to_bfloat16(w, value, width)
    return value


def _to_bfloat16(w: Text, value: str, width: int) -> str:
    """Round to nearest, ties to even; NaN stays NaN."""
    i32, i16 = of_type("i32", width), of_type("i16", width)

    def c(number: int) -> str:
        return splat(str(number), "i32", width)

    bits = w.emit(f"bitcast {of_type('float', width)} {value} to {i32}")
    shifted = w.emit(f"lshr {i32} {bits}, {c(16)}")
    odd = w.emit(f"and {i32} {shifted}, {c(1)}")
    bias = w.emit(f"add {i32} {odd}, {c(32767)}")
    rounded = w.emit(f"lshr {i32} {w.emit(f'add {i32} {bits}, {bias}')}, {c(16)}")
    nan = w.emit(f"fcmp uno {of_type('float', width)} {value}, {value}")
    kept = w.emit(f"select {of_type('i1', width)} {nan}, {i32} {c(32704)}, {i32} {rounded}")
    return w.emit(f"trunc {i32} {kept} to {i16}")
