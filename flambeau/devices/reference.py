"""Evaluates an expr with numpy, one node at a time: the executable specification of devices.

Every node is computed in its own dtype, rounding and wrapping as that dtype does. Half types are
computed in float32 and rounded to what they are; bfloat16 travels as the uint16 of its bits.
"""

from __future__ import annotations

import math

import numpy as np

from ..core import dtype as dt
from ..core import expr
from ..core.expr import Expr
from . import mathlib

# -- storage <-> arithmetic --------------------------------------------------------------------


def _widen(value, dtype: dt.dtype):
    """What a half type is computed with; other dtypes are left alone."""
    if dtype is dt.bfloat16:
        return (np.asarray(value, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.asarray(value, np.float32) if dtype is dt.float16 else value


def _to_bfloat16(value):
    """To the nearest, ties to even; a NaN keeps being one."""
    bits = np.asarray(value, np.float32).view(np.uint32)
    rounded = ((bits + ((bits >> 16) & 1) + np.uint32(0x7FFF)) >> 16).astype(np.uint16)
    return np.where(np.isnan(value), np.uint16(0x7FC0), rounded)


def _narrow(value, dtype: dt.dtype):
    if dtype is dt.bfloat16:
        return _to_bfloat16(value)
    return np.asarray(value).astype(dtype.numpy, copy=False)


def _constant(value, dtype: dt.dtype):
    if dtype is dt.bfloat16:
        return _to_bfloat16(np.float32(value))
    if dtype.kind in "iu":
        bits = value & (2 ** (8 * dtype.itemsize) - 1)
        return np.array([bits], f"u{dtype.itemsize}").view(dtype.numpy)[0]
    return np.asarray(value).astype(dtype.numpy)


def _cast(e: Expr, x):
    """Between dtypes: fractions are cut off, integers wrap, a complex loses its imaginary part."""
    source, target = e.args[0].dtype, e.dtype
    x = _widen(x, source)
    if target is dt.bool_:
        return x != 0
    if source.kind == "c" and target.kind != "c":
        x = x.real
    if source.kind in "fc" and target.kind in "iu":
        x = _integers(x, target)
    return _narrow(x, target)


def _integers(x, target: dt.dtype):
    """Floats cut to integers; what does not fit becomes the lowest of them."""
    bits = dt.converted_bits(target)
    low, high = -2.0 ** (bits - 1), 2.0 ** (bits - 1)
    with np.errstate(invalid="ignore"):
        upper = (x >= high) if target is dt.uint64 else np.False_
        x = np.where(upper, x - high, x)
        fits = (x >= low) & (x < high)
    whole = np.where(fits, x, low).astype(f"i{bits // 8}")
    return whole ^ np.where(upper, np.int64(-2**63), np.int64(0)) if np.any(upper) else whole


def _bitcast(e: Expr, x):
    return np.ascontiguousarray(x).view(e.dtype.numpy).reshape(np.shape(x))


# -- fused multiply-add ------------------------------------------------------------------------


def _two_sum(a, b):
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def _halves(x):
    """A float64 as a sum of two of 26 bits, whose products are exact."""
    shifted = x * 134217729.0
    high = shifted - (shifted - x)
    return high, x - high


def _two_product(a, b):
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    product = a * b
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _sum_to_odd(a, b):
    """a + b where an inexact result has its last bit set, so that rounding again is harmless."""
    total, lost = _two_sum(a, b)
    bits = total.view(np.int64)
    inward = (lost > 0) != (total > 0)
    odd = np.where((bits & 1 == 0) & (lost != 0), np.where(inward, bits - 1, bits + 1), bits)
    return np.where(np.isfinite(total) & np.isfinite(lost), odd.view(np.float64), total)


def _fma_double(a, b, c):
    """a * b + c rounded once (Boldo and Melquiond's way), where nothing overflows inside."""
    plain = a * b + c
    product, low = _two_product(a, b)
    first, second = _two_sum(c, low)
    total, rest = _two_sum(product, first)
    exact = total + _sum_to_odd(second, rest)
    return np.where(np.isfinite(exact) & (np.abs(product) > 1e-290), exact, plain)


def _fma(a, b, c):
    a, b, c = np.broadcast_arrays(a, b, c)
    if a.dtype == np.float32:
        product = a.astype(np.float64) * b.astype(np.float64)
        return _sum_to_odd(product, c.astype(np.float64)).astype(np.float32)
    return _fma_double(a, b, c) if a.dtype == np.float64 else a * b + c


# -- what each head computes -------------------------------------------------------------------


def _per_element(function):
    """A function of Python's math module over arrays; results are rounded to the arguments'."""

    def at(x: float) -> float:
        try:
            return function(x)
        except ValueError:  # a pole, or beyond the domain
            return math.inf
        except OverflowError:
            return math.inf

    table = np.vectorize(at, otypes=[np.float64])
    return lambda x: table(np.asarray(x, np.float64)).astype(np.asarray(x).dtype)


def _divide(a, b):
    return a / b if np.asarray(a).dtype.kind in "fc" else _truncated_division(a, b)


def _truncated_division(a, b):
    """Integers, towards zero; by 0 as by 1, as no device may trap."""
    b = np.where(b == 0, np.ones_like(b), b)
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient).astype(np.asarray(a).dtype)


def _remainder_towards_zero(a, b):
    return np.fmod(a, b if np.asarray(a).dtype.kind == "f" else np.where(b == 0, 1, b))


def _shift(function, signed_fill):
    """Shifts by the width or more give what shifting bit by bit would."""

    def shift(a, b):
        a, b = np.broadcast_arrays(a, b)
        width = a.dtype.itemsize * 8
        inside = (b >= 0) & (b < width)
        moved = function(a, np.where(inside, b, width - 1).astype(a.dtype))
        fill = signed_fill and a.dtype.kind == "i"
        return moved if fill else np.where(inside, moved, a.dtype.type(0))

    return shift


def _arithmetic(function, on_bools):
    return lambda a, b: (on_bools if np.asarray(a).dtype == bool else function)(a, b)


def _whole(function):
    """Rounding leaves integers alone."""
    return lambda x: function(x) if np.asarray(x).dtype.kind == "f" else x


HEADS = {
    "add":       _arithmetic(np.add, np.logical_xor),
    "sub":       _arithmetic(np.subtract, np.logical_xor),
    "mul":       _arithmetic(np.multiply, np.logical_and),
    "div":       _divide,
    "truncdiv":  _truncated_division,
    "fmod":      _remainder_towards_zero,
    "neg":       np.negative,
    "lt":        np.less,
    "le":        np.less_equal,
    "gt":        np.greater,
    "ge":        np.greater_equal,
    "eq":        np.equal,
    "ne":        np.not_equal,
    "and":       np.bitwise_and,
    "or":        np.bitwise_or,
    "xor":       np.bitwise_xor,
    "not":       np.invert,
    "shl":       _shift(np.left_shift, False),
    "shr":       _shift(np.right_shift, True),
    "select":    np.where,
    "fma":       _fma,
    "abs":       lambda x: x if np.asarray(x).dtype == bool else np.abs(x),
    "floor":     _whole(np.floor),
    "ceil":      _whole(np.ceil),
    "trunc":     _whole(np.trunc),
    "rint":      _whole(np.rint),
    "sqrt":      np.sqrt,
    "copysign":  np.copysign,
    "nextafter": np.nextafter,
    "ldexp":     lambda x, n: np.ldexp(x, np.asarray(n).astype(np.int32)),
    "real":      np.real,
    "imag":      np.imag,
    "conj":      np.conj,
    "complex":   lambda a, b: a + 1j * b,
    "exp":       np.exp,
    "exp2":      np.exp2,
    "expm1":     np.expm1,
    "log":       np.log,
    "log2":      np.log2,
    "log10":     np.log10,
    "log1p":     np.log1p,
    "sin":       np.sin,
    "cos":       np.cos,
    "tan":       np.tan,
    "asin":      np.arcsin,
    "acos":      np.arccos,
    "atan":      np.arctan,
    "atan2":     np.arctan2,
    "sinh":      np.sinh,
    "cosh":      np.cosh,
    "tanh":      np.tanh,
    "asinh":     np.arcsinh,
    "acosh":     np.arccosh,
    "atanh":     np.arctanh,
    "pow":       np.power,
    "hypot":     np.hypot,
    "erf":       _per_element(math.erf),
    "erfc":      _per_element(math.erfc),
    "lgamma":    _per_element(math.lgamma),
}


# -- evaluation --------------------------------------------------------------------------------


class _Evaluation:
    """The operands of one evaluation, and what is known so far."""

    def __init__(self, inputs, params, index):
        self.inputs, self.params, self.index = inputs, params, index
        self.values: dict[Expr, np.ndarray] = {}

    def leaf(self, e: Expr):
        given = {"input": self.inputs, "param": self.params, "index": self.index}[e.head]
        if given is None:
            raise ValueError(f"evaluate: {e} needs {e.head} values, and none were given")
        return _constant(given[e.attr], e.dtype) if e.head == "param" else np.asarray(given[e.attr])

    def node(self, e: Expr):
        if e.head == "const":
            return _constant(e.attr, e.dtype)
        if e.head in expr.LEAVES:
            return self.leaf(e)
        args = [self.values[a] for a in e.args]
        if e.head == "load":
            return np.asarray(self.inputs[e.attr])[tuple(args)]
        if e.head in ("cast", "bitcast"):
            return {"cast": _cast, "bitcast": _bitcast}[e.head](e, args[0])
        wide = [_widen(v, a.dtype) for v, a in zip(args, e.args)]
        return _narrow(self.compute(e, wide), e.dtype)

    def compute(self, e: Expr, args):
        function = HEADS.get(e.head)
        if function is not None:
            return function(*args)
        kind = e.args[0].dtype.compute
        written = mathlib.TABLE.get((e.head, kind))
        if written is None:
            raise ValueError(f"evaluate: nothing computes {e.head} for {e.args[0].dtype}")
        places = [expr.input(i, kind) for i in range(len(args))]
        return evaluate(written(*places), args)

    def run(self, e: Expr):
        stack = [e]
        while stack:
            node = stack[-1]
            missing = [a for a in node.args if a not in self.values]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if node not in self.values:
                self.values[node] = self.node(node)
        return self.values[e]


def evaluate(e: Expr, inputs, params=(), index=None) -> np.ndarray:
    """The value of an expr over operands (arrays), params (numbers) and coordinates (arrays).

    >>> x = expr.input(0, dt.float32)
    >>> evaluate(x * x + 1, [np.array([1, 2], np.float32)])
    array([2., 5.], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return np.asarray(_Evaluation(inputs, params, index).run(expr.expand(e)))
