"""Views: their fronts, how they are recorded, and how gradients go back through them.

A view holds the tensor it was taken from (`base`), and that tensor knows its recorded views, so
that they can be recorded anew when the memory they share is changed.
"""

from __future__ import annotations

import weakref
from functools import lru_cache

from ..core import formats as fm
from ..core.device import META
from ..core.lazily import np
from ..core.numbers import plain
from ..devices.cpu.remember import keep
from ..ops.declare import View
from . import pointwise as pw
from .by_place import places
from .eager import engine, new_table
from .formula import bind
from .interception import intercepted
from .modes import modes
from .node import Edge, Node, edge_of, fronts, kept_values, new_node, next_sequence
from .storage import ALIGNMENT, allocate, pool_of
from .tensor import (
    LEAF,
    Signature,
    Tensor,
    base_of,
    empty,
    keep_room,
    make,
    new,
    offset_of,
    room_of,
    signature,
)
from .way_back import backward_name


def view_front(op: View):
    """One lookup by signature and arguments; whatever is not in the table is a miss."""
    plans = op.plans = new_table()
    if not op.differentiable:
        return plain_front(op)

    def front(input, *args, **kwargs):
        x = input
        try:
            plan = plans.get((x.sig, args))
        except (AttributeError, TypeError):
            plan = None
        if plan is None or kwargs:
            return miss(x, args, kwargs)
        sig, move, back = plan
        if sig is None:
            return back.otherwise(x)
        out = new(Tensor)
        out.sig = sig
        out.mem = x.mem
        out.ptr = x.ptr + move
        out.base = x
        out.node = None
        if modes.grad:
            record_view(x, out, back)
        return out

    def miss(x, args, kwargs):
        found = intercepted(op, (x, *args), kwargs)
        if found is not None:
            return found[0]
        if not isinstance(x, Tensor):
            raise TypeError(f"{op.name}(): argument 'input' (position 1) must be Tensor, not "
                            f"{type(x).__name__}")
        args = tuple([a if type(a) is int else _plain(a) for a in args])
        key = x.sig, args
        if kwargs:
            key += (tuple(sorted([(k, _plain(v)) for k, v in kwargs.items()])),)
        plan = plans.get(key)
        if plan is None:
            plan = keep(plans, key, view_plan(op, x.sig, _bound(op, x, args, kwargs)))
        return take(x, plan)

    front.__name__, front.__doc__ = op.name, op.doc
    run, context = fronts.adopt(front, plans, "v", op.name, op.doc, names=places(op))
    op.method_form = fronts.method(context, "v", op.name, op.doc) if op.method else None
    return run


def plain_front(op: View):
    """The front of a view that is no part of the graph: it knows no base."""

    def front(input):
        x = input
        if x.sig.tag is not None:
            found = intercepted(op, (x,), {})
            if found is not None:
                return found[0]
        out = new(Tensor)
        out.sig = sig = x.sig
        out.mem = mem = x.mem
        out.ptr = ptr = x.ptr
        out.node = None
        if ptr != mem.address or mem.nbytes > 2 * sig.nbytes + ALIGNMENT:
            keep_room(out, x)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _plain(value):
    """An argument as something a plan can be found by."""
    if isinstance(value, (list, tuple)):
        return tuple([v if type(v) is int else _plain(v) for v in value])
    if isinstance(value, Tensor):
        if value.sig.rank or value.sig.dtype.kind not in "iu":
            raise RuntimeError(f"start must be an 0-dim integral Tensor., but got {value.sig!r}")
        return value.__index__()
    return plain(value)


def _bound(op: View, x: Tensor, args: tuple, kwargs: dict) -> dict:
    if op.variadic:
        lead = len(op.names) - 2
        rest = args[lead:]
        if len(rest) > 1 or (rest and isinstance(rest[0], int)):
            args = (*args[:lead], rest)
    if not kwargs and len(args) == len(op.names) - 1:
        return dict(zip(op.names[1:], args))
    bound = bind(op, (x, *args), {k: _plain(v) for k, v in kwargs.items()})
    return {name: bound[name] for name in op.names[1:]}


def _take(x: Tensor, plan) -> Tensor:
    """The view of a tensor that a plan describes."""
    sig, move, back = plan
    if sig is None:
        return back.otherwise(x)
    out = new(Tensor)  # as `make` does it, without a frame of its own
    out.sig, out.mem, out.ptr, out.node, out.base = sig, x.mem, x.ptr + move, None, x
    if modes.grad:
        record_view(x, out, back)
    return out


take = fronts.view_taker(_take)


