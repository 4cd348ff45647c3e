"""Mixtures of distributions of one family."""

import flambeau

from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .utils import expanded

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A component, chosen by a Categorical, from the last batch dimension of a distribution."""

    arg_constraints = {}
    has_rsample = False

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an instance of distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution need to be an instance of distributions.Distribution"
            )
        chosen = mixture_distribution.batch_shape
        *batch, count = component_distribution.batch_shape
        for a, b in zip(reversed(chosen), reversed(batch), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({chosen}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        weights = mixture_distribution.logits.shape[-1]
        if weights != count:
            raise ValueError(
                f"`mixture_distribution component` ({weights}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({count})"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = count
        event = component_distribution.event_shape
        self._event_ndims = len(event)
        super().__init__(batch, event, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        components = expanded(batch_shape, (self._num_component,))
        new._component_distribution = self._component_distribution.expand(components)
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        return self._expanded(new, batch_shape)

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self):
        return self._mixture_distribution

    @property
    def component_distribution(self):
        return self._component_distribution

    def _mix(self, values):
        """The average over components, by their probabilities."""
        weights = self.mixture_distribution.probs
        weights = weights.reshape(*weights.shape, *([1] * self._event_ndims))
        return (weights * values).sum(-1 - self._event_ndims)

    def _pad(self, value):
        return value.unsqueeze(-1 - self._event_ndims)

    @property
    def mean(self):
        return self._mix(self.component_distribution.mean)

    @property
    def variance(self):
        off = self.component_distribution.mean - self._pad(self.mean)
        return self._mix(self.component_distribution.variance) + self._mix(off.pow(2))

    def cdf(self, x):
        probabilities = self.component_distribution.cdf(self._pad(x))
        return (probabilities * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        density = self.component_distribution.log_prob(self._pad(self._checked(x)))
        weights = flambeau.log_softmax(self.mixture_distribution.logits, dim=-1)
        return flambeau.logsumexp(density + weights, dim=-1)

    def sample(self, sample_shape=()):
        with flambeau.no_grad():
            chosen = self.mixture_distribution.sample(sample_shape)
            samples = self.component_distribution.sample(sample_shape)
            dim = len(sample_shape) + len(self.batch_shape)
            index = chosen.reshape(*chosen.shape, *([1] * (self._event_ndims + 1)))
            shape = (*samples.shape[:dim], 1, *self.event_shape)
            return samples.gather(dim, index.expand(shape)).squeeze(dim)

    def __repr__(self):
        parts = f"\n  {self.mixture_distribution},\n  {self.component_distribution}"
        return f"MixtureSameFamily({parts})"
