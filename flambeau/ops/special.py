"""Special functions: of probability, of gamma's family, of Bessel's."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..core import expr as e
from ..core import shape as sh
from ..core.expr import where
from .arithmetic import exp, log
from .declare import FLOAT, T, composite, engine, library, pointwise
from .exponential import log1p
from .refusal import no_kernel, not_complex

SPECIAL = "special"
_ROOT_PI = math.sqrt(math.pi)


def _real(name: str):
    return not_complex(f"\"{name}\" not implemented for complex tensors", NotImplementedError)


# -- errors and probabilities ------------------------------------------------------------------


@pointwise(FLOAT, check=_real("erf"))
def erf(x):
    """The error function."""
    return e.call("erf", x)


@erf.gradient
def erf(g, x):
    return g * (2 / _ROOT_PI * exp(-(x * x)))


@pointwise(FLOAT, check=_real("erfc"))
def erfc(x):
    """1 - erf(x)"""
    return e.call("erfc", x)


@erfc.gradient
def erfc(g, x):
    return g * (-2 / _ROOT_PI * exp(-(x * x)))


@pointwise(FLOAT, check=_real("erfinv"))
def erfinv(x):
    """The inverse of erf."""
    return e.call("erfinv", x)


@erfinv.gradient
def erfinv(g, out):
    return g * (_ROOT_PI / 2 * exp(out * out))


@pointwise(FLOAT, where=SPECIAL, check=_real("erfcx"))
def erfcx(x):
    """exp(x**2) erfc(x)"""
    return e.call("erfcx", x)


@erfcx.gradient
def erfcx(g, x, out):
    return g * (2 * x * out - 2 / _ROOT_PI)


@pointwise(FLOAT, where=SPECIAL, check=_real("ndtr"))
def ndtr(x):
    """The normal distribution function."""
    return 0.5 * e.call("erfc", x * -math.sqrt(0.5))


@ndtr.gradient
def ndtr(g, x):
    return g * (exp(-0.5 * (x * x)) / math.sqrt(2 * math.pi))


@pointwise(FLOAT, method=False, function_form=False, inplace=False)
def share_below(x):
    """The normal distribution function as a share of 1: good to a unit of 1, not of itself."""
    return e.call("below", x)


@share_below.gradient
def share_below(g, x):
    return g * (exp(-0.5 * (x * x)) / math.sqrt(2 * math.pi))


@pointwise(FLOAT, where=SPECIAL, check=_real("ndtri"))
def ndtri(x):
    """The inverse of the normal distribution function."""
    return e.call("ndtri", x)


@ndtri.gradient
def ndtri(g, out):
    return g * (math.sqrt(2 * math.pi) * exp(0.5 * (out * out)))


@pointwise(FLOAT, where=SPECIAL, check=_real("log_ndtr"))
def log_ndtr(x):
    """The logarithm of the normal distribution function."""
    return e.call("log_ndtr", x)


@log_ndtr.gradient
def log_ndtr(g, x):
    return g * (math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)))


@pointwise(FLOAT, where=SPECIAL, check=_real("entr"))
def entr(x):
    """-x log(x), 0 at 0 and -inf below"""
    inside = where(x > 0, -x * log(x), where(x == 0, e.const(0, x.dtype),
                                             e.const(-math.inf, x.dtype)))
    return where(e.isnan(x), x, inside)


@entr.gradient
def entr(g, x):
    return g * where(x >= 0, -log(x) - 1, e.const(math.nan, x.dtype))


@pointwise(FLOAT, where=SPECIAL)
def xlog1py(x, y):
    """x log(1 + y), and 0 where x is"""
    return where(e.isnan(y), y, where(x == 0, e.const(0, x.dtype), x * log1p(y)))


@xlog1py.gradient
def xlog1py(g, x, y):
    zero = e.const(0, g.dtype)
    return lambda: where((x == 0) & (y <= -1), zero, g * log1p(y)), lambda: g * (x / (y + 1))


@pointwise(FLOAT, bake=("eps",), check=_real("logit"))
def logit(x, *, eps=None):
    """log(x / (1 - x)), x first kept between eps and 1 - eps"""
    if isinstance(eps, (int, float)):
        x = e.minimum(e.maximum(x, eps), 1 - eps)
    return log(x / (1 - x))


@logit.gradient
def logit(g, x, eps):
    slope = g / (x * (1 - x))
    if not isinstance(eps, (int, float)):
        return where((x >= 0) & (x <= 1), slope, e.const(math.nan, x.dtype))
    return where((x >= eps) & (x <= 1 - eps), slope, e.const(0, x.dtype))


# -- gamma -------------------------------------------------------------------------------------


@pointwise(FLOAT, check=_real("lgamma"))
def lgamma(x):
    """The logarithm of the absolute value of gamma."""
    return e.call("lgamma", x)


@lgamma.gradient
def lgamma(g, x):
    return g * digamma(x)


@pointwise(FLOAT, check=_real("digamma"))
def digamma(x):
    """The derivative of lgamma."""
    return e.call("digamma", x)


@digamma.gradient
def digamma(g, x):
    return g * trigamma(x)


@pointwise(FLOAT, method=False, function_form=False, inplace=False, backward="PolygammaBackward0",
           check=_real("polygamma"), said="polygamma")
def trigamma(x):
    """The second derivative of lgamma."""
    return e.call("trigamma", x)


@trigamma.gradient
def trigamma(g, x):
    return g * higher_polygamma(x, n=2)


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
              43867 / 798, -174611 / 330)


def _hurwitz_right(s: int, q):
    """The sum of (q + k)**-s for q > 0: ten terms, then Euler and Maclaurin's formula."""
    total = e.const(0, q.dtype)
    for k in range(10):
        total = total + _power(1 / (q + k), s)
    a = q + 10
    inverse = 1 / a
    tail = _power(inverse, s - 1) / (s - 1) + 0.5 * _power(inverse, s)
    factor, term = float(s), _power(inverse, s + 1)
    for k, b in enumerate(_BERNOULLI):
        tail = tail + term * (b * factor / math.factorial(2 * k + 2))
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2)
        term = term * (inverse * inverse)
    return total + tail


