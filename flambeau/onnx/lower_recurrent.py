"""Recurrent layers as ONNX's own, layer by layer; gates reordered as ONNX has them."""

from __future__ import annotations

import numpy as np

from flambeau.export.graph import Value, example

from .build import Builder, UnsupportedOperatorError
from .registry import Call, lowers

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

    def run(self, x: str, weights: list[list[Value]], states: list[str]):
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
        results = b.op(self.kind, x, w, r, bias, "", *states, results=1 + len(states),
                       hidden_size=size, **self.options)
        # (length, directions, batch, size) -> (length, batch, directions * size)
        out = b.transpose(results[0], [0, 2, 1, 3])
        return b.op("Reshape", out, b.ints([0, 0, self.directions * size])), results[1:]


class Projected:
    """A layer of an LSTM with a projection, which ONNX's has not: step by step."""

    def __init__(self, b: Builder, directions: int, length):
        if not isinstance(length, int):
            raise UnsupportedOperatorError("lstm with proj_size is unrolled, so the length of its "
                                           "sequences may not vary")
        self.b, self.directions, self.length = b, directions, length

    def run(self, x: str, weights: list[list[Value]], states: list[str]):
        outs, ends = [], []
        for d, own in enumerate(weights):
            h, c = (self.b.squeeze(self.b.slice(s, 0, d, d + 1), [0]) for s in states)
            found, h, c = self._direction(x, own, h, c, bool(d))
            outs.append(found)
            ends.append((h, c))
        joined = outs[0] if len(outs) == 1 else self.b.op("Concat", *outs, axis=2)
        last = [[self.b.unsqueeze(end[k], [0]) for end in ends] for k in (0, 1)]
        return joined, [e[0] if len(e) == 1 else self.b.op("Concat", *e, axis=0) for e in last]

    def _direction(self, x: str, own, h: str, c: str, backwards: bool):
        b, size = self.b, example(own[0].shape[0]) // 4
        w_ih, w_hh, w_hr = (b.transpose(w, [1, 0]) for w in (own[0], own[1], own[-1]))
        steps: list[str] = [""] * self.length
        for t in range(self.length)[::-1] if backwards else range(self.length):
            gates = b.op("Add", b.op("MatMul", b.squeeze(b.slice(x, 0, t, t + 1), [0]), w_ih),
                         b.op("MatMul", h, w_hh))
            for bias in own[2:-1]:
                gates = b.op("Add", gates, bias)
            i, f, g, o = b.op("Split", gates, b.ints([size] * 4), results=4, axis=1)
            c = b.op("Add", b.op("Mul", b.op("Sigmoid", f), c),
                     b.op("Mul", b.op("Sigmoid", i), b.op("Tanh", g)))
            h = b.op("MatMul", b.op("Mul", b.op("Sigmoid", o), b.op("Tanh", c)), w_hr)
            steps[t] = b.unsqueeze(h, [0])
        return b.op("Concat", *steps, axis=0), h, c


@lowers("lstm", "gru", "rnn_tanh", "rnn_relu", raw=True)
def recurrent(b: Builder, call: Call, x, states, *rest):
    if isinstance(rest[0], Value) or (isinstance(states, Value) and states.rank == 1):
        raise UnsupportedOperatorError(f"{call.key} of packed sequences has no lowering; pad them")
    weights, biased, layers, dropout, train, both, batch_first = rest
    if train and dropout:
        raise UnsupportedOperatorError(f"{call.key} with dropout in training mode draws random "
                                       "numbers; export the model in eval mode")
    states = list(states) if isinstance(states, (tuple, list)) else [states]
    directions = 2 if both else 1
    per = len(weights) // (layers * directions)
    name = b.transpose(x, [1, 0, 2]) if batch_first else b.name(x)
    layer: Layer | Projected = Layer(b, call.key, directions)
    if per == (5 if biased else 3):
        layer = Projected(b, directions, x.shape[1 if batch_first else 0])
    last: list[list[str]] = [[] for _ in states]
    for k in range(layers):
        first = k * directions
        own = [list(weights[(first + d) * per:(first + d + 1) * per]) for d in range(directions)]
        given = [b.slice(s, 0, first, first + directions) for s in states]
        name, ends = layer.run(name, own, given)
        for found, end in zip(last, ends, strict=True):
            found.append(end)
    joined = [ends[0] if layers == 1 else b.op("Concat", *ends, axis=0) for ends in last]
    return [b.transpose(name, [1, 0, 2]) if batch_first else name, *joined]
