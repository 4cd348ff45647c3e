"""The loss of unaligned sequences in ONNX: a loop over the steps of the input."""

from __future__ import annotations

import math

import numpy as np

import flambeau
from flambeau.export.graph import Value

from .build import Builder
from .registry import Call, lowers

WHOLE = flambeau.int64


@lowers("nn.functional.ctc_loss")
def ctc_loss(b: Builder, call: Call, log_probs, targets, input_lengths, target_lengths, blank,
             reduction, zero_infinity):
    kind = log_probs.dtype
    scores = b.name(log_probs) if log_probs.rank == 3 else b.unsqueeze(log_probs, [1])
    steps, counts = (_lengths(b, given) for given in (input_lengths, target_lengths))
    labels = _between_blanks(b, _padded(b, targets, counts, log_probs.rank == 3), blank,
                             log_probs.shape[-1])
    ends = _alignments(b, scores, labels, steps, blank, kind)
    # The last label, or the blank after it: the one before the first is no end.
    last = b.op("Mul", counts, b.const(2, WHOLE))
    before = b.op("Max", b.op("Sub", last, b.const(1, WHOLE)), b.const(0, WHOLE))
    one, other = (b.op("GatherElements", ends, b.unsqueeze(place, [1]), axis=1)
                  for place in (last, before))
    none = b.op("Equal", b.unsqueeze(counts, [1]), b.const(0, WHOLE))
    other = b.op("Where", none, b.const(-math.inf, kind), other)
    losses = b.op("Neg", b.squeeze(_log_sum(b, [one, other], kind), [1]))
    if zero_infinity:
        losses = b.op("Where", b.op("IsInf", losses), b.const(0, kind), losses)
    if reduction == "mean":
        losses = b.op("Div", losses, b.op("Max", b.cast(counts, kind), b.const(1, kind)))
    if reduction != "none":
        return b.reduce("ReduceMean" if reduction == "mean" else "ReduceSum", losses, None, False)
    return losses if log_probs.rank == 3 else b.squeeze(losses, [0])


def _lengths(b: Builder, given) -> str:
    """Lengths as a vector, of tensors and of numbers."""
    if isinstance(given, Value):
        return b.op("Reshape", b.cast(given, WHOLE), b.ints([-1]))
    return b.const(np.array(given, np.int64).reshape(-1))


def _padded(b: Builder, targets: Value, counts: str, batched: bool) -> str:
    """(batch, longest): labels that come in a row are cut by their numbers."""
    labels = b.cast(targets, WHOLE)
    if targets.rank == 2 and batched:
        return labels
    labels = b.op("Reshape", labels, b.ints([-1]))
    begins = b.op("CumSum", counts, b.const(0, WHOLE), exclusive=1)
    longest = b.reduce("ReduceMax", counts, [0], False)
    places = b.op("Range", b.const(0, WHOLE), longest, b.const(1, WHOLE))
    places = b.op("Add", b.unsqueeze(begins, [1]), b.unsqueeze(places, [0]))
    end = b.op("Sub", b.op("Size", labels), b.const(1, WHOLE))
    return b.op("Gather", labels, b.op("Min", places, end), axis=0)


def _between_blanks(b: Builder, labels: str, blank: int, classes) -> str:
    """(batch, 2 longest + 1): a blank, then each label with a blank after it."""
    # What lies behind a sequence's end counts nowhere, but has to be a class.
    labels = b.op("Max", b.op("Min", labels, b.op("Sub", b.scalar(classes), b.const(1, WHOLE))),
                  b.const(0, WHOLE))
    blanks = b.op("Expand", b.const(blank, WHOLE), b.op("Shape", labels))
    pairs = b.op("Concat", b.unsqueeze(labels, [2]), b.unsqueeze(blanks, [2]), axis=2)
    first = b.op("Expand", b.const(blank, WHOLE), b.op(
        "Concat", b.op("Gather", b.op("Shape", labels), b.ints([0])), b.ints([1]), axis=0))
    return b.op("Concat", first, b.op("Reshape", pairs, b.ints([0, -1])), axis=1)


def _alignments(b: Builder, scores: str, labels: str, steps: str, blank: int, kind) -> str:
    """(batch, labels): log-probabilities of all ways that end at each label at the last step."""
    never = b.const(-math.inf, kind)
    two_on = b.slice(labels, 1, 2, 1 << 62)
    leaps = b.op("Not", b.op("Or", b.op("Equal", two_on, b.slice(labels, 1, 0, -2)),
                             b.op("Equal", two_on, b.const(blank, WHOLE))))
    # Before the first step all ways are at the first blank.
    nowhere = b.op("Expand", never, b.op("Shape", b.slice(labels, 1, 1, 1 << 62)))
    start = b.op("Expand", b.const(0, kind), b.op("Shape", b.slice(labels, 1, 0, 1)))
    column = b.op("Expand", never, b.op("Shape", start))
    times = b.op("Range", b.const(0, WHOLE), b.op("Squeeze", b.op(
        "Gather", b.op("Shape", scores), b.ints([0])), b.ints([0])), b.const(1, WHOLE))

    def step(ways: str, now: str, time: str) -> list[str]:
        one = b.op("Concat", column, b.slice(ways, 1, 0, -1), axis=1)
        two = b.op("Where", leaps, b.slice(ways, 1, 0, -2), never)
        two = b.op("Slice", b.op("Concat", column, column, two, axis=1), b.ints([0]),
                   b.unsqueeze(width, [0]), b.ints([1]))
        come = b.op("Add", _log_sum(b, [ways, one, two], kind),
                    b.op("GatherElements", now, labels, axis=1))
        going = b.unsqueeze(b.op("Less", time, steps), [1])
        return [b.op("Where", going, come, ways)]

    width = b.op("Gather", b.op("Shape", labels), b.const(1, WHOLE))
    ways = b.op("Concat", start, nowhere, axis=1)
    return b.scan(step, [(ways, kind)], [(scores, kind), (times, WHOLE)], [])[0]


def _log_sum(b: Builder, parts: list[str], kind) -> str:
    """The logarithm of a sum of exponentials, of which all may be zero."""
    largest = b.op("Max", *parts)
    largest = b.op("Where", b.op("IsInf", largest), b.const(0, kind), largest)
    total = b.op("Sum", *(b.op("Exp", b.op("Sub", part, largest)) for part in parts))
    return b.op("Add", b.op("Log", total), largest)
