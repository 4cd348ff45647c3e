"""Samples of the standard gamma distribution, and how they move with its parameter.

Samples come by the rejection method of Marsaglia and Tsang (2000), one at a time, so that the
numbers taken from the random stream are those of a program that does the same.
"""

import math

import flambeau
from flambeau.autograd import Function

MAX_TERMS = 10_000


def _uniform():
    return flambeau.empty((), dtype=flambeau.float64).uniform_().item()


def _normal():
    return flambeau.empty((), dtype=flambeau.float64).normal_().item()


def draw(alpha):
    """One sample, in double precision."""
    boost = 1.0
    if alpha < 1.0:
        if alpha == 0.0:
            return 0.0
        boost = (1.0 - _uniform()) ** (1.0 / alpha)
        alpha += 1.0
    d = alpha - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        y = 0.0
        while y <= 0:
            x = _normal()
            y = 1.0 + c * x
        v = y * y * y
        u = 1.0 - _uniform()
        if u < 1.0 - 0.0331 * x**4 or math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            return boost * d * v


def draw_all(alpha):
    """A double-precision sample for every element."""
    samples = [draw(a) if a == a else math.nan for a in alpha.detach().double().flatten().tolist()]
    return flambeau.tensor(samples, dtype=flambeau.float64).reshape(alpha.shape)


def sample_gamma(alpha):
    """Standard gamma samples of the dtype of alpha, never quite zero; no gradient."""
    return draw_all(alpha).to(alpha.dtype).clamp(min=flambeau.finfo(alpha.dtype).tiny)


class StandardGamma(Function):
    """Samples whose gradient is that of the quantile they are."""

    @staticmethod
    def forward(ctx, alpha):
        x = sample_gamma(alpha)
        ctx.save_for_backward(alpha, x)
        return x

    @staticmethod
    def backward(ctx, g):
        alpha, x = ctx.saved_tensors
        return g * quantile_slope(alpha.double(), x.double()).to(g.dtype)


def standard_gamma(alpha):
    """Standard gamma samples, differentiable in alpha."""
    return StandardGamma.apply(alpha)


def quantile_slope(a, x):
    """dx/da where the distribution function P(a, x) stays as it is: -(dP/da) / (dP/dx).

    Below the mean from the series of P, above it from the continued fraction of 1 - P, each
    with its derivative carried along; there no term cancels another.
    """
    below = x <= a + 1
    near = flambeau.where(below, x, flambeau.ones_like(x))
    far = flambeau.where(below, a + 2, x)
    return flambeau.where(below, _slope_by_series(a, near), _slope_by_fraction(a, far))


def _slope_by_series(a, x):
    """P = x^a e^-x / gamma(a + 1) * s, with s = 1 + x / (a + 1) + x^2 / ((a + 1)(a + 2)) + ..."""
    term, s = flambeau.ones_like(x), flambeau.ones_like(x)
    logs, ds = flambeau.zeros_like(x), flambeau.zeros_like(x)
    for n in range(1, MAX_TERMS):
        term = term * x / (a + n)
        logs = logs - 1 / (a + n)
        s, ds = s + term, ds + term * logs
        if (term <= 1e-17 * s).all():
            break
    return -(x / a) * (s * (x.log() - flambeau.digamma(a + 1)) + ds)


def _slope_by_fraction(a, x):
    """1 - P = x^a e^-x / gamma(a) * h, with h a continued fraction, evaluated by Lentz's method."""
    b, db = x + 1 - a, -flambeau.ones_like(x)
    d = 1 / b
    dd = -db * d * d
    h, dh = d, dd
    c, dc = flambeau.full_like(x, 1e300), flambeau.zeros_like(x)
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
        if ((step - 1).abs() <= 1e-15).all():
            break
    return x * (h * (x.log() - flambeau.digamma(a)) + dh)
