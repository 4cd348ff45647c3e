"""Keeping gradients small."""

import functools
import math
import warnings

import flambeau
from flambeau import Tensor
from flambeau.assemble import plainly, together, tracing

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "get_total_norm",
]  # fmt: skip


def _gradients(parameters):
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


def _refuse_nonfinite(total, norm_type):
    if not math.isfinite(float(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )


@flambeau.no_grad()
def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors as if they were one vector."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return flambeau.tensor(0.0)
    found = together.total_norm(tensors, norm_type)
    if found is not None:
        total = flambeau.tensor(found[0], dtype=found[1])
    else:
        norms = [flambeau.linalg.vector_norm(t, norm_type) for t in tensors]
        first = norms[0].device
        total = flambeau.linalg.vector_norm(flambeau.stack([n.to(first) for n in norms]), norm_type)
    if error_if_nonfinite:
        _refuse_nonfinite(total, norm_type)
    return total


@flambeau.no_grad()
def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scale gradients down as a norm of `total_norm` needs to come down to `max_norm`."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    if together.scale_gradients(parameters, factor.item()):
        return
    for gradient in _gradients(parameters):
        gradient.mul_(factor.to(gradient.device))


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale all gradients together so that their norm is at most `max_norm`; return the norm."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if tracing():
        return plainly(clip_grad_norm_, parameters, max_norm, norm_type, error_if_nonfinite)
    found = together.total_norm(parameters, float(norm_type), gradients=True)
    if found is None:
        total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite, foreach)
        clip_grads_with_norm_(parameters, max_norm, total, foreach)
        return total
    total = flambeau.tensor(found[0], dtype=found[1])
    if error_if_nonfinite:
        _refuse_nonfinite(total, float(norm_type))
    together.scale_gradients(parameters, min(float(max_norm) / (found[0] + 1e-6), 1.0))
    return total


@functools.wraps(clip_grad_norm_)
def clip_grad_norm(*args, **kwargs):
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(*args, **kwargs)


@flambeau.no_grad()
def clip_grad_value_(parameters, clip_value, foreach=None):
    """Limit every element of the gradients to between -clip_value and clip_value."""
    clip_value = float(clip_value)
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if tracing():
        return plainly(clip_grad_value_, parameters, clip_value)
    if together.clamp_gradients(parameters, -clip_value, clip_value):
        return
    for gradient in _gradients(parameters):
        gradient.clamp_(min=-clip_value, max=clip_value)
