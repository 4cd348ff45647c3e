"""Models that leave Python: programs of ops (`export`), graphs of op calls, and native code."""

import importlib

from flambeau.export.graph import Graph, Node, Value
from flambeau.export.image import NativeError
from flambeau.export.native import NativeLibrary, native
from flambeau.export.play import GraphModule
from flambeau.export.record import NotRecorded

#: names of torch.export -> the file they are in, which is loaded when the first is asked for
_LATE = {
    "Dim":                  "named_sizes",
    "ExportGraphSignature": "graph_signature",
    "ExportedProgram":      "exported_program",
    "dims":                 "named_sizes",
    "export":               "exported_program",
    "load":                 "exported_program",
    "register_dataclass":   "exported_program",
    "save":                 "exported_program",
}  # fmt: skip

__all__ = ["Dim", "ExportGraphSignature", "ExportedProgram", "Graph", "GraphModule", "NativeError",
           "NativeLibrary", "Node", "NotRecorded", "Value", "dims", "export", "load", "native",
           "register_dataclass", "save"]


def __getattr__(name: str):
    if name not in _LATE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
