"""How a share of a beta or Dirichlet sample moves with its parameter while its quantile stays.

(dx/da) / (1 - x) = -(dF/da) / (dF/dx) / (1 - x), with F the distribution function of Beta(a, b):
from the series of F below the mean and from that of 1 - F above it, whose terms are all positive;
in float64.
"""

from ...core.lazily import np
from .gamma_slope import MAX_TERMS, digamma

FEW = 30  # a series whose terms stop growing after so many is short wherever the mean lies


def beta_slope(x, a, total):
    """(dx/da) / (1 - x) for shares x with parameters a out of `total`."""
    x, a, total = (np.ravel(v).astype(np.float64) for v in np.broadcast_arrays(x, a, total))
    below = x * total <= a
    below = np.where(total * x < FEW, True, np.where(total * (1 - x) < FEW, False, below))
    out = np.empty_like(x)
    with np.errstate(all="ignore"):
        for side, slope in ((below, _from_below), (~below, _from_above)):
            if side.any():
                out[side] = slope(x[side], a[side], total[side])
    return out


def _from_below(x, a, total):
    """F = x^a (1 - x)^b / (a B(a, b)) * s, with s = 1 + (a + b) / (a + 1) x + ..."""
    s, ds = _series(x, a, total, lambda n: 1 / (total + n - 1) - 1 / (a + n))
    return -(x / a) * (s * (np.log(x) - digamma(a + 1) + digamma(total)) + ds)


def _from_above(x, a, total):
    """1 - F, which is F of 1 - x with a and b exchanged."""
    b = total - a
    s, ds = _series(1 - x, b, total, lambda n: 1 / (total + n - 1))
    return (x / b) * (s * (np.log(x) - digamma(a) + digamma(total)) + ds)


def _series(x, a, total, growth):
    """The series of F(x) and its derivative, by how the logarithm of its n-th factor grows."""
    term, s = np.ones_like(x), np.ones_like(x)
    logs, ds = np.zeros_like(x), np.zeros_like(x)
    for n in range(1, MAX_TERMS):
        ratio = (total + n - 1) / (a + n) * x
        term = term * ratio
        logs = logs + growth(n)
        s, ds = s + term, ds + term * logs
        if np.all(((term <= 1e-17 * s) & (ratio < 1)) | np.isnan(s)):
            break
    return s, ds
