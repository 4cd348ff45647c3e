"""Special functions of two arguments, over arrays in float64."""

from __future__ import annotations

import math
from typing import Any

from ...core.lazily import np
from .routines import routine

#: (2 k)! / B(2 k), the denominators of Euler and Maclaurin's formula
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
              43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730)
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_lgamma = np.vectorize(math.lgamma, otypes=[np.float64])


@routine
def greatest_common_divisor(input, other):
    """The largest integer that divides both."""
    return np.gcd(input, other)


@routine
def hurwitz_zeta(input, other):
    """The sum of (q + k)**-s over k: terms up to q + k > 9, then Euler and Maclaurin's formula."""
    s, q = np.broadcast_arrays(np.asarray(input, np.float64), np.asarray(other, np.float64))
    with np.errstate(all="ignore"):
        value = _zeta_sum(s, q)
        whole = q == np.floor(q)
        odd = np.where(whole, np.inf, np.where(s != np.floor(s), np.nan, value))
        value = np.where(q <= 0, odd, value)
        return np.where(s == 1, np.inf, np.where((s < 1) | np.isnan(q), np.nan, value))


def _zeta_sum(s, q):
    steps = int(np.clip(9 - np.nanmin(q, initial=0.0), 9, 10_000)) + 1
    total, a = np.zeros(q.shape), q.astype(np.float64)
    for k in range(steps):
        active = (k < 10) | (a <= 9)
        total = total + np.where(active, a ** -s, 0)
        a = np.where(active, a + 1, a)
    tail = a ** (1 - s) / (s - 1) + 0.5 * a ** -s
    factor, power = s, a ** (-s - 1)
    for k, b in enumerate(_BERNOULLI):
        tail = tail + b * factor * power / math.factorial(2 * k + 2)
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2)
        power = power / (a * a)
    return total + tail


def _gamma_series(a, x):
    """The lower ratio, for x below a + 1: a power series."""
    total = term = 1 / np.where(a == 0, 1, a)
    for k in range(1, 2000):
        term = term * x / (a + k)
        total = total + term
        if not np.any(np.abs(term) > np.abs(total) * 1e-17):
            break
    return total * np.exp(a * np.log(x) - x - _lgamma(np.where(a > 0, a, 1)))


def _gamma_fraction(a, x):
    """The upper ratio, for x from a + 1: a continued fraction, from the front (Lentz)."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(b, 1 / tiny), 1 / b
    h = d
    for k in range(1, 2000):
        step = -k * (k - a)
        b = b + 2
        d = step * d + b
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + step / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        h = h * (d * c)
        if not np.any(np.abs(d * c - 1) > 1e-16):
            break
    return h * np.exp(a * np.log(x) - x - _lgamma(np.where(a > 0, a, 1)))


def _gamma_far(a, x):
    """The upper ratio for large a: Temme's expansion about the normal distribution."""
    part = (x - a) / a
    eta = np.sign(part) * np.sqrt(np.maximum(2 * (part - np.log1p(part)), 0))
    near = np.abs(part) < 1e-4
    direct = 1 / np.where(near, 1, part) - 1 / np.where(near, 1, eta)
    rest = np.where(near, -1 / 3 + part / 12, direct)
    tail = np.exp(-0.5 * a * eta * eta) / np.sqrt(2 * math.pi * a)
    return 0.5 * _erfc(eta * np.sqrt(a / 2)) + rest * tail


def _gamma_ratio(input, other, upper: bool):
    a, x = np.broadcast_arrays(np.asarray(input, np.float64), np.asarray(other, np.float64))
    with np.errstate(all="ignore"):
        plain = np.isfinite(a) & np.isfinite(x) & (a > 0) & (x > 0)
        far = plain & (a > 1e4) & (np.abs(x - a) < 0.3 * a)
        low, high = plain & ~far & (x < a + 1), plain & ~far & (x >= a + 1)
        series = _gamma_series(np.where(low, a, 1.0), np.where(low, x, 0.5))
        fraction = _gamma_fraction(np.where(high, a, 1.0), np.where(high, x, 3.0))
        above = np.where(low, 1 - series, np.where(far, _gamma_far(a, x), fraction))
        below = np.where(low, series, 1 - above)
        value = np.maximum(above, 0) if upper else below
        none, all_of_it = (1.0, 0.0) if upper else (0.0, 1.0)
        cases = [(x < 0) | (a < 0), a == 0, x == 0, np.isinf(a), np.isinf(x), ~plain]
        answers: list[Any] = [np.nan, np.where(x > 0, all_of_it, np.nan), none,
                   np.where(np.isinf(x), np.nan, none), all_of_it, np.nan]
        return np.select(cases, answers, value)


@routine
def lower_gamma_ratio(input, other):
    """The regularised lower incomplete gamma function."""
    return _gamma_ratio(input, other, False)


@routine
def upper_gamma_ratio(input, other):
    """The regularised upper incomplete gamma function."""
    return _gamma_ratio(input, other, True)
