"""Exponentials, logarithms, powers and the hyperbolic functions, as exprs that vectorise."""

from __future__ import annotations

from typing import NamedTuple

from ...core import dtype as dt
from ...core import expr
from ...core.expr import Expr, where
from .floats import (
    INF,
    NAN,
    absolute,
    bits,
    clamp,
    copysign,
    double,
    fma,
    from_bits,
    in_double,
    layout,
    nearest,
    polynomial,
    power_of_two,
    rarely,
    root,
    scale,
    to_float,
    two_product,
    two_sum,
)

# -- exponentials ------------------------------------------------------------------------------


class Exponential(NamedTuple):
    low: float              # below, exp is 0
    normal: float           # from here on, exp is a normal number
    high: float             # above, exp is infinite
    flat: float             # below, expm1 is -1
    log2e: float
    ln2: tuple              # ln 2 in two parts
    tail: tuple             # (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2


EXPONENTIAL = {
    dt.float32: Exponential(
        -104.0, -87.0, 89.0, -20.0, 1.44269502, (0.693147182, -1.90465421e-09),
        (0.00139269268, 0.00836377405, 0.0416665487, 0.166665733, 0.5)),
    dt.float64: Exponential(
        -746.0, -708.0, 710.0, -42.0, 1.4426950408889634,
        (0.6931471805599453, 2.3190468138462996e-17),
        (2.0915442297780116e-09, 2.5106274733573296e-08, 2.75572718102198e-07,
         2.755725283351691e-06, 2.4801587327007187e-05, 0.00019841269876864356,
         0.0013888888888883327, 0.008333333333325544, 0.04166666666666667, 0.1666666666666667,
         0.5)),
}


def _expm1_near_zero(r: Expr) -> Expr:
    return fma(r * r, polynomial(r, EXPONENTIAL[r.dtype].tail), r)


def reduced(x: Expr) -> tuple[Expr, Expr]:
    """exp(x) = 2**n * (1 + p): n as an integer, and p."""
    known = EXPONENTIAL[x.dtype]
    whole, n = nearest(fma(x, known.log2e, layout(x).whole))
    r = fma(whole, -known.ln2[1], fma(whole, -known.ln2[0], x))
    return n, _expm1_near_zero(r)


def exp(x: Expr) -> Expr:
    """e**(n ln 2 + r) = 2**n e**r with |r| <= ln(2) / 2, and a polynomial for e**r."""
    known = EXPONENTIAL[x.dtype]
    n, p = reduced(clamp(x, known.low, known.high))
    return scale(p + 1, n)


def exp_falling(x: Expr) -> Expr:
    """e**x of x that is not positive: 0 where that is no normal number, and a quarter cheaper.

    The whole number of doublings needs no limits then, and its low bits go straight to where an
    exponent lies.
    """
    known, shape = EXPONENTIAL[x.dtype], layout(x)
    whole = fma(x, known.log2e, shape.whole)
    power = from_bits((bits(whole) << shape.fraction) + (shape.bias << shape.fraction), x)
    n = whole - shape.whole
    p = _expm1_near_zero(fma(n, -known.ln2[1], fma(n, -known.ln2[0], x)))
    return where(x < known.normal, 0.0, fma(p, power, power))


def exp2(x: Expr) -> Expr:
    """2**(n + r) = 2**n e**(r ln 2); whole powers are exact."""
    known, shape = EXPONENTIAL[x.dtype], layout(x)
    x = clamp(x, -shape.bias - shape.fraction - 1.0, shape.bias + 1.0)
    whole, n = nearest(x + shape.whole)
    return scale(_expm1_near_zero((x - whole) * known.ln2[0]) + 1, n)


def expm1(x: Expr) -> Expr:
    """2**n (1 + p) - 1 = p 2**n + (2**n - 1), halved inside so that 2**n does not overflow."""
    known = EXPONENTIAL[x.dtype]
    n, p = reduced(clamp(x, known.flat, known.high))
    half = power_of_two(n - 1, x)
    return where(absolute(x) < 2.0 ** -(layout(x).fraction + 2), x, fma(p, half, half - 0.5) * 2)


def tanh(x: Expr) -> Expr:
    """-expm1(y) / (2 + expm1(y)) with y = -2 |x|: small and large x are alike."""
    n, p = reduced(clamp(absolute(x) * -2, EXPONENTIAL[x.dtype].flat))
    power = power_of_two(n, x)
    return copysign(fma(p, power, power - 1) / fma(p, power, power + 1), x)


@in_double
def sinh(x: Expr) -> Expr:
    """(t + t / (t + 1)) / 2 with t = expm1(|x|); past 100 a float32 has long overflowed."""
    t = expm1(clamp(absolute(x), high=100.0))
    return copysign(0.5 * (t + t / (t + 1)), x)


@in_double
def cosh(x: Expr) -> Expr:
    """(e + 1 / e) / 2 with e = exp(|x|)"""
    e = exp(clamp(absolute(x), high=100.0))
    return 0.5 * (e + 1 / e)


# -- logarithms --------------------------------------------------------------------------------

