"""Recurrent layers as ONNX's own, layer by layer; gates reordered as ONNX has them."""

from __future__ import annotations

import numpy as np

import flambeau
from flambeau.export.graph import Value, example

from .build import Builder, UnsupportedOperatorError
from .registry import Call, lowers

WHOLE = flambeau.int64

#: op -> (ONNX's, how many gates, their order there, its options)
KINDS: dict[str, tuple[str, int, tuple[int, ...], dict]] = {
    "lstm":     ("LSTM", 4, (0, 3, 1, 2), {}),
    "gru":      ("GRU", 3, (1, 0, 2), {"linear_before_reset": 1}),
    "rnn_tanh": ("RNN", 1, (0,), {"activations": ["Tanh"]}),
    "rnn_relu": ("RNN", 1, (0,), {"activations": ["Relu"]}),
}


def _reordered(b: Builder, x, size: int, order) -> str:
    """Blocks of rows in another order."""
    if len(order) == 1:
        return b.name(x)
    rows = np.concatenate([np.arange(k * size, (k + 1) * size) for k in order])
    return b.op("Gather", x, b.const(rows.astype(np.int64)), axis=0)


class Layer:
    """One layer of a network: in one direction, or in both."""

    def __init__(self, b: Builder, key: str, directions: int):
        self.b, self.directions = b, directions
        self.kind, self.gates, self.order, options = KINDS[key]
        self.options = {**options, "direction": "bidirectional" if directions == 2 else "forward"}
        if "activations" in options:
            self.options["activations"] = options["activations"] * directions

    def _stacked(self, parts) -> str:
        wide = [self.b.unsqueeze(p, [0]) for p in parts]
        return wide[0] if len(wide) == 1 else self.b.op("Concat", *wide, axis=0)

    def run(self, x: str, weights: list[list[Value]], states: list[str], lengths: str | None):
        """(outputs of all steps, last states); weights are (ih, hh, bias, bias) by direction."""
        b, size = self.b, example(weights[0][1].shape[1])
        order = self.order
        w = self._stacked([_reordered(b, each[0], size, order) for each in weights])
        r = self._stacked([_reordered(b, each[1], size, order) for each in weights])
        bias = None
        if len(weights[0]) > 2:
            bias = self._stacked([b.op("Concat", *[_reordered(b, v, size, order)
                                                   for v in each[2:4]], axis=0)
                                  for each in weights])
        results = b.op(self.kind, x, w, r, bias, lengths, *states, results=1 + len(states),
                       hidden_size=size, **self.options)
        # (length, directions, batch, size) -> (length, batch, directions * size)
        out = b.transpose(results[0], [0, 2, 1, 3])
        return b.op("Reshape", out, b.ints([0, 0, self.directions * size])), results[1:]


class Projected:
    """A layer of an LSTM with a projection, which ONNX's has not: a loop over steps."""

    def __init__(self, b: Builder, directions: int, kind):
        self.b, self.directions, self.kind = b, directions, kind

    def run(self, x: str, weights: list[list[Value]], states: list[str], lengths: str | None):
        outs, ends = [], []
        for d, own in enumerate(weights):
            h, c = (self.b.squeeze(self.b.slice(s, 0, d, d + 1), [0]) for s in states)
            h, c, found = self._direction(x, own, h, c, lengths, bool(d))
            outs.append(found)
            ends.append((h, c))
        joined = outs[0] if len(outs) == 1 else self.b.op("Concat", *outs, axis=2)
        last = [[self.b.unsqueeze(end[k], [0]) for end in ends] for k in (0, 1)]
        return joined, [e[0] if len(e) == 1 else self.b.op("Concat", *e, axis=0) for e in last]

    def _direction(self, x: str, own, h: str, c: str, lengths: str | None, backwards: bool):
        b, size, kind = self.b, example(own[0].shape[0]) // 4, self.kind
        w_ih, w_hh, w_hr = (b.transpose(w, [1, 0]) for w in (own[0], own[1], own[-1]))
        times = b.op("Range", b.const(0, WHOLE), b.op("Gather", b.op("Shape", x),
                                                      b.const(0, WHOLE)), b.const(1, WHOLE))

        def step(h: str, c: str, now: str, time: str) -> list[str]:
            gates = b.op("Add", b.op("MatMul", now, w_ih), b.op("MatMul", h, w_hh))
            for bias in own[2:-1]:
                gates = b.op("Add", gates, bias)
            i, f, g, o = b.op("Split", gates, b.ints([size] * 4), results=4, axis=1)
            new_c = b.op("Add", b.op("Mul", b.op("Sigmoid", f), c),
                         b.op("Mul", b.op("Sigmoid", i), b.op("Tanh", g)))
            new_h = b.op("MatMul", b.op("Mul", b.op("Sigmoid", o), b.op("Tanh", new_c)), w_hr)
            if lengths is None:
                return [new_h, new_c, new_h]
            going = b.unsqueeze(b.op("Less", b.op("Cast", time, to=6), lengths), [1])
            return [b.op("Where", going, new_h, h), b.op("Where", going, new_c, c),
                    b.op("Where", going, new_h, b.const(0, kind))]

        return b.scan(step, [(h, kind), (c, kind)], [(x, kind), (times, WHOLE)], [kind], backwards)


