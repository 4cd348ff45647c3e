"""Rows of a table, one by one and in bags, in ONNX."""

from __future__ import annotations

import math

import flambeau
from flambeau.export.graph import Value

from .build import Builder
from .registry import Call, axis_of, lowers


def _rows(b: Builder, weight: Value, index: Value, max_norm, norm_type) -> str:
    """The rows asked for, none longer than max_norm.

    Here they are shortened in the table. A graph cannot change its weights, but shortening twice
    is shortening once: the answers are the same.
    """
    rows = b.op("Gather", weight, index, axis=0)
    if max_norm is None:
        return rows
    kind = weight.dtype
    powers = b.op("Pow", b.op("Abs", rows), b.const(float(norm_type), kind))
    norm = b.op("Pow", b.reduce("ReduceSum", powers, [index.rank], True),
                b.const(1 / norm_type, kind))
    shorter = b.op("Div", b.const(max_norm, kind), b.op("Add", norm, b.const(1e-7, kind)))
    scale = b.op("Where", b.op("Greater", norm, b.const(max_norm, kind)), shorter,
                 b.const(1, kind))
    return b.op("Mul", rows, scale)


@lowers("nn.functional.embedding")
def embedding(b: Builder, call: Call, index, weight, padding, max_norm, norm_type, *rest):
    return _rows(b, weight, index, max_norm, norm_type)


@lowers("nn.functional.embedding_bag")
def embedding_bag(b: Builder, call: Call, index, weight, offsets, max_norm, norm_type, by_freq,
                  mode, sparse, each_weight, last, padding):
    kind = weight.dtype
    rows = _rows(b, weight, index, max_norm, norm_type)
    if each_weight is not None:
        rows = b.op("Mul", rows, b.unsqueeze(each_weight, [index.rank]))
    counted = b.op("Expand", b.const(1, kind), b.op("Shape", index))
    if padding is not None:
        own = b.const(axis_of(padding, weight.sizes[0]), index.dtype)
        kept = b.op("Not", b.op("Equal", index, own))
        counted = b.cast(kept, kind)
        nothing = b.const(-math.inf if mode == "max" else 0, kind)
        rows = b.op("Where", b.unsqueeze(kept, [index.rank]), rows, nothing)
    add = _along_rows if index.rank == 2 else _by_offsets(b, call, index, offsets, last)
    counts = add(b, b.unsqueeze(counted, [index.rank]), "add", kind, 1)
    if mode == "max":
        largest = add(b, rows, "max", kind, weight.shape[1])
        empty = b.op("Equal", counts, b.const(0, kind))
        return b.op("Where", empty, b.const(0, kind), largest)
    total = add(b, rows, "add", kind, weight.shape[1])
    return total if mode == "sum" else b.op("Div", total, b.op("Max", counts, b.const(1, kind)))


def _along_rows(b: Builder, rows: str, how: str, kind, width) -> str:
    """Bags are the rows of the index."""
    return b.reduce("ReduceMax" if how == "max" else "ReduceSum", rows, [1], False)


def _by_offsets(b: Builder, call: Call, index: Value, offsets: Value, last: bool):
    """The bag of each row is the number of bags that have begun there."""
    one = b.const(1, flambeau.int64)
    begins = b.op("Slice", offsets, b.ints([0]), b.ints([-1]), b.ints([0])) if last else (
        b.name(offsets))
    places = b.op("Range", b.const(0, flambeau.int64), b.op("Size", index), one)
    begun = b.op("GreaterOrEqual", b.unsqueeze(places, [1]),
                 b.unsqueeze(b.op("Cast", begins, to=7), [0]))
    bag = b.op("Sub", b.reduce("ReduceSum", b.op("Cast", begun, to=7), [1], True), one)

    def add(b: Builder, rows: str, how: str, kind, width) -> str:
        if how == "max":
            b.require(18, "embedding_bag of offsets with mode='max'")
        start = b.op("Expand", b.const(-math.inf if how == "max" else 0, kind),
                     b.ints([call.out.shape[0], width]))
        wide = b.op("Expand", bag, b.op("Shape", rows))
        return b.op("ScatterElements", start, wide, rows, axis=0, reduction=how)

    return add
