"""Layers, losses, containers and initial values: torch.nn's names and meanings."""

from flambeau.nn import (
    attention,
    common_types,
    functional,
    grad,
    init,
    modules,
    parallel,
    parameter,
    quantized,
    utils,
)
from flambeau.nn.modules import *
from flambeau.nn.modules import __all__ as _layers
from flambeau.nn.parallel import DataParallel
from flambeau.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)

__all__ = [
    *_layers,
    "Buffer",
    "DataParallel",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "common_types",
    "functional",
    "grad",
    "init",
    "modules",
    "parallel",
    "parameter",
    "quantized",
    "utils",
]