class Packed:
    """Sequences of different lengths, step after step, as ONNX has them: padded."""

    def __init__(self, b: Builder, data: Value, batch_sizes):
        self.b, self.data = b, data
        sizes = b.name(batch_sizes)
        batch = b.op("Gather", sizes, b.const(0, WHOLE))
        places = b.op("Range", b.const(0, WHOLE), batch, b.const(1, WHOLE))
        #: (steps, batch): which of them are there
        self.present = b.op("Less", b.unsqueeze(places, [0]), b.unsqueeze(sizes, [1]))
        self.lengths = b.reduce("ReduceSum", b.op("Cast", self.present, to=7), [0], False)

    def padded(self, value=0.0) -> str:
        b = self.b
        rest = [b.ints(list(self.data.shape[1:]))] if self.data.rank > 1 else []
        shape = b.op("Concat", b.op("Shape", self.present), *rest, axis=0)
        empty = b.op("Expand", b.const(value, self.data.dtype), shape)
        places = b.transpose(b.op("NonZero", self.present), [1, 0])
        return b.op("ScatterND", empty, places, self.data)

    def packed(self, x: str) -> str:
        """(steps, batch, size) without what is not there."""
        b = self.b
        rows = b.op("Reshape", x, b.op("Concat", b.ints([-1]), b.op("Slice", b.op(
            "Shape", x), b.ints([2]), b.ints([1 << 62])), axis=0))
        return b.op("Compress", rows, b.op("Reshape", self.present, b.ints([-1])), axis=0)


@lowers("pack_padded_sequence", raw=True)
def pack_padded_sequence(b: Builder, call: Call, x, lengths, batch_first):
    name = b.transpose(x, [1, 0, *range(2, x.rank)]) if batch_first else b.name(x)
    numbers = b.cast(lengths, WHOLE)
    times = b.op("Range", b.const(0, WHOLE), b.reduce("ReduceMax", numbers, [0], False),
                 b.const(1, WHOLE))
    present = b.op("Less", b.unsqueeze(times, [1]), b.unsqueeze(numbers, [0]))
    sizes = b.reduce("ReduceSum", b.op("Cast", present, to=7), [1], False)
    steps = b.op("Slice", name, b.ints([0]), b.op("Shape", times), b.ints([0]))
    rows = b.op("Reshape", steps, b.ints([-1, *x.shape[2:]]))
    return [b.op("Compress", rows, b.op("Reshape", present, b.ints([-1])), axis=0), sizes]


@lowers("pad_packed_sequence", raw=True)
def pad_packed_sequence(b: Builder, call: Call, data, batch_sizes, batch_first, value, total):
    packed = Packed(b, data, batch_sizes)
    name = packed.padded(value)
    if total is not None:
        missing = b.op("Sub", b.vector(total), b.op("Gather", b.op("Shape", name), b.ints([0])))
        pads = b.op("Concat", b.ints([0] * (data.rank + 1)), missing, b.ints([0] * data.rank),
                    axis=0)
        name = b.op("Pad", name, pads, b.const(value, data.dtype))
    if batch_first:
        name = b.transpose(name, [1, 0, *range(2, data.rank + 1)])
    return [name, packed.lengths]


@lowers("lstm", "gru", "rnn_tanh", "rnn_relu", raw=True)
def recurrent(b: Builder, call: Call, x, *rest):
    packed = None
    if isinstance(rest[0], Value) and rest[0].dtype is WHOLE:
        packed = Packed(b, x, rest[0])
        rest = (*rest[1:], False)
    states, weights, biased, layers, dropout, train, both, batch_first = rest
    if train and dropout:
        raise UnsupportedOperatorError(f"{call.key} with dropout in training mode draws random "
                                       "numbers; export the model in eval mode")
    states = list(states) if isinstance(states, (tuple, list)) else [states]
    directions = 2 if both else 1
    per = len(weights) // (layers * directions)
    name = b.transpose(x, [1, 0, 2]) if batch_first else packed.padded() if packed else b.name(x)
    lengths = b.op("Cast", packed.lengths, to=6) if packed else None
    layer: Layer | Projected = Layer(b, call.key, directions)
    if per == (5 if biased else 3):
        layer = Projected(b, directions, x.dtype)
    last: list[list[str]] = [[] for _ in states]
    for k in range(layers):
        first = k * directions
        own = [list(weights[(first + d) * per:(first + d + 1) * per]) for d in range(directions)]
        given = [b.slice(s, 0, first, first + directions) for s in states]
        name, ends = layer.run(name, own, given, lengths)
        for found, end in zip(last, ends, strict=True):
            found.append(end)
    joined = [ends[0] if layers == 1 else b.op("Concat", *ends, axis=0) for ends in last]
    if packed:
        name = packed.packed(name)
    return [b.transpose(name, [1, 0, 2]) if batch_first else name, *joined]
