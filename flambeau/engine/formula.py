"""Calls of ops by parameter name: binding arguments, and recording steps with a formula."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from ..ops.declare import Op
from .modes import modes
from .node import Edge, Node, again, edge_of, kept_values, new_node, next_sequence
from .tensor import Tensor, make
from .way_back import backward_name, compile_text, reattached

#: what torch calls the first parameters, whatever a declaration calls them
SYNONYMS = {"input": 0, "self": 0, "other": 1}
#: numpy's names for parameters, which torch takes too
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "axes": "dims"}

#: (op, name in another of its forms) -> the parameter that takes it
OTHER_FORMS = {("view", "dtype"): "size"}


def bind(op: Op, args: tuple, kwargs: dict) -> dict:
    """Arguments by parameter name, defaults filled in; torch's TypeError if they do not fit."""
    names = op.names
    if not kwargs and len(args) == len(names):
        return dict(zip(names, args, strict=True))
    if len(args) > len(names):
        raise TypeError(f"{op.said}() takes {len(names)} positional arguments but {len(args)} were "
                        "given")
    bound = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names and NUMPY_NAMES.get(name) in names:
            name = NUMPY_NAMES[name]
        name = OTHER_FORMS.get((op.name, name), name)
        if name not in names:
            position = SYNONYMS.get(name)
            if position is None or position >= len(names):
                raise TypeError(f"{op.said}() got an unexpected keyword argument '{name}'")
            name = names[position]
        if name in bound:
            raise TypeError(f"{op.said}() got multiple values for argument '{name}'")
        bound[name] = value
    for name in names:
        if name not in bound:
            if name not in op.defaults:
                raise TypeError(f"{op.said}() missing 1 required positional argument: '{name}'")
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
    for t in tensors:
        if isinstance(t, (list, tuple)):
            if wants_gradient(t):
                return True
        elif isinstance(t, Tensor) and t.node is not None:
            return modes.grad
    return False


class FormulaBack:
    """Goes back by the formula in the op's declaration."""

    def __init__(self, op: Op):
        self.op = op
        self.play: Any = None  # `gradients`, with less to do where calls come again

    def name(self) -> str:
        return backward_name(self.op)

    def __repr__(self) -> str:
        return self.name()

    def pull(self, node, g):
        op = self.op
        several = len(node.sigs) > 1
        values: list = []
        for name, value in zip(op.wanted, kept_values(node)):
            if name == "g":
                value = tuple(g) if several else g
            elif name == "out" and modes.grad:
                value = self._results(node, value)
            values.append(value)
        if self.play is not None and not modes.grad:
            return self.play(node.parents, values)
        return self.gradients(node.parents, values)

    def gradients(self, parents: tuple, values: list) -> list:
        """What the formula makes of the values that it wants."""
        op, formula = self.op, cast(Callable, self.op.formula)
        g: Any = values[op.wanted.index("g")] if "g" in op.wanted else None
        parts = formula(*values)
        if type(parts) is Tensor and len(parents) == 1:
            return [again(parts) if parts is g else parts]
        return self._one_each(parents, g, parts)

    def _one_each(self, parents: tuple, g, parts) -> list:
        """One gradient per parent; one handed on as it came, or given twice, is nobody's own."""
        flattened = parts
        if type(parts) is not tuple or len(parts) != len(parents):
            flattened = flat(parts if isinstance(parts, (tuple, list)) else (parts,))
        if len(flattened) != len(parents):
            raise RuntimeError(f"the gradient of {self.op.name} gives {len(flattened)} values for "
                               f"{len(parents)} tensors")
        found: list = []
        for part, parent in zip(flattened, parents):
            if parent is None or part is None:
                found.append(None)
                continue
            kind = type(part)
            if kind is FunctionType:
                part = part()
            elif kind is list or kind is tuple:
                return self._one_each(parents, g, flat(parts))
            shared = part is g or (part is not None and any([part is f for f in found]))
            found.append(again(part) if shared else part)
        return found

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
    if type(outs) is Tensor and not (modes.pack or modes.anomaly):
        recording = _recordings.get(op)
        if recording is None:
            recording = _recordings[op] = _recording(op)
        if recording(bound, outs, back or back_of(op)):
            return
    results = (outs,) if isinstance(outs, Tensor) else tuple(outs)
    for o in results:
        if hasattr(o, "base"):
            del o.base  # made inside, and outside the graph: in-place ops must not go to it
    node = new_node(back or back_of(op), _parents(op, bound), _kept(op, bound, results),
                    tuple([o.sig for o in results]))
    if len(results) == 1:
        results[0].node = node
        return
    for number, o in enumerate(results):
        if o.sig.dtype.kind in "fc":
            o.node = Edge(node, number)


