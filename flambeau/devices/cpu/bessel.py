"""Bessel's functions and orthogonal polynomials, over arrays in float64."""

from __future__ import annotations

import math

from ...core.lazily import np
from .routines import routine

EULER = 0.5772156649015329

# -- polynomials -------------------------------------------------------------------------------

#: family -> (first degree of x, next(k, x, this, before)); degree 0 is 1 in all of them
FAMILIES = {
    "chebyshev_t": (lambda x: x,         lambda k, x, p, q: 2 * x * p - q),
    "chebyshev_u": (lambda x: 2 * x,     lambda k, x, p, q: 2 * x * p - q),
    "chebyshev_v": (lambda x: 2 * x - 1, lambda k, x, p, q: 2 * x * p - q),
    "chebyshev_w": (lambda x: 2 * x + 1, lambda k, x, p, q: 2 * x * p - q),
    "hermite_h":   (lambda x: 2 * x,     lambda k, x, p, q: 2 * x * p - 2 * k * q),
    "hermite_he":  (lambda x: x,         lambda k, x, p, q: x * p - k * q),
    "laguerre_l":  (lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
    "legendre_p":  (lambda x: x,     lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)),
}

#: family -> the same at cos(t), for degrees whose recurrence would be long
CLOSED = {
    "chebyshev_t": lambda n, t: np.cos(n * t),
    "chebyshev_u": lambda n, t: _ratio(n + 1, t),
    "chebyshev_v": lambda n, t: np.cos((n + 0.5) * t) / np.cos(t / 2),
    "chebyshev_w": lambda n, t: _ratio(2 * n + 1, t / 2),
}
#: the longest recurrence that is followed where there is a closed form
LONG = 64


def _ratio(m, t):
    """sin(m t) / sin(t), and its limits where that is 0 / 0."""
    ends = np.where(np.abs(t) < 1, m, np.where(m % 2 == 0, -m, m))
    return np.where(np.sin(t) < 1e-12, ends, np.sin(m * t) / np.sin(t))


def _settled(family: str, x, degree, work):
    """Values of long recurrences that need not be followed, and where they are."""
    where = np.zeros(x.shape, bool)
    if family not in CLOSED:
        return np.zeros(x.shape, work), where
    where = (degree > LONG) & (np.abs(x) <= 1)
    angles = np.arccos(np.clip(x, -1, 1).astype(np.float64))
    values = CLOSED[family](degree, angles)
    if family == "chebyshev_v":  # cos(t / 2) is 0 at the left end
        values = np.where(x == -1, (2 * degree + 1) * np.where(degree % 2 == 0, 1, -1), values)
    return values.astype(work), where


@routine
def polynomial(input, n, family):
    """The polynomial of degree n, by its recurrence; 0 for a negative degree.

    In the arguments' own precision, so that what overflows there is not a number in the end.
    """
    wide = np.float64 in (np.asarray(input).dtype, np.asarray(n).dtype)
    work = np.float64 if wide else np.float32
    x, n = np.broadcast_arrays(np.asarray(input, work), np.asarray(n))
    if family.startswith("shifted_"):
        x, family = 2 * x - 1, family.removeprefix("shifted_")
    with np.errstate(all="ignore"):
        degree = np.trunc(np.nan_to_num(n.astype(np.float64), nan=-1.0, posinf=-1.0))
        degree = np.where(degree >= 2.0**63, -1.0, degree)
        first, following = FAMILIES[family]
        before, this = np.ones(x.shape, work), first(x)
        result = np.where(degree < 0, work(0), np.where(degree == 0, before, this))
        closed, where = _settled(family, x, degree, work)
        result, degree = np.where(where, closed, result), np.where(where, 0, degree)
        k = 1
        while np.any((degree > k) & ~np.isnan(this)):  # what is not a number remains none
            before, this = this, following(k, x, this, before)
            result = np.where(degree == k + 1, this, result)
            k += 1
        return np.where(degree > k, this, result)


# -- Bessel ------------------------------------------------------------------------------------

NEAR = 25.0  # up to here by quadrature, beyond by Hankel's expansion
_NODES = 96


def _hankel(order: float, x):
    """(P, Q) of the asymptotic forms of order `order`."""
    m, term, p, q = 4 * order * order, np.ones(x.shape), np.zeros(x.shape), np.zeros(x.shape)
    for k in range(24):
        sign = 1 if k % 4 < 2 else -1
        if k % 2:
            q = q + sign * term
        else:
            p = p + sign * term
        term = term * (m - (2 * k + 1) ** 2) / ((k + 1) * 8 * x)
    return p, q


def _first_kind_near(orders, x):
    """J of whole orders: the mean of cos(order t - x sin t), by sums that converge fast."""
    found = {order: np.zeros(x.shape) for order in orders}
    for t in (np.arange(_NODES) + 0.5) * math.pi / _NODES:
        swing = x * math.sin(t)
        c, s = np.cos(swing), np.sin(swing)
        for order in orders:
            found[order] += math.cos(order * t) * c + math.sin(order * t) * s
    return {order: total / _NODES for order, total in found.items()}


def _far(order: int, x, second: bool):
    p, q = _hankel(order, x)
    angle = x - (2 * order + 1) * math.pi / 4
    c, s = np.cos(angle), np.sin(angle)
    return np.sqrt(2 / (math.pi * x)) * (p * s + q * c if second else p * c - q * s)


