"""torch.fx: programs as graphs that can be read, changed and written back as Python.

    traced = fx.symbolic_trace(model)
    for node in traced.graph.nodes: ...
    traced.recompile()

A trace runs the model on proxies (proxy.py), which record what is done with them as nodes
(node.py) of a graph (graph.py). A GraphModule runs the code of a graph; an Interpreter runs the
graph itself.
"""

from flambeau.fx import experimental, immutable_collections, passes, subgraph_rewriter
from flambeau.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from flambeau.fx.graph import CodeGen, Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter, Transformer
from flambeau.fx.node import Node, has_side_effect, map_arg
from flambeau.fx.proxy import Proxy
from flambeau.fx.subgraph_rewriter import replace_pattern

__all__ = ["CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "PH", "Proxy",
           "ProxyableClassMeta", "Tracer", "Transformer", "experimental", "has_side_effect",
           "immutable_collections", "map_arg", "passes", "replace_pattern", "subgraph_rewriter",
           "symbolic_trace", "wrap"]
