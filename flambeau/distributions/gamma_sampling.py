"""Samples of the standard gamma distribution, and how they move with its parameter."""

import flambeau


def draw_all(alpha, generator=None):
    """A double-precision sample for every element; no gradient."""
    return flambeau._standard_gamma(alpha.detach().double(), generator=generator)


def standard_gamma(alpha):
    """Standard gamma samples of the dtype of alpha, differentiable in alpha."""
    return flambeau._standard_gamma(alpha)
