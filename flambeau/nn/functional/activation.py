"""Activations, with `inplace`."""

from __future__ import annotations

import flambeau
from flambeau import _assemble

_OPS = _assemble.functions

__all__ = ["celu", "celu_", "elu", "elu_", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
           "hardtanh_", "leaky_relu", "leaky_relu_", "mish", "prelu", "relu", "relu6", "relu_",
           "selu", "selu_", "sigmoid", "silu", "tanh", "threshold", "threshold_"]


def _both(name: str):
    """An op and its form that writes into its input."""
    return _OPS[name], _OPS[f"{name}_"]


_relu, relu_ = _both("relu")
_selu, selu_ = _both("selu")
_celu, celu_ = _both("celu")
_threshold, threshold_ = _both("threshold")
_relu6, _relu6_ = _both("nn.functional.relu6")
_elu, elu_ = _both("nn.functional.elu")
_silu, _silu_ = _both("nn.functional.silu")
_mish, _mish_ = _both("nn.functional.mish")
_hardswish, _hardswish_ = _both("nn.functional.hardswish")
_hardsigmoid, _hardsigmoid_ = _both("nn.functional.hardsigmoid")
_hardtanh, hardtanh_ = _both("nn.functional.hardtanh")
_leaky_relu, leaky_relu_ = _both("nn.functional.leaky_relu")
hardshrink, prelu = flambeau.hardshrink, flambeau.prelu


def relu(input, inplace=False):
    """max(input, 0)"""
    return relu_(input) if inplace else _relu(input)


def relu6(input, inplace=False):
    """input kept between 0 and 6"""
    return _relu6_(input) if inplace else _relu6(input)


def selu(input, inplace=False):
    """scale * (input, or alpha * (exp(input) - 1) below 0)"""
    return selu_(input) if inplace else _selu(input)


def silu(input, inplace=False):
    """input * sigmoid(input)"""
    return _silu_(input) if inplace else _silu(input)


def mish(input, inplace=False):
    """input * tanh(softplus(input))"""
    return _mish_(input) if inplace else _mish(input)


def hardswish(input, inplace=False):
    """input * hardsigmoid(input)"""
    return _hardswish_(input) if inplace else _hardswish(input)


def hardsigmoid(input, inplace=False):
    """input / 6 + 1/2, kept between 0 and 1"""
    return _hardsigmoid_(input) if inplace else _hardsigmoid(input)


def elu(input, alpha=1.0, inplace=False):
    """input, or alpha * (exp(input) - 1) below 0"""
    return (elu_ if inplace else _elu)(input, alpha=alpha)


def celu(input, alpha=1.0, inplace=False):
    """input, or alpha * (exp(input / alpha) - 1) below 0"""
    return (celu_ if inplace else _celu)(input, alpha=alpha)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    """input, or negative_slope * input below 0"""
    return (leaky_relu_ if inplace else _leaky_relu)(input, negative_slope=negative_slope)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """input kept between two numbers"""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return (hardtanh_ if inplace else _hardtanh)(input, min_val=min_val, max_val=max_val)


def threshold(input, threshold, value, inplace=False):
    """input where it is above the threshold, else the value"""
    return (threshold_ if inplace else _threshold)(input, threshold=threshold, value=value)


def sigmoid(input):
    """1 / (1 + exp(-input))"""
    return flambeau.sigmoid(input)


def tanh(input):
    """The hyperbolic tangent."""
    return flambeau.tanh(input)
