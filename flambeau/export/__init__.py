"""Models that leave Python: graphs of op calls, and native code."""

from flambeau.export.graph import Graph, Node, Value
from flambeau.export.image import NativeError
from flambeau.export.native import NativeLibrary, native
from flambeau.export.play import GraphModule
from flambeau.export.record import NotRecorded

__all__ = ["Graph", "GraphModule", "NativeError", "NativeLibrary", "Node", "NotRecorded", "Value",
           "native"]
