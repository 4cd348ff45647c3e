"""The gamma distribution."""

import flambeau

from . import constraints
from .exp_family import ExponentialFamily
from .gamma_sampling import standard_gamma

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """Density proportional to x^(concentration - 1) exp(-rate x)."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration, rate, validate_args=None):
        self._broadcast(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self):
        return self.concentration / self.rate

    @property
    def mode(self):
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self):
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        x = standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return x.clamp(min=flambeau.finfo(x.dtype).tiny)

    def log_prob(self, value):
        value = flambeau.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        value = self._checked(value)
        a, b = self.concentration, self.rate
        return flambeau.xlogy(a, b) + flambeau.xlogy(a - 1, value) - b * value - a.lgamma()

    def cdf(self, value):
        return flambeau.special.gammainc(self.concentration, self.rate * self._checked(value))

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    @property
    def _natural_params(self):
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x, y):
        return (x + 1).lgamma() + (x + 1) * (-y.reciprocal()).log()
