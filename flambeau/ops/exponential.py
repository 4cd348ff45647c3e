"""Exponentials and logarithms."""

from __future__ import annotations

import math

from ..core import expr as e
from ..core.expr import where
from .arithmetic import exp, log
from .declare import FLOAT, SAME, pointwise
from .refusal import accepts, some_accepted, tensors


@pointwise(FLOAT)
def exp2(x):
    """2 to the power x"""
    return e.call("exp", x * math.log(2)) if x.dtype.kind == "c" else e.call("exp2", x)


@exp2.gradient
def exp2(g, out):
    return g * e.conj(out) * math.log(2)


@pointwise(FLOAT)
def expm1(x):
    """exp(x) - 1, exact near 0"""
    return e.call("expm1", x)


@expm1.gradient
def expm1(g, out):
    return g * e.conj(out + 1)


@pointwise(FLOAT)
def log2(x):
    """The logarithm in base two."""
    return e.call("log2", x)


@log2.gradient
def log2(g, x):
    return g / e.conj(x * math.log(2))


@pointwise(FLOAT)
def log10(x):
    """The logarithm in base ten."""
    return e.call("log10", x)


@log10.gradient
def log10(g, x):
    return g / e.conj(x * math.log(10))


@pointwise(FLOAT, backward="Log1PBackward0")
def log1p(x):
    """log(1 + x), exact near 0"""
    return e.call("log1p", x)


@log1p.gradient
def log1p(g, x):
    return g / e.conj(x + 1)


def _log_of_sum(x, y, base: float):
    """log_base(base**x + base**y), from the larger of the two."""
    high, low = where(x >= y, x, y), where(x >= y, y, x)
    same = (x == y) & (e.call("abs", x) == float("inf"))
    scale = math.log(base)
    return where(same | e.isnan(x) | e.isnan(y), where(same, x, x + y),
                 high + log1p(exp((low - high) * scale)) / scale)


def _complex_log_of_sum(x, y):
    """From the one with the larger real part."""
    first = e.real(x) >= e.real(y)
    high, low = where(first, x, y), where(first, y, x)
    return high + log1p(exp(low - high))


@pointwise(SAME, inplace=False, check=tensors(
    "logaddexp", "input", "other", then=some_accepted("logaddexp_cpu", "fc")))
def logaddexp(x, y):
    """log(exp(x) + exp(y))"""
    return _complex_log_of_sum(x, y) if x.dtype.kind == "c" else _log_of_sum(x, y, math.e)


@logaddexp.gradient
def logaddexp(g, x, y):
    return lambda: g * e.conj(_share(x, y)), lambda: g * e.conj(_share(y, x))


def _share(x, y):
    """exp(x) / (exp(x) + exp(y)), where equal infinities share alike."""
    return 1 / (1 + exp(where(x == y, e.const(0, x.dtype), y - x)))


@pointwise(SAME, inplace=False, check=tensors(
    "logaddexp2", "input", "other", then=some_accepted("logaddexp2_cpu", "f")))
def logaddexp2(x, y):
    """log2(2**x + 2**y)"""
    return _log_of_sum(x, y, 2.0)


@logaddexp2.gradient
def logaddexp2(g, x, y):
    scale = math.log(2)
    return (lambda: g * _share(x * scale, y * scale), lambda: g * _share(y * scale, x * scale))


@pointwise(FLOAT, check=accepts("xlogy_cpu", "biuf"))
def xlogy(x, y):
    """x log(y), and 0 where x is"""
    return where(e.isnan(y), y, where(x == 0, e.const(0, x.dtype), x * log(y)))


@xlogy.gradient
def xlogy(g, x, y):
    zero = e.const(0, g.dtype)
    return lambda: where((x == 0) & (y <= 0), zero, g * log(y)), lambda: g * (x / y)
