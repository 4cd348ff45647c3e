"""Models in ONNX: `export` writes them, `load` reads them.

Needs the package onnx: pip install flambeau[onnx]
"""

from flambeau.export.record import recording
from flambeau.onnx.build import UnsupportedOperatorError
from flambeau.onnx.exporter import OperatorExportTypes, TrainingMode, export
from flambeau.onnx.reader import ONNXModule, load
from flambeau.onnx.reading import reads
from flambeau.onnx.registry import lowers


def is_in_onnx_export() -> bool:
    """Whether a model is being exported."""
    return recording()


__all__ = ["ONNXModule", "OperatorExportTypes", "TrainingMode", "UnsupportedOperatorError",
           "export", "is_in_onnx_export", "load", "lowers", "reads"]
