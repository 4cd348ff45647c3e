"""A graph split into modules, each with the part of it that a function assigns to one partition."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from flambeau import nn
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_arg

__all__ = ["Partition", "split_module"]


class Partition:
    """The nodes of one part, what goes in and what comes out."""

    def __init__(self, name: str) -> None:
        self.name, self.submod_name = name, f"submod_{name}"
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.dependencies: dict[str, None] = {}
        self.graph = Graph()
        self.values: dict[Node, Node] = {}
        self.targets: dict[str, Any] = {}

    def __repr__(self) -> str:
        return (f"name: {self.name},\n nodes: {self.nodes},\n inputs: {list(self.inputs)},\n "
                f"outputs: {list(self.outputs)},\n partitions depended on: "
                f"{list(self.dependencies)}")


def split_module(m: GraphModule, root_m: nn.Module,
                 split_callback: Callable[[Node], int | str],
                 qualname_map: dict[str, str] | None = None,
                 keep_original_order: bool | None = False,
                 keep_original_node_name: bool | None = False,
                 keep_original_input_name: bool = True) -> GraphModule:
    """A module whose graph calls one module for each partition: `submod_0`, `submod_1` ...

    `split_callback` says of each node of `m` in which partition it is. Modules are moved to where
    they are called; `qualname_map` is filled with the names they had. Parameters are handed in.

    >>> import flambeau as torch
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x).neg() + 1)
    >>> parts = split_module(traced, traced, lambda node: int(node.name == "add"))
    >>> print(parts.code.strip())
    def forward(self, x):
        submod_0 = self.submod_0(x);  x = None
        submod_1 = self.submod_1(submod_0);  submod_0 = None
        return submod_1
    """
    parts, home = _assigned(m, split_callback)
    for node in m.graph.nodes:
        for used in node.all_input_nodes:
            _connect(used, node, parts, home)
    order = list(parts) if keep_original_order else _ordered(parts)
    for name in order:
        _fill(parts[name], root_m, qualname_map, bool(keep_original_node_name),
              keep_original_input_name)
    return _joined(m, root_m, [parts[name] for name in order])


def _assigned(m: GraphModule, callback: Callable) -> tuple[dict[str, Partition], dict[Node, str]]:
    """Partitions by name, and the one that each node is in."""
    parts: dict[str, Partition] = {}
    home: dict[Node, str] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        name = str(callback(node))
        parts.setdefault(name, Partition(name)).nodes.append(node)
        home[node] = name
    return parts, home


def _connect(used: Node, user: Node, parts: dict[str, Partition], home: dict[Node, str]) -> None:
    """Let a value out of its partition and into another, where its user is elsewhere."""
    origin, target = home.get(used), home.get(user)
    if origin == target:
        return
    if origin is not None:
        parts[origin].outputs.setdefault(used)
    if target is not None:
        parts[target].inputs.setdefault(used)
        if origin is not None:
            parts[target].dependencies.setdefault(origin)


def _ordered(parts: dict[str, Partition]) -> list[str]:
    """Names of partitions, those that others need before them."""
    order: list[str] = []
    waiting = dict(parts)
    while waiting:
        ready = [name for name, part in waiting.items()
                 if not any(needed in waiting for needed in part.dependencies)]
        if not ready:
            raise RuntimeError("cycle exists between partitions!")
        order.append(ready[0])
        del waiting[ready[0]]
    return order


def _fill(part: Partition, root: nn.Module, qualname_map: dict[str, str] | None,
          keep_names: bool, keep_inputs: bool) -> None:
    """The graph of a partition, with copies of its nodes."""
    for node in part.inputs:
        name = node.name if keep_inputs or node.op != "placeholder" else f"arg_{len(part.values)}"
        made = part.values[node] = part.graph.placeholder(name, node.type)
        made.meta = dict(node.meta)
    for node in part.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: part.values[each])
        target: Any = node.target
        if node.op == "call_module":
            target = _kept(str(target), part, root, qualname_map)
        made = part.values[node] = part.graph.create_node(
            node.op, target, args, kwargs, node.name if keep_names else None, node.type)
        made.meta = dict(node.meta)
    outs = tuple(part.values[node] for node in part.outputs)
    part.graph.output(outs[0] if len(outs) == 1 else outs)


def _kept(target: str, part: Partition, root: nn.Module,
          qualname_map: dict[str, str] | None) -> str:
    """The name that something of the root has in a partition."""
    name = target.replace(".", "_")
    value: Any = root
    for each in target.split("."):
        value = getattr(value, each)
    part.targets[name] = value
    if qualname_map is not None:
        qualname_map[f"{part.submod_name}.{name}"] = target
    return name


def _joined(m: GraphModule, root: nn.Module, parts: list[Partition]) -> GraphModule:
    """The graph that calls the partitions."""
    graph, values = Graph(), {}
    held: dict[str, Any] = {}
    for node in m.graph.nodes:
        if node.op == "placeholder":
            default = node.args[:1]
            made = graph.create_node("placeholder", node.target, default, type_expr=node.type)
            made.meta = dict(node.meta)
            values[node] = made
        elif node.op == "get_attr":
            value: Any = root
            for each in str(node.target).split("."):
                value = getattr(value, each)
            held[str(node.target)] = value
            values[node] = graph.get_attr(str(node.target))
    for part in parts:
        held[part.submod_name] = GraphModule(part.targets, part.graph)
        result = graph.call_module(part.submod_name, tuple(values[n] for n in part.inputs))
        if len(part.outputs) == 1:
            values[next(iter(part.outputs))] = result
        else:
            for k, node in enumerate(part.outputs):
                values[node] = graph.call_function(operator.getitem, (result, k))
    old = m.graph.output_node()
    graph.output(map_arg(old.args[0], lambda node: values[node]), old.type).meta = dict(old.meta)
    return GraphModule(held, graph)
