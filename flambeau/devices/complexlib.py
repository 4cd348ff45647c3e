"""Complex arithmetic as arithmetic on parts: head -> a rule over (real, imaginary) pairs.

A complex argument arrives as a pair of exprs, a real one (a condition) as it is; the result is a
pair, or one expr where the result is real. The same table serves every device.
"""

from __future__ import annotations

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


def _sqrt(a):
    size = call("hypot", *a)
    real = call("sqrt", (size + call("abs", a[0])) / 2)
    other = where(real == 0, const(0, real.dtype), call("abs", a[1]) / (2 * real))
    right = a[0] >= 0
    imag = where(right, other, real)
    return where(right, real, other), where(a[1] < 0, -imag, imag)


def _sin(a):
    return (call("sin", a[0]) * call("cosh", a[1]), call("cos", a[0]) * call("sinh", a[1]))


def _cos(a):
    return (call("cos", a[0]) * call("cosh", a[1]), -(call("sin", a[0]) * call("sinh", a[1])))


def _sinh(a):
    return (call("sinh", a[0]) * call("cos", a[1]), call("cosh", a[0]) * call("sin", a[1]))


def _cosh(a):
    return (call("cosh", a[0]) * call("cos", a[1]), call("sinh", a[0]) * call("sin", a[1]))


def _pow(a, b):
    zero = (a[0] == 0) & (a[1] == 0)
    real, imag = _exp(_mul(_log(a), b))
    none = (b[0] == 0) & (b[1] == 0)
    return (where(zero, where(none, const(1, real.dtype), const(0, real.dtype)), real),
            where(zero, const(0, imag.dtype), imag))


COMPLEX = {
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
    "sqrt":   _sqrt,
    "sin":    _sin,
    "cos":    _cos,
    "tan":    lambda a: _div(_sin(a), _cos(a)),
    "sinh":   _sinh,
    "cosh":   _cosh,
    "tanh":   lambda a: _div(_sinh(a), _cosh(a)),
    "pow":    _pow,
}
