"""Circular functions and their inverses, as exprs that vectorise."""

from __future__ import annotations

from ...core import dtype as dt
from ...core import expr
from ...core.expr import Expr, where
from .floats import (
    INF,
    NAN,
    absolute,
    bits,
    copysign,
    double,
    fma,
    from_bits,
    in_double,
    layout,
    nearest,
    polynomial,
    rarely,
    root,
    two_product,
    two_sum,
)

# -- sine and cosine of a reduced angle --------------------------------------------------------

# (sin(r) / r - 1) / r**2 and (cos(r) - 1 + r**2 / 2) / r**4, as polynomials in r**2
SINE = {
    dt.float32: (2.72407556e-06, -0.000198400143, 0.00833333191, -0.166666672),
    dt.float64: (-7.584890272149365e-13, 1.6058500507742766e-10, -2.5052106033207783e-08,
                 2.7557319218756904e-06, -0.00019841269841264306, 0.008333333333333331,
                 -0.16666666666666666),
}
COSINE = {
    dt.float32: (2.45403735e-05, -0.00138882676, 0.0416666642),
    dt.float64: (4.744867317191042e-14, -1.147044359019614e-11, 2.087675568030645e-09,
                 -2.75573192210791e-07, 2.4801587301584225e-05, -0.0013888888888888887,
                 0.041666666666666664),
}


def reduced_sine(r: Expr, low: Expr | None = None) -> Expr:
    z = r * r
    tail = r * z * polynomial(z, SINE[r.dtype])
    return r + (tail if low is None else fma(low, fma(z, -0.5, 1.0), tail))


def reduced_cosine(r: Expr, low: Expr | None = None) -> Expr:
    z = r * r
    tail = z * z * polynomial(z, COSINE[r.dtype])
    near = fma(z, -0.5, 1.0)
    if low is None:
        return near + tail
    # What the rounding of `near` lost is exact to compute, since z / 2 is below 1.
    return near + (fma(z, -0.5, 1 - near) + fma(-r, low, tail))


def _turned(quadrant: Expr, r: Expr, low: Expr | None = None) -> Expr:
    """sin(quadrant pi/2 + r + low)"""
    size = where((quadrant & 1) == 0, reduced_sine(r, low), reduced_cosine(r, low))
    return from_bits(bits(size) ^ ((quadrant & 2) << (r.dtype.itemsize * 8 - 2)), size)


# -- reduction to |r| <= pi/4 ------------------------------------------------------------------

HALF_PI = {
    dt.float32: (1.57079637, -4.37113883e-08, -1.71512451e-15),
    dt.float64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
#: up to here the products of the reduction below are exact enough
NEAR = {dt.float32: 2.0**17, dt.float64: 2.0**40}

# The binary digits of 2/pi after the point.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea"
    "09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b"
    "1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f7"
    "8a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d", 16)
TWO_OVER_PI_DIGITS = 1280


def _quarters(x: Expr) -> tuple[Expr, Expr]:
    """The nearest multiple of pi/2, as a count: (float, integer)."""
    return nearest(fma(x, 0.6366197723675814, layout(x).whole))


def _reduce_single(x: Expr) -> tuple[Expr, Expr]:
    """x - n pi/2 for x up to NEAR, pi/2 in three parts."""
    n, quadrant = _quarters(x)
    r = x
    for part in HALF_PI[dt.float32]:
        r = fma(n, -part, r)
    return quadrant, r


def _reduce_double(x: Expr) -> tuple[Expr, Expr, Expr]:
    """x - n pi/2 for x up to NEAR, in two parts; the first product cancels exactly."""
    n, quadrant = _quarters(x)
    first, second, third = HALF_PI[dt.float64]
    r = fma(n, -first, x)
    product, low = two_product(n, expr.const(second, x.dtype))
    r, rest = two_sum(r, -product)
    r, low = two_sum(r, rest - fma(n, third, low))
    return quadrant, r, low


def _digits(first: int, count: int) -> int:
    """`count` binary digits of 2/pi; digit 1 is worth a half, and there are none before it."""
    return (TWO_OVER_PI >> max(TWO_OVER_PI_DIGITS - first - count + 1, 0)) & (2**count - 1)


def _sum_of_turns(products) -> tuple[Expr, Expr, Expr]:
    """Exact products, less their multiples of 4, added up: quadrant and angle in two parts."""
    total, *rest = (fma(expr.call("rint", p * 0.25), -4.0, p) for p in products)
    low = expr.const(0.0, total.dtype)
    for product in rest:
        total, lost = two_sum(total, product)
        low = low + lost
    n, quadrant = nearest(total + layout(total).whole)
    turn, low = two_sum(total - n, low)
    first, second, _ = HALF_PI[dt.float64]
    r, lost = two_product(turn, expr.const(first, turn.dtype))
    return quadrant, r, fma(turn, second, fma(low, first, lost))


