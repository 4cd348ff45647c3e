"""Layers, losses, containers and initial values: torch.nn's names and meanings."""

from flambeau.nn import functional, init, modules, parameter, utils
from flambeau.nn.modules import *
from flambeau.nn.modules import __all__ as _layers
from flambeau.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)

__all__ = [
    *_layers,
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "init",
    "modules",
    "parameter",
    "utils",
]