def view_plan(op: View, sig: Signature, bound: dict):
    """(signature, how many bytes further it starts, the way back), or None where it must copy."""
    found = op.body(sig, *bound.values())
    back: ViewBack | None = ViewBack(op, sig, bound)
    if found is None:
        return None, 0, back
    shape, strides, *rest = found
    dtype = rest[1] if len(rest) > 1 else sig.dtype
    made = signature(dtype, shape, strides if strides is None else tuple(strides), sig.device)
    if dtype.kind not in "fc" or sig.dtype.kind not in "fc":
        back = None
    return made, (rest[0] if rest else 0) * dtype.itemsize, back


class ViewBack:
    """The way back through a view: by its formula, or by writing where the view looked."""

    __slots__ = ("bound", "op", "sig")

    def __init__(self, op: View, sig: Signature, bound: dict):
        self.op, self.sig, self.bound = op, sig, bound

    def name(self) -> str:
        given = self.op.backward_name
        return given(self.bound) if callable(given) else backward_name(self.op)

    def __repr__(self) -> str:
        return self.name()

    def otherwise(self, x: Tensor):
        """The result where no view of the input can be it."""
        return self.op.otherwise(x, *self.bound.values())

    def pull(self, node, g):
        op = self.op
        if op.formula is None:
            return [view_gradient(op, self.bound, self.sig, g)]
        known = {"g": g, f"{op.names[0]}_meta": self.sig, **self.bound}
        return [released(op.formula(*[known[name] for name in op.wanted]))]


def released(g: Tensor) -> Tensor:
    """A gradient that does not hold what it is a view of, so that it may own its memory alone."""
    if g._has_memory and g.node is None and base_of(g) is not None:
        del g.base
    return g


def record_view(x: Tensor, out: Tensor, back) -> None:
    """Attach a view to the graph, and make it known to what it is a view of."""
    node = x.node
    if node is not LEAF:
        remember(x, out)
        if node is None:
            return
    if back is None:
        return
    if modes.anomaly:
        out.node = new_node(back, (edge_of(x),), (), (out.sig,))
        return
    made = new(Node)
    made.back, made.sigs, made.seq, made.extra = back, (out.sig,), next_sequence(), None
    made.parents = (x if node is LEAF else node,)
    made.kept = made.versions = ()
    out.node = made


def remember(x: Tensor, view: Tensor) -> None:
    """A view is known to its base, to be recorded anew when the base changes."""
    try:
        views = x.views
    except AttributeError:
        views = x.views = []
    views.append(weakref.ref(view))
    count = len(views)
    if count >= 64 and count & (count - 1) == 0:
        views[:] = [v for v in views if v() is not None]


# -- gradients as places in memory -----------------------------------------------------------------


class Step:
    """A step of the graph that goes back by a function of the gradient."""

    __slots__ = ("function", "label")

    def __init__(self, label: str, function):
        self.label, self.function = label, function

    def name(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return self.label

    def pull(self, node, g):
        if node.versions:
            kept_values(node)  # refuses where what the function reads has changed or is gone
        return self.function(g)


def recorded(out: Tensor, label: str, inputs, function, kept=()) -> Tensor:
    """Attach a step whose gradients, one per input, a function gives; it reads what is kept."""
    if not modes.grad:
        return out
    for x in inputs:  # a generator would cost as much as the rest of the call
        if x.node is not None:
            parents = tuple([edge_of(x) if x.node is not None else None for x in inputs])
            out.node = new_node(Step(label, function), parents, tuple(kept), (out.sig,))
            break
    return out


def view_gradient(op: View, bound: dict, sig: Signature, g: Tensor) -> Tensor:
    """Zeros but for the place a view looked at, which holds g."""
    out = zeros_laid_out(sig)
    part, move, _ = view_plan(op, out.sig, bound)
    engine.copy_into(make(part, out.mem, out.ptr + move), g)
    return recorded(out, "ViewScatterBackward0", (g,), lambda gg: [op.run(gg, *bound.values())])


def reach(sig: Signature) -> int:
    """Elements from the first to the last a signature touches."""
    if not sig.numel:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(sig.shape, sig.strides, strict=True))


def room_for(sig: Signature) -> Tensor:
    """A tensor over fresh memory with just these strides, gaps included."""
    if sig.device is META:
        return make(sig, engine.empty((0,), sig.dtype).mem)
    return make(sig, allocate(max(1, reach(sig)) * sig.dtype.itemsize))


def overlapping(sig: Signature) -> bool:
    """Whether two elements may share one place."""
    step = 0
    for stride, size in sorted(zip(sig.strides, sig.shape, strict=True)):
        if size > 1:
            if stride <= step:
                return True
            step += stride * (size - 1)
    return False


