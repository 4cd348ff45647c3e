"""One instruction, or a few, per primitive: heads of exprs on registers."""

from __future__ import annotations

from ...core import dtype as dt
from ...core import expr as ex
from ...core.expr import Expr
from ..libm import LIBM
from ..text import Text
from .conversions import convert
from .remainder import remainder
from .types import REGISTER, of_type, registers, splat
from .vectors import gathered, part

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_BOOL_OPS = {**_INT_OPS, "add": "xor", "sub": "xor", "mul": "and"}
_FLOAT_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_INT_COMPARE = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_INTRINSICS = frozenset(("sqrt", "floor", "ceil", "trunc", "rint", "copysign", "fma"))


def primitive(w: Text, e: Expr, args, width: int) -> str:
    """The register that holds what e's head makes of arguments, none of them complex."""
    head, operand = e.head, e.args[0].dtype
    type_ = registers(operand, width)
    if head == "cast":
        return convert(w, args[0], operand, e.dtype, width)
    if head == "bitcast":
        return w.emit(f"bitcast {type_} {args[0]} to {registers(e.dtype, width)}")
    if head == "select":
        chosen = registers(e.dtype, width)
        return w.emit(f"select {type_} {args[0]}, {chosen} {args[1]}, {chosen} {args[2]}")
    if head in ex.COMPARISONS:
        return w.emit(_comparison(head, operand, type_, args))
    if operand.kind == "f":
        return _of_floats(w, head, operand, type_, args, width)
    return _of_integers(w, head, operand, type_, args, width)


def _comparison(head: str, dtype: dt.dtype, type_: str, args) -> str:
    if dtype.kind == "f":
        return f"fcmp {_FLOAT_COMPARE[head]} {type_} {args[0]}, {args[1]}"
    code = _INT_COMPARE[head]
    if dtype.kind in "bu" and code[0] == "s":
        code = "u" + code[1:]
    return f"icmp {code} {type_} {args[0]}, {args[1]}"


# -- floats ----------------------------------------------------------------------------------------


def _of_floats(w: Text, head: str, dtype: dt.dtype, type_: str, args, width: int) -> str:
    if head in _FLOAT_OPS:
        return w.emit(f"{_FLOAT_OPS[head]} contract {type_} {args[0]}, {args[1]}")
    if head == "neg":
        return w.emit(f"fneg {type_} {args[0]}")
    suffix = f"v{width}" if width > 1 else ""
    suffix += "f32" if dtype is dt.float32 else "f64"
    if head == "abs":
        return w.call(f"llvm.fabs.{suffix}", type_, [(type_, args[0])])
    if head == "copysign" and dtype is dt.float64:
        return _with_sign(w, args, width)
    if head in _INTRINSICS:
        return w.call(f"llvm.{head}.{suffix}", type_, [(type_, a) for a in args])
    if head == "fmod":
        return remainder(w, dtype, args, width)
    if head in LIBM:
        return _by_libm(w, head, dtype, args, width)
    raise ValueError(f"no lowering of {head} for {dtype}")


def _with_sign(w: Text, args, width: int) -> str:
    """The size of a double and the sign of another, by their bits.

    LLVM moves the rounding of an intrinsic's result to its arguments: a double whose sign is that
    of a half would be rounded by a function that the process does not have.
    """
    whole, type_ = of_type("i64", width), of_type("double", width)
    size, sign = (w.emit(f"bitcast {type_} {a} to {whole}") for a in args)
    kept = w.emit(f"and {whole} {size}, {splat(str(2**63 - 1), 'i64', width)}")
    top = w.emit(f"and {whole} {sign}, {splat(str(-2**63), 'i64', width)}")
    return w.emit(f"bitcast {whole} {w.emit(f'or {whole} {kept}, {top}')} to {type_}")


def _by_libm(w: Text, head: str, dtype: dt.dtype, args, width: int):
    """A function of the C library, which takes lanes one by one."""
    one, name = REGISTER[dtype], head + ("f" if dtype is dt.float32 else "")
    lanes = []
    for lane in range(width):
        given = [part(w, a, dtype, width, lane, 1) if width > 1 else a for a in args]
        lanes.append(w.call(name, one, [(one, g) for g in given]))
    return lanes[0] if width == 1 else gathered(w, lanes, dtype, width)


# -- integers --------------------------------------------------------------------------------------


def _of_integers(w: Text, head: str, dtype: dt.dtype, type_: str, args, width: int) -> str:
    one = REGISTER[dtype]
    if head in _INT_OPS:
        codes = _BOOL_OPS if dtype is dt.bool_ else _INT_OPS
        return w.emit(f"{codes[head]} {type_} {args[0]}, {args[1]}")
    if head in ("shl", "shr"):
        return _shift(w, head, dtype, args, width)
    if head == "neg":
        return w.emit(f"sub {type_} {splat('0', one, width)}, {args[0]}")
    if head == "not":
        ones = "true" if dtype is dt.bool_ else "-1"
        return w.emit(f"xor {type_} {args[0]}, {splat(ones, one, width)}")
    if head == "abs":
        if dtype.kind != "i":
            return args[0]
        suffix = (f"v{width}" if width > 1 else "") + one
        return w.call(f"llvm.abs.{suffix}", type_, [(type_, args[0]), ("i1", "false")])
    if head in ("floor", "ceil", "trunc", "rint"):
        return args[0]
    if head in ("truncdiv", "fmod"):
        return _division(w, head, dtype, args, width)
    raise ValueError(f"no lowering of {head} for {dtype}")


def _shift(w: Text, head: str, dtype: dt.dtype, args, width: int) -> str:
    """Shifts by the width or more give what shifting bit by bit would."""
    type_, one, bits = registers(dtype, width), REGISTER[dtype], dtype.itemsize * 8
    flag = of_type("i1", width)
    inside = w.emit(f"icmp ult {type_} {args[1]}, {splat(str(bits), one, width)}")
    top = splat(str(bits - 1), one, width)
    by = w.emit(f"select {flag} {inside}, {type_} {args[1]}, {type_} {top}")
    code = "shl" if head == "shl" else "ashr" if dtype.kind == "i" else "lshr"
    moved = w.emit(f"{code} {type_} {args[0]}, {by}")
    if code == "ashr":
        return moved
    return w.emit(f"select {flag} {inside}, {type_} {moved}, {type_} {splat('0', one, width)}")


def _division(w: Text, head: str, dtype: dt.dtype, args, width: int) -> str:
    """Division that cannot trap: by 0 it divides by 1, and MIN / -1 wraps."""
    type_, signed, flag = registers(dtype, width), dtype.kind == "i", of_type("i1", width)
    (a, b), zero, one = args, *(splat(c, REGISTER[dtype], width) for c in "01")
    unsafe = w.emit(f"icmp eq {type_} {b}, {zero}")
    if signed:
        minus = w.emit(f"icmp eq {type_} {b}, {splat('-1', REGISTER[dtype], width)}")
        both = w.emit(f"or {flag} {unsafe}, {minus}")
    else:
        minus, both = None, unsafe
    safe = w.emit(f"select {flag} {both}, {type_} {one}, {type_} {b}")
    sign = "s" if signed else "u"
    if head == "fmod":
        return w.emit(f"{sign}rem {type_} {a}, {safe}")
    quotient = w.emit(f"{sign}div {type_} {a}, {safe}")
    if minus is None:
        return quotient
    negated = w.emit(f"sub {type_} {zero}, {a}")
    return w.emit(f"select {flag} {minus}, {type_} {negated}, {type_} {quotient}")
