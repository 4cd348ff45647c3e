"""Orthogonal polynomials, over arrays."""

from __future__ import annotations

from ...core.lazily import np
from .routines import routine

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
