"""Graphs in files: nodes as rows of plain values, functions by the names that lead to them."""

from __future__ import annotations

import importlib
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau
from flambeau.fx._codegen import form_of
from flambeau.fx._naming import is_ours, qualified_name
from flambeau.fx.node import Node, map_arg


class Row(NamedTuple):
    """One node."""

    op: str
    target: Any
    args: tuple
    kwargs: dict[str, Any]
    name: str
    type: Any
    wrapped: bool


class Ref(NamedTuple):
    """Stands for a node among arguments."""

    name: str


class Named(NamedTuple):
    """Stands for a function: pickles of it would not find natively compiled ones."""

    path: str

    def found(self) -> Callable:
        parts = self.path.split(".")
        value: Any = flambeau if parts[0] == "torch" else importlib.import_module(parts[0])
        for name in parts[1:]:
            value = getattr(value, name)
        return value


class Generic(NamedTuple):
    """Stands for a type with parameters, which may be ours."""

    form: Any
    inside: tuple

    def found(self) -> Any:
        form = getattr(typing, self.form) if isinstance(self.form, str) else self.form
        return form[tuple(map(_loaded, self.inside))]


def _kept(kind: Any) -> Any:
    """A function or type as a file keeps it."""
    if typing.get_args(kind):
        inside = tuple(map(_kept, typing.get_args(kind)))
        return Generic(form_of(kind) or typing.get_origin(kind), inside)
    return Named(qualified_name(kind)) if callable(kind) and is_ours(kind) else kind


def _loaded(kept: Any) -> Any:
    return kept.found() if isinstance(kept, (Generic, Named)) else kept


def stored(graph: Any) -> dict[str, Any]:
    """What a file keeps of a graph."""
    rows = []
    for node in graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: Ref(each.name))
        rows.append(Row(node.op, _kept(node.target), args, kwargs, node.name, _kept(node.type),
                        bool(node.meta.get("is_wrapped"))))
    tracer = graph._tracer_cls
    if tracer is not None and "<locals>" in tracer.__qualname__:
        tracer = None  # no file could name it
    return {"nodes": rows, "codegen": graph._codegen, "tracer": tracer}


def restore(graph: Any, rows: list[Row]) -> None:
    """Fill an empty graph with what a file kept."""
    made: dict[str, Node] = {}
    for row in rows:
        args, kwargs = _with_nodes(row.args, made), _with_nodes(row.kwargs, made)
        node = made[row.name] = graph.create_node(
            row.op, _loaded(row.target), args, kwargs, row.name, _loaded(row.type))
        if row.wrapped:
            node.meta["is_wrapped"] = True


def _with_nodes(value: Any, made: dict[str, Node]) -> Any:
    if isinstance(value, Ref):
        return made[value.name]
    if isinstance(value, tuple):
        parts = [_with_nodes(each, made) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_with_nodes(each, made) for each in value]
    if isinstance(value, dict):
        return {key: _with_nodes(each, made) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(*(_with_nodes(each, made) for each in (value.start, value.stop, value.step)))
    return value


