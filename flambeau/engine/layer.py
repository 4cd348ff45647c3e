"""A quick front for the layer norm with weight and bias: its kernel by one lookup."""

from __future__ import annotations

from ..core.device import META
from ..ops.declare import registry
from ..ops.norm import normalised
from .eager import new_table
from .fresh import empty
from .interception import PLAIN
from .keeping import KeepingBack
from .modes import modes
from .node import new_node
from .rows import plans
from .tensor import LEAF, Signature


def layer_front(op, general):
    """The front of `layer_norm`: `general` answers what has not been met, and all refusals."""
    known, back = new_table(), KeepingBack(registry["layer_normalised"])

    def front(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
        try:
            key = input.sig, weight.sig, bias.sig, normalized_shape, eps
            plan = known.get(key)
        except (AttributeError, TypeError):  # no weight, or a list
            return general(input, normalized_shape, weight, bias, eps, cudnn_enable)
        if plan is None or not (type(input) in PLAIN and type(weight) in PLAIN
                                and type(bias) in PLAIN):
            result = general(input, normalized_shape, weight, bias, eps, cudnn_enable)
            _remember(known, key)
            return result
        (sig, small, _), code, last, count, dims, eps = plan
        out, mean, root = empty(sig), empty(small), empty(small)
        code(out.ptr, mean.ptr, root.ptr, weight.ptr, bias.ptr, input.ptr, count, eps, last)
        if modes.grad:
            parents = input.node, weight.node, bias.node
            if parents != (None, None, None):
                given = input, weight, bias
                edges = tuple([x if n is LEAF else n for x, n in zip(given, parents, strict=True)])
                out.node = new_node(back, edges, (*given, dims, eps, mean, root), (sig,))
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _remember(known: dict, key: tuple) -> None:
    """Keep the plan of a call that has gone well."""
    *sigs, shape, eps = key
    x: Signature = sigs[0]
    if any(s.tag is not None or s.device is META for s in sigs) or not x.numel:
        return
    dims = tuple(range(x.rank - (1 if isinstance(shape, int) else len(shape)), x.rank))
    found = plans.get((normalised, dims, *sigs, float))
    if found is not None and found[1] is not None:
        known[key] = (*found[:4], dims, float(eps))


FRONTS = {"layer_norm": layer_front}
