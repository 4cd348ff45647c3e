"""Models in ONNX: `export` writes them, `load` reads them.

Both need the package onnx: pip install flambeau[onnx]
"""

from flambeau.engine import lazy as _lazy
from flambeau.export.record import recording
from flambeau.onnx.symbolic_helper import (
    register_custom_op_symbolic,
    unregister_custom_op_symbolic,
)


def is_in_onnx_export() -> bool:
    """Whether a model is being exported."""
    return recording()


__all__ = ["ONNXModule", "OperatorExportTypes", "TrainingMode", "UnsupportedOperatorError",
           "export", "is_in_onnx_export", "load", "lowers", "reads", "register_custom_op_symbolic",
           "unregister_custom_op_symbolic"]

#: what needs the package onnx is imported when it is asked for
__getattr__, __dir__ = _lazy.subpackages(__name__, __path__[0], {
    "ONNXModule": "reader", "load": "reader", "OperatorExportTypes": "exporter",
    "TrainingMode": "exporter", "export": "exporter", "UnsupportedOperatorError": "build",
    "lowers": "registry", "reads": "reading"})
