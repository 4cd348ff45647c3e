"""Replacing a pattern of calls by other calls wherever it occurs in a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flambeau import nn
from flambeau.fx._matching import InternalMatch, SubgraphMatcher
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Pattern = Callable[..., Any] | Graph | GraphModule
Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """One place of a pattern: where it was found from, and what its nodes were there."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """One place of a pattern, and the nodes that are there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Pattern, replacement: Pattern) -> list[Match]:
    """Put other calls wherever a pattern of calls occurs; the places where it did.

    Pattern and replacement are functions of the same inputs, or modules.

    >>> import flambeau as torch
    >>> traced = symbolic_trace(lambda x, w: torch.cat([x, w]).sum() + 1)
    >>> found = replace_pattern(traced, lambda a, b: torch.cat([a, b]).sum(),
    ...                         lambda a, b: a.sum() + b.sum())
    >>> print(traced.code.strip())
    def forward(self, x, w):
        sum_2 = x.sum();  x = None
        sum_3 = w.sum();  w = None
        add_1 = sum_2 + sum_3;  sum_2 = sum_3 = None
        add = add_1 + 1;  add_1 = None
        return add
    """
    return [Match(each.anchor, each.nodes_map)
            for each in _replace(gm, pattern, replacement, [], False, None)]


def replace_pattern_with_filters(
        gm: GraphModule, pattern: Pattern, replacement: Pattern | None = None,
        match_filters: list[Filter] | None = None, ignore_literals: bool = False,
        replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
        node_name_match: str = "") -> list[ReplacedPatterns]:
    """`replace_pattern`, only in places that all filters let pass.

    A filter is given the place, the graph and the pattern; `replacement_callback` likewise, and
    makes a replacement for the place.
    """
    return _replace(gm, pattern, replacement, match_filters or [], ignore_literals,
                    replacement_callback)


def _graph_of(pattern: Pattern) -> Graph:
    if isinstance(pattern, Graph):
        return pattern
    return pattern.graph if isinstance(pattern, GraphModule) else symbolic_trace(pattern).graph


def _replace(gm: GraphModule, pattern: Pattern, replacement: Pattern | None,
             filters: list[Filter], ignore_literals: bool,
             callback: Callable | None) -> list[ReplacedPatterns]:
    wanted = _graph_of(pattern)
    places = [place for place in SubgraphMatcher(wanted, ignore_literals).match(gm.graph)
              if all(accepts(place, gm.graph, wanted) for accepts in filters)]
    if callback is None and replacement is None:
        raise AssertionError("Must provide either replacement GraphModule or replacement callback")
    common = None if replacement is None else copy.deepcopy(_graph_of(replacement))
    done: list[ReplacedPatterns] = []
    moved: dict[Node, Any] = {}  # nodes that were replaced -> by what
    for place in places:
        new = common if callback is None else callback(place, gm.graph, wanted)
        assert new is not None
        done.append(_replace_one(gm.graph, wanted, new, place, moved))
    gm.recompile()
    if isinstance(replacement, nn.Module):
        _adopt(gm, replacement)
    return done


def _replace_one(graph: Graph, pattern: Graph, new: Graph, place: InternalMatch,
                 moved: dict[Node, Any]) -> ReplacedPatterns:
    inputs = new.find_nodes(op="placeholder")
    given = [moved.get(each, each) if isinstance(each, Node) else each
             for each in place.placeholder_nodes]
    assert len(inputs) == len(given), (
        f"the pattern has {len(given)} inputs, its replacement {len(inputs)}")
    values: dict[Node, Any] = dict(zip(inputs, given, strict=True))
    known = set(values)
    with graph.inserting_before(_first_user(graph, place)):
        result = graph.graph_copy(new, values)
    returned = list(result) if isinstance(result, (tuple, list)) else [result]
    assert len(returned) == len(place.returning_nodes), (
        f"the pattern returns {len(place.returning_nodes)} values, its replacement "
        f"{len(returned)}")
    for old, made in zip(place.returning_nodes, returned, strict=True):
        old.replace_all_uses_with(made)
        moved[old] = made
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(place.nodes_map[node])
    return ReplacedPatterns(place.anchors[0], place.nodes_map,
                            [made for old, made in values.items() if old not in known])


def _first_user(graph: Graph, place: InternalMatch) -> Node:
    """The first node that needs what the pattern returns; what follows it, if none does."""
    users = {user for node in place.returning_nodes for user in node.users}
    found = next((node for node in graph.nodes if node in users), None)
    return max(place.returning_nodes).next if found is None else found


def _adopt(gm: GraphModule, replacement: nn.Module) -> None:
    """Give a module what its new nodes refer to, from where they came."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _reaches(gm, str(node.target)):
            continue
        value: Any = replacement
        for name in str(node.target).split("."):
            value = getattr(value, name)
        value = copy.deepcopy(value)
        path, _, last = str(node.target).rpartition(".")
        if isinstance(value, nn.Module):
            gm.add_submodule(str(node.target), value)
        else:
            if path and not _reaches(gm, path):
                gm.add_submodule(path, nn.Module())
            setattr(gm.get_submodule(path), last, value)
    gm.graph.lint()


def _reaches(module: Any, target: str) -> bool:
    for name in target.split("."):
        if not hasattr(module, name):
            return False
        module = getattr(module, name)
    return True
