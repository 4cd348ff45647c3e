"""The fronts of composites that keep: the body says itself what its gradient will be given."""

from __future__ import annotations

from ..ops.declare import Composite
from .formula import FormulaBack, bind
from .interception import PLAIN, intercepted
from .modes import modes
from .node import kept_values, new_node
from .tensor import LEAF


class KeepingBack(FormulaBack):
    """Goes back by a formula of the gradient and of what the body kept."""

    def pull(self, node, g):
        return self._one_each(node.parents, g, self.op.formula(g, *kept_values(node)))

    def saved(self, node, name):
        return kept_values(node)[self.op.wanted.index(name) - 1]


def keeping_front(op: Composite):
    body, count, back = op.body, len(op.names), KeepingBack(op)
    places = [op.names.index(name) for name in op.tensor_names]

    def front(*args, **kwargs):
        if kwargs or len(args) != count:
            bound = bind(op, args, kwargs)
            args = [bound[name] for name in op.names]
        wanted = False
        for k in places:
            t = args[k]
            if t is None:
                continue
            if type(t) not in PLAIN or t.sig.tag is not None:
                found = intercepted(op, tuple(args), {})
                if found is not None:
                    return found[0]
            wanted = wanted or t.node is not None
        out, kept = body(*args)
        if wanted and modes.grad:
            parents = []
            for k in places:
                t = args[k]
                node = None if t is None else t.node
                parents.append(t if node is LEAF else node)
            out.node = new_node(back, tuple(parents), kept, (out.sig,))
            if hasattr(out, "base"):
                del out.base  # made in here, and outside the graph: in-place ops must not go to it
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front