def _reduce_far_single(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Any float32 times 2/pi in pieces of 29 digits, so that every product is exact."""
    pieces = (_digits(1 + 29 * k, 29) * 2.0 ** (-29 * (k + 1)) for k in range(7))
    return _sum_of_turns([double(x) * piece for piece in pieces])


def _reduce_far_double(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Any float64 times 2/pi, 53 digits at a time.

    x = 2**(128 j) y with 1 <= y < 2**128 picks, by j, the digits that count: those worth more
    only add multiples of 4, those worth less cannot be seen.
    """
    block = (bits(x) - 0x3FF0000000000000) & -(2**59)
    y = where(x < INF, from_bits(bits(x) - block, x), NAN)
    products: list[Expr] = []
    for i in range(6):
        by_block = [_digits(128 * j - 53 + 53 * i, 53) * 2.0 ** (1 - 53 * i) for j in range(8)]
        piece = expr.const(by_block[7], x.dtype)
        for j in reversed(range(7)):
            piece = where(x < 2.0 ** (128 * j + 128), by_block[j], piece)
        products += two_product(y, piece)
    return _sum_of_turns(products)


# -- sine, cosine, tangent ---------------------------------------------------------------------


def _sin_single(x: Expr, quarter: int) -> Expr:
    """sin(x + quarter pi/2) of x >= 0."""
    quadrant, r = _reduce_single(x)
    fast = _turned(quadrant + quarter, r)
    quadrant, r, _ = _reduce_far_single(x)
    slow = expr.cast(_turned(quadrant + quarter, r), dt.float32)
    return rarely(x > NEAR[dt.float32], slow, fast)


def _sin_double(x: Expr, quarter: int) -> Expr:
    quadrant, r, low = _reduce_double(x)
    fast = _turned(quadrant + quarter, r, low)
    quadrant, r, low = _reduce_far_double(x)
    return rarely(x > NEAR[dt.float64], _turned(quadrant + quarter, r, low), fast)


SHIFTED_SINE = {dt.float32: _sin_single, dt.float64: _sin_double}


def _with_sign_of(x: Expr, size: Expr) -> Expr:
    """An odd function of x from its value at |x|."""
    return from_bits(bits(size) ^ (bits(x) & -(2 ** (x.dtype.itemsize * 8 - 1))), x)


def sin(x: Expr) -> Expr:
    """sin|x| with the sign of x, from the angle less its multiple of pi/2"""
    return _with_sign_of(x, SHIFTED_SINE[x.dtype](absolute(x), 0))


def cos(x: Expr) -> Expr:
    """sin(|x| + pi/2)"""
    return SHIFTED_SINE[x.dtype](absolute(x), 1)


def _tangent(quadrant: Expr, r: Expr) -> Expr:
    """tan(quadrant pi/2 + r): a ratio, turned over in odd quadrants."""
    s, c = reduced_sine(r), reduced_cosine(r)
    odd = (quadrant & 1) == 1
    return where(odd, -c, s) / where(odd, s, c)


@in_double
def tan(x: Expr) -> Expr:
    """sin / cos of the reduced angle; in float64, for float32 arguments"""
    a = absolute(x)
    quadrant, r, _ = _reduce_double(a)
    fast = _tangent(quadrant, r)
    quadrant, r, _ = _reduce_far_single(a)
    return _with_sign_of(x, rarely(a > NEAR[dt.float64], _tangent(quadrant, r), fast))


# -- inverses, float32 -------------------------------------------------------------------------

# (asin(x) / x - 1) / x**2 for |x| <= 9/16, (atan(x) / x - 1) / x**2 for |x| <= 1, in x**2
ASIN_TAIL = (0.039429754, 0.00399315171, 0.0255230255, 0.0300152022, 0.044662755, 0.0749996006,
             0.166666672)
ATAN_TAIL = (0.00148869189, -0.00914462935, 0.0263050012, -0.0489605144, 0.0703191459,
             -0.089318268, 0.110882618, -0.142840043, 0.199999496, -0.333333343)
HIGH, LOW = HALF_PI[dt.float32][:2]


def _odd(x: Expr, z: Expr, tail) -> Expr:
    return fma(x * z, polynomial(z, tail), x)


def _fold_half(a: Expr) -> tuple[Expr, Expr]:
    """For 0 <= a <= 1, asin of the small number that asin(a) or acos(a) is made of."""
    large = a > 0.5625
    z = where(large, fma(a, -0.5, 0.5), a * a)
    return large, _odd(where(large, root(z), a), z, ASIN_TAIL)


def asin(x: Expr) -> Expr:
    """x + x**3 p(x**2); past 9/16, pi/2 - 2 asin(sqrt((1 - x) / 2))"""
    large, small = _fold_half(absolute(x))
    return copysign(where(large, HIGH - fma(small, 2.0, -LOW), small), x)


def acos(x: Expr) -> Expr:
    """pi/2 - asin(x); past 9/16, 2 asin(sqrt((1 - x) / 2)), and pi less that on the left"""
    large, small = _fold_half(absolute(x))
    twice = small * 2
    outer = where(x < 0, 2 * HIGH - fma(small, 2.0, -2 * LOW), twice)
    return where(large, outer, HIGH - (copysign(small, x) - LOW))


def atan(x: Expr) -> Expr:
    """x + x**3 p(x**2); past 1, pi/2 - atan(1 / x)"""
    a = absolute(x)
    large = a > 1
    t = where(large, 1 / a, a)
    angle = _odd(t, t * t, ATAN_TAIL)
    return copysign(where(large, HIGH - (angle - LOW), angle), x)


def atan2(y: Expr, x: Expr) -> Expr:
    """atan of the smaller over the larger, then unfolded over the eight octants"""
    a, b = absolute(x), absolute(y)
    steep = b > a
    big, small = where(steep, b, a), where(steep, a, b)
    ratio = where(small == big, where(big == 0, big, 1.0), small / big)
    angle = _odd(ratio, ratio * ratio, ATAN_TAIL)
    angle = where(steep, HIGH - (angle - LOW), angle)
    angle = where(bits(x) < 0, 2 * HIGH - (angle - 2 * LOW), angle)
    return where((x != x) | (y != y), x + y, copysign(angle, y))


@in_double
def hypot(x: Expr, y: Expr) -> Expr:
    """sqrt(x**2 + y**2) in float64, where squares of float32 numbers are exact; inf beats NaN"""
    infinite = (absolute(x) == INF) | (absolute(y) == INF)
    return where(infinite, INF, root(fma(x, x, y * y)))