SQRT_HALF_BITS = {dt.float32: 0x3F3504F3, dt.float64: 0x3FE6A09E667F3BCD}

# (log(1 + f) - f + f**2 / 2) / f**3
LOG_TAIL_32 = (
    0.0697161183, -0.114797339, 0.116854198, -0.124256872, 0.142490581, -0.166678026,
    0.200007156, -0.24999997, 0.333333313)
# 2 (atanh(s) / s - 1) / s**2 as a polynomial in s**2
LOG_TAIL_64 = (
    0.1461703754879165, 0.1533167403016786, 0.18182890556695602, 0.2222221111514416,
    0.2857142862609589, 0.3999999999989924, 0.666666666666667)


class Base(NamedTuple):
    """1 / ln(base) and ln(2) / ln(base), each in two parts."""

    unit: tuple
    two: tuple


NATURAL, BINARY, DECIMAL = "natural", "binary", "decimal"
BASES = {
    (NATURAL, dt.float32): Base((1.0, 0.0), (0.693147182, -1.90465421e-09)),
    (BINARY,  dt.float32): Base((1.44269502, 1.92596303e-08), (1.0, 0.0)),
    (DECIMAL, dt.float32): Base((0.434294492, -1.010305e-08), (0.30103001, -1.43209888e-08)),
    (NATURAL, dt.float64): Base((1.0, 0.0), (0.6931471805599453, 2.3190468138462996e-17)),
    (BINARY,  dt.float64): Base((1.4426950408889634, 2.0355273740931033e-17), (1.0, 0.0)),
    (DECIMAL, dt.float64): Base((0.4342944819032518, 1.098319650216765e-17),
                                (0.3010299956639812, -2.8037281277851704e-18)),
}


def _log_tail_32(f: Expr) -> Expr:
    return f * f * fma(f, polynomial(f, LOG_TAIL_32), -0.5)


def _log_tail_64(f: Expr) -> Expr:
    s, half_square = f / (f + 2), 0.5 * f * f
    z = s * s
    return fma(s, fma(z, polynomial(z, LOG_TAIL_64), half_square), -half_square)


LOG_TAIL = {dt.float32: _log_tail_32, dt.float64: _log_tail_64}


def _exponent(x: Expr) -> tuple[Expr, Expr]:
    """x = 2**k m with sqrt(1/2) <= m < sqrt(2): the integer k, and m."""
    shape, start = layout(x), SQRT_HALF_BITS[x.dtype]
    above = bits(x) - start
    return above >> shape.fraction, from_bits((above & (2**shape.fraction - 1)) + start, x)


def _parts(x: Expr) -> tuple[Expr, Expr]:
    """x = 2**e (1 + f), subnormal numbers too: e as a float, and f."""
    shape = layout(x)
    lift = shape.fraction + 2
    small = x < shape.tiny
    k, m = _exponent(where(small, x * 2.0**lift, x))
    return to_float(k, x) - where(small, expr.const(lift, x.dtype), 0.0), m - 1


def _join(e: Expr, f: Expr, base: str = NATURAL) -> Expr:
    """log(2**e (1 + f)), the smallest terms first."""
    unit, two = BASES[base, f.dtype]
    tail = LOG_TAIL[f.dtype](f)
    if base != NATURAL:
        tail = fma(tail, unit[0], f * unit[1])
    if base != BINARY:
        tail = fma(e, two[1], tail)
    return fma(e, two[0], fma(f, unit[0], tail) if base != NATURAL else f + tail)


def _with_limits(x: Expr, inside: Expr) -> Expr:
    """The logarithm of what is not a positive number: -inf at 0, NaN below, inf at infinity."""
    outside = where(x == 0, expr.const(-INF, x.dtype), NAN)
    return where(x > 0, where(x < INF, inside, x), outside)


def _logarithm(x: Expr, base: str) -> Expr:
    """e ln 2 + log(1 + f), where x = 2**e (1 + f); hardly ever is x not a normal number."""
    k, m = _exponent(x)
    usual = (x >= layout(x).tiny) & (x < INF)
    return rarely(~usual, _with_limits(x, _join(*_parts(x), base)),
                  _join(to_float(k, x), m - 1, base))


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    return _logarithm(x, NATURAL)


def log2(x: Expr) -> Expr:
    """As log, in base two; whole powers are exact."""
    return _logarithm(x, BINARY)


def log10(x: Expr) -> Expr:
    """As log, in base ten."""
    return _logarithm(x, DECIMAL)


def log1p(x: Expr) -> Expr:
    """The f of 1 + x = 2**k (1 + f) is x / 2**k + (2**-k - 1), rounded once by an fma."""
    u = x + 1
    k, _ = _exponent(u)
    # 2**-k alone would be subnormal for the largest x.
    quadruple = power_of_two(2 - k, x)
    inside = _join(to_float(k, x), fma(x * 0.25, quadruple, quadruple * 0.25 - 1))
    usual = (u > 0) & (u < INF)
    near_zero = absolute(x) < 2.0 ** -(layout(x).fraction + 2)
    return where(near_zero, x, rarely(~usual, _with_limits(u, inside), inside))


