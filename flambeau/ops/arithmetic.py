"""Arithmetic on elements."""

from __future__ import annotations

from ..core import expr as e
from ..core.expr import where
from .declare import FLOAT, SAME, composite, pointwise


@pointwise(SAME)
def add(x, y, *, alpha=1):
    """x + alpha * y"""
    return x + alpha * y


@pointwise(SAME)
def sub(x, y, *, alpha=1):
    """x - alpha * y"""
    return x - alpha * y


@pointwise(SAME)
def mul(x, y):
    """x * y"""
    return x * y


@pointwise(FLOAT, backward="DivBackward0")
def true_divide(x, y):
    """x / y, in floating point"""
    return x / y


@pointwise(SAME)
def neg(x):
    """-x"""
    return -x


@pointwise(SAME, bake=(2, 3, 0.5, 1, 0, -1))
def pow(x, exponent):
    """x raised to `exponent`, elementwise"""
    if exponent.head == "const" and exponent.attr in (2, 3):
        return x ** int(exponent.attr)
    return e.call("pow", x, exponent)


@pow.gradient
def pow(g, x, exponent, out):
    zero = e.const(0, x.dtype)

    def base():
        if e.is_const(exponent, 2):
            return g * (2 * x)
        return where(exponent == 0, zero, g * e.conj(exponent * pow(x, exponent - 1)))

    def power():
        return where((x == 0) & (exponent >= 0), zero, g * e.conj(out * log(x)))

    return base, power


@pointwise(FLOAT)
def exp(x):
    """e to the power x"""
    return e.call("exp", x)


@exp.gradient
def exp(g, out):
    return g * e.conj(out)


@pointwise(FLOAT)
def log(x):
    """The natural logarithm."""
    return e.call("log", x)


@log.gradient
def log(g, x):
    return g / e.conj(x)


@pointwise(SAME)
def clone(x):
    """A copy, with its own memory."""
    return x


@composite
def square(x):
    """x * x"""
    return pow(x, 2)
