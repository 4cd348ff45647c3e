"""Losses of classes in ONNX; other losses are made of simpler ops."""

from __future__ import annotations

import flambeau
from flambeau.export.graph import Value, example

from .build import Builder
from .registry import Call, lowers


def _likelihood(b: Builder, log_p, target, weight, ignored: int, reduction: str) -> str:
    return b.op("NegativeLogLikelihoodLoss", log_p, target, weight, ignore_index=ignored,
                reduction=reduction)


def _as_batch(b: Builder, x: Value, target: Value):
    """Scores and classes with a batch, and how to take it away again."""
    if x.rank > 1:
        return b.name(x), b.name(target), lambda name: name
    return b.unsqueeze(x, [0]), b.unsqueeze(target, [0]), lambda name: b.squeeze(name, [0])


@lowers("class_likelihood")
def class_likelihood(b: Builder, call: Call, x, target, weight, ignored, reduction):
    scores, classes, single = _as_batch(b, x, target)
    found = _likelihood(b, scores, classes, weight, ignored, reduction)
    return single(found) if reduction == "none" else found


@lowers("class_entropy")
def class_entropy(b: Builder, call: Call, x, target, weight, ignored, reduction, smoothing):
    scores, classes, single = _as_batch(b, x, target)
    log_p = b.op("LogSoftmax", scores, axis=1)
    if not smoothing:
        found = _likelihood(b, log_p, classes, weight, ignored, reduction)
        return single(found) if reduction == "none" else found
    kind = x.dtype
    how = "none" if reduction == "none" else "sum"
    own = _likelihood(b, log_p, classes, weight, ignored, how)
    spread = _spread(b, x, log_p, classes, weight, ignored, how)
    found = b.op("Add", b.op("Mul", own, b.const(1 - smoothing, kind)),
                 b.op("Mul", spread, b.const(smoothing, kind)))
    if reduction != "mean":
        return single(found) if reduction == "none" else found
    # What the likelihood of "minus one" adds up to is the weight of all classes that count.
    ones = b.op("Expand", b.const(-1, kind), b.op("Shape", log_p))
    return b.op("Div", found, _likelihood(b, ones, classes, weight, ignored, "sum"))


def _spread(b: Builder, x: Value, log_p: str, classes: str, weight, ignored: int, how: str) -> str:
    """The mean of all classes' entropies in each row, where the row's class counts."""
    kind, rank = x.dtype, max(2, x.rank)
    if weight is not None:
        log_p = b.op("Mul", log_p, b.unsqueeze(weight, list(range(1, rank - 1)))
                     if rank > 2 else weight)
    count = example(x.shape[1 if x.rank > 1 else 0])
    mean = b.op("Div", b.op("Neg", b.reduce("ReduceSum", log_p, [1], False)),
                b.const(count, kind))
    counts = b.op("Not", b.op("Equal", classes, b.const(ignored, flambeau.int64)))
    kept = b.op("Where", counts, mean, b.const(0, kind))
    return kept if how == "none" else b.reduce("ReduceSum", kept, None, False)


@lowers("nn.functional.multilabel_margin_loss")
def multilabel_margin_loss(b: Builder, call: Call, x, target, size_average, reduce, reduction):
    """Target classes of a row end at the first -1; each is compared with all that are none."""
    kind, axis = x.dtype, x.rank - 1
    ended = b.op("CumSum", b.op("Cast", b.op("Less", target, b.const(0, flambeau.int64)), to=7),
                 b.const(axis, flambeau.int64))
    counts = b.op("Equal", ended, b.const(0, flambeau.int64))
    places = b.op("Where", counts, target, b.const(0, flambeau.int64))
    weight = b.cast(counts, kind)
    zeros = b.op("Expand", b.const(0, kind), b.op("Shape", x))
    marked = b.op("ScatterElements", zeros, places, weight, axis=axis, reduction="add")
    others = b.cast(b.op("Equal", marked, b.const(0, kind)), kind)
    wanted = b.unsqueeze(b.op("GatherElements", x, places, axis=axis), [x.rank])
    apart = b.op("Relu", b.op("Add", b.op("Sub", b.const(1, kind), wanted),
                              b.unsqueeze(x, [axis])))
    kept = b.op("Mul", b.op("Mul", apart, b.unsqueeze(weight, [x.rank])),
                b.unsqueeze(others, [axis]))
    losses = b.op("Div", b.reduce("ReduceSum", kept, [axis, axis + 1], False),
                  b.const(example(x.shape[axis]), kind))
    if reduction == "none":
        return losses
    return b.reduce("ReduceMean" if reduction == "mean" else "ReduceSum", losses, None, False)
