"""Batch and instance normalisation, with running statistics."""

from __future__ import annotations

import functools
import math

from .declare import T, composite, engine, registry
from .norm import (
    _sig,
    _slopes_by_ops,
    affine_slopes,
    as_parameters,
    batch_normalised,
    batch_slopes,
    fixed_normalised,
    fixed_slopes,
    normalised,
    normalised_slopes,
)
from .refusal import spoken


def _per_channel(tensor, input):
    """One number per channel, against (N, C, ...)."""
    if tensor is None:
        return None
    return engine.reshape(tensor, (1, -1, *(1 for _ in range(input.dim() - 2))))


def _but_channels(input) -> tuple[int, ...]:
    return _all_but_second(input.sig.rank)


@functools.cache
def _all_but_second(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank))


def _owned(part, tensor):
    """A gradient per channel, in the tensor's own dtype."""
    if tensor is None:
        return None
    return engine.cast(engine.reshape(part, tensor.shape), tensor.dtype)


# -- batch norm ------------------------------------------------------------------------------------


@composite(method=False, function_form=False, backward="NativeBatchNormBackward0", keeps=True)
def normalised_by_batch(input: T, weight: T, bias: T, running_mean, running_var, momentum, eps):
    """Channels normalised by the batch; running statistics follow."""
    dims = _but_channels(input)
    out, mean, root, *running = batch_normalised(input, weight, bias, running_mean, running_var,
                                                 dims=dims, eps=eps, momentum=momentum)
    if running:
        engine.replace_values([r for r in (running_mean, running_var) if r is not None], running)
    return out, (input, weight, bias, eps, mean, root)


@normalised_by_batch.gradient
def normalised_by_batch(g, input, weight, bias, eps, mean, root):
    dims = _but_channels(input)
    if not engine.recording():
        slope, scale, shift = batch_slopes(input, g, weight, mean, root, dims=dims)
    else:
        slope, scale, shift = _slopes_by_ops(g, input, _per_channel(weight, input), dims, eps)
        scale, shift = (registry["sum"](s, dims) for s in (scale, shift))
    return slope, _owned(scale, weight), _owned(shift, bias)


@composite(method=False, function_form=False, backward="NativeBatchNormBackward0", keeps=True)
def normalised_by_statistics(input: T, weight: T, bias: T, mean, variance, eps):
    """Channels normalised by given statistics."""
    out = fixed_normalised(input, weight, bias, mean, variance, dims=_but_channels(input), eps=eps)
    return out, (input, weight, bias, mean, variance, eps)


@normalised_by_statistics.gradient
def normalised_by_statistics(g, input, weight, bias, mean, variance, eps):
    dims = _but_channels(input)
    if not engine.recording():
        slope, scale, shift = fixed_slopes(input, g, weight, mean, variance, dims=dims, eps=eps)
    else:
        root = registry["rsqrt"](_per_channel(variance, input) + eps)
        apart = (input - _per_channel(mean, input)) * root
        slope = g * root if weight is None else g * (root * _per_channel(weight, input))
        scale, shift = (registry["sum"](s, dims) for s in (g * apart, g))
    return slope, _owned(scale, weight), _owned(shift, bias)


@functools.lru_cache(maxsize=4096)
def _check_channels(name: str, input, running_mean, running_var, weight, bias) -> None:
    """Refuse signatures that do not fit together."""
    if input.rank < 2:
        raise RuntimeError(f"{name}: expected input with at least 2 dimensions (N, C, ...), got "
                           f"{input.rank}")
    if input.dtype.kind != "f":
        raise NotImplementedError(f"\"{name}\" not implemented for '{spoken(input.dtype)}'")
    channels = input.shape[1]
    for what, given in (("running_mean", running_mean), ("running_var", running_var),
                        ("weight", weight), ("bias", bias)):
        if given is not None and given.numel != channels:
            raise RuntimeError(f"{what} should contain {channels} elements not {given.numel}")


def _nothing(input, weight, bias):
    """The result for no elements; statistics stay as they are."""
    out = engine.clone(input)
    for tensor, combine in ((weight, registry["mul"]), (bias, registry["add"])):
        if tensor is not None:
            out = combine(out, registry["select"](tensor, 0, 0))
    return out


