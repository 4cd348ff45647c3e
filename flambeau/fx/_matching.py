"""Where a graph contains another: the pattern, whose inputs stand for anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node


@dataclass
class InternalMatch:
    """One place where the pattern is."""

    anchors: list[Node]
    #: nodes of the pattern -> nodes of the graph; its inputs -> whatever stands there
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Any] = field(default_factory=list)

    def copied(self) -> InternalMatch:
        return InternalMatch(list(self.anchors), dict(self.nodes_map))


class SubgraphMatcher:
    """Finds a pattern in graphs. Numbers and names in it have to be equal, unless ignored."""

    def __init__(self, pattern: Graph, ignore_literals: bool = False) -> None:
        self.pattern, self.ignore_literals = pattern, ignore_literals
        if not any(node.op not in ("placeholder", "output") for node in pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an pattern with no "
                             "operations")
        self.returning = pattern.output_node().all_input_nodes
        self.anchors = [node for node in self.returning if len(node.users) == 1]

    def match(self, graph: Graph) -> list[InternalMatch]:
        """The places of the pattern in a graph that share no node, in order."""
        places = [InternalMatch(self.anchors)]
        for anchor in self.anchors:
            places = [grown for place in places for candidate in graph.nodes
                      if self._is_like(anchor, candidate)
                      for grown in [place.copied()] if self._grows(grown, anchor, candidate)]
        return self._apart([place for place in places if self._is_closed(place)])

    def _grows(self, place: InternalMatch, pattern: Any, value: Any) -> bool:
        """Whether a value of the graph can stand for one of the pattern in this place."""
        if not isinstance(pattern, Node):
            return self._is_equal(place, pattern, value)
        if pattern in place.nodes_map:
            return place.nodes_map[pattern] is value
        if pattern.op == "placeholder":
            place.nodes_map[pattern] = value
            return True
        if not isinstance(value, Node) or value in place.nodes_map.values() or not (
                self._is_like(pattern, value)):
            return False
        place.nodes_map[pattern] = value
        return self._is_equal(place, (pattern.args, pattern.kwargs), (value.args, value.kwargs))

    def _is_equal(self, place: InternalMatch, pattern: Any, value: Any) -> bool:
        if isinstance(pattern, (list, tuple)):
            return isinstance(value, (list, tuple)) and len(pattern) == len(value) and all(
                self._grows(place, p, v) for p, v in zip(pattern, value, strict=True))
        if isinstance(pattern, dict):
            return isinstance(value, dict) and pattern.keys() == value.keys() and all(
                self._grows(place, p, value[key]) for key, p in pattern.items())
        if isinstance(pattern, slice):
            return isinstance(value, slice) and all(
                self._grows(place, getattr(pattern, part), getattr(value, part))
                for part in ("start", "stop", "step"))
        if isinstance(value, Node):
            return False
        return self.ignore_literals or (type(pattern) is type(value) and pattern == value)

    def _is_like(self, pattern: Node, node: Node) -> bool:
        """Whether a node does the same, whatever its arguments."""
        if pattern.op != node.op:
            return False
        if pattern.op == "get_attr":
            return _same_value(_attribute(pattern), _attribute(node))
        return pattern.target == node.target

    def _is_closed(self, place: InternalMatch) -> bool:
        """Whether nobody outside uses what is inside, but for what the pattern returns."""
        inside = {id(value) for value in place.nodes_map.values()}
        return all(id(user) in inside for pattern, value in place.nodes_map.items()
                   if pattern.op != "placeholder" and pattern not in self.returning
                   for user in value.users)

    def _apart(self, places: list[InternalMatch]) -> list[InternalMatch]:
        taken: set[Node] = set()
        found = []
        for place in places:
            nodes = {value for pattern, value in place.nodes_map.items()
                     if pattern.op not in ("placeholder", "output")}
            if not nodes & taken:
                taken |= nodes
                place.placeholder_nodes = [place.nodes_map.get(node) for node in
                                           self.pattern.find_nodes(op="placeholder")]
                place.returning_nodes = [place.nodes_map[node] for node in self.returning]
                found.append(place)
        return found


def _attribute(node: Node) -> Any:
    """What an attribute node reads, if its graph has a module; else its name."""
    owner = node.graph.owning_module
    if owner is None:
        return node.target
    for name in str(node.target).split("."):
        owner = getattr(owner, name)
    return owner


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return one is other or (alike and flambeau.equal(one, other))
    return type(one) is type(other)
