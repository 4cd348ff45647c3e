"""Losses of single elements: how far each is from its target, then reduced."""

from __future__ import annotations

import math
import warnings

from ..core import expr as e
from ..core import shape as sh
from ..core.rows import each, row_program
from .activation import logsigmoid, sigmoid
from .arithmetic import exp, log
from .declare import FLOAT, REAL, SAME, composite, engine, pointwise, registry
from .exponential import log1p
from .loss_reduction import reduced, reduction_of
from .refusal import accepts, some_accepted

_HIDDEN = {"method": False, "function_form": False, "inplace": False}


def _warn_of_sizes(input, target) -> None:
    if target.shape != input.shape:
        warnings.warn(f"Using a target size ({target.shape}) that is different to the input size "
                      f"({input.shape}). This will likely lead to incorrect results due to "
                      "broadcasting. Please ensure they have the same size.", stacklevel=4)


def _weighed(name: str, losses, weight, input, reduction: str):
    """Losses times weights; a mean is one over the weights."""
    if weight.shape != input.shape:
        raise ValueError(f"{name}: Weights and input must have the same size, got "
                         f"{tuple(weight.shape)} and {tuple(input.shape)}.")
    losses = losses * weight
    if reduction == "mean":
        return registry["sum"](losses) / registry["sum"](weight)
    return reduced(losses, reduction)


# -- distances -------------------------------------------------------------------------------------


@pointwise(SAME, backward="MseLossBackward0", check=some_accepted("mse_cpu", "f"),
           said="mse_loss", **_HIDDEN)
def squared_error(x, y):
    """(x - y) squared"""
    apart = x - y
    return apart * apart


@pointwise(REAL, backward="AbsBackward0", said="l1_loss", **_HIDDEN)
def absolute_error(x, y):
    """|x - y|"""
    return registry["abs"](x - y)


@pointwise(SAME, backward="SmoothL1LossBackward0", check=some_accepted("smooth_l1_cpu", "f"),
           said="smooth_l1_loss", **_HIDDEN)
def smooth_error(x, y, *, beta):
    """Squared near zero, absolute from beta on."""
    apart = x - y
    size = e.call("abs", apart)
    return e.where(size < beta, 0.5 * apart * apart / beta, size - 0.5 * beta)


@pointwise(SAME, backward="HuberLossBackward0", check=some_accepted("huber_cpu", "f"),
           said="huber_loss", **_HIDDEN)
def huber_error(x, y, *, delta):
    """Squared near zero, delta times absolute from delta on."""
    apart = x - y
    size = e.call("abs", apart)
    return e.where(size <= delta, 0.5 * apart * apart, delta * (size - 0.5 * delta))


@composite(where="nn.functional", backward="MseLossBackward0")
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(input - target) squared."""
    reduction = reduction_of(reduction, size_average, reduce)
    _warn_of_sizes(input, target)
    losses = squared_error(input, target)
    if weight is not None:
        return _weighed("mse_loss", losses, weight, input, reduction)
    return reduced(losses, reduction)


@composite(where="nn.functional")
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|input - target|"""
    reduction = reduction_of(reduction, size_average, reduce)
    _warn_of_sizes(input, target)
    losses = absolute_error(input, target)
    if weight is not None:
        return _weighed("l1_loss", losses, weight, input, reduction)
    return reduced(losses, reduction)


@composite(where="nn.functional", backward="SmoothL1LossBackward0")
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Squared near zero, absolute from beta on."""
    reduction = reduction_of(reduction, size_average, reduce)
    _warn_of_sizes(input, target)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}.")
    if beta == 0:
        return reduced(absolute_error(input, target), reduction)
    return reduced(smooth_error(input, target, beta=float(beta)), reduction)


@composite(where="nn.functional", backward="HuberLossBackward0")
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Squared near zero, delta times absolute from delta on."""
    reduction = reduction_of(reduction)
    _warn_of_sizes(input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta, "
                           f"got {delta}.")
    losses = huber_error(input, target, delta=float(delta))
    if weight is not None:
        if weight.shape != input.shape:
            raise ValueError("huber_loss: Weights and input must have the same size, got "
                             f"{tuple(weight.shape)} and {tuple(input.shape)}.")
        losses = losses * weight
    return reduced(losses, reduction)


