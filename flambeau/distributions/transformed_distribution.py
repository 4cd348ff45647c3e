"""A distribution seen through transforms."""

import math

import flambeau

from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import expanded, sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of f(x), where x follows the base distribution."""

    arg_constraints = {}

    def __init__(self, base_distribution, transforms, validate_args=None):
        if isinstance(transforms, Transform):
            transforms = [transforms]
        if not isinstance(transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.transforms = transforms
        whole = ComposeTransform(transforms)
        before, after = whole.domain.event_dim, whole.codomain.event_dim
        own = len(base_distribution.event_shape)
        shape = expanded(base_distribution.batch_shape, base_distribution.event_shape)
        if len(shape) < before:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {before}, "
                f"but got {shape}."
            )
        forward = whole.forward_shape(shape)
        needed = whole.inverse_shape(forward)
        if tuple(needed) != tuple(shape):
            base_distribution = base_distribution.expand(needed[: len(needed) - own])
        if before > own:
            base_distribution = Independent(base_distribution, before - own)
        self.base_dist = base_distribution
        cut = len(forward) - max(after, own + after - before)
        super().__init__(forward[:cut], forward[cut:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(TransformedDistribution, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape(
            expanded(batch_shape, self.event_shape)
        )
        batch = shape[: len(shape) - len(self.base_dist.event_shape)]
        new.base_dist = self.base_dist.expand(batch)
        new.transforms = self.transforms
        return self._expanded(new, batch_shape)

    @constraints.dependent_property(is_discrete=False)
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        region = self.transforms[-1].codomain
        extra = len(self.event_shape) - region.event_dim
        return constraints.independent(region, extra) if extra > 0 else region

    @property
    def has_rsample(self):
        return self.base_dist.has_rsample

    def _forward(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape=()):
        with flambeau.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=()):
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        y = self._checked(value)
        event_dim, stretched = len(self.event_shape), 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            stretch = transform.log_abs_det_jacobian(x, y)
            stretched += sum_rightmost(stretch, event_dim - transform.domain.event_dim)
            y = x
        density = self.base_dist.log_prob(y)
        return sum_rightmost(density, event_dim - len(self.base_dist.event_shape)) - stretched

    def _rising(self, probability):
        """A probability counted from the other end where the transforms fall."""
        sign = math.prod(t.sign for t in self.transforms)
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5

    def cdf(self, value):
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value):
        return self._forward(self.base_dist.icdf(self._rising(value)))