@in_double
def asinh(x: Expr) -> Expr:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))), a = |x|: no overflow, as x is a float32"""
    a = absolute(x)
    square = a * a
    return copysign(log1p(a + where(a == INF, a, square / (root(square + 1) + 1))), x)


@in_double
def acosh(x: Expr) -> Expr:
    """log1p(t + sqrt(t (t + 2))), t = x - 1"""
    t = x - 1
    return where(x < 1, NAN, log1p(t + root(t * (t + 2))))


@in_double
def atanh(x: Expr) -> Expr:
    """log1p(2 a / (1 - a)) / 2, a = |x|"""
    a = absolute(x)
    return copysign(0.5 * log1p(2 * a / (1 - a)), x)


# -- powers ------------------------------------------------------------------------------------


def _power_rules(x: Expr, y: Expr, size: Expr) -> Expr:
    """C's pow from |x|**y: signs, negative bases, and the cases that are 1 whatever the other."""
    whole = expr.call("floor", y) == y
    odd = whole & (expr.call("floor", y * 0.5) * 2 != y)
    negative = bits(x) < 0
    size = where(odd & negative, -size, size)
    finite = absolute(y) < INF
    size = where((x < 0) & (x > -INF) & finite & ~whole, NAN, size)
    unit = (x == 1) | (y == 0) | ((x == -1) & (absolute(y) == INF))
    return where(unit, 1.0, size)


def power_single(x: Expr, y: Expr) -> Expr:
    """exp(y log|x|) in float64: 53 bits leave 24 right ones for every float32 result."""
    size = exp(double(y) * log(absolute(double(x))))
    return _power_rules(x, y, expr.cast(size, dt.float32))


# 2/3 in two parts, and (2 atanh(s) - 2 s - 2/3 s**3) / s**5 as a polynomial in s**2
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
LOG_TAIL_64_FIFTH = (
    0.11723603622905411, 0.11706195689881364, 0.13334806212100603, 0.15384594934597917,
    0.1818181833565416, 0.22222222221654733, 0.2857142857142937, 0.4)


def _log_in_two_parts(x: Expr) -> tuple[Expr, Expr]:
    """log(x) for x > 0 to about 2**-66, as an unevaluated sum.

    log(1 + f) = 2 s + 2/3 s**3 + s**5 (...), s = f / (2 + f); the first two terms in two parts.
    """
    e, f = _parts(x)
    bottom, bottom_low = two_sum(expr.const(2.0, x.dtype), f)
    s = f / bottom
    s_low = (fma(-s, bottom, f) - s * bottom_low) / bottom
    z, z_low = two_product(s, s)
    z_low = fma(2 * s, s_low, z_low)
    third, third_low = two_product(z, expr.const(TWO_THIRDS[0], x.dtype))
    third_low = fma(z_low, TWO_THIRDS[0], fma(z, TWO_THIRDS[1], third_low))
    inner = fma(z * z, polynomial(z, LOG_TAIL_64_FIFTH), third_low)
    factor, factor_low = two_sum(third, inner)
    cubic, cubic_low = two_product(s, factor)
    cubic_low = cubic_low + fma(s, factor_low, s_low * factor)
    main, main_low = two_product(e, expr.const(BASES[NATURAL, x.dtype].two[0], x.dtype))
    main_low = fma(e, BASES[NATURAL, x.dtype].two[1], main_low)
    total, low = two_sum(main, 2 * s)
    total, lower = two_sum(total, cubic)
    return two_sum(total, low + lower + (fma(2.0, s_low, cubic_low) + main_low))


def _exp_of_sum(high: Expr, low: Expr) -> Expr:
    """exp(high + low), good to little more than half a unit: 1 and r are added without loss."""
    known = EXPONENTIAL[high.dtype]
    whole, n = nearest(fma(high, known.log2e, layout(high).whole))
    near = fma(whole, -known.ln2[0], high)
    r = fma(whole, -known.ln2[1], near)
    low = low + fma(whole, -known.ln2[1], near - r)
    tail = r * r * polynomial(r, known.tail)
    total = r + 1
    lost = r - (total - 1)
    return scale(total + (lost + fma(low, total + tail, tail)), n)


def power(x: Expr, y: Expr) -> Expr:
    """exp(y log|x|) with the logarithm in two parts, so that large exponents keep their digits."""
    a = absolute(x)
    known = EXPONENTIAL[x.dtype]
    high, low = _log_in_two_parts(a)
    product, rest = two_product(y, high)
    limit = clamp(product, known.low, known.high)
    size = _exp_of_sum(limit, where(limit == product, fma(y, low, rest), 0.0))
    # No two-part arithmetic at 0 and infinity: there only the sign of y log|x| counts.
    edge = (a == 0) | (a == INF) | (absolute(y) == INF)
    towards = where((a > 1) == (y > 0), expr.const(INF, x.dtype), 0.0)
    size = where(edge & (y == y), towards, size)
    return _power_rules(x, y, where(a != a, a, size))
