"""The binomial distribution."""

import flambeau
from flambeau.nn.functional import softplus

from . import constraints
from .bernoulli import enumerated
from .distribution import ByProbability

__all__ = ["Binomial"]


class Binomial(ByProbability):
    """The number of successes in total_count trials."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        param = self._given(probs, logits, total_count=total_count)
        self.total_count = self.total_count.type_as(param)
        super().__init__(param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self):
        return self.total_count * self.probs

    @property
    def mode(self):
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with flambeau.no_grad():
            return flambeau.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        k, n = self._checked(value), self.total_count
        choices = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
        return choices + k * self.logits - n * softplus(self.logits)

    def _common_count(self, purpose):
        count = int(self.total_count.max())
        if self.total_count.min() != count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{purpose}`.")
        return count

    def entropy(self):
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand=True):
        return enumerated(1 + self._common_count("enumerate_support"), self, expand)