# -- probabilities ---------------------------------------------------------------------------------


@pointwise(SAME, backward="BinaryCrossEntropyBackward0",
           check=accepts("binary_cross_entropy", "f"), said="binary_cross_entropy", **_HIDDEN)
def binary_entropy(x, y):
    """-(y log(x) + (1 - y) log(1 - x)), no logarithm being below -100"""
    low = e.const(-100, x.dtype)
    return (y - 1) * e.maximum(log1p(-x), low) - y * e.maximum(log(x), low)


@binary_entropy.gradient
def binary_entropy(g, x, y):
    tiny = e.const(1e-12, x.dtype)
    return (lambda: g * (x - y) / e.maximum((1 - x) * x, tiny),
            lambda: g * (log1p(-x) - log(x)))


@row_program
def outside_unit(rows, x: each):
    """1 if some element is not between 0 and 1, else 0."""
    beyond = e.where(x - 1 > -x, x - 1, -x)  # NaN where x is, and one comparison in place of two
    return rows.once(rows.max(e.where(beyond <= 0, e.const(0, x.dtype), e.const(1, x.dtype))))


@composite(where="nn.functional", backward="BinaryCrossEntropyBackward0")
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None,
                         reduction="mean"):
    """Binary cross entropy of probabilities."""
    reduction = reduction_of(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input "
                         f"size ({input.shape}) is deprecated. Please ensure they have the same "
                         "size.")
    losses = binary_entropy(input, target)
    if not input.is_meta and input.numel():
        engine.check_none(outside_unit(input, dims=tuple(range(input.dim()))), lambda: RuntimeError(
            "binary_cross_entropy: all elements of input should be between 0 and 1"))
    return reduced(losses if weight is None else losses * weight, reduction)


@pointwise(SAME, backward="BinaryCrossEntropyWithLogitsBackward0",
           said="binary_cross_entropy_with_logits", **_HIDDEN)
def logit_entropy(x, y):
    """Binary cross entropy of logits."""
    return (1 - y) * x - logsigmoid(x)


@logit_entropy.gradient
def logit_entropy(g, x, y):
    return lambda: g * (sigmoid(x) - y), lambda: -g * x


@pointwise(SAME, backward="BinaryCrossEntropyWithLogitsBackward0",
           said="binary_cross_entropy_with_logits", **_HIDDEN)
def weighed_logit_entropy(x, y, positive):
    """Binary cross entropy of logits, positive targets counting `positive` times."""
    return (1 - y) * x - (1 + (positive - 1) * y) * logsigmoid(x)


@weighed_logit_entropy.gradient
def weighed_logit_entropy(g, x, y, positive):
    raised = positive * y
    return (lambda: g * ((raised + 1 - y) * sigmoid(x) - raised),
            lambda: -g * (x + (positive - 1) * logsigmoid(x)),
            lambda: -g * y * logsigmoid(x))


@composite(where="nn.functional", backward="BinaryCrossEntropyWithLogitsBackward0")
def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None,
                                     reduction="mean", pos_weight=None):
    """Binary cross entropy of logits."""
    reduction = reduction_of(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size "
                         f"({input.shape})")
    if pos_weight is None:
        losses = logit_entropy(input, target)
    else:
        losses = weighed_logit_entropy(input, target, pos_weight)
    return reduced(losses if weight is None else losses * weight, reduction)


@pointwise(SAME, said="kl_div", backward="SubBackward0", **_HIDDEN)
def divergence(x, y):
    """y (log(y) - x)"""
    return registry["xlogy"](y, y) - y * x


