"""One step of each recurrent layer, forward and back: a kernel for all its gates.

Gates lie along the second of (batch, gates, units), which is the row of these programs.
"""

from __future__ import annotations

from ..core import expr as e
from ..core.rows import each, once, row_program


def _sigmoid(x):
    return 1 / (1 + e.call("exp", -x))


def _tanh(x):
    return e.call("tanh", x)


def _gates(rows, value, count: int):
    """The elements of a row, one by one."""
    zero = e.const(0, value.dtype)
    return rows.sums(*(e.where(rows.position == k, value, zero) for k in range(count)))


def _in_order(rows, values):
    """A row of these elements."""
    found = values[-1]
    for k in range(len(values) - 2, -1, -1):
        found = e.where(rows.position == k, values[k], found)
    return rows.each(found)


def _plus(a, b):
    return a if b is None else a + b


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
    return rows.once(SLOPES[kind](_plus(g, more), out))


@row_program
def lstm_step(rows, x: each, h: each, c: once):
    """The next hidden state and cell."""
    i, f, g, o = _gates(rows, x + h, 4)
    cell = _sigmoid(f) * c + _sigmoid(i) * _tanh(g)
    return rows.once(_sigmoid(o) * _tanh(cell)), rows.once(cell)


@row_program
def lstm_step_back(rows, gates: each, c: once, cell: once, gh: once, more_h: once, gc: once,
                   more_c: once):
    """The gradients of the four gates and of the cell before."""
    i, f, g, o = _gates(rows, gates, 4)
    i, f, g, o, new = _sigmoid(i), _sigmoid(f), _tanh(g), _sigmoid(o), _tanh(cell)
    gh = _plus(gh, more_h)
    slope = _plus(_plus(gh * o * (1 - new * new), gc), more_c)
    return (_in_order(rows, (slope * g * i * (1 - i), slope * c * f * (1 - f),
                             slope * i * (1 - g * g), gh * new * o * (1 - o))),
            rows.once(slope * f))


@row_program
def gru_step(rows, x: each, h: each, state: once):
    """The next hidden state."""
    (r, z, n), (hr, hz, hn) = _gates(rows, x, 3), _gates(rows, h, 3)
    new = _tanh(n + _sigmoid(r + hr) * hn)
    return rows.once((state - new) * _sigmoid(z + hz) + new)


@row_program
def gru_step_back(rows, x: each, h: each, state: once, g: once, more: once):
    """The gradients of what input and state give to the gates, and of the state carried over."""
    (r, z, n), (hr, hz, hn) = _gates(rows, x, 3), _gates(rows, h, 3)
    r, z, g = _sigmoid(r + hr), _sigmoid(z + hz), _plus(g, more)
    new = _tanh(n + r * hn)
    candidate = g * (1 - z) * (1 - new * new)
    reset, update = candidate * hn * r * (1 - r), g * (state - new) * z * (1 - z)
    return (_in_order(rows, (reset, update, candidate)),
            _in_order(rows, (reset, update, candidate * r)), rows.once(g * z))
