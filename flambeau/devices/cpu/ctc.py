"""Connectionist temporal classification: sums over all alignments, in logarithms."""

from __future__ import annotations

from ...core.lazily import np
from .routines import routine

MINUS = -np.inf


def _add(*logs):
    """log of a sum of exponentials, minus infinity being nothing."""
    largest = np.maximum.reduce(logs)
    shift = np.where(np.isneginf(largest), 0, largest)
    with np.errstate(divide="ignore"):
        return np.log(sum(np.exp(x - shift) for x in logs)) + shift


def _paths(targets: np.ndarray, lengths: np.ndarray, blank: int):
    """Labels with blanks between and around them, (N, 2 S + 1), and where two steps are allowed."""
    n, s = targets.shape
    labels = np.full((n, 2 * s + 1), blank, np.int64)
    labels[:, 1::2] = np.where(np.arange(s) < lengths[:, None], targets, blank)
    skip = np.zeros(labels.shape, bool)
    skip[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    return labels, skip


def _shifted(x: np.ndarray, by: int) -> np.ndarray:
    """Columns moved right, or left if negative; minus infinity comes in."""
    out = np.full_like(x, MINUS)
    if by > 0:
        out[:, by:] = x[:, :-by]
    else:
        out[:, :by] = x[:, -by:]
    return out


def _forward(seen: np.ndarray, skip: np.ndarray) -> np.ndarray:
    """alpha[t, n, s]: of all beginnings of alignments that are at s at time t."""
    alpha = np.full(seen.shape, MINUS, seen.dtype)
    if not len(seen):
        return alpha
    alpha[0, :, :2] = seen[0, :, :2]
    for t in range(1, len(seen)):
        before = alpha[t - 1]
        two = np.where(skip, _shifted(before, 2), MINUS)
        alpha[t] = _add(before, _shifted(before, 1), two) + seen[t]
    return alpha


def _backward(seen: np.ndarray, skip: np.ndarray, inputs: np.ndarray, lengths: np.ndarray):
    """beta[t, n, s]: of all ends of alignments that are at s at time t."""
    beta = np.full(seen.shape, MINUS, seen.dtype)
    places = np.arange(seen.shape[2])
    last = (places == 2 * lengths[:, None]) | (places == 2 * lengths[:, None] - 1)
    follow = np.zeros_like(skip)
    follow[:, :-2] = skip[:, 2:]
    after = np.full(seen.shape[1:], MINUS, seen.dtype)
    for t in range(len(seen) - 1, -1, -1):
        two = np.where(follow, _shifted(after, -2), MINUS)
        onward = _add(after, _shifted(after, -1), two)
        begins = (inputs == t + 1)[:, None]
        onward = np.where(begins, np.where(last, 0, MINUS), onward)
        after = np.where((t < inputs)[:, None], onward + seen[t], MINUS)
        beta[t] = after
    return beta


def _prepared(log_probs, targets, inputs, lengths, blank):
    labels, skip = _paths(targets, lengths, blank)
    at_each_step = np.broadcast_to(labels, (len(log_probs), *labels.shape))
    seen = np.take_along_axis(log_probs, at_each_step, 2)
    return labels, skip, seen


def _likelihood(alpha: np.ndarray, inputs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    n = np.arange(len(inputs))
    if not len(alpha):
        return np.where(lengths == 0, 0, MINUS)
    at = alpha[np.maximum(inputs - 1, 0), n]
    ends = at[n, 2 * lengths]
    before = np.where(lengths > 0, at[n, np.maximum(2 * lengths - 1, 0)], MINUS)
    return np.where(inputs > 0, _add(ends, before), np.where(lengths == 0, 0, MINUS))


@routine
def ctc_likelihood(log_probs, targets, input_lengths, target_lengths, blank):
    _, skip, seen = _prepared(log_probs, targets, input_lengths, target_lengths, blank)
    return -_likelihood(_forward(seen, skip), input_lengths, target_lengths).astype(log_probs.dtype)


@routine
def ctc_slopes(log_probs, targets, input_lengths, target_lengths, blank):
    """The gradient of each loss: probabilities less the share of alignments that pass there."""
    labels, skip, seen = _prepared(log_probs, targets, input_lengths, target_lengths, blank)
    alpha = _forward(seen, skip)
    beta = _backward(seen, skip, input_lengths, target_lengths)
    total = _likelihood(alpha, input_lengths, target_lengths)
    n = np.arange(labels.shape[0])
    with np.errstate(invalid="ignore", over="ignore"):
        passing = np.exp(alpha + beta - seen - total[:, None])
    share = np.zeros_like(log_probs)
    for s in range(labels.shape[1]):
        inside = s <= 2 * target_lengths
        share[:, n, labels[:, s]] += np.where(inside, passing[:, :, s], 0)
    slopes = np.exp(log_probs) - share
    times = np.arange(len(log_probs))[:, None] < input_lengths
    return np.where(times[:, :, None], slopes, 0).astype(log_probs.dtype)
