"""Complex arithmetic as arithmetic on parts: head -> a rule over (real, imaginary) pairs.

A complex argument arrives as a pair of exprs, a real one (a condition) as it is; the result is a
pair, or one expr where the result is real. The same table serves every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..core.expr import call, const, where


def _mul(a, b):
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _div(a, b):
    """Smith's method: scale by the larger part, so that squares do not overflow."""
    big = call("abs", b[0]) >= call("abs", b[1])
    high, low = where(big, b[0], b[1]), where(big, b[1], b[0])
    ratio = where((high == 0) & (low == 0), low, low / high)
    scale = 1 / (high + low * ratio)
    real = where(big, a[0] + a[1] * ratio, a[0] * ratio + a[1])
    imag = where(big, a[1] - a[0] * ratio, a[1] * ratio - a[0])
    return real * scale, imag * scale


def _exp(a):
    size = call("exp", a[0])
    still = a[1] == 0
    return (where(still, size, size * call("cos", a[1])),
            where(still, a[1], size * call("sin", a[1])))


def _log(a):
    return call("log", call("hypot", *a)), call("atan2", a[1], a[0])


def _log_of(base: int):
    """By parts, so that the infinite part of a logarithm of 0 stays where it is."""
    return lambda a: tuple(part / math.log(base) for part in _log(a))


def _sqrt(a):
    size = call("hypot", *a)
    real = call("sqrt", (size + call("abs", a[0])) / 2)
    other = where(real == 0, const(0, real.dtype), call("abs", a[1]) / (2 * real))
    right = a[0] >= 0
    imag = where(right, other, real)
    # The sign of a zero says on which side of the cut the number lies.
    return where(right, real, other), call("copysign", imag, a[1])


def _sin(a):
    return (call("sin", a[0]) * call("cosh", a[1]), call("cos", a[0]) * call("sinh", a[1]))


def _cos(a):
    return (call("cos", a[0]) * call("cosh", a[1]), -(call("sin", a[0]) * call("sinh", a[1])))


def _sinh(a):
    return (call("sinh", a[0]) * call("cos", a[1]), call("cosh", a[0]) * call("sin", a[1]))


def _cosh(a):
    return (call("cosh", a[0]) * call("cos", a[1]), call("sinh", a[0]) * call("sin", a[1]))


def _tan(a):
    """i tanh(-i a), whose parts stay finite far from the real axis."""
    x, y = _tanh((-a[1], a[0]))
    return y, -x


def _tanh(a):
    """(sinh 2x + i sin 2y) / (cosh 2x + cos 2y); far out the real part is 1 and the other tiny"""
    far = call("abs", a[0]) > 20
    x = where(far, const(20, a[0].dtype), a[0])
    t, u = call("tanh", x), call("tan", a[1])
    square, turn = t * t, u * u
    below = 1 + square * turn
    steep = call("abs", u) > 1e4
    cot = 1 / where(steep, u, const(1, u.dtype))
    edge = cot * cot + square
    near_real = where(steep, t * (cot * cot + 1) / edge, t * (1 + turn) / below)
    near_imag = where(steep, cot * (1 - square) / edge, u * (1 - square) / below)
    sign = call("copysign", const(1, x.dtype), a[0])
    size = call("exp", -2 * call("abs", a[0]))
    far_imag = 4 * call("sin", a[1]) * call("cos", a[1]) * size
    return where(far, sign, near_real), where(far, far_imag, near_imag)


def _one_minus_square(a):
    """1 - a**2 as (1 - a) (1 + a), which does not cancel near 1."""
    one = const(1, a[0].dtype)
    return _mul((one - a[0], -a[1]), (one + a[0], a[1]))


def _asinh(a):
    """-i asin(i a)"""
    real, imag = _asin((-a[1], a[0]))
    return imag, -real


def _asin(a):
    """Kahan's way, from sqrt(1 - a) and sqrt(1 + a): an atan2 and an asinh."""
    one = const(1, a[0].dtype)
    low, high = _sqrt((one - a[0], -a[1])), _sqrt((one + a[0], a[1]))
    real = call("atan2", a[0], _mul(low, high)[0])
    imag = call("asinh", low[0] * high[1] - low[1] * high[0])
    return real, imag


