"""How each op is said in ONNX: the registry, and the call that a lowering is given."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.assemble import registry as ops
from flambeau.export.graph import Extent, Node, Value

LOWERINGS: dict[str, tuple[Callable, bool]] = {}


def lowers(*keys: str, raw: bool = False):
    """Decorator: a lowering of these ops, called as f(builder, call, *arguments).

    Arguments come in the order of the op's declaration, defaults filled in; with `raw`, as they
    were given, by position and by name.
    """

    def add(function):
        for key in keys:
            if key in LOWERINGS:
                raise ValueError(f"{key} has a lowering already")
            LOWERINGS[key] = (function, raw)
        return function

    return add


def known(key: str) -> bool:
    """Whether an op is one node of the graph to be exported."""
    return key in LOWERINGS


class Call:
    """What a lowering may want to know of the call besides its arguments."""

    def __init__(self, node: Node):
        self.node, self.key = node, node.op
        self.outs = node.outputs

    @property
    def out(self) -> Value:
        return self.outs[0]


def bound(node: Node) -> list:
    """The arguments of a call in the order of the op's declaration."""
    op = ops[node.op]
    args = list(node.args)
    names = list(op.names)
    if getattr(op, "variadic", False) and len(args) > 1 and isinstance(args[1], (int, Extent)) and (
            len(names) == 2):
        args = [args[0], tuple(args[1:])]
    given = dict(zip(names, args, strict=False))
    for name, value in node.kwargs.items():
        given[_own_name(names, name)] = value
    return [given.get(name, op.defaults.get(name)) for name in names]


_SYNONYMS = {"input": 0, "self": 0, "other": 1}
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "axes": "dims"}


def _own_name(names: list[str], name: str) -> str:
    if name in names:
        return name
    if _NUMPY.get(name) in names:
        return _NUMPY[name]
    return names[_SYNONYMS[name]] if name in _SYNONYMS else name


def axis_of(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def axes_of(dim, rank: int) -> list[int] | None:
    """Dimensions as a sorted list, or None for all of them."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return None
    return sorted(axis_of(d, rank) for d in (dim if isinstance(dim, (tuple, list)) else (dim,)))


def several(value, count: int) -> list:
    """One number for each dimension."""
    if isinstance(value, (tuple, list)):
        return list(value) * (count if len(value) == 1 else 1)
    return [value] * count
