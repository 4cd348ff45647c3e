"""One step of each recurrent layer, forward and back: a kernel for all its gates."""

from __future__ import annotations

from ..core import expr as e
from ..core.rows import each, row_program


def _sigmoid(x):
    return 1 / (1 + e.call("exp", -x))


def _tanh(x):
    return e.call("tanh", x)


ACTIVATIONS = {"tanh": _tanh, "relu": lambda x: e.maximum(x, 0)}
SLOPES = {"tanh": lambda g, out: g * (1 - out * out),
          "relu": lambda g, out: e.where(out > 0, g, e.const(0, g.dtype))}


@row_program
def plain_step(rows, x: each, h: each, *, kind):
    """The next hidden state of a plain layer, from what input and state add up to."""
    return rows.once(ACTIVATIONS[kind](x + h))


@row_program
def plain_step_back(rows, g: each, more: each, out: each, *, kind):
    """The gradient before the activation."""
    return rows.once(SLOPES[kind](g if more is None else g + more, out))


@row_program
def lstm_step(rows, i: each, f: each, g: each, o: each, hi: each, hf: each, hg: each, ho: each,
              c: each):
    """The next cell and hidden state."""
    cell = _sigmoid(f + hf) * c + _sigmoid(i + hi) * _tanh(g + hg)
    return rows.once(_sigmoid(o + ho) * _tanh(cell)), rows.once(cell)


@row_program
def lstm_step_back(rows, i: each, f: each, g: each, o: each, c: each, cell: each, gh: each,
                   gc: each):
    """The gradients of the four gates and of the cell before."""
    i, f, g, o, new = _sigmoid(i), _sigmoid(f), _tanh(g), _sigmoid(o), _tanh(cell)
    slope = gh * o * (1 - new * new)
    slope = slope if gc is None else slope + gc
    return (rows.once(slope * g * i * (1 - i)), rows.once(slope * c * f * (1 - f)),
            rows.once(slope * i * (1 - g * g)), rows.once(gh * new * o * (1 - o)),
            rows.once(slope * f))


@row_program
def gru_step(rows, r: each, z: each, n: each, hr: each, hz: each, hn: each, h: each):
    """The next hidden state."""
    new = _tanh(n + _sigmoid(r + hr) * hn)
    return rows.once((h - new) * _sigmoid(z + hz) + new)


@row_program
def gru_step_back(rows, r: each, z: each, n: each, hr: each, hz: each, hn: each, h: each, g: each):
    """The gradients of reset, update and candidate, of what the state adds to the candidate, and
    of the state where it is carried over."""
    r, z = _sigmoid(r + hr), _sigmoid(z + hz)
    new = _tanh(n + r * hn)
    candidate = g * (1 - z) * (1 - new * new)
    return (rows.once(candidate * hn * r * (1 - r)), rows.once(g * (h - new) * z * (1 - z)),
            rows.once(candidate), rows.once(candidate * r), rows.once(g * z))