def _acos(a):
    """2 atan2 of the real parts of sqrt(1 - a) and sqrt(1 + a), and an asinh."""
    one = const(1, a[0].dtype)
    low, high = _sqrt((one - a[0], -a[1])), _sqrt((one + a[0], a[1]))
    real = 2 * call("atan2", low[0], high[0])
    imag = call("asinh", high[0] * low[1] - high[1] * low[0])
    return real, imag


def _acosh(a):
    """From sqrt(a - 1) and sqrt(a + 1)."""
    one = const(1, a[0].dtype)
    low, high = _sqrt((a[0] - one, a[1])), _sqrt((a[0] + one, a[1]))
    real = call("asinh", low[0] * high[0] + low[1] * high[1])
    imag = 2 * call("atan2", low[1], high[0])
    return real, imag


def _atanh(a):
    """log((1 + a) / (1 - a)) / 2 by parts."""
    one = const(1, a[0].dtype)
    square = a[1] * a[1]
    below = (one - a[0]) * (one - a[0]) + square
    real = call("log1p", 4 * a[0] / below) / 4
    imag = call("atan2", 2 * a[1], (one - a[0]) * (one + a[0]) - square) / 2
    return real, imag


def _atan(a):
    real, imag = _atanh((-a[1], a[0]))
    return imag, -real


def _expm1(a):
    """expm1(x) cos y + (cos y - 1), with 2 sin(y/2)**2 for the last."""
    grown = call("expm1", a[0])
    half = call("sin", a[1] / 2)
    return (grown * call("cos", a[1]) - 2 * half * half, (grown + 1) * call("sin", a[1]))


def _log1p(a):
    """The size's logarithm from |1 + a|**2 - 1 where that is small."""
    over = a[0] * (2 + a[0]) + a[1] * a[1]
    near = call("abs", over) < 0.5
    far = call("log", call("hypot", 1 + a[0], a[1]))
    return where(near, call("log1p", over) / 2, far), call("atan2", a[1], 1 + a[0])


def _reciprocal_root(a):
    one = const(1, a[0].dtype)
    return _div((one, const(0, one.dtype)), _sqrt(a))


def _pow(a, b):
    zero = (a[0] == 0) & (a[1] == 0)
    real, imag = _exp(_mul(_log(a), b))
    none = (b[0] == 0) & (b[1] == 0)
    return (where(zero, where(none, const(1, real.dtype), const(0, real.dtype)), real),
            where(zero, const(0, imag.dtype), imag))


COMPLEX: dict[str, Callable] = {
    "add":    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub":    lambda a, b: (a[0] - b[0], a[1] - b[1]),
    "mul":    _mul,
    "div":    _div,
    "neg":    lambda a: (-a[0], -a[1]),
    "conj":   lambda a: (a[0], -a[1]),
    "abs":    lambda a: call("hypot", *a),
    "eq":     lambda a, b: (a[0] == b[0]) & (a[1] == b[1]),
    "ne":     lambda a, b: (a[0] != b[0]) | (a[1] != b[1]),
    "select": lambda c, a, b: (where(c, a[0], b[0]), where(c, a[1], b[1])),
    "exp":    _exp,
    "log":    _log,
    "log2":   _log_of(2),
    "log10":  _log_of(10),
    "sqrt":   _sqrt,
    "sin":    _sin,
    "cos":    _cos,
    "tan":    _tan,
    "sinh":   _sinh,
    "cosh":   _cosh,
    "tanh":   _tanh,
    "asin":   _asin,
    "acos":   _acos,
    "atan":   _atan,
    "asinh":  _asinh,
    "acosh":  _acosh,
    "atanh":  _atanh,
    "expm1":  _expm1,
    "log1p":  _log1p,
    "rsqrt":  _reciprocal_root,
    "pow":    _pow,
}