@pointwise(SAME, said="kl_div", backward="MulBackward0", **_HIDDEN)
def divergence_of_logs(x, y):
    """exp(y) (y - x)"""
    return exp(y) * (y - x)


@composite(where="nn.functional")
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """How far log-probabilities are from a distribution: target (log(target) - input)."""
    by_batch = reduction == "batchmean"
    reduction = "sum" if by_batch else reduction_of(reduction, size_average, reduce)
    if reduction == "mean":
        warnings.warn("reduction: 'mean' divides the total loss by both the batch size and the "
                      "support size. 'batchmean' divides only by the batch size, and aligns with "
                      "the KL math definition.", stacklevel=4)
    losses = (divergence_of_logs if log_target else divergence)(input, target)
    total = reduced(losses, reduction)
    return total / input.shape[0] if by_batch and input.dim() else total


# -- distributions ---------------------------------------------------------------------------------


@pointwise(FLOAT, said="poisson_nll_loss", backward="SubBackward0", **_HIDDEN)
def count_likelihood(x, y, *, eps, logs=True, full=False):
    """Minus the log-likelihood of a count y under a Poisson distribution of rate x or exp(x)."""
    loss = exp(x) - y * x if logs else x - y * log(x + eps)
    if full:
        stirling = y * log(y) - y + 0.5 * log(2 * math.pi * y)
        loss = loss + e.where(y > 1, stirling, e.const(0, stirling.dtype))
    return loss


@composite(where="nn.functional")
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8,
                     reduce=None, reduction="mean"):
    """Minus the log-likelihood of counts under Poisson distributions."""
    reduction = reduction_of(reduction, size_average, reduce)
    if input.shape != target.shape:
        sh.broadcast("poisson_nll_loss", target.shape, input.shape)
    losses = count_likelihood(input, target, eps=float(eps), logs=bool(log_input), full=bool(full))
    return reduced(losses, reduction)


@composite(where="nn.functional", backward="SoftMarginLossBackward0")
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target input)), for targets 1 and -1."""
    reduction = reduction_of(reduction, size_average, reduce)
    return reduced(signed_loss(input, target), reduction)


@pointwise(SAME, backward="SoftMarginLossBackward0", said="soft_margin_loss", **_HIDDEN)
def signed_loss(x, y):
    """log(1 + exp(-x y))"""
    return log1p(exp(-y * x))


def _checked_variance(input, var):
    """Variances that fit the input, as a tensor."""
    if not hasattr(var, "sig"):
        if var < 0:
            raise ValueError("gaussian_nll_loss: var has negative entry/entries")
        return input.detach() * 0 + var
    if not var.is_meta and bool((var < 0).any()):
        raise ValueError("gaussian_nll_loss: var has negative entry/entries")
    if var.shape == input.shape:
        return var
    if tuple(input.shape[:-1]) == tuple(var.shape):
        return registry["unsqueeze"](var, -1)
    differing = [v for x, v in zip(input.shape, var.shape, strict=False) if x != v]
    if input.dim() != var.dim() or sum(differing) != 1:
        raise ValueError(f"gaussian_nll_loss: var is of incorrect size: {tuple(var.shape)} for an "
                         f"input of {tuple(input.shape)}")
    return var


@pointwise(SAME, said="gaussian_nll_loss", **_HIDDEN)
def clamped_through(x, *, low):
    """x, but not below `low`; gradients pass as if it were x."""
    return e.maximum(x, low)


@clamped_through.gradient
def clamped_through(g):
    return g


@composite(where="nn.functional")
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """Minus the log-likelihood under normal distributions of given means and variances."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid: reduction is none, mean or sum")
    var = _checked_variance(input, var)
    reduction = reduction_of(reduction)
    var = clamped_through(var, low=float(eps))
    losses = 0.5 * (log(var) + squared_error(input, target) / var)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, reduction)
