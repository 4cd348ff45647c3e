"""The generalized Pareto distribution."""

import math

import flambeau

from . import constraints
from .distribution import Distribution

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """What lies beyond a threshold loc; the concentration decides how heavy its tail is."""

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self._broadcast(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, flambeau.where(self.concentration < 0, end, math.inf))

    def _is_exponential(self):
        return flambeau.isclose(self.concentration, flambeau.zeros_like(self.concentration))

    def _safe(self):
        return flambeau.where(self._is_exponential(), 1.0, self.concentration)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return self.icdf(flambeau.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def _log_survival(self, value):
        z, k = (value - self.loc) / self.scale, self._safe()
        return flambeau.where(self._is_exponential(), -z, -(k * z).log1p() / k)

    def log_prob(self, value):
        value = self._checked(value)
        z, k = (value - self.loc) / self.scale, self._safe()
        heavy = -(1 + 1 / k) * (k * z).log1p()
        return flambeau.where(self._is_exponential(), -z, heavy) - self.scale.log()

    def log_survival_function(self, value):
        return self._log_survival(self._checked(value))

    def log_cdf(self, value):
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value):
        return self.log_cdf(value).exp()

    def icdf(self, value):
        k, log_left = self._safe(), (-value).log1p()
        z = flambeau.where(self._is_exponential(), -log_left, (-k * log_left).expm1() / k)
        return self.loc + self.scale * z

    @property
    def mean(self):
        k = self.concentration
        return flambeau.where(k < 1, self.loc + self.scale / (1 - k), math.nan)

    @property
    def variance(self):
        k = self.concentration
        variance = self.scale.pow(2) / ((1 - k).pow(2) * (1 - 2 * k))
        return flambeau.where(k < 0.5, variance, math.nan)

    @property
    def mode(self):
        return self.loc

    def entropy(self):
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)
