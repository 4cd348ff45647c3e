"""Student's t-distribution."""

import math

import flambeau

from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import _standard_normal, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """A normal whose variance is itself uncertain, by df degrees of freedom."""

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    def _expanded(self, new, batch_shape):
        new._chi2 = self._chi2.expand(batch_shape)
        return super()._expanded(new, batch_shape)

    @property
    def mean(self):
        return flambeau.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        wide = flambeau.where(self.df > 1, flambeau.full_like(self.df, math.inf), math.nan)
        return flambeau.where(self.df > 2, finite, wide)

    def rsample(self, sample_shape=()):
        x = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (x * (z / self.df).rsqrt())

    def log_prob(self, value):
        y = (self._checked(value) - self.loc) / self.scale
        n = self.df
        normalizer = (
            self.scale.log()
            + 0.5 * n.log()
            + 0.5 * math.log(math.pi)
            + (0.5 * n).lgamma()
            - (0.5 * (n + 1.0)).lgamma()
        )
        return -0.5 * (n + 1.0) * (y**2.0 / n).log1p() - normalizer

    def entropy(self):
        n = self.df
        half, more = 0.5 * n, 0.5 * (n + 1)
        beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        return self.scale.log() + more * (more.digamma() - half.digamma()) + 0.5 * n.log() + beta