def _normalised(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """Channels normalised over the batch, or by running statistics."""
    if not input.sig.numel:
        return _nothing(input, weight, bias)
    _check_channels("batch_norm", input.sig, _sig(running_mean), _sig(running_var), _sig(weight),
                    _sig(bias))
    if training:
        return normalised_by_batch.run(input, weight, bias, running_mean, running_var,
                                       float(momentum), float(eps))
    if running_mean is None or running_var is None:
        raise RuntimeError("batch_norm: running_mean and running_var must be defined in evaluation "
                           "mode")
    return normalised_by_statistics(input, weight, bias, running_mean, running_var, float(eps))


@composite(where="nn.functional")
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False,
               momentum=0.1, eps=1e-5):
    """Normalise each channel over the batch, or by running statistics."""
    if eps < 0 or (training and eps == 0):
        wanted = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {wanted}, but got {eps}")
    if training:
        size = input.sig.shape
        if len(size) > 1 and math.prod((size[0], *size[2:])) == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input "
                             f"size {input.shape}")
    return _normalised(input, weight, bias, running_mean, running_var, training, momentum, eps)


@composite(name="batch_norm", method=False)
def full_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                    cudnn_enabled=True):
    """Normalise each channel over the batch, or by running statistics."""
    return _normalised(input, weight, bias, running_mean, running_var, training, momentum, eps)


@composite(method=False)
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """batch_norm, with the batch's means and inverses of deviations; empty in evaluation."""
    out = _normalised(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if training and input.numel():
        _, mean, root, *_ = batch_normalised(input.detach(), None, None, None, None,
                                             dims=_but_channels(input), eps=float(eps),
                                             momentum=0.0)
    else:
        mean, root = (engine.empty((0,), input.dtype.compute) for _ in range(2))
    return out, *as_parameters(input, weight, bias, mean, root)


# -- instance norm ---------------------------------------------------------------------------------


def _within(input) -> tuple[int, ...]:
    return tuple(range(2, input.dim()))


@composite(method=False, function_form=False, backward="ViewBackward0", keeps=True)
def normalised_by_instance(input: T, weight: T, bias: T, running_mean, running_var, momentum, eps):
    """Each channel of each sample normalised; running statistics follow."""
    scale, shift = (None if t is None else _per_channel(t.detach(), input) for t in (weight, bias))
    out, mean, root = normalised(input, scale, shift, dims=_within(input), eps=eps)
    if running_mean is not None or running_var is not None:
        _follow_instances(running_mean, running_var, mean, root, math.prod(input.shape[2:]),
                          momentum, eps)
    return out, (input, weight, bias, eps, mean, root)


@normalised_by_instance.gradient
def normalised_by_instance(g, input, weight, bias, eps, mean, root):
    dims, own = _within(input), _per_channel(weight, input)
    over = _but_channels(input)
    if engine.recording():
        slope, scale, shift = _slopes_by_ops(g, input, own, dims, eps)
        scale, shift = (registry["sum"](s, over) for s in (scale, shift))
        return slope, _owned(scale, weight), _owned(shift, bias)
    slope = normalised_slopes(input, g, own, mean, root, dims=dims)
    if weight is None and bias is None:
        return slope, None, None
    scale, shift = affine_slopes(input, g, mean, root, dims=over)
    return slope, _owned(scale, weight), _owned(shift, bias)


def _follow(have, new, momentum: float) -> None:
    """A running statistic moved towards the mean over samples."""
    have.copy_(have * (1 - momentum) + engine.cast(new, have.dtype) * momentum)


@composite(where="nn.functional")
def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None,
                  use_input_stats=True, momentum=0.1, eps=1e-5):
    """Normalise each channel of each sample over its places, or by running statistics."""
    _check_channels("instance_norm", input.sig, _sig(running_mean), _sig(running_var),
                    _sig(weight), _sig(bias))
    if not use_input_stats:
        return _normalised(input, weight, bias, running_mean, running_var, False, momentum, eps)
    places = math.prod(input.shape[2:])
    if places == 1:
        raise ValueError("Expected more than 1 spatial element when training, got input size "
                         f"{input.shape}")
    return normalised_by_instance(input, weight, bias, running_mean, running_var, float(momentum),
                                  float(eps))


def _follow_instances(running_mean, running_var, mean, root, places: int, momentum, eps) -> None:
    over = (0, *range(2, mean.dim()))
    if running_mean is not None:
        _follow(running_mean, registry["mean"](mean, over), momentum)
    if running_var is not None:
        variance = (1 / (root * root) - eps) * (places / (places - 1))
        _follow(running_var, registry["mean"](variance, over), momentum)
