"""Stacks of recurrent layers, in one direction or both, over padded or packed sequences."""

from __future__ import annotations

from typing import NamedTuple

from .declare import composite, engine, registry
from .dropout import dropout
from .recurrent import (
    _linear,
    gru_after,
    gru_sequence,
    lstm_after,
    lstm_sequence,
    plain_sequence,
)


class Cell(NamedTuple):
    """One kind of layer: over a whole sequence, and one step by ops."""

    sequence: object  # (x, states, weight, bias) -> outputs, last states
    after: object     # (from input, from state, states) -> states
    merges: bool      # whether both biases may be added to the input's part


def _plain(kind: str) -> Cell:
    def sequence(x, states, weight, bias):
        out = plain_sequence(x, states[0], weight, bias, kind)[0]
        return out, (registry["select"](out, 0, -1),)

    def after(from_input, from_state, states):
        return (registry[kind](from_input + from_state),)

    return Cell(sequence, after, True)


def _lstm_over(x, states, weight, bias):
    out, cells = lstm_sequence(x, *states, weight, bias)
    return out, (registry["select"](out, 0, -1), registry["select"](cells, 0, -1))


def _gru_over(x, states, weight, bias):
    out = gru_sequence(x, states[0], weight, bias)[0]
    return out, (registry["select"](out, 0, -1),)


CELLS = {
    "rnn_tanh": _plain("tanh"),
    "rnn_relu": _plain("relu"),
    "lstm":     Cell(_lstm_over, lambda i, h, s: lstm_after(i + h, s[1]), True),
    "gru":      Cell(_gru_over, lambda i, h, s: (gru_after(i, h, s[0]),), False),
}


class Weights(NamedTuple):
    """Of one layer in one direction."""

    ih: object
    hh: object
    bias_ih: object = None
    bias_hh: object = None
    projection: object = None


def _grouped(params, has_biases: bool, projected: bool) -> list[Weights]:
    size = 2 + 2 * bool(has_biases) + projected
    groups = [list(params[i:i + size]) for i in range(0, len(params), size)]
    if not has_biases:
        groups = [[*g[:2], None, None, *g[2:]] for g in groups]
    return [Weights(*g) for g in groups]


def _from_input(cell: Cell, x, w: Weights):
    """What the input gives to the gates, for all steps, and the bias left for the steps."""
    if cell.merges and w.bias_ih is not None:
        return _linear(x, w.ih, w.bias_ih + w.bias_hh), None
    return _linear(x, w.ih, w.bias_ih), w.bias_hh


def _step(cell: Cell, given, states, w: Weights, bias):
    """The states after one step by ops, the hidden one projected if there is a projection."""
    states = cell.after(given, _linear(states[0], w.hh, bias), states)
    if w.projection is not None:
        states = (_linear(states[0], w.projection), *states[1:])
    return states


def _padded(cell: Cell, x, states, w: Weights, reverse: bool):
    """One layer in one direction over (steps, batch, features)."""
    given, bias = _from_input(cell, x, w)
    if reverse:
        given = registry["flip"](given, (0,))
    if w.projection is None:
        out, last = cell.sequence(given, states, w.hh, bias)
    else:
        outs = []
        for step in registry["unbind"](given, 0):
            states = _step(cell, step, states, w, bias)
            outs.append(states[0])
        out, last = engine.stack(outs, 0), states
    return (registry["flip"](out, (0,)) if reverse else out), last


