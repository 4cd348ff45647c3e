"""Exponential families: densities exp(t(x) . eta - F(eta) + k(x))."""

import flambeau

from .distribution import Distribution
from .utils import sum_rightmost

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Subclasses give natural parameters eta and the log normalizer F; entropies follow."""

    @property
    def _natural_params(self):
        raise self._lacks("_natural_params")

    def _log_normalizer(self, *natural_params):
        raise self._lacks("_log_normalizer")

    @property
    def _mean_carrier_measure(self):
        raise self._lacks("_mean_carrier_measure")

    def entropy(self):
        """F - eta . grad F - E[k], the gradient by differentiation."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with flambeau.enable_grad():
            normalizer = self._log_normalizer(*natural)
            gradients = flambeau.autograd.grad(normalizer.sum(), natural, create_graph=True)
        result = -self._mean_carrier_measure + normalizer
        for eta, gradient in zip(natural, gradients, strict=True):
            result = result - sum_rightmost(eta * gradient, len(self.event_shape))
        return result