_recordings: dict[Op, Any] = {}


def _recording(op: Op):
    """`record` of one result in as many words as this op needs; it says whether operands are plain
    tensors or None, and the step was attached."""
    tensors = {name: f"t{k}" for k, name in enumerate(op.tensor_names)}
    loads = "".join(f"    {t} = bound[{name!r}]\n" for name, t in tensors.items())
    odd = " or ".join(f"({t} is not None and not isinstance({t}, Tensor))"
                      for t in tensors.values())
    edges = "".join(f"None if {t} is None or {t}.node is None else edge_of({t}), "
                    for t in tensors.values())
    kept, versions = [], []
    for name in op.wanted:
        t = tensors.get(name)
        meta = name.removesuffix("_meta")
        if t is not None:
            kept.append(t)
            versions.append(f"0 if {t} is None else {t}.mem.version")
            continue
        own = name in op.names
        versions.append(f"version_of(bound[{name!r}])" if own else
                        "out.mem.version" if name == "out" else "0")
        kept.append(f"as_kept(bound[{name!r}])" if own else "None" if name == "g" else
                    "make(out.sig, out.mem, out.ptr)" if name == "out" else
                    f"as_told(bound[{meta!r}])")
    return compile_text(f"""def recording(bound, out, back):
{loads}    if {odd or "False"}:
        return False
    versions = ({"".join(v + ", " for v in versions)})
    if versions and min(versions) < 0:
        return False
    if hasattr(out, "base"):
        del out.base
    node = new(Node)
    node.back, node.parents, node.sigs = back, ({edges}), (out.sig,)
    node.versions, node.seq, node.extra = versions, next_sequence(), None
    node.kept = ({"".join(k + ", " for k in kept)})
    out.node = node
    return True
""", "recording", {"Tensor": Tensor, "Node": Node, "new": object.__new__, "edge_of": edge_of,
                   "make": make, "next_sequence": next_sequence, "as_kept": _as_kept,
                   "as_told": _as_told, "version_of": _version_of})


def _version_of(value) -> int:
    return value.mem.version if isinstance(value, Tensor) else 0


def _as_kept(value):
    return tuple(value) if type(value) is list else value


def _as_told(value):
    """What a formula is told of an operand that it does not need the elements of."""
    if isinstance(value, (list, tuple)):
        return [v.sig for v in value]
    return value.sig if isinstance(value, Tensor) else value


def _parents(op: Op, bound: dict) -> tuple:
    """Where gradients go: an edge per tensor, None where none is wanted."""
    found = []
    for name in op.tensor_names:
        value = bound[name]
        for t in value if isinstance(value, (list, tuple)) else (value,):
            found.append(edge_of(t) if isinstance(t, Tensor) and t.node is not None else None)
    return tuple(found)


def _kept(op: Op, bound: dict, results: tuple) -> tuple:
    """What the formula names, of what it is known by now."""
    kept: list = []
    for name in op.wanted:
        if name in bound:
            value = bound[name]
            kept.append(_as_kept(value))
        elif name == "g":
            kept.append(None)
        elif name == "out":
            aliases = tuple([make(o.sig, o.mem, o.ptr) for o in results])
            kept.append(aliases if len(aliases) > 1 else aliases[0])
        else:
            kept.append(_as_told(bound[name.removesuffix("_meta")]))
    return tuple(kept)