def _packed(batch_sizes: list[int]):
    """One layer in one direction over packed sequences, the longest first."""
    starts = [sum(batch_sizes[:t]) for t in range(len(batch_sizes))]

    def forwards(cell: Cell, x, states, w: Weights, reverse: bool):
        given, bias = _from_input(cell, x, w)
        if reverse:
            return backwards(cell, given, states, w, bias)
        outs, ended = [], []
        for start, n in zip(starts, batch_sizes, strict=True):
            have = states[0].shape[0]
            if n < have:
                ended.append([_rows(s, n, have - n) for s in states])
                states = [_rows(s, 0, n) for s in states]
            states = _step(cell, _rows(given, start, n), states, w, bias)
            outs.append(states[0])
        ended.append(list(states))
        return engine.cat(outs, 0), tuple(engine.cat([e[k] for e in reversed(ended)], 0)
                                          for k in range(len(states)))

    def backwards(cell: Cell, given, first, w: Weights, bias):
        outs, states = [], [_rows(s, 0, batch_sizes[-1]) for s in first]
        for start, n in reversed(list(zip(starts, batch_sizes, strict=True))):
            have = states[0].shape[0]
            if n > have:
                states = [engine.cat([s, _rows(f, have, n - have)], 0)
                          for s, f in zip(states, first, strict=True)]
            states = _step(cell, _rows(given, start, n), states, w, bias)
            outs.append(states[0])
        return engine.cat(outs[::-1], 0), tuple(states)

    return forwards


def _rows(x, start: int, count: int):
    return registry["narrow"](x, 0, start, count)


def _stacked(cell: Cell, run, x, states, groups, num_layers, p, train, bidirectional):
    """All layers; dropout between them. Last states come as (layers x directions, batch, units)."""
    directions, last = 2 if bidirectional else 1, []
    for layer in range(num_layers):
        outs = []
        for d in range(directions):
            k = layer * directions + d
            own = tuple(registry["select"](s, 0, k) for s in states)
            out, ended = run(cell, x, own, groups[k], d == 1)
            outs.append(out)
            last.append(ended)
        x = outs[0] if directions == 1 else engine.cat(outs, -1)
        if p > 0 and train and layer < num_layers - 1:
            x = dropout(x, p, True)
    return x, *(engine.stack([ended[k] for ended in last], 0) for k in range(len(states)))


def _declared(name: str):
    cell, paired = CELLS[name], name == "lstm"

    def layers(input, *args):
        is_packed = isinstance(args[2], (list, tuple)) and not isinstance(args[2], bool)
        if is_packed:
            batch_sizes, hx, params, has_biases, num_layers, p, train, bidirectional = args
            run = _packed([int(n) for n in batch_sizes.tolist()])
        else:
            hx, params, has_biases, num_layers, p, train, bidirectional, *rest = args
            run = _padded
            if rest and rest[0]:
                input = registry["transpose"](input, 0, 1)
        states = tuple(hx) if paired else (hx,)
        projected = paired and states[0].shape[-1] != states[1].shape[-1]
        groups = _grouped(params, has_biases, projected)
        out, *last = _stacked(cell, run, input, states, groups, num_layers, p, train, bidirectional)
        if not is_packed and rest and rest[0]:
            out = registry["transpose"](out, 0, 1)
        return out, *last

    layers.__name__ = name
    layers.__doc__ = f"Layers of `{name}` over a batch of sequences; results and last states."
    return composite(name=name, method=False)(layers)


for _name in CELLS:
    _declared(_name)


# -- single steps ----------------------------------------------------------------------------------


def _check_cell(name: str, input, hidden, w_hh) -> None:
    if input.shape[0] != hidden.shape[0]:
        raise RuntimeError(f"{name}: Input batch size {input.shape[0]} doesn't match hidden batch "
                           f"size {hidden.shape[0]}")
    if hidden.shape[-1] != w_hh.shape[1]:
        raise RuntimeError(f"{name}: hidden has inconsistent hidden_size: got {hidden.shape[-1]}, "
                           f"expected {w_hh.shape[1]}")


def _cell(name: str, paired: bool):
    cell = CELLS[name]

    def step(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        states = tuple(hx) if paired else (hx,)
        _check_cell(f"{name}_cell", input, states[0], w_hh)
        given, bias = _from_input(cell, input, Weights(w_ih, w_hh, b_ih, b_hh))
        after = cell.after(given, _linear(states[0], w_hh, bias), states)
        return tuple(after) if paired else after[0]

    step.__name__, step.__doc__ = f"{name}_cell", f"One step of `{name}`."
    return composite(name=f"{name}_cell", method=False)(step)


for _name in CELLS:
    _cell(_name, _name == "lstm")
