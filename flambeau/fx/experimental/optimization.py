"""Models made ready for inference: batch norms folded into convolutions, dropouts taken out."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from flambeau import nn
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Transformer
from flambeau.fx.node import Node
from flambeau.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["extract_subgraph", "fuse", "matches_module_pattern", "remove_dropout",
           "replace_node_module"]

#: two modules, one after the other -> how they are made one
FUSIONS = {
    (nn.Conv1d, nn.BatchNorm1d):  fuse_conv_bn_eval,
    (nn.Conv2d, nn.BatchNorm2d):  fuse_conv_bn_eval,
    (nn.Conv3d, nn.BatchNorm3d):  fuse_conv_bn_eval,
    (nn.Linear, nn.BatchNorm1d):  fuse_linear_bn_eval,
}  # fmt: skip


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node and the one it is given by are calls of modules of these two types."""
    if not node.args:
        return False
    for current, expected in zip((node.args[0], node), pattern, strict=False):
        if not isinstance(current, Node) or current.op != "call_module" or (
                type(modules.get(str(current.target))) is not expected):
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Any], new_module: nn.Module) -> None:
    """Put another module where the one is that a node calls."""
    path, _, name = str(node.target).rpartition(".")
    modules[str(node.target)] = new_module
    setattr(modules[path], name, new_module)


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> nn.Module:
    """A model without the batch norms that follow a convolution or a linear map, for inference.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    >>> print(fuse(model).code.strip())
    def forward(self, input):
        input_1 = input
        _0 = getattr(self, "0")(input_1);  input_1 = None
        return _0
    """
    if not inplace:
        model = copy.deepcopy(model)
    traced: Any = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for pattern, fused in FUSIONS.items():
        for node in graph.nodes:
            if not matches_module_pattern(pattern, node, modules):
                continue
            first, second = modules[str(node.args[0].target)], modules[str(node.target)]
            if len(node.args[0].users) > 1 or not second.track_running_stats:
                continue  # somebody else needs it, or it normalises by the batch
            replace_node_module(node.args[0], modules, fused(first, second))
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(traced, graph)


def remove_dropout(model: nn.Module) -> nn.Module:
    """A model without its dropouts."""

    class WithoutDropout(Transformer):
        def call_module(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):
                assert len(args) == 1, f"Expected 1 arg for Dropout, got {len(args)}"
                return args[0]
            return super().call_module(target, args, kwargs)

    return WithoutDropout(symbolic_trace(model)).transform()


def extract_subgraph(orig_module: nn.Module, nodes: list[Node], inputs: list[Node],
                     outputs: list[Node]) -> GraphModule:
    """A module of some nodes of a graph, from these inputs to these outputs."""
    graph = Graph()
    copies: dict[Node, Node] = {node: graph.placeholder(node.name) for node in inputs}
    for node in nodes:
        copies[node] = graph.node_copy(node, lambda each: copies[each])
    graph.output([copies[node] for node in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)
