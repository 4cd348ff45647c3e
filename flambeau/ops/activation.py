"""Activations of neural networks."""

from __future__ import annotations

from ..core import expr as e
from ..core.expr import where
from .arithmetic import exp
from .declare import FLOAT, SAME, pointwise


@pointwise(SAME)
def relu(x):
    """max(x, 0)"""
    return e.maximum(x, 0)


@relu.gradient
def relu(g, out):
    return where(out > 0, g, 0)


@pointwise(FLOAT)
def sigmoid(x):
    """1 / (1 + exp(-x))"""
    return 1 / (1 + exp(-x))


@sigmoid.gradient
def sigmoid(g, out):
    return g * e.conj(out * (1 - out))


@pointwise(FLOAT)
def tanh(x):
    """The hyperbolic tangent."""
    return e.call("tanh", x)


@tanh.gradient
def tanh(g, out):
    return g * e.conj(1 - out * out)
