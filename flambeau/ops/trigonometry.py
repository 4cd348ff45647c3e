"""Circular and hyperbolic functions, and their inverses."""

from __future__ import annotations

import math

from ..core import expr as e
from ..core.expr import where
from .arithmetic import rsqrt, sqrt
from .declare import FLOAT, pointwise
from .refusal import not_complex, tensors

# -- circular ----------------------------------------------------------------------------------


@pointwise(FLOAT)
def sin(x):
    """The sine."""
    return e.call("sin", x)


@sin.gradient
def sin(g, x):
    return g * e.conj(cos(x))


@pointwise(FLOAT)
def cos(x):
    """The cosine."""
    return e.call("cos", x)


@cos.gradient
def cos(g, x):
    return -g * e.conj(sin(x))


@pointwise(FLOAT)
def tan(x):
    """The tangent."""
    return e.call("tan", x)


@tan.gradient
def tan(g, out):
    return g * e.conj(1 + out * out)


@pointwise(FLOAT)
def asin(x):
    """The inverse of the sine."""
    return e.call("asin", x)


@asin.gradient
def asin(g, x):
    return g * e.conj(rsqrt(1 - x * x))


@pointwise(FLOAT)
def acos(x):
    """The inverse of the cosine."""
    return e.call("acos", x)


@acos.gradient
def acos(g, x):
    return -g * e.conj(rsqrt(1 - x * x))


@pointwise(FLOAT)
def atan(x):
    """The inverse of the tangent."""
    return e.call("atan", x)


@atan.gradient
def atan(g, x):
    return g / e.conj(x * x + 1)


@pointwise(FLOAT, check=tensors("atan2", "input", "other", then=not_complex(
    "\"atan2_cpu\" not implemented for complex tensors", NotImplementedError)))
def atan2(x, y):
    """The angle of the point (y, x)."""
    return e.call("atan2", x, y)


@atan2.gradient
def atan2(g, x, y):
    """0 at the origin, where there is no angle: a nan there would spread into everything."""
    def slope(leg):
        square = x * x + y * y
        return g * leg * where(square == 0, e.const(0, g.dtype), 1 / square)

    return lambda: slope(y), lambda: slope(-x)


@pointwise(FLOAT)
def sinc(x):
    """sin(pi x) / (pi x), and 1 at 0"""
    turn = x * math.pi
    return where(x == 0, e.const(1, x.dtype), e.call("sin", turn) / turn)


@sinc.gradient
def sinc(g, x):
    turn = x * math.pi
    slope = (turn * cos(turn) - sin(turn)) / (turn * x)
    return where(x == 0, e.const(0, g.dtype), g * e.conj(slope))


@pointwise(FLOAT, check=not_complex("deg2rad is not supported for complex tensors."))
def deg2rad(x):
    """Degrees as radians."""
    return x * (math.pi / 180)


@pointwise(FLOAT, check=not_complex("rad2deg is not supported for complex tensors."))
def rad2deg(x):
    """Radians as degrees."""
    return x * (180 / math.pi)


# -- hyperbolic --------------------------------------------------------------------------------


@pointwise(FLOAT)
def sinh(x):
    """The hyperbolic sine."""
    return e.call("sinh", x)


@sinh.gradient
def sinh(g, x):
    return g * e.conj(cosh(x))


@pointwise(FLOAT)
def cosh(x):
    """The hyperbolic cosine."""
    return e.call("cosh", x)


@cosh.gradient
def cosh(g, x):
    return g * e.conj(sinh(x))


@pointwise(FLOAT)
def tanh(x):
    """The hyperbolic tangent."""
    return e.call("tanh", x)


@tanh.gradient
def tanh(g, out):
    return g * e.conj(1 - out * out)


@pointwise(FLOAT)
def asinh(x):
    """The inverse of the hyperbolic sine."""
    return e.call("asinh", x)


@asinh.gradient
def asinh(g, x):
    return g * e.conj(rsqrt(x * x + 1))


@pointwise(FLOAT)
def acosh(x):
    """The inverse of the hyperbolic cosine."""
    return e.call("acosh", x)


@acosh.gradient
def acosh(g, x):
    return g * e.conj(rsqrt(x - 1) * rsqrt(x + 1)) if x.dtype.kind == "c" else (
        g / sqrt(x * x - 1))


@pointwise(FLOAT)
def atanh(x):
    """The inverse of the hyperbolic tangent."""
    return e.call("atanh", x)


@atanh.gradient
def atanh(g, x):
    return g / e.conj(1 - x * x)
