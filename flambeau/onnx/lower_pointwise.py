"""Pointwise ops in ONNX: a table of those it has words for; the others by what they are made of.

A pointwise op's body is an expression of primitives. Where no line of the table fits, the
expression itself is written as ONNX nodes, so every pointwise op has a lowering.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau.assemble import registry
from flambeau.export.graph import Extent, Value

from ..core import dtype as dt
from ..core import expr as ex
from ..ops.declare import Pointwise
from .build import ELEMENTS, Builder, UnsupportedOperatorError
from .registry import LOWERINGS, Call, lowers

ops: dict[str, Any] = dict(registry)

#: ops that ONNX has under one name, on operands of one dtype
DIRECT = {
    "mul": "Mul", "neg": "Neg", "abs": "Abs", "sign": "Sign", "pow": "Pow", "sqrt": "Sqrt",
    "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "relu": "Relu",
    "sigmoid": "Sigmoid", "floor": "Floor", "ceil": "Ceil", "reciprocal": "Reciprocal",
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
    "isnan": "IsNaN", "true_divide": "Div", "clone": "Identity",
    "maximum": "Max", "minimum": "Min",
}
LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
BITWISE = {"bitwise_and": ("And", "BitwiseAnd"), "bitwise_or": ("Or", "BitwiseOr"),
           "bitwise_xor": ("Xor", "BitwiseXor")}

#: primitives of expressions
PRIMITIVES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "abs": "Abs",
    "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal",
    "not": "Not", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "tanh": "Tanh", "floor": "Floor", "ceil": "Ceil", "rint": "Round",
    "pow": "Pow", "select": "Where", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "sinh": "Sinh", "cosh": "Cosh", "erf": "Erf", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh",
}


def joined(op: Pointwise, operands) -> Any:
    """The dtype in which an op works on these operands."""
    promoted = [operands[i] for i in op.promoted]
    exprs: list[Any] = [a.dtype for a in promoted if isinstance(a, Value) and a.rank]
    scalars: list[Any] = [a.dtype for a in promoted if isinstance(a, Value) and not a.rank]
    numbers = [dt.of_scalar(a.example if isinstance(a, Extent) else a) for a in promoted
               if not isinstance(a, Value)]
    return dt.operating(op.rule, dt.result_type(exprs, scalars, numbers))


def operands_of(b: Builder, op: Pointwise, operands) -> tuple[list[str], Any]:
    """Names of the operands, those that are promoted cast to one dtype."""
    common = joined(op, operands)
    names = [b.cast(a, common) if i in op.promoted else b.name(a) for i, a in enumerate(operands)]
    return names, common


def _direct(kind: str):
    def lower(b: Builder, call: Call, *args):
        op = ops[call.key]
        names, common = operands_of(b, op, args[:len(op.operands)])
        if common is flambeau.bool and kind in ("Max", "Min", "Mul"):
            return b.op({"Max": "Or", "Min": "And", "Mul": "And"}[kind], *names)
        return b.op(kind, *names)
    return lower


for _key, _kind in DIRECT.items():
    lowers(_key)(_direct(_kind))


def _logical(kind: str):
    def lower(b: Builder, call: Call, x, y):
        return b.op(kind, b.cast(x, flambeau.bool), b.cast(y, flambeau.bool))
    return lower


for _key, _kind in LOGICAL.items():
    lowers(_key)(_logical(_kind))


def _bitwise(kinds):
    def lower(b: Builder, call: Call, x, y):
        names, common = operands_of(b, ops[call.key], (x, y))
        if common is not flambeau.bool:
            b.require(18, call.key)
        return b.op(kinds[common is not flambeau.bool], *names)
    return lower


for _key, _kinds in BITWISE.items():
    lowers(_key)(_bitwise(_kinds))


@lowers("add", "sub")
def add(b: Builder, call: Call, x, y, alpha):
    (x, y), common = operands_of(b, ops[call.key], (x, y))
    if common is flambeau.bool:
        return b.op("Or" if call.key == "add" else "Xor", x, y)
    y = y if alpha == 1 else b.op("Mul", y, b.const(alpha, common))
    return b.op("Add" if call.key == "add" else "Sub", x, y)


@lowers("ne")
def ne(b: Builder, call: Call, x, y):
    names, _ = operands_of(b, ops["ne"], (x, y))
    return b.op("Not", b.op("Equal", *names))


@lowers("bitwise_not", "logical_not")
def invert(b: Builder, call: Call, x):
    if call.key == "logical_not" or x.dtype is flambeau.bool:
        return b.op("Not", b.cast(x, flambeau.bool))
    b.require(18, "bitwise_not")
    return b.op("BitwiseNot", x)


@lowers("rsqrt")
def rsqrt(b: Builder, call: Call, x):
    return b.op("Reciprocal", b.op("Sqrt", b.cast(x, call.out.dtype)))


@lowers("nn.functional.gelu")
def gelu(b: Builder, call: Call, x, approximate):
    kind = x.dtype
    if approximate == "tanh":
        cube = b.op("Mul", b.op("Mul", b.op("Mul", x, x), x), b.const(0.044715, kind))
        inner = b.op("Mul", b.op("Add", x, cube), b.const(math.sqrt(2 / math.pi), kind))
        bell = b.op("Tanh", inner)
    else:
        bell = b.op("Erf", b.op("Div", x, b.const(math.sqrt(2), kind)))
    half = b.op("Mul", x, b.const(0.5, kind))
    return b.op("Mul", half, b.op("Add", bell, b.const(1.0, kind)))


@lowers("nn.functional.silu")
def silu(b: Builder, call: Call, x):
    return b.op("Mul", x, b.op("Sigmoid", x))


@lowers("nn.functional.mish")
def mish(b: Builder, call: Call, x):
    return b.op("Mul", x, b.op("Tanh", b.op("Softplus", x)))


@lowers("nn.functional.softplus")
def softplus(b: Builder, call: Call, x, beta, threshold):
    scaled = b.name(x) if beta == 1 else b.op("Mul", x, b.const(float(beta), x.dtype))
    found = b.op("Softplus", scaled)
    if beta != 1:
        found = b.op("Div", found, b.const(float(beta), x.dtype))
    if threshold >= 20:  # beyond which float32 knows no difference
        return found
    return b.op("Where", b.op("Greater", scaled, b.const(float(threshold), x.dtype)), x, found)


@lowers("nn.functional.logsigmoid")
def logsigmoid(b: Builder, call: Call, x):
    return b.op("Neg", b.op("Softplus", b.op("Neg", x)))


@lowers("nn.functional.elu", "celu")
def elu(b: Builder, call: Call, x, alpha):
    return b.op("Elu" if call.key != "celu" else "Celu", x, alpha=float(alpha))


@lowers("selu")
def selu(b: Builder, call: Call, x):
    return b.op("Selu", x)


@lowers("nn.functional.leaky_relu")
def leaky_relu(b: Builder, call: Call, x, slope):
    return b.op("LeakyRelu", x, alpha=float(slope))


@lowers("nn.functional.hardsigmoid")
def hardsigmoid(b: Builder, call: Call, x):
    return b.op("HardSigmoid", x, alpha=1.0 / 6, beta=0.5)


@lowers("nn.functional.hardswish")
def hardswish(b: Builder, call: Call, x):
    return b.op("HardSwish", x)


@lowers("nn.functional.hardtanh", "clamp_between")
def hardtanh(b: Builder, call: Call, x, low, high):
    if isinstance(low, Value) or isinstance(high, Value):
        (x, low, high), _ = operands_of(b, ops["clamp_between"], (x, low, high))
        return b.op("Min", b.op("Max", x, low), high)
    kind = call.out.dtype
    return b.op("Clip", b.cast(x, kind), b.const(low, kind), b.const(high, kind))


@lowers("clamp_min", "clamp_max", "clamp_from", "clamp_to")
def clamp(b: Builder, call: Call, x, bound_):
    names, _ = operands_of(b, ops[call.key], (x, bound_))
    return b.op("Max" if call.key in ("clamp_min", "clamp_from") else "Min", *names)


@lowers("round")
def round_(b: Builder, call: Call, x, decimals):
    if not decimals:
        return b.op("Round", x)
    scale = b.const(10.0 ** decimals, x.dtype)
    return b.op("Div", b.op("Round", b.op("Mul", x, scale)), scale)


@lowers("trunc")
def trunc(b: Builder, call: Call, x):
    return b.op("Mul", b.op("Sign", x), b.op("Floor", b.op("Abs", x)))


@lowers("isinf")
def isinf(b: Builder, call: Call, x):
    return b.op("IsInf", x)


@lowers("floored_remainder", "truncated_remainder")
def remainder(b: Builder, call: Call, x, y):
    (x, y), common = operands_of(b, ops[call.key], (x, y))
    if call.key == "truncated_remainder":
        return b.op("Mod", x, y, fmod=1)
    if common.kind != "f":
        return b.op("Mod", x, y)
    return b.op("Sub", x, b.op("Mul", b.op("Floor", b.op("Div", x, y)), y))


@lowers("floored_quotient", "truncated_quotient")
def quotient(b: Builder, call: Call, x, y):
    (x, y), common = operands_of(b, ops[call.key], (x, y))
    if common.kind == "f":
        q = b.op("Div", x, y)
        if call.key == "floored_quotient":
            return b.op("Floor", q)
        return b.op("Mul", b.op("Sign", q), b.op("Floor", b.op("Abs", q)))
    if call.key == "truncated_quotient":
        return b.op("Div", x, y)
    return b.op("Div", b.op("Sub", x, b.op("Mod", x, y)), y)


@lowers("masked_fill")
def masked_fill(b: Builder, call: Call, x, mask, value):
    return b.op("Where", b.cast(mask, flambeau.bool), b.cast(value, x.dtype), x)


@lowers("chosen")
def chosen(b: Builder, call: Call, condition, x, y):
    kind = call.out.dtype
    return b.op("Where", b.cast(condition, flambeau.bool), b.cast(x, kind), b.cast(y, kind))


@lowers("fill", "constant")
def fill(b: Builder, call: Call, x, *value):
    number = b.cast(value[0] if value else x, call.out.dtype)
    return b.op("Expand", number, b.ints(list(call.out.shape)))


@lowers("to_bool", "to_uint8", "to_int8", "to_int16", "to_int32", "to_int64", "to_float16",
        "to_bfloat16", "to_float32", "to_float64", "to_float")
def convert(b: Builder, call: Call, x):
    return b.cast(x, call.out.dtype)


# -- by what an op is made of ----------------------------------------------------------------------


def by_expression(b: Builder, call: Call, *args):
    """The expression of a pointwise op, primitive by primitive."""
    op = ops[call.key]
    count = len(op.operands)
    given, attributes = args[:count], dict(zip(op.attributes, args[count:], strict=True))
    common = joined(op, given)
    leaves, names = [], {}
    for i, a in enumerate(given):
        kind: Any = common if i in op.promoted else (
            a.dtype if isinstance(a, Value) else dt.of_scalar(a))
        if isinstance(a, (Value, Extent)):
            leaves.append(ex.input(i, kind))
            names[leaves[-1]] = b.cast(a, kind)
        else:
            leaves.append(ex.const(a, kind))
    wanted: Any = call.out.dtype
    return Expression(b, names, call.key).lower(ex.cast(op.element(leaves, attributes), wanted))


class Expression:
    """Writes an expression as nodes; the names of its leaves are known."""

    def __init__(self, b: Builder, names: dict, said: str):
        self.b, self.done, self.said = b, dict(names), said

    def lower(self, e: ex.Expr) -> str:
        if e not in self.done:
            self.done[e] = self._node(e)
            self.b.types[self.done[e]] = e.dtype
        return self.done[e]

    def _node(self, e: ex.Expr) -> str:
        b = self.b
        if e.head == "const":
            return b.const(e.attr, e.dtype)
        if not isinstance(e.head, str):
            kind = DIRECT.get(e.head.name)
            if kind is not None:
                return b.op(kind, *[self.lower(a) for a in e.args])
            return self.lower(e.head.element(list(e.args), dict(e.attr or ())))
        args = [self.lower(a) for a in e.args]
        if e.head == "cast":
            return b.op("Cast", args[0], to=ELEMENTS[e.dtype])
        if e.head == "ne":
            return b.op("Not", b.op("Equal", *args))
        if e.head == "trunc":
            return b.op("Mul", b.op("Sign", args[0]), b.op("Floor", b.op("Abs", args[0])))
        if e.head in ("and", "or", "xor"):
            kinds = BITWISE[f"bitwise_{e.head}"]
            return b.op(kinds[e.dtype is not dt.bool_], *args)
        if e.head == "fmod":
            return b.op("Mod", *args, fmod=1)
        if e.head == "hypot":
            squares = [b.op("Mul", a, a) for a in args]
            return b.op("Sqrt", b.op("Add", *squares))
        if e.head == "atan2":
            return self._atan2(args[0], args[1], e.dtype)
        if e.head in _RELATIVES:
            return _RELATIVES[e.head](b, args[0], e.dtype)
        if e.head not in PRIMITIVES:
            raise UnsupportedOperatorError(f"{self.said} is made of {e.head}, for which ONNX has "
                                           "no words")
        return b.op(PRIMITIVES[e.head], *args)

    def _atan2(self, y: str, x: str, kind) -> str:
        b, zero, pi = self.b, self.b.const(0.0, kind), self.b.const(math.pi, kind)
        angle = b.op("Atan", b.op("Div", y, x))
        turned = b.op("Where", b.op("Less", y, zero), b.op("Sub", angle, pi),
                      b.op("Add", angle, pi))
        return b.op("Where", b.op("Less", x, zero), turned, angle)


def _log_base(base: float):
    return lambda b, x, kind: b.op("Div", b.op("Log", x), b.const(math.log(base), kind))


#: functions that ONNX has only near relatives of
_RELATIVES = {
    "log2":  _log_base(2),
    "log10": _log_base(10),
    "log1p": lambda b, x, kind: b.op("Log", b.op("Add", x, b.const(1.0, kind))),
    "expm1": lambda b, x, kind: b.op("Sub", b.op("Exp", x), b.const(1.0, kind)),
    "exp2":  lambda b, x, kind: b.op("Pow", b.const(2.0, kind), x),
    "erfc":  lambda b, x, kind: b.op("Sub", b.const(1.0, kind), b.op("Erf", x)),
}


def install() -> None:
    for key, op in ops.items():
        if isinstance(op, Pointwise) and key not in LOWERINGS:
            lowers(key)(by_expression)


install()
