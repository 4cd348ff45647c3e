"""The negative binomial distribution."""

import flambeau
from flambeau.nn.functional import logsigmoid

from . import constraints
from .distribution import ByProbability
from .gamma import Gamma
from .utils import lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ByProbability):
    """The number of successes before total_count failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        param = self._given(probs, logits, total_count=total_count)
        self.total_count = self.total_count.type_as(param)
        super().__init__(param.shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.total_count * self.logits.exp()

    @property
    def mode(self):
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self):
        return self.mean / (-self.logits).sigmoid()

    @lazy_property
    def _gamma(self):
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape=()):
        with flambeau.no_grad():
            return flambeau.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value):
        k, n = self._checked(value), self.total_count
        unnormalized = n * logsigmoid(-self.logits) + k * logsigmoid(self.logits)
        normalizer = (1.0 + k).lgamma() + n.lgamma() - (n + k).lgamma()
        return unnormalized - normalizer.masked_fill(n + k == 0.0, 0.0)
