"""The Bernoulli distribution."""

import math

import flambeau
from flambeau.nn.functional import binary_cross_entropy_with_logits

from . import constraints
from .distribution import ByProbability
from .exp_family import ExponentialFamily
from .utils import broadcast_all

__all__ = ["Bernoulli"]


class Bernoulli(ByProbability, ExponentialFamily):
    """One with probability probs, else zero."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs=None, logits=None, validate_args=None):
        shape = self._given(probs, logits).shape
        super().__init__(shape, validate_args=validate_args)

    @property
    def mean(self):
        return self.probs

    @property
    def mode(self):
        mode = (self.probs >= 0.5).to(self.probs)
        return flambeau.where(self.probs == 0.5, math.nan, mode)

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        with flambeau.no_grad():
            return flambeau.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        logits, value = broadcast_all(self.logits, self._checked(value))
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        return enumerated(2, self, expand)

    @property
    def _natural_params(self):
        return (flambeau.logit(self.probs),)

    def _log_normalizer(self, x):
        return x.exp().log1p()


def enumerated(n, distribution, expand):
    """0, 1 ... n - 1 along a new first dimension, for every distribution of the batch."""
    like, batch = distribution._param, distribution._batch_shape
    values = flambeau.arange(n, dtype=like.dtype, device=like.device)
    values = values.view(-1, *([1] * len(batch)))
    return values.expand(-1, *batch) if expand else values
