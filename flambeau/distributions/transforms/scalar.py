"""Transforms of numbers."""

import math

import flambeau
from flambeau import Tensor
from flambeau.nn.functional import softplus

from .. import constraints
from ..utils import broadcast_all, lazy_property, sum_rightmost
from .base import Transform, widened


class ExpTransform(Transform):
    """y = exp(x)"""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """y = x ** exponent"""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True
    options = ("exponent",)

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @lazy_property
    def sign(self):
        return self.exponent.sign()

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return flambeau.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def inside_unit(p):
    """Probabilities kept just inside (0, 1)."""
    info = flambeau.finfo(p.dtype)
    return p.clamp(min=info.tiny, max=1.0 - info.eps)


def _clipped_sigmoid(x):
    """sigmoid, just inside (0, 1)."""
    return inside_unit(x.sigmoid())


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x))"""

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = +1

    def _call(self, x):
        return _clipped_sigmoid(x)

    def _inverse(self, y):
        y = inside_unit(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -softplus(-x) - softplus(x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x))"""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x):
        return softplus(x)

    def _inverse(self, y):
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x, y):
        return -softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x)"""

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = +1

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        # log(1 - tanh(x)^2), without the cancellation where tanh is near one
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(Transform):
    """y = |x|"""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """y = loc + scale * x"""

    bijective = True
    options = ("loc", "scale", "event_dim")

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size)
        self.loc, self.scale = loc, scale
        self._event_dim = event_dim

    @property
    def event_dim(self):
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        return widened(constraints.real, self.event_dim)

    codomain = domain

    @property
    def sign(self):
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        if isinstance(self.scale, Tensor):
            stretch = self.scale.abs().log().expand(x.shape)
        else:
            stretch = flambeau.full_like(x, math.log(abs(self.scale)))
        return sum_rightmost(stretch, self.event_dim)

    def forward_shape(self, shape):
        shapes = (getattr(p, "shape", ()) for p in (self.loc, self.scale))
        return flambeau.broadcast_shapes(shape, *shapes)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """y = the probability of a value below x"""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1
    options = ("distribution",)

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self):
        return self.distribution.support

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)
