"""Forms in place: ops that write into the tensor they read.

What that does to the graph is said in history.py, and how native code repeats it in again.py.
"""

from __future__ import annotations

from ..core import dtype as dt
from ..core.device import META
from ..ops.declare import Pointwise, registry
from .again import native_forms
from .copying import copy_, copy_plainly
from .eager import alias, baked_defaults, engine, pointwise_into
from .front_text import BESIDE
from .history import is_free, replace_history
from .interception import PLAIN, lazily_traced, plainly, tracers
from .modes import modes
from .node import edge_of, new_node
from .pointwise import UNUSUAL, plan, refits
from .tensor import LEAF, Tensor, keep_room, make
from .writing import changed, check_writable, demand_apart, overlaps


def pointwise_inplace(op: Pointwise, x: Tensor, *others, **attributes) -> Tensor:
    """x = op(x, ...), in x's own memory."""
    if not attributes and _quickly(op, x, others):
        return x
    name = f"{op.name}_"
    check_writable(x, name)
    for a in others:
        demand_apart(a, x)
    args = (x, *others)
    nodes = [a.node if isinstance(a, Tensor) else None for a in args]
    recording = modes.grad and any(n is not None for n in nodes)
    parents = tuple(edge_of(a) if isinstance(a, Tensor) and a.node is not None else None
                    for a in args)
    copies: dict[int, Tensor] = {}  # of what the way back reads and this call is about to change

    def copy_kept(back) -> None:
        keep = 0 if back is None else back.keep[_wanting(parents)]
        for i, a in enumerate(args):
            if isinstance(a, Tensor) and keep >> i & 1 and (a is x or overlaps(a, x)):
                copies[i] = _copied(a)

    back = pointwise_into(op, x, args, attributes, copy_kept if recording else None)
    changed(x)
    if recording and back is not None:
        _record_change(x, back, args, parents, attributes, copies)
    return x


def _quickly(op: Pointwise, x: Tensor, others: tuple) -> bool:
    """Run what was run before on the same signatures, if nothing is recorded.

    Of one or two operands, native fronts do the same by the same tables: see front_text/place.py.
    """
    if type(x) not in PLAIN or x.mem.version < 0 or tracers:
        return False
    key: list = [x.sig]
    pointers, numbers, loose = [x.ptr, x.ptr], [], x.node is None
    for a in others:
        if type(a) is float or type(a) is int:
            key.append(type(a))
            numbers.append(a)
        elif isinstance(a, Tensor) and type(a) in PLAIN:
            if a.mem is x.mem and (a.ptr != x.ptr or a.sig is not x.sig):
                return False  # they may overlap
            key.append(a.sig)
            pointers.append(a.ptr)
            loose = loose and a.node is None
        else:
            return False
    if (modes.grad and not (loose and is_free(x))) or refits(op, x.sig.dtype, others):
        return False
    table, last = _innermost(op.quick, key)
    found = table.get(last)
    if found is None:
        found = table[last] = _prepared(op, x, others)
    if found is UNUSUAL:
        return False
    found[2](*pointers, *numbers, found[3])
    changed(x)
    return True


def _innermost(table: dict, key: list) -> tuple:
    """Nested tables: the one that the last part of a key is looked up in, and that part."""
    *outer, last = key
    for part in outer:
        table = table.setdefault(part, {})
    return table, last


def _prepared(op: Pointwise, x: Tensor, others: tuple):
    """The plan of an op in place, its attributes at their defaults; UNUSUAL if it is not plain."""
    args = (x, *others)
    sigs = [a.sig for a in args if isinstance(a, Tensor)]
    if op.baked_values or any(s.tag is not None or s.device is META for s in sigs):
        return UNUSUAL
    operands = tuple(a.sig if isinstance(a, Tensor) else a for a in args)
    if op.check is not None:
        op.check(operands, {})
    return plan(op, operands, baked_defaults(op), x.sig)


def _wanting(parents) -> int:
    return sum(1 << i for i, p in enumerate(parents) if p is not None)


def _copied(a: Tensor) -> Tensor:
    """The elements as they are now, at the same place of the graph, to be differentiated again."""
    copy = engine.without_grad(engine.clone, a)
    copy.node = None if a.node is LEAF else a.node
    return copy


def _record_change(x, back, args, parents, attributes, copies) -> None:
    keep = back.keep[_wanting(parents)]
    kept = tuple([copies.get(i, a) if keep >> i & 1 or not isinstance(a, Tensor)
                  else None for i, a in enumerate(args)]
                 + [alias(x) if keep >> len(args) & 1 else None])
    node = new_node(back, parents, kept, (x.sig,))
    if attributes:
        node.more("attributes").update(attributes)
    replace_history(x, node)


def overwrite(x: Tensor, name: str, run, args, kwargs) -> Tensor:
    """x = run(x, ...), in x's own memory: the in-place form of what is not one kernel."""
    check_writable(x, name)
    # A recorded step may keep its operand, which is about to change: it gets a copy to keep.
    recorded = modes.grad and any([isinstance(a, Tensor) and a.node is not None
                                   for a in (x, *args, *kwargs.values())])
    result = run(engine.clone(x) if recorded else x, *args, **kwargs)
    if result.sig is x.sig and result is not x and copy_plainly(x, result):
        changed(x)
        return x
    if tuple(result.sig.shape) != tuple(x.sig.shape):
        raise RuntimeError(f"{name}: output with shape {list(x.sig.shape)} doesn't match the "
                           f"broadcast shape {list(result.sig.shape)}")
    if not dt.can_cast(result.sig.dtype, x.sig.dtype):
        raise RuntimeError(f"{name}: result type {result.sig.dtype.name} can't be cast to the "
                           f"desired output type {x.sig.dtype.name}")
    return x if result is x else copy_(x, result)


def set_requires_grad(x: Tensor, wanted: bool) -> None:
    if lazily_traced():
        if wanted or x.node is not None:
            plainly(set_requires_grad, x, wanted)
        return
    if wanted and x.sig.dtype.kind not in "fc":
        raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
    if wanted and x.mem.version < 0 and not modes.inference:
        raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode "
                           "is not allowed. Make a clone to get a normal tensor.")
    if not wanted and x.node is not None and x.node is not LEAF:
        raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want "
                           "to use a computed variable in a subgraph that doesn't require "
                           "differentiation use var_no_grad = var.detach().")
    if x.node is None or x.node is LEAF:
        x.node = LEAF if wanted else None


def detached(x: Tensor) -> Tensor:
    """The same bytes outside the graph."""
    out = make(x.sig, x.mem, x.ptr)
    keep_room(out, x)
    return out


engine.pointwise_in_place = pointwise_inplace


# -- fills -----------------------------------------------------------------------------------------


def _fill_front(op, otherwise):
    """fill_ and zero_: the op `fill` in place, with a number that is given or implied."""
    filling, implied = registry["fill"], 0 if op.name == "zero_" else None
    op.takes_out = True  # it does not; the usual front says so

    def front(x, *value, **named):
        given = value if implied is None else (implied, *value)
        if named or tracers or len(given) != 1 or not isinstance(x, Tensor) or not _quickly(
                filling, x, given):
            return otherwise(x, *value, **named)
        return x

    front.__name__, front.__doc__ = op.method, op.doc
    op.method_form, function = native_forms(front, filling.quick, BESIDE, implied)
    return function


FRONTS = {"fill_method": _fill_front, "zero_": _fill_front}