def _first_kind(x, order: int):
    size = np.abs(np.asarray(x, np.float64))
    near = size <= NEAR
    with np.errstate(all="ignore"):
        inside = _first_kind_near([order], np.where(near, size, 0.0))[order]
        if order:
            inside = np.where(size < 1e-5, size / 2, inside)
        value = np.where(near, inside, _far(order, np.where(near, NEAR, size), False))
        value = np.where(np.isfinite(size), value, np.nan)
        return np.where(np.asarray(x) < 0, -value, value) if order else value


def _second_kind(x, order: int):
    """Neumann's series in J of higher orders."""
    x = np.asarray(x, np.float64)
    near = x <= NEAR
    with np.errstate(all="ignore"):
        safe = np.where(near & (x > 0), x, 1.0)
        orders = [0, *range(order or 2, 64, 2)]
        j = _first_kind_near(orders, safe)
        log = np.log(safe / 2) + EULER
        if order == 0:
            tail = sum((-1) ** k * j[2 * k] / k for k in range(1, 32))
            inside = 2 / math.pi * log * j[0] - 4 / math.pi * tail
        else:
            tail = sum((-1) ** k * (2 * k + 1) / (k * (k + 1)) * j[2 * k + 1] for k in range(1, 31))
            inside = 2 / math.pi * ((log - 1) * j[1] - j[0] / safe - tail)
        value = np.where(near, inside, _far(order, np.where(near, NEAR, x), True))
        value = np.where(x == 0, -np.inf, value)
        return np.where((x < 0) | ~np.isfinite(x), np.nan, value)


def _scaled_third(x, order: float):
    """exp(x) K(x): the integral of exp(-x (cosh t - 1)) cosh(order t), by trapezoidal sums."""
    x = np.asarray(x, np.float64)
    near = x <= 30
    with np.errstate(all="ignore"):
        safe = np.where(near & (x > 0), x, 1.0)
        step = 0.1
        last = math.acosh(1 + 745 / max(float(np.min(safe, initial=1.0)), 1e-300))
        total = np.full(safe.shape, 0.5)
        for k in range(1, int(last / step) + 1):
            t = k * step
            total = total + np.exp(-safe * (math.cosh(t) - 1)) * math.cosh(order * t)
        far, m, term = np.zeros(x.shape), 4 * order * order, np.ones(x.shape)
        beyond = np.where(near, 31.0, x)
        for k in range(24):
            far = far + term
            term = term * (m - (2 * k + 1) ** 2) / ((k + 1) * 8 * beyond)
        value = np.where(near, total * step, np.sqrt(math.pi / (2 * beyond)) * far)
        value = np.where(x == 0, np.inf, value)
        return np.where((x < 0) | np.isnan(x), np.nan, np.where(x == np.inf, 0.0, value))


def _third_kind(x, order: int):
    with np.errstate(all="ignore"):
        value = _scaled_third(x, order)
        return np.where(np.isinf(value), value, value * np.exp(-np.asarray(x, np.float64)))


_AIRY_ZERO, _AIRY_SLOPE = 0.3550280538878172, 0.2588194037928068


def _airy(x):
    """A power series about 0; to the right a Bessel function of order 1/3, to the left waves."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        middle = np.where(np.abs(x + 3) <= 5, x, 0.0)
        f, g = np.ones(x.shape), middle.copy()
        first, second, cube = f, g, middle ** 3
        for k in range(1, 60):
            first = first * cube / ((3 * k) * (3 * k - 1))
            second = second * cube / ((3 * k) * (3 * k + 1))
            f, g = f + first, g + second
        series = _AIRY_ZERO * f - _AIRY_SLOPE * g
        right = np.where(x > 2, x, 3.0)
        zeta = 2 / 3 * right ** 1.5
        decay = np.sqrt(right / 3) / math.pi * _scaled_third(zeta, 1 / 3) * np.exp(-zeta)
        left = np.where(x < -8, -x, 9.0)
        zeta = 2 / 3 * left ** 1.5
        p, q = _hankel(1 / 3, zeta)
        angle = zeta - math.pi / 4
        wave = (p * np.cos(angle) - q * np.sin(angle)) / (math.sqrt(math.pi) * left ** 0.25)
        value = np.where(x > 2, decay, np.where(x < -8, wave, series))
        return np.where(np.isfinite(x), value, np.nan)


#: name -> function of one array
FUNCTIONS = {
    "airy_ai":                   _airy,
    "bessel_j0":                 lambda x: _first_kind(x, 0),
    "bessel_j1":                 lambda x: _first_kind(x, 1),
    "bessel_y0":                 lambda x: _second_kind(x, 0),
    "bessel_y1":                 lambda x: _second_kind(x, 1),
    "modified_bessel_k0":        lambda x: _third_kind(x, 0),
    "modified_bessel_k1":        lambda x: _third_kind(x, 1),
    "scaled_modified_bessel_k0": lambda x: _scaled_third(x, 0),
    "scaled_modified_bessel_k1": lambda x: _scaled_third(x, 1),
}


@routine
def bessel(input, family):
    """One of the functions of Bessel's family."""
    return FUNCTIONS[family](input)
