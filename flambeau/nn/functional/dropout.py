"""Dropout and other functions that draw random numbers, with `inplace`."""

from __future__ import annotations

import warnings

import flambeau

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d",
           "feature_alpha_dropout", "gumbel_softmax", "rrelu", "rrelu_"]

rrelu_ = flambeau.rrelu_


def _check(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input, p=0.5, training=True, inplace=False):
    """Elements left out with probability p, the others scaled up by 1 / (1 - p)."""
    _check(p)
    return (flambeau.dropout_ if inplace else flambeau.dropout)(input, p, training)


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Elements set to SELU's saturation with probability p, keeping mean and variance."""
    _check(p)
    return (flambeau.alpha_dropout_ if inplace else flambeau.alpha_dropout)(input, p, training)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Whole channels set to SELU's saturation with probability p."""
    _check(p)
    form = flambeau.feature_alpha_dropout_ if inplace else flambeau.feature_alpha_dropout
    return form(input, p, training)


def _channels(input, p, training, inplace):
    return (flambeau.feature_dropout_ if inplace else flambeau.feature_dropout)(input, p, training)


def _unbatched(input, p, training, inplace):
    """The same of a single sample."""
    if inplace:
        return _channels(input.unsqueeze_(0), p, training, True).squeeze_(0)
    return _channels(input.unsqueeze(0), p, training, False).squeeze(0)


def _unusual(name, dims, wanted):
    warnings.warn(f"{name}: Received a {dims}-D input to {name}, which is deprecated and will "
                  f"result in an error in a future release. Expected {wanted}.", stacklevel=3)


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Whole channels of (N, C, L) or (C, L) left out with probability p."""
    _check(p)
    dims = input.dim()
    if dims not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {dims}D input. "
                           "Note that dropout1d exists to provide channel-wise dropout on inputs "
                           "with 1 spatial dimension, a channel dimension, and an optional batch "
                           "dimension (i.e. 2D or 3D inputs).")
    if dims == 3:
        return _channels(input, p, training, inplace)
    return _unbatched(input, p, training, inplace)


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Whole channels of (N, C, H, W) left out with probability p."""
    _check(p)
    dims = input.dim()
    if dims not in (3, 4):
        _unusual("dropout2d", dims, "a batched 4-D input, or dropout1d for (N, C, L)")
    elif dims == 3:
        warnings.warn("dropout2d: Received a 3D input to dropout2d and assuming that channel-wise "
                      "1D dropout behavior is desired - input is interpreted as shape (N, C, L), "
                      "where C is the channel dim.", stacklevel=2)
    return _channels(input, p, training, inplace)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Whole channels of (N, C, D, H, W) or (C, D, H, W) left out with probability p."""
    _check(p)
    dims = input.dim()
    if dims not in (4, 5):
        _unusual("dropout3d", dims, "a 5-D input, or a 4-D one without a batch")
    if dims == 5:
        return _channels(input, p, training, inplace)
    return _unbatched(input, p, training, inplace)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """input, or input times a slope below 0; the slope is random while training."""
    return (flambeau.rrelu_ if inplace else flambeau.rrelu)(input, lower, upper, training)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample of each distribution, softened by tau; with `hard`, one-hot on the way forward."""
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    drawn = flambeau.empty_like(logits, memory_format=flambeau.contiguous_format).exponential_()
    noise = -drawn.log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    sharp = flambeau.zeros_like(logits, memory_format=flambeau.contiguous_format).scatter_(
        dim, index, 1.0)
    return sharp - soft.detach() + soft
