"""The continuous Bernoulli distribution."""

import math

import flambeau
from flambeau.nn.functional import binary_cross_entropy_with_logits

from . import constraints
from .distribution import ByProbability
from .exp_family import ExponentialFamily
from .utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ByProbability, ExponentialFamily):
    """Density proportional to probs^x (1 - probs)^(1 - x) on [0, 1].

    Formulas lose all digits near probs = 1/2: between `lims`, Taylor series are used.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample = True

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        shape = self._given(probs, logits).shape
        if probs is not None:
            valid = self.arg_constraints["probs"].check(self.probs).all()
            if validate_args is not False and not valid:
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(shape, validate_args=validate_args)

    def _expanded(self, new, batch_shape):
        new._lims = self._lims
        return super()._expanded(new, batch_shape)

    @lazy_property
    def probs(self):
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _stable(self):
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self):
        """probs, replaced where formulas are unstable."""
        return flambeau.where(self._stable(), self.probs, self._lims[0])

    def _odds(self):
        cut = self._cut()
        return cut, (-cut).log1p() - cut.log()

    def _cont_bern_log_norm(self):
        cut, odds = self._odds()
        below = flambeau.where(cut <= 0.5, cut, flambeau.zeros_like(cut))
        above = flambeau.where(cut >= 0.5, cut, flambeau.ones_like(cut))
        width = flambeau.where(cut <= 0.5, (-2.0 * below).log1p(), (2.0 * above - 1.0).log())
        x = (self.probs - 0.5).pow(2)
        taylor = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return flambeau.where(self._stable(), odds.abs().log() - width, taylor)

    @property
    def mean(self):
        cut, odds = self._odds()
        x = self.probs - 0.5
        taylor = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x
        return flambeau.where(self._stable(), cut / (2.0 * cut - 1.0) + 1.0 / odds, taylor)

    @property
    def variance(self):
        cut, odds = self._odds()
        x = (self.probs - 0.5).pow(2)
        taylor = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        formula = cut * (cut - 1.0) / (1.0 - 2.0 * cut).pow(2) + 1.0 / odds.pow(2)
        return flambeau.where(self._stable(), formula, taylor)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return self.icdf(flambeau.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, self._checked(value))
        cross = binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._cont_bern_log_norm() - cross

    def cdf(self, value):
        value, cut = self._checked(value), self._cut()
        power = cut.pow(value) * (1.0 - cut).pow(1.0 - value)
        inside = flambeau.where(self._stable(), (power + cut - 1.0) / (2.0 * cut - 1.0), value)
        return flambeau.where(value <= 0, 0.0, flambeau.where(value >= 1, 1.0, inside))

    def icdf(self, value):
        cut, odds = self._odds()
        x = ((-cut + value * (2.0 * cut - 1.0)).log1p() - (-cut).log1p()) / -odds
        return flambeau.where(self._stable(), x, value)

    def entropy(self):
        zero, one = (-self.probs).log1p(), self.probs.log()
        return self.mean * (zero - one) - self._cont_bern_log_norm() - zero

    @property
    def _natural_params(self):
        return (self.logits,)

    def _log_normalizer(self, x):
        near = (x > self._lims[0] - 0.5) & (x < self._lims[1] - 0.5)
        cut = flambeau.where(near, (self._lims[0] - 0.5) * flambeau.ones_like(x), x)
        formula = ((cut.exp() - 1.0).abs()).log() - cut.abs().log()
        taylor = 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0
        return flambeau.where(near, taylor, formula)
