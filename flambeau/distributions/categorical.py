"""The categorical distribution."""

import math

import flambeau

from . import constraints
from .bernoulli import enumerated
from .distribution import ByProbability
from .utils import one_of

__all__ = ["Categorical"]


class Categorical(ByProbability):
    """One of the integers 0 ... n - 1, by their probabilities in the last dimension."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _is_binary = False

    def __init__(self, probs=None, logits=None, validate_args=None):
        name = one_of(probs=probs, logits=logits)
        given = probs if logits is None else logits
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if name == "probs":
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def _expanded(self, new, batch_shape):
        new._num_events = self._num_events
        return super()._expanded(new, batch_shape)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    def _undefined(self):
        shape = self._extended_shape()
        return flambeau.full(shape, math.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mean(self):
        return self._undefined()

    @property
    def mode(self):
        return self.probs.argmax(dim=-1)

    @property
    def variance(self):
        return self._undefined()

    def sample(self, sample_shape=()):
        with flambeau.no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = flambeau.multinomial(rows, math.prod(sample_shape), True).T
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        value = self._checked(value).long().unsqueeze(-1)
        value, logits = flambeau.broadcast_tensors(value, self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        finite = self.logits.clamp(min=flambeau.finfo(self.logits.dtype).min)
        return -(finite * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        return enumerated(self._num_events, self, expand).long()