def zeros_laid_out(sig: Signature) -> Tensor:
    """Zeros with the strides of a signature; dense ones where elements would share a place."""
    if sig.contiguous or overlapping(sig):
        return engine.zeros_of(sig)
    out = room_for(sig)
    engine.fill(out, 0)
    return out


def laid_out(g: Tensor, sig: Signature) -> Tensor:
    """A gradient with just the strides of what it is the gradient of."""
    if g.sig.strides == sig.strides and g.sig.dtype is sig.dtype:
        return g
    return engine.clone(g) if overlapping(sig) else copied_as(g, sig)


_copies = new_table()


def copied_as(x: Tensor, sig: Signature) -> Tensor:
    """A copy whose elements lie in memory as a signature says."""
    plan = _copies.get((x.sig, sig))
    if plan is None:
        plan = _copies[x.sig, sig] = pw.plan(engine.identity, (x.sig,), (), sig)
    out = empty(sig) if sig.contiguous else room_for(sig)
    plan[2](out.ptr, x.ptr, plan[3])
    if x.node is None or not modes.grad:
        return out
    source = x.sig.dtype
    return recorded(out, "CloneBackward0", (x,), lambda g: [engine.cast(g, source)])


def contiguous(x: Tensor, memory_format=fm.contiguous_format) -> Tensor:
    """x itself if its elements lie in memory in the format's order, else a copy that does."""
    sig = x.sig
    if sig.contiguous and memory_format is fm.contiguous_format:
        return x
    wanted = _copies.get((sig, memory_format))
    if wanted is None:
        wanted = _copies[sig, memory_format] = _in_format(sig, memory_format)
    return x if wanted is sig else copied_as(x, wanted)


def _in_format(sig: Signature, memory_format) -> Signature:
    if memory_format is fm.preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    if fm.lies_in(sig.shape, sig.strides, memory_format):
        return sig
    return signature(sig.dtype, sig.shape, fm.strides_of(sig.shape, memory_format), sig.device)


def strided_part(whole: Tensor, sig: Signature, byte_offset: int) -> Tensor:
    """The view of a tensor with these strides, a number of bytes further."""
    out = make(sig, whole.mem, whole.ptr + byte_offset)
    out.base = whole
    kind = whole.sig
    return recorded(out, "AsStridedBackward0", (whole,), lambda gg: [
        with_part(zeros_laid_out(kind), sig, byte_offset, gg)])


def with_part(whole: Tensor, sig: Signature, byte_offset: int, value: Tensor) -> Tensor:
    """A copy of a tensor in which a strided part holds other values."""
    kind = whole.sig
    out = room_for(kind)
    engine.copy_into(out, whole)
    engine.copy_into(make(sig, out.mem, out.ptr + byte_offset), value)

    into_whole = whole.node is not None

    def back(gg):
        gg = laid_out(gg, kind)
        first = with_part(gg, sig, byte_offset, engine.zeros_of(sig)) if into_whole else None
        return [first, strided_part(gg, sig, byte_offset)]

    return recorded(out, "AsStridedScatterBackward0", (whole, value), back)


engine.view_gradient = view_gradient
engine.strided_part = strided_part
engine.with_part = with_part
engine.laid_out = laid_out
engine.copied_as = copied_as
engine.contiguous = contiguous
engine.zeros_laid_out = zeros_laid_out
engine.recorded = recorded


def accumulated(sig: Signature, g: Tensor, view) -> Tensor:
    """What `view` took is added up where it was taken from, though places may be taken twice."""
    places = engine.without_grad(view, engine.tensor(
        np.arange(sig.numel, dtype=np.int64).reshape(sig.shape)))
    flat = engine.scatter_sum(engine.reshape(places, (-1,)), engine.reshape(g, (-1,)), sig.numel)
    out = engine.reshape(flat, sig.shape)
    out.node = None
    return recorded(out, "ViewScatterBackward0", (g,), lambda gg: [view(gg)])


def as_strided(x: Tensor, size: tuple, stride: tuple, storage_offset=None) -> Tensor:
    """A view of x's storage; refused if it would reach outside."""
    itemsize = x.sig.dtype.itemsize
    offset = offset_of(x) if storage_offset is None else int(storage_offset)
    check_strided(x, size, stride, offset)
    sig = signature(x.sig.dtype, size, stride, x.sig.device)
    out = make(sig, x.mem, x.mem.address + offset * itemsize)
    out.base = x
    if not modes.grad or sig.dtype.kind not in "fc":
        return out
    if x.node is not LEAF:
        remember(x, out)
    kind, move = x.sig, (out.ptr - x.ptr) // itemsize
    return recorded(out, "AsStridedBackward0", (x,), lambda g: [_unstrided(g, kind, sig, move)])


