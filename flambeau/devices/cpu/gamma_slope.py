"""How a gamma sample moves with its shape parameter while its quantile stays: dx/da, in float64.

dx/da = -(dP/da) / (dP/dx), with P the distribution function: below the mean from the series of P,
above it from the continued fraction of 1 - P (Lentz), each with its derivative carried along.
"""

from ...core.lazily import np

MAX_TERMS = 10_000


def digamma(x):
    """The derivative of log gamma, for x > 0: recurrence up to 10, then its asymptotic series."""
    x = np.array(x, np.float64)
    below = np.zeros_like(x)
    for _ in range(10):
        small = x < 10
        below[small] -= 1 / x[small]
        x[small] += 1
    square = 1 / (x * x)
    tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (
        1 / 240 - square * (1 / 132)))))
    return below + np.log(x) - 0.5 / x - tail


def gamma_slope(a, x):
    """dx/da for samples x of the standard gamma distribution with shapes a."""
    a, x = (np.ravel(v).astype(np.float64) for v in np.broadcast_arrays(a, x))
    out = np.empty_like(x)
    near = x <= a + 1
    with np.errstate(all="ignore"):
        if near.any():
            out[near] = _by_series(a[near], x[near])
        if not near.all():
            out[~near] = _by_fraction(a[~near], x[~near])
    return out


def _by_series(a, x):
    """P = x^a e^-x / gamma(a + 1) * s, with s = 1 + x / (a + 1) + x^2 / ((a + 1)(a + 2)) + ..."""
    term, s = np.ones_like(x), np.ones_like(x)
    logs, ds = np.zeros_like(x), np.zeros_like(x)
    for n in range(1, MAX_TERMS):
        term = term * x / (a + n)
        logs = logs - 1 / (a + n)
        s, ds = s + term, ds + term * logs
        if np.all((term <= 1e-17 * s) | np.isnan(s)):
            break
    return -(x / a) * (s * (np.log(x) - digamma(a + 1)) + ds)


def _by_fraction(a, x):
    """1 - P = x^a e^-x / gamma(a) * h, with h a continued fraction."""
    b, db = x + 1 - a, -np.ones_like(x)
    d = 1 / b
    dd = -db * d * d
    h, dh = d, dd
    c, dc = np.full_like(x, 1e300), np.zeros_like(x)
    for n in range(1, MAX_TERMS):
        top = -n * (n - a)
        b = b + 2
        dc = db + (n - top * dc / c) / c
        c = b + top / c
        new = 1 / (b + top * d)
        dd = -(db + n * d + top * dd) * new * new
        d = new
        step, dstep = c * d, dc * d + c * dd
        h, dh = h * step, dh * step + h * dstep
        if np.all((np.abs(step - 1) <= 1e-15) | np.isnan(step)):
            break
    return x * (h * (np.log(x) - digamma(a)) + dh)
