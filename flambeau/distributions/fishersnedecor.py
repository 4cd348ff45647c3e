"""The F-distribution."""

import math

import flambeau

from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared variables, each over its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1, df2, validate_args=None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    def _expanded(self, new, batch_shape):
        new._gamma1 = self._gamma1.expand(batch_shape)
        new._gamma2 = self._gamma2.expand(batch_shape)
        return super()._expanded(new, batch_shape)

    @property
    def mean(self):
        return flambeau.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self):
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return flambeau.where(self.df1 > 2, mode, math.nan)

    @property
    def variance(self):
        n, m = self.df1, self.df2
        variance = 2 * m.pow(2) * (n + m - 2) / (n * (m - 2).pow(2) * (m - 4))
        return flambeau.where(m > 4, variance, math.nan)

    def rsample(self, sample_shape=()):
        tiny = flambeau.finfo(self.df1.dtype).tiny
        above = self._gamma1.rsample(sample_shape)
        below = self._gamma2.rsample(sample_shape).clamp(min=tiny)
        return (above / below).clamp(min=tiny)

    def log_prob(self, value):
        value = self._checked(value)
        n, m = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        beta = (n + m).lgamma() - n.lgamma() - m.lgamma()
        return beta + n * ratio.log() + (n - 1) * value.log() - (n + m) * (ratio * value).log1p()
