"""The cross entropy of a linear map, in pieces of the batch if asked, so that few logits live."""

from __future__ import annotations

import warnings

import flambeau
from flambeau import _assemble

__all__ = ["linear_cross_entropy"]

_linear = _assemble.functions["nn.functional.linear"]
_cross_entropy = _assemble.functions["nn.functional.cross_entropy"]


def _check(input, linear_weight, linear_bias):
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError("expected linear_weight with dimensionality at least 2, got "
                           f"{linear_weight.dim()}")
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError("expected equal input and linear_weight last dimensions (in_features), "
                           f"got {input.shape[-1]} and {linear_weight.shape[-1]}, respectively")
    wanted = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != wanted:
        raise RuntimeError(f"expected linear_bias shape {wanted}, got {tuple(linear_bias.shape)}")
    if linear_weight.dim() > 2 and input.dim() == 1:
        raise RuntimeError(f"K-dimensional loss defined by linear_weight shape "
                           f"{tuple(linear_weight.shape)} requires batched input, (N, "
                           f"{input.shape[-1]}), got unbatched input with shape "
                           f"{tuple(input.shape)}")


def _logits(input, linear_weight, linear_bias):
    """(N, C, d...) logits."""
    sizes = tuple(linear_weight.shape[:-1])
    flat = linear_weight.reshape(-1, linear_weight.shape[-1])
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    return _linear(input, flat, bias).reshape(*input.shape[:-1], *sizes)


def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None,
                         reduction="mean", ignore_index=None, label_smoothing=0.0, options=None):
    """cross_entropy(linear(input, linear_weight, linear_bias), target)"""
    _check(input, linear_weight, linear_bias)
    probabilities = tuple(target.shape) == (*input.shape[:-1], *linear_weight.shape[:-1])
    if probabilities and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignore_index = -100 if ignore_index is None else ignore_index
    if options is not None and (linear_weight.dim() > 2 or label_smoothing or probabilities
                                or target.dtype is not flambeau.int64):
        warnings.warn("linear_cross_entropy: ``options`` ignored: pieces need class indices of "
                      "int64, no label smoothing and a weight of two dimensions", stacklevel=2)
        options = None
    if options is None or input.dim() == 1:
        return _cross_entropy(_logits(input, linear_weight, linear_bias), target, weight,
                              ignore_index=ignore_index, reduction=reduction,
                              label_smoothing=label_smoothing)
    return _in_pieces(input, linear_weight, target, linear_bias, weight, reduction, ignore_index,
                      options)


def _in_pieces(input, linear_weight, target, linear_bias, weight, reduction, ignore_index, options):
    size = getattr(options, "batch_chunk_size", None) or max(len(input), 1)
    kind = "none" if reduction == "none" else "sum"
    losses = [_cross_entropy(_logits(x, linear_weight, linear_bias), t, weight,
                             ignore_index=ignore_index, reduction=kind)
              for x, t in zip(input.split(size), target.split(size), strict=True)]
    if reduction == "none":
        return flambeau.cat(losses)
    total = sum(losses[1:], losses[0])
    if reduction == "sum":
        return total
    counted = target != ignore_index
    if weight is None:
        return total / counted.sum()
    chosen = weight[target.where(counted, flambeau.zeros_like(target))]
    return total / (chosen * counted).sum()
