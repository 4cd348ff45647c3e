"""The LKJ distribution of correlation matrices."""

import math

import flambeau

from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import broadcast_all, expanded

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """The Cholesky factor of a correlation matrix; uniform over them at concentration one."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        like = self.concentration
        offset = flambeau.arange(-1, dim - 1, dtype=like.dtype, device=like.device).clamp(min=0)
        marginal = self.concentration + 0.5 * (dim - 2)
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        super().__init__(like.shape, (dim, dim), validate_args=validate_args)

    def _expanded(self, new, batch_shape):
        new.dim = self.dim
        new._beta = self._beta.expand(expanded(batch_shape, (self.dim,)))
        return super()._expanded(new, batch_shape)

    def sample(self, sample_shape=()):
        """The onion method: every row a direction, and how far it leans off the diagonal."""
        with flambeau.no_grad():
            lean = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            normal = flambeau.randn(shape, dtype=lean.dtype, device=lean.device).tril(-1)
            direction = normal / normal.norm(dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0
            w = lean.sqrt() * direction
            tiny = flambeau.finfo(w.dtype).tiny
            return w + (1 - (w * w).sum(-1)).clamp(min=tiny).sqrt().diag_embed()

    def log_prob(self, value):
        diagonal = self._checked(value).diagonal(dim1=-1, dim2=-2)[..., 1:]
        n, like = self.dim, self.concentration
        order = flambeau.arange(2, n + 1, device=like.device)
        order = 2 * (like - 1).unsqueeze(-1) + n - order
        alpha = like + 0.5 * (n - 1)
        normalizer = 0.5 * (n - 1) * math.log(math.pi)
        normalizer = normalizer + flambeau.mvlgamma(alpha - 0.5, n - 1) - (n - 1) * alpha.lgamma()
        return (order * diagonal.log()).sum(-1) - normalizer
