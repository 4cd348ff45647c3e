"""Calls of ops by parameter name: binding arguments, and recording steps that go back by formula."""

from __future__ import annotations

import inspect

from ..ops.declare import Op
from .modes import modes
from .node import Edge, again, edge_of, kept_values, new_node
from .pointwise import backward_name, reattached
from .tensor import Tensor, make

#: what torch calls the first parameters, whatever a declaration calls them
SYNONYMS = {"input": 0, "self": 0, "other": 1}
#: numpy's names for parameters, which torch takes too
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "axes": "dims"}


def bind(op: Op, args: tuple, kwargs: dict) -> dict:
    """Arguments by parameter name, defaults filled in; torch's TypeError if they do not fit."""
    names = op.names
    if len(args) > len(names):
        raise TypeError(f"{op.name}() takes {len(names)} positional arguments but {len(args)} were "
                        "given")
    bound = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names and NUMPY_NAMES.get(name) in names:
            name = NUMPY_NAMES[name]
        if name not in names:
            position = SYNONYMS.get(name)
            if position is None or position >= len(names):
                raise TypeError(f"{op.name}() got an unexpected keyword argument '{name}'")
            name = names[position]
        if name in bound:
            raise TypeError(f"{op.name}() got multiple values for argument '{name}'")
        bound[name] = value
    for name in names:
        if name not in bound:
            if name not in op.defaults:
                raise TypeError(f"{op.name}() missing 1 required positional argument: '{name}'")
            bound[name] = op.defaults[name]
    return bound


def tensors_of(op: Op, bound: dict) -> list:
    """The tensor arguments in order; lists of tensors in their place."""
    return [bound[name] for name in op.tensor_names]


def flat(values) -> list:
    """Tensors and None, with lists opened."""
    found: list = []
    for v in values:
        if isinstance(v, (list, tuple)):
            found.extend(v)
        else:
            found.append(v)
    return found


def wants_gradient(tensors) -> bool:
    if not modes.grad:
        return False
    return any(isinstance(t, Tensor) and t.node is not None for t in flat(tensors))


class FormulaBack:
    """Goes back by the formula in the op's declaration."""

    def __init__(self, op: Op):
        self.op = op

    def name(self) -> str:
        return backward_name(self.op)

    def __repr__(self) -> str:
        return self.name()

    def pull(self, node, g):
        op = self.op
        kept = kept_values(node)
        values = []
        for name, value in zip(op.wanted, kept, strict=True):
            if name == "g":
                value = g if len(node.sigs) == 1 else tuple(g)
            elif name == "out" and modes.grad:
                value = self._results(node, value)
            values.append(value)
        parts = op.formula(*values)
        if not isinstance(parts, (tuple, list)):
            parts = (parts,)
        flattened = flat(parts)
        if len(flattened) != len(node.parents):
            raise RuntimeError(f"the gradient of {op.name} gives {len(flattened)} values for "
                               f"{len(node.parents)} tensors")
        found = [None if parent is None else part() if inspect.isfunction(part) else part
                 for part, parent in zip(flattened, node.parents, strict=True)]
        # A gradient handed on as it came, or given twice, is nobody's own.
        return [again(part) if part is g or (part is not None and any(
                    part is f for f in found[:i])) else part
                for i, part in enumerate(found)]

    @staticmethod
    def _results(node, value):
        if isinstance(value, tuple):
            return tuple(reattached(v, Edge(node, k)) if isinstance(v, Tensor) else v
                         for k, v in enumerate(value))
        return reattached(value, node)

    def saved(self, node, name):
        kept = kept_values(node)
        names = {"result": "out", "self": self.op.names[0]}
        wanted = list(self.op.wanted)
        return kept[wanted.index(names.get(name, name))]


_backs: dict[Op, FormulaBack] = {}


def back_of(op: Op) -> FormulaBack:
    back = _backs.get(op)
    if back is None:
        back = _backs[op] = FormulaBack(op)
    return back


class NumberedBack(FormulaBack):
    """The form of an op that torch counts as its second: its name ends in 1."""

    def name(self) -> str:
        return super().name().removesuffix("0") + "1"


_numbered: dict[Op, FormulaBack] = {}


def numbered_back(op: Op) -> FormulaBack:
    return _numbered.setdefault(op, NumberedBack(op))


def record(op: Op, bound: dict, outs, back=None) -> None:
    """Attach a step to its result or results."""
    results = [o for o in (outs if isinstance(outs, (tuple, list)) else (outs,))]
    tensors = flat(tensors_of(op, bound))
    parents = tuple(edge_of(t) if isinstance(t, Tensor) and t.node is not None else None
                    for t in tensors)
    kept = []
    for name in op.wanted:
        if name == "g":
            kept.append(None)
        elif name == "out":
            aliases = tuple(make(o.sig, o.mem, o.ptr) for o in results)
            kept.append(aliases if len(aliases) > 1 else aliases[0])
        elif name.endswith("_meta"):
            value = bound[name.removesuffix("_meta")]
            kept.append([v.sig for v in value] if isinstance(value, (list, tuple)) else
                        value.sig if isinstance(value, Tensor) else value)
        else:
            value = bound[name]
            kept.append(tuple(value) if isinstance(value, list) else value)
    node = new_node(back or back_of(op), parents, tuple(kept), tuple(o.sig for o in results))
    for number, o in enumerate(results):
        if o.sig.dtype.kind in "fc":
            o.node = node if len(results) == 1 else Edge(node, number)
