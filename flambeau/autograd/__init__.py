"""Differentiation: going back, functions of one's own, hooks, checks. torch.autograd's names."""

from ..engine import lazy as _lazy
from ..engine.backward import grad
from ..engine.grad_mode import (
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from . import anomaly_mode, function, functional, grad_mode, graph, variable
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .entry import backward
from .function import Function, NestedIOFunction
from .gradcheck import gradcheck, gradgradcheck
from .variable import Variable

__all__ = [
    "Function", "NestedIOFunction", "Variable", "anomaly_mode", "backward", "detect_anomaly",
    "enable_grad", "function", "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck",
    "graph", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled", "variable",
]

__getattr__, __dir__ = _lazy.subpackages(__name__, __path__[0])  # the profiler, when asked for
