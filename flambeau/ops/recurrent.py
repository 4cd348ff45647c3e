"""Recurrent layers over whole sequences: inputs are mapped in one product, steps follow in turn.

Going back, what the states add to the gates is computed for all steps in one product, and so are
the gradients of the weights; only the steps themselves are taken one by one.
"""

from __future__ import annotations

from .declare import T, composite, engine, registry
from .recurrent_steps import (
    gru_step,
    gru_step_back,
    lstm_step,
    lstm_step_back,
    plain_step,
    plain_step_back,
)


def _linear(x, weight, bias=None):
    """weight x + bias"""
    return registry["nn.functional.linear"](x, weight, bias)


def _gates(x, count: int):
    """A last dimension cut into so many parts."""
    size = x.shape[-1] // count
    return [registry["narrow"](x, x.dim() - 1, k * size, size) for k in range(count)]


def _by_gate(x, count: int):
    """The same with gates and units as dimensions of their own."""
    return engine.reshape(x, (*x.shape[:-1], count, x.shape[-1] // count))


def _steps(x):
    return [registry["select"](x, 0, t) for t in range(x.shape[0])]


def _before(states, first):
    """The states each step began with."""
    if states.shape[0] == 1:
        return registry["unsqueeze"](first, 0)
    return engine.cat([registry["unsqueeze"](first, 0),
                       registry["narrow"](states, 0, 0, states.shape[0] - 1)], 0)


def _weight_gradients(slopes, before, weight, bias):
    """Gradients of the weight and bias that act on states, for all steps at once."""
    flat = engine.reshape(slopes, (-1, slopes.shape[-1]))
    states = engine.reshape(before, (-1, before.shape[-1]))
    by_weight = registry["mm"](registry["transpose"](flat, 0, 1), states)
    return by_weight, None if bias is None else registry["sum"](flat, (0,))


def _through_parts(by_ops, g, inputs, *settings):
    """Gradients by differentiating the parts: for derivatives of derivatives."""
    outs = by_ops(*inputs, *settings)
    pairs = [(o, gradient) for o, gradient in zip(outs, g, strict=True) if gradient is not None]
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    outs, gradients = [o for o, _ in pairs], [gradient for _, gradient in pairs]
    found = iter(engine.gradients(outs, wanted, gradients))
    return tuple(next(found) if x is not None and x.requires_grad else None for x in inputs)


# -- plain layers ----------------------------------------------------------------------------------


@composite(method=False, function_form=False, backward="RnnBackward0")
def plain_sequence(x: T, h: T, weight: T, bias: T, kind):
    """h = tanh or relu of (x + weight h + bias), step by step."""
    states = []
    for step in _steps(x):
        h = plain_step(step, _linear(h, weight, bias), dims=(), kind=kind)
        states.append(h)
    return (engine.stack(states, 0),)


def _plain_by_ops(x, h, weight, bias, kind):
    states = []
    for step in _steps(x):
        h = registry[kind](step + _linear(h, weight, bias))
        states.append(h)
    return (engine.stack(states, 0),)


@plain_sequence.gradient
def plain_sequence(g, x, h, weight, bias, kind, out):
    g, out = (g[0] if isinstance(g, tuple) else g), (out[0] if isinstance(out, tuple) else out)
    if engine.recording():
        return _through_parts(_plain_by_ops, (g,), (x, h, weight, bias), kind)
    more, slopes, states, gs = None, [], _steps(out), _steps(g)
    for t in range(len(states) - 1, -1, -1):
        slope = plain_step_back(gs[t], more, states[t], dims=(), kind=kind)
        slopes.append(slope)
        more = registry["mm"](slope, weight)
    slopes = engine.stack(slopes[::-1], 0)
    return slopes, more, *_weight_gradients(slopes, _before(out, h), weight, bias)


# -- lstm ------------------------------------------------------------------------------------------


@composite(method=False, function_form=False, backward="LstmBackward0")
def lstm_sequence(x: T, h: T, c: T, weight: T, bias: T):
    """Hidden states and cells, step by step."""
    states, cells = [], []
    for step in _steps(_by_gate(x, 4)):
        h, c = lstm_step(step, _by_gate(_linear(h, weight, bias), 4), c, dims=(1,))
        states.append(h)
        cells.append(c)
    return engine.stack(states, 0), engine.stack(cells, 0)


def _lstm_by_ops(x, h, c, weight, bias):
    states, cells = [], []
    for step in _steps(x):
        h, c = lstm_after(step + _linear(h, weight, bias), c)
        states.append(h)
        cells.append(c)
    return engine.stack(states, 0), engine.stack(cells, 0)


def lstm_after(gates, c):
    """Hidden state and cell after the gates."""
    sigmoid, tanh = registry["sigmoid"], registry["tanh"]
    i, f, g, o = _gates(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


@lstm_sequence.gradient
def lstm_sequence(g, x, h, c, weight, bias, out):
    if engine.recording():
        return _through_parts(_lstm_by_ops, g, (x, h, c, weight, bias))
    states, cells = out
    before = _before(states, h)
    gates = x + engine.reshape(_linear(engine.reshape(before, (-1, h.shape[-1])), weight, bias),
                               x.shape)
    gates = _steps(_by_gate(gates, 4))
    cells_before, cells = _steps(_before(cells, c)), _steps(cells)
    gh = _steps(g[0] if g[0] is not None else engine.zeros_like(states))
    gc = [None] * len(gh) if g[1] is None else _steps(g[1])
    more_h = more_c = None
    slopes = []
    for t in range(len(gh) - 1, -1, -1):
        slope, more_c = lstm_step_back(gates[t], cells_before[t], cells[t], gh[t], more_h, gc[t],
                                       more_c, dims=(1,))
        slopes.append(engine.reshape(slope, (h.shape[0], weight.shape[0])))
        more_h = registry["mm"](slopes[-1], weight)
    slopes = engine.stack(slopes[::-1], 0)
    return slopes, more_h, more_c, *_weight_gradients(slopes, before, weight, bias)


# -- gru -------------------------------------------------------------------------------------------


@composite(method=False, function_form=False, backward="GruBackward0")
def gru_sequence(x: T, h: T, weight: T, bias: T):
    """Hidden states, step by step."""
    states = []
    for step in _steps(_by_gate(x, 3)):
        h = gru_step(step, _by_gate(_linear(h, weight, bias), 3), h, dims=(1,))
        states.append(h)
    return (engine.stack(states, 0),)


def _gru_by_ops(x, h, weight, bias):
    states = []
    for step in _steps(x):
        h = gru_after(step, _linear(h, weight, bias), h)
        states.append(h)
    return (engine.stack(states, 0),)


def gru_after(from_input, from_state, h):
    """The hidden state after what input and state give to the gates."""
    sigmoid, tanh = registry["sigmoid"], registry["tanh"]
    (r, z, n), (hr, hz, hn) = _gates(from_input, 3), _gates(from_state, 3)
    new = tanh(n + sigmoid(r + hr) * hn)
    return (h - new) * sigmoid(z + hz) + new


@gru_sequence.gradient
def gru_sequence(g, x, h, weight, bias, out):
    g, out = (g[0] if isinstance(g, tuple) else g), (out[0] if isinstance(out, tuple) else out)
    if engine.recording():
        return _through_parts(_gru_by_ops, (g,), (x, h, weight, bias))
    before = _before(out, h)
    from_states = engine.reshape(
        _linear(engine.reshape(before, (-1, h.shape[-1])), weight, bias), x.shape)
    inputs, states = _steps(_by_gate(x, 3)), _steps(_by_gate(from_states, 3))
    earlier, gs = _steps(before), _steps(g)
    more, by_input, by_state = None, [], []
    for t in range(len(gs) - 1, -1, -1):
        one, other, kept = gru_step_back(inputs[t], states[t], earlier[t], gs[t], more, dims=(1,))
        by_input.append(engine.reshape(one, (h.shape[0], weight.shape[0])))
        by_state.append(engine.reshape(other, (h.shape[0], weight.shape[0])))
        more = kept + registry["mm"](by_state[-1], weight)
    slopes = engine.stack(by_state[::-1], 0)
    return (engine.stack(by_input[::-1], 0), more,
            *_weight_gradients(slopes, before, weight, bias))
