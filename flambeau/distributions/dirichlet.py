"""The Dirichlet distribution."""

import flambeau
from flambeau.autograd import Function
from flambeau.autograd.function import once_differentiable

from . import constraints
from .exp_family import ExponentialFamily
from .gamma_sampling import draw_all

__all__ = ["Dirichlet"]


def _sample_dirichlet(concentration, generator=None):
    """Gamma samples divided by their sum, without a gradient."""
    info = flambeau.finfo(concentration.dtype)
    parts = draw_all(concentration, generator).clamp(min=flambeau.finfo(flambeau.float64).tiny)
    x = (parts / parts.sum(-1, keepdim=True)).to(concentration.dtype)
    return x.clamp(min=info.tiny, max=1 - info.eps / 2)


class _Dirichlet(Function):
    """Gamma samples divided by their sum; each share moves so that its quantile stays."""

    @staticmethod
    def forward(ctx, concentration):
        x = _sample_dirichlet(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, concentration = ctx.saved_tensors
        total = concentration.sum(-1, True).expand_as(concentration)
        slope = flambeau._dirichlet_grad(x, concentration, total)
        return slope * (g - (x * g).sum(-1, True))


class Dirichlet(ExponentialFamily):
    """Shares of a whole; the larger the concentrations, the closer to their proportions."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self):
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self):
        """Where two or more are below one, the corner of the largest."""
        excess = (self.concentration - 1).clamp(min=0.0)
        mode = excess / excess.sum(-1, True)
        flat = (self.concentration < 1).all(-1)
        corner = flambeau.nn.functional.one_hot(mode.argmax(-1), mode.shape[-1]).to(mode.dtype)
        return flambeau.where(flat.unsqueeze(-1), corner, mode)

    @property
    def variance(self):
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape=()):
        return _Dirichlet.apply(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        value, a = self._checked(value), self.concentration
        return flambeau.xlogy(a - 1.0, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self):
        a, k = self.concentration, self.concentration.size(-1)
        total = a.sum(-1)
        spread = (k - total) * total.digamma() + ((a - 1.0) * a.digamma()).sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - spread

    @property
    def _natural_params(self):
        return (self.concentration,)

    def _log_normalizer(self, x):
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
