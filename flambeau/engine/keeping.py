"""The fronts of composites that keep: the body says itself what its gradient will be given."""

from __future__ import annotations

from ..ops.declare import Composite
from .eager import PLAIN, intercepted
from .formula import FormulaBack, bind
from .modes import modes
from .node import kept_values, new_node
from .tensor import LEAF


class KeepingBack(FormulaBack):
    """Goes back by a formula of the gradient and of what the body kept."""

    def pull(self, node, g):
        return self._one_each(node, g, self.op.formula(g, *kept_values(node)))

    def saved(self, node, name):
        return kept_values(node)[self.op.wanted.index(name) - 1]


def keeping_front(op: Composite):
    body, count, back = op.body, len(op.names), KeepingBack(op)
    places = [op.names.index(name) for name in op.tensor_names]

    def front(*args, **kwargs):
        if kwargs or len(args) != count:
            bound = bind(op, args, kwargs)
            args = [bound[name] for name in op.names]
        tensors = [args[k] for k in places]
        if not PLAIN.issuperset(map(type, tensors)) or any(
                [t is not None and t.sig.tag is not None for t in tensors]):
            found = intercepted(op, tuple(args), {})
            if found is not None:
                return found[0]
        out, kept = body(*args)
        if modes.grad:
            nodes = [None if t is None else t.node for t in tensors]
            if nodes.count(None) != len(nodes):
                parents = tuple([t if node is LEAF else node
                                 for t, node in zip(tensors, nodes)])
                out.node = new_node(back, parents, kept, (out.sig,))
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front
