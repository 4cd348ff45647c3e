"""One step of each recurrent layer by ops, and one layer over the rows of all its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .declare import composite, engine, registry


def linear(x, weight, bias=None):
    """weight x + bias"""
    return registry["nn.functional.linear"](x, weight, bias)


def _gates(x, count: int):
    """A last dimension cut into so many parts."""
    size = x.shape[-1] // count
    return [registry["narrow"](x, x.dim() - 1, k * size, size) for k in range(count)]


def _lstm_after(from_input, from_state, states):
    sigmoid, tanh = registry["sigmoid"], registry["tanh"]
    i, f, g, o = _gates(from_input + from_state, 4)
    c = sigmoid(f) * states[1] + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def _gru_after(from_input, from_state, states):
    sigmoid, tanh = registry["sigmoid"], registry["tanh"]
    (r, z, n), (hr, hz, hn) = _gates(from_input, 3), _gates(from_state, 3)
    new = tanh(n + sigmoid(r + hr) * hn)
    return ((states[0] - new) * sigmoid(z + hz) + new,)


def _plain_after(kind: str):
    return lambda from_input, from_state, states: (registry[kind](from_input + from_state),)


class Cell(NamedTuple):
    """One kind of layer: its step by ops, and whether both biases may be added to the input's."""

    after: Callable  # (from input, from state, states) -> states
    merges: bool


CELLS = {
    "rnn_tanh": Cell(_plain_after("tanh"), True),
    "rnn_relu": Cell(_plain_after("relu"), True),
    "lstm":     Cell(_lstm_after, True),
    "gru":      Cell(_gru_after, False),
}


class Weights(NamedTuple):
    """Of one layer in one direction."""

    ih: object
    hh: object
    bias_ih: object = None
    bias_hh: object = None
    projection: object = None


def from_input(cell: Cell, x, w: Weights):
    """What the input gives to the gates, for all steps, and the bias left for the steps."""
    if cell.merges and w.bias_ih is not None:
        return linear(x, w.ih, w.bias_ih + w.bias_hh), None
    return linear(x, w.ih, w.bias_ih), w.bias_hh


def _step(cell: Cell, given, states, w: Weights, bias):
    """The states after one step, the hidden one projected if there is a projection."""
    states = cell.after(given, linear(states[0], w.hh, bias), states)
    if w.projection is not None:
        states = (linear(states[0], w.projection), *states[1:])
    return states


def _rows(x, start: int, count: int):
    return registry["narrow"](x, 0, start, count)


def _forwards(cell: Cell, given, states, w: Weights, bias, steps):
    """Sequences end as steps go on, the last first."""
    outs, ended = [], []
    for start, n in steps:
        have = states[0].shape[0]
        if n < have:
            ended.append([_rows(s, n, have - n) for s in states])
            states = [_rows(s, 0, n) for s in states]
        states = _step(cell, _rows(given, start, n), states, w, bias)
        outs.append(states[0])
    if not ended:
        return outs, tuple(states)
    ended.append(list(states))
    return outs, tuple(engine.cat([e[k] for e in reversed(ended)], 0) for k in range(len(states)))


def _backwards(cell: Cell, given, first, w: Weights, bias, steps):
    """Sequences begin as steps go on, from the last step to the first."""
    outs, states = [], [_rows(s, 0, steps[-1][1]) for s in first]
    for start, n in reversed(steps):
        have = states[0].shape[0]
        if n > have:
            states = [engine.cat([s, _rows(f, have, n - have)], 0)
                      for s, f in zip(states, first, strict=True)]
        states = _step(cell, _rows(given, start, n), states, w, bias)
        outs.append(states[0])
    return outs[::-1], tuple(states)


@composite(method=False, function_form=False)
def recurrent_layer_by_ops(kind, x, states, weights, sizes, reverse):
    """One layer in one direction, step by step: results of all steps, and the last states.

    x has the rows of all steps one after another, `sizes` of them in each, falling.
    """
    cell, w = CELLS[kind], Weights(*weights)
    steps = [(sum(sizes[:t]), n) for t, n in enumerate(sizes)]
    given, bias = from_input(cell, x, w)
    run = _backwards if reverse else _forwards
    outs, last = run(cell, given, states, w, bias, steps)
    return engine.cat(outs, 0), *last