def _power(x, n: int):
    """x**n by squaring, as an expression."""
    result, square = None, x
    while n:
        if n & 1:
            result = square if result is None else result * square
        n >>= 1
        square = square * square if n else square
    return e.const(1, x.dtype) if result is None else result


@pointwise(FLOAT, method=False, function_form=False, inplace=False, bake=("n",),
           backward="PolygammaBackward0", check=_real("polygamma"), said="polygamma")
def higher_polygamma(x, *, n):
    """The derivative of lgamma of order n + 1, for n of 2 and more."""
    narrow, s = x.dtype, n + 1
    x = e.cast(x, dt.float64)
    one, below = e.const(1, x.dtype), e.call("floor", x)
    left, pole = x <= 0, (x <= 0) & (x == below)
    right = where(pole, one, where(left, x - below, x))
    # The terms left of 0, mirrored, are a finite piece of the same sum.
    mirrored = _hurwitz_right(s, where(left & ~pole, 1 - (x - below), one)) - _hurwitz_right(
        s, where(left, 1 - x, one))
    total = _hurwitz_right(s, right) + where(left, mirrored, e.const(0, x.dtype)) * (-1) ** s
    value = total * ((-1) ** s * math.factorial(n))
    value = where(pole, e.const(math.inf * (-1) ** s, x.dtype), value)
    return e.cast(where(x == math.inf, e.const(math.nan, x.dtype), value), narrow)


@higher_polygamma.gradient
def higher_polygamma(g, x, n):
    return g * higher_polygamma(x, n=n + 1)


@composite(method=False)
def polygamma(n, input):
    """The derivative of digamma of order n"""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    low = {0: digamma, 1: trigamma}.get(n)
    return low(input) if low is not None else higher_polygamma(input, n=int(n))


@composite(name="polygamma_method", method="polygamma", function_form=False)
def polygamma_of(self, n):
    """The derivative of digamma of order n"""
    return polygamma(n, self)


@composite(name="polygamma_", method="polygamma_", function_form=False)
def polygamma_in_place(self, n):
    """In-place form of `polygamma`."""
    return engine.overwrite(self, "polygamma_", lambda x: polygamma(n, x), (), {})


@composite(inplace=True)
def mvlgamma(input, p):
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input.dtype.kind == "c" or input.dtype is dt.bool_:
        raise RuntimeError(f"mvlgamma: expected a real tensor of numbers, got {input.dtype}")
    total = lgamma(input)
    for k in range(1, p):
        total = total + lgamma(input - k / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)


# -- Bessel ------------------------------------------------------------------------------------


def _undefined_at_infinity(x, value):
    return where(e.call("abs", x) == math.inf, e.const(math.nan, x.dtype), value)


@pointwise(FLOAT, check=_real("i0"))
def i0(x):
    """The modified Bessel function of the first kind, of order 0."""
    return _undefined_at_infinity(x, e.call("i0", x))


@i0.gradient
def i0(g, x):
    return g * i1(x)


