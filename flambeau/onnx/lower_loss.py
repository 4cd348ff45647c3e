"""Losses of classes, and bags of embeddings, in ONNX; other losses are made of simpler ops."""

from __future__ import annotations

import flambeau
from flambeau.export.graph import Value, example

from .build import Builder, UnsupportedOperatorError
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


@lowers("nn.functional.embedding_bag")
def embedding_bag(b: Builder, call: Call, index, weight, offsets, max_norm, norm_type, by_freq,
                  mode, sparse, each_weight, last, padding):
    if max_norm is not None or padding is not None:
        raise UnsupportedOperatorError("embedding_bag with max_norm or padding_idx has no lowering")
    rows = b.op("Gather", weight, index, axis=0)
    if each_weight is not None:
        rows = b.op("Mul", rows, b.unsqueeze(each_weight, [index.rank]))
    if index.rank == 2:
        kinds = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}
        return b.reduce(kinds[mode], rows, [1], False)
    if mode == "max":
        raise UnsupportedOperatorError("embedding_bag of offsets with mode='max' has no lowering")
    return _by_offsets(b, call, rows, index, weight, offsets, mode, last)


def _by_offsets(b: Builder, call: Call, rows: str, index: Value, weight: Value, offsets: Value,
                mode: str, last: bool) -> str:
    """The bag of each row is the number of bags that have begun there."""
    kind, one = weight.dtype, b.const(1, flambeau.int64)
    begins = b.op("Slice", offsets, b.ints([0]), b.ints([-1]), b.ints([0])) if last else (
        b.name(offsets))
    places = b.op("Range", b.const(0, flambeau.int64), b.op("Size", index), one)
    begun = b.op("GreaterOrEqual", b.unsqueeze(places, [1]), b.unsqueeze(begins, [0]))
    bag = b.op("Sub", b.reduce("ReduceSum", b.op("Cast", begun, to=7), [1], True), one)
    width = example(weight.shape[1])
    zeros = b.op("Expand", b.const(0, kind), b.ints(list(call.out.shape)))
    wide = b.op("Expand", bag, b.op("Shape", rows))
    total = b.op("ScatterElements", zeros, wide, rows, axis=0, reduction="add")
    if mode == "sum":
        return total
    ones = b.op("Expand", b.const(1, kind), b.op("Shape", rows))
    counts = b.op("ScatterElements", zeros, wide, ones, axis=0, reduction="add")
    return b.op("Div", total, b.op("Max", counts, b.const([1.0] * width, kind)))


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
