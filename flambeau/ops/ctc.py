"""The loss of unaligned sequences: connectionist temporal classification."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..core.lazily import np
from .declare import SAME, T, composite, engine, library, registry
from .loss_reduction import reduction_of
from .refusal import no_kernel


@library(SAME, method=False, function_form=False, backward="CtcLossBackward0")
def ctc_likelihood(log_probs: T, targets, input_lengths, target_lengths, blank):
    """Minus the log-probability of each sequence of labels over all its alignments."""
    return (log_probs.shape[1],)


@ctc_likelihood.gradient
def ctc_likelihood(g, log_probs, targets, input_lengths, target_lengths, blank):
    slopes = ctc_slopes(log_probs, targets, input_lengths, target_lengths, blank)
    g = engine.reshape(g, (1, -1, 1))
    # Where no alignment is possible slopes are nan, and with zero_infinity nobody asks for them.
    return registry["where"]((slopes == 0) | (g == 0), 0.0, slopes * g)


@library(SAME, method=False, function_form=False)
def ctc_slopes(log_probs: T, targets, input_lengths, target_lengths, blank):
    """The gradient of each of those with respect to the log-probabilities."""
    return log_probs.shape


def _lengths(name: str, given, n: int) -> np.ndarray:
    values = engine.to_array(given).ravel() if hasattr(given, "sig") else np.asarray(given)
    if values.dtype.kind not in "iu":
        raise RuntimeError(f"ctc_loss: {name} must be integral")
    if values.size != n:
        raise RuntimeError(f"ctc_loss: {name} must be of size batch_size ({n}), got {values.size}")
    return values.reshape(-1).astype(np.int64)


def _padded(targets: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(N, S) from labels one sequence after the other."""
    longest = int(lengths.max()) if lengths.size else 0
    if targets.ndim == 2:
        return targets[:, :max(longest, 0)] if targets.shape[1] >= longest else targets
    rows = np.zeros((len(lengths), longest), np.int64)
    ends = np.cumsum(lengths)
    for row, end, n in zip(rows, ends, lengths, strict=True):
        row[:n] = targets[end - n:end]
    return rows


def _check(log_probs, targets: np.ndarray, inputs, lengths, blank: int) -> None:
    steps, _, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank must be in label range [0, {classes}), got {blank}")
    if inputs.size and (inputs.max() > steps or inputs.min() < 0):
        raise RuntimeError(f"ctc_loss: Expected input_lengths to have values between 0 and "
                           f"{steps}, but got {inputs.tolist()}")
    if lengths.size and lengths.min() < 0:
        raise RuntimeError(f"ctc_loss: Expected target_lengths to have non-negative values, but "
                           f"got {lengths.tolist()}")
    if targets.ndim == 1 and targets.size != lengths.sum():
        raise RuntimeError(f"ctc_loss: Expected targets of {lengths.sum()} labels, as "
                           f"target_lengths say, but got {targets.size}")
    if targets.ndim == 2 and lengths.size and lengths.max() > targets.shape[1]:
        raise RuntimeError(f"ctc_loss: Expected targets to have size at least {lengths.max()} at "
                           f"dimension 1, but got size {targets.shape[1]}")


@composite(where="nn.functional")
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean",
             zero_infinity=False):
    """Minus the log-probability of sequences of labels over all their alignments."""
    reduction = reduction_of(reduction)
    if targets.dtype not in (dt.int64, dt.int32):
        raise RuntimeError(f"ctc_loss: targets must be Long or Int, got {targets.dtype}")
    if log_probs.dtype not in (dt.float32, dt.float64):
        raise no_kernel("ctc_loss_cpu", log_probs.dtype)
    if log_probs.dim() not in (2, 3):
        raise RuntimeError(f"ctc_loss: log_probs must be 2-D or 3-D, got {log_probs.dim()}-D")
    batched = log_probs.dim() == 3
    if not batched:
        log_probs = registry["unsqueeze"](log_probs, 1)
    n = log_probs.shape[1]
    inputs = _lengths("input_lengths", input_lengths, n)
    lengths = _lengths("target_lengths", target_lengths, n)
    labels = engine.to_array(targets).astype(np.int64)
    if not batched and labels.ndim == 2:
        labels = labels.reshape(-1)
    _check(log_probs, labels, inputs, lengths, blank)
    losses = ctc_likelihood(log_probs, _padded(labels, lengths), inputs, lengths, blank)
    if zero_infinity:
        losses = registry["where"](losses == math.inf, 0.0, losses)
    if reduction == "mean":
        losses = losses / engine.tensor(np.maximum(lengths, 1), losses.dtype)
        return registry["mean"](losses)
    if reduction == "sum":
        return registry["sum"](losses)
    return losses if batched else engine.reshape(losses, ())