def check_strided(x: Tensor, size: tuple, stride: tuple, offset: int) -> None:
    if len(size) != len(stride):
        raise RuntimeError(f"as_strided: mismatch in length of strides and shape; {len(size)} "
                           f"sizes and {len(stride)} strides")
    if any(s < 0 for s in stride) or any(n < 0 for n in size):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got "
                           f"strides: {list(stride)} and sizes: {list(size)}")
    if offset < 0:
        raise RuntimeError(f"as_strided: Tensor: invalid storage offset {offset}")
    if x.sig.device is not META:
        room, pool = room_of(x), getattr(x.mem, "free", None)
        # A block of another class than the tensor asks for was not made for it: all of it counts.
        exact = pool is not None and pool is pool_of(room)
        check_room("as_strided", x.sig.dtype, size, stride, offset, room if exact else x.mem.nbytes)


def check_room(name: str, dtype, size, stride, offset: int, room: int) -> None:
    """Refuse strides that reach further than a storage does."""
    span = 0 if 0 in size else offset + 1 + sum(
        (n - 1) * s for n, s in zip(size, stride, strict=True))
    if span * dtype.itemsize > room:
        raise RuntimeError(f"{name}: setStorage: sizes {list(size)}, strides {list(stride)}, "
                           f"storage offset {offset}, and itemsize {dtype.itemsize} requiring a "
                           f"storage size of {span * dtype.itemsize} are out of bounds for "
                           f"storage of size {room}")


def _unstrided(g: Tensor, kind: Signature, sig: Signature, move: int) -> Tensor:
    """The gradient of as_strided: g added up in memory, and read as the input was laid out.

    An element of the input whose place several of its indices share gets their mean.
    """
    low = min(0, move)
    length = max(reach(kind), move + reach(sig)) - low
    zeros = signature(kind.dtype, (length,), None, kind.device)
    memory = accumulated(zeros, g, lambda whole: as_strided(
        whole, tuple(sig.shape), sig.strides, move - low + offset_of(whole)))
    back = as_strided(memory, tuple(kind.shape), kind.strides, offset_of(memory) - low)
    if overlapping(kind):
        ones = engine.full(kind.shape, 1, kind.dtype)
        counts = engine.without_grad(accumulated, zeros, ones, lambda whole: as_strided(
            whole, tuple(kind.shape), kind.strides, offset_of(whole) - low))
        back = engine.divide(back, as_strided(counts, tuple(kind.shape), kind.strides, -low))
    return engine.clone(back)


# -- several views at once ------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _part_plans(sig: Signature, dim: int, sizes):
    """(signature, bytes further) of every part; sizes None leaves the dimension out."""
    shape, strides, itemsize = sig.shape, sig.strides, sig.dtype.itemsize
    step = strides[dim] * itemsize
    if sizes is None:
        part = signature(sig.dtype, (*shape[:dim], *shape[dim + 1:]),
                         (*strides[:dim], *strides[dim + 1:]), sig.device)
        return [(part, k * step) for k in range(shape[dim])]
    plans, start = [], 0
    for n in sizes:
        part = signature(sig.dtype, (*shape[:dim], n, *shape[dim + 1:]), strides, sig.device)
        plans.append((part, start * step))
        start += n
    return plans


def parts(x: Tensor, label: str, dim: int, sizes) -> tuple:
    """All parts of a tensor along a dimension: one step of the graph with many results."""
    outs, mem, start = [], x.mem, x.ptr
    recording = modes.grad and x.node is not LEAF
    for sig, move in _part_plans(x.sig, dim, sizes):
        out = new(Tensor)  # as `make` does it, without a frame of its own
        out.sig, out.mem, out.ptr, out.node, out.base = sig, mem, start + move, None, x
        if recording:
            remember(x, out)
        outs.append(out)
    if modes.grad and x.node is not None and outs:
        sigs = tuple(out.sig for out in outs)
        node = new_node(Step(label, lambda g: [_joined(g, sigs, dim, sizes)]), (edge_of(x),), (),
                        sigs)
        for number, out in enumerate(outs):
            out.node = node if len(outs) == 1 else Edge(node, number)
    return tuple(outs)


def _joined(g, sigs, dim: int, sizes) -> Tensor:
    """The gradients of all parts put together again; a part that was not used has none."""
    grads = [g] if len(sigs) == 1 else g
    grads = [engine.zeros_of(sig) if one is None else one
             for one, sig in zip(grads, sigs, strict=True)]
    return engine.stack(grads, dim) if sizes is None else engine.cat(grads, dim)


engine.accumulated = accumulated
engine.as_strided = as_strided
engine.parts = parts