@pointwise(FLOAT, where=SPECIAL, check=_real("i0e"))
def i0e(x):
    """exp(-|x|) i0(x)"""
    return e.call("i0e", x)


@i0e.gradient
def i0e(g, x, out):
    return g * (i1e(x) - _sign(x) * out)


def _sign(x):
    one = e.const(1, x.dtype)
    return where(x > 0, one, where(x < 0, -one, e.const(0, x.dtype)))


@pointwise(FLOAT, where=SPECIAL, check=_real("i1"))
def i1(x):
    """The modified Bessel function of the first kind, of order 1."""
    return _undefined_at_infinity(x, e.call("i1", x))


@i1.gradient
def i1(g, x, out):
    tiny = e.call("abs", x) <= _SMALL
    return g * where(tiny, e.const(0.5, x.dtype), i0(x) - out / where(tiny, _SMALL, x))


@pointwise(FLOAT, where=SPECIAL, check=_real("i1e"))
def i1e(x):
    """exp(-|x|) i1(x)"""
    return e.call("i1e", x)


@i1e.gradient
def i1e(g, x, out):
    tiny = e.call("abs", x) <= _SMALL
    safe = where(tiny, e.const(_SMALL, x.dtype), x)
    return g * where(tiny, e.const(0.5, x.dtype), i0e(x) - out * (_sign(x) + 1 / safe))


_SMALL = 2.220446049250313e-16


# -- what arrays are computed with -------------------------------------------------------------


def _floating_pair(name: str, first, second):
    """Shape and dtype of a function of two real arguments, in floating point."""
    pair = (first, second)
    if any(s.dtype.kind == "c" for s in pair):
        raise no_kernel(f"{name}_cpu", dt.complex64)
    joined = dt.result_type([s.dtype for s in pair if s.rank],
                            [s.dtype for s in pair if not s.rank], [])
    return sh.broadcast(name, first.shape, second.shape), dt.RULES[FLOAT](joined)


@library(method=False, function_form=False)
def hurwitz_zeta(input: T, other: T):
    """The sum of (other + k)**-input over k."""
    return _floating_pair("zeta", input, other)


@hurwitz_zeta.gradient
def hurwitz_zeta(g, input, other):
    def first():
        raise RuntimeError("the derivative for 'zeta' with respect to its first argument is not "
                           "implemented")
    return first, lambda: engine.sum_to(g * (-input * zeta(input + 1, other)), other.shape)


def _as_tensors(first, second):
    """Two operands, of which one may be a number, as tensors."""
    like = first if hasattr(first, "sig") else second
    wide = like.dtype if like.dtype.kind == "f" else dt.default_float()
    return [v if hasattr(v, "sig") else engine.full((), float(v), wide) for v in (first, second)]


@composite(where=SPECIAL)
def zeta(input, other):
    """The sum of (other + k)**-input over k from 0: Hurwitz's zeta."""
    return hurwitz_zeta(*_as_tensors(input, other))


@library(method=False, function_form=False)
def lower_gamma_ratio(input: T, other: T):
    """The regularised lower incomplete gamma function."""
    return _floating_pair("igamma", input, other)


@library(method=False, function_form=False)
def upper_gamma_ratio(input: T, other: T):
    """The regularised upper incomplete gamma function."""
    return _floating_pair("igammac", input, other)


def _gamma_density(g, input, other, sign: int):
    density = exp((input - 1) * log(other) - other - lgamma(input))
    return engine.sum_to(g * (sign * density), other.shape)


def _no_derivative(name: str):
    def refuse():
        raise NotImplementedError(f"the derivative for '{name}: input' is not implemented.")
    return refuse


@lower_gamma_ratio.gradient
def lower_gamma_ratio(g, input, other):
    return _no_derivative("igamma"), lambda: _gamma_density(g, input, other, 1)


@upper_gamma_ratio.gradient
def upper_gamma_ratio(g, input, other):
    return _no_derivative("igammac"), lambda: _gamma_density(g, input, other, -1)


@composite(inplace=True)
def igamma(input, other):
    """The regularised lower incomplete gamma function."""
    return lower_gamma_ratio(*_two_tensors("igamma", input, other))


@composite(inplace=True)
def igammac(input, other):
    """The regularised upper incomplete gamma function."""
    return upper_gamma_ratio(*_two_tensors("igammac", input, other))


def _two_tensors(name: str, input, other):
    if other.dtype.kind not in "fiub" or input.dtype.kind != "f":
        raise no_kernel(f"{name}_cpu", input.dtype)
    return input, other
