"""The geometric distribution."""

import flambeau
from flambeau.nn.functional import binary_cross_entropy_with_logits

from . import constraints
from .distribution import ByProbability
from .utils import broadcast_all

__all__ = ["Geometric"]


class Geometric(ByProbability):
    """The number of failures before the first success, each trial succeeding with probs."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        shape = self._given(probs, logits).shape
        super().__init__(shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs (Tensor of shape {tuple(self.probs.shape)}) of "
                f"distribution {self!r} to be positive but found invalid values:\n{self.probs}"
            )

    @property
    def mean(self):
        return 1.0 / self.probs - 1.0

    @property
    def mode(self):
        return flambeau.zeros_like(self.probs)

    @property
    def variance(self):
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        tiny = flambeau.finfo(self.probs.dtype).tiny
        with flambeau.no_grad():
            u = self.probs.new_empty(shape).uniform_(tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        value, probs = broadcast_all(self._checked(value), self.probs)
        certain = (probs == 1) & (value == 0)
        failures = (-flambeau.where(certain, flambeau.zeros_like(probs), probs)).log1p()
        return value * failures + self.probs.log()

    def entropy(self):
        cross = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return cross / self.probs
