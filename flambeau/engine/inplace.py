"""Changing a tensor that exists: in-place forms, `out=`, and what that does to the graph.

A tensor that is changed gets a new step in the graph, whose parent is the step before. A view that
is changed changes its base too: the base gets a step that goes back through the view's place in it,
and every view of it is recorded anew.
"""

from __future__ import annotations

from array import array

from ..core import dtype as dt
from ..core import expr as ex
from ..core import shape as sh
from ..core.device import META
from ..ops.declare import Op, Pointwise, registry
from ..ops.refusal import spoken
from .caller import warn_caller
from .eager import (
    PLAIN,
    alias,
    baked_defaults,
    changed,
    check_writable,
    demand_apart,
    engine,
    lazily_traced,
    new_table,
    overlaps,
    plainly,
    pointwise_into,
    tracers,
)
from .front_text import ALONE, BESIDE, INSTEAD, MANY, VALUED
from .modes import modes
from .node import attach, edge_of, fronts, kept_values, new_node
from .pointwise import plan, split_attributes
from .tensor import LEAF, Signature, Tensor, base_of, keep_room, make, signature


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
    if modes.grad and not (loose and _is_free(x)):
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


#: stands for a plan where the usual way has to be gone
UNUSUAL = (None,) * 6


def _innermost(table: dict, key: list) -> tuple:
    """Nested tables: the one that the last part of a key is looked up in, and that part."""
    *outer, last = key
    for part in outer:
        table = table.setdefault(part, {})
    return table, last


def _is_free(x: Tensor) -> bool:
    """Whether what x is a view of is no part of a graph."""
    base = base_of(x)
    return base is None or base.node is None


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


def native_forms(form, plans: dict, reads: int, implied: int | None = None,
                 more: str = "*args, **kwargs") -> tuple:
    """(method, function) that run natively what is in a table of plans, and `form` otherwise.

    Python reads their signature from their documentation; `more` is what it has beside self.
    """
    name = form.__name__
    doc = f"{name}($self, {more})\n--\n\n{form.__doc__}"
    function, context = fronts.adopt(form, plans, "i", name, doc, reads, implied=implied)
    return fronts.method(context, "i", name, doc) or form, function


def pointwise_forms(op: Pointwise, form) -> tuple:
    """The same of a pointwise op's form."""
    reads = MANY if takes_many(op) else ALONE if len(op.operands) == 1 else BESIDE
    return native_forms(form, op.quick, reads + (VALUED if _is_valued(op) else 0))


def takes_many(op: Pointwise) -> bool:
    """Whether native fronts find calls of an op in place by all that is given: see `remember`."""
    return len(op.operands) > 2 or bool(op.baked_values)


def _is_valued(op: Pointwise) -> bool:
    return bool(op.baked_values or op.baked)


def remember(table: dict, op: Op, x: Tensor, args: tuple, kwargs: dict, arrange) -> None:
    """Tell native fronts how to repeat a call in place: see front_text/again.py.

    `arrange` says what pointwise op is run on what operands, and with what attributes.
    """
    given = (*args, *kwargs.values())
    key = _called_with(x, given, tuple(kwargs), isinstance(op, Pointwise) and _is_valued(op))
    if key is None or key in table:
        return
    spots = [_Spot(k, a) for k, a in enumerate(given, 1)]
    found = arrange(op, (_Spot(0, x), *spots[:len(args)]),
                    dict(zip(kwargs, spots[len(args):], strict=True)))
    if found is not None:
        entry = _way(x, op, *found)
        if entry is not None:
            table[key] = entry


class _Spot:
    """Where an argument was given: 0 the tensor, 1 what comes first after it."""

    __slots__ = ("place", "value")

    def __init__(self, place: int, value):
        self.place, self.value = place, value


def _way(x: Tensor, called: Op, op: Pointwise, operands: list, named: dict) -> tuple | None:
    """(callable, arguments that stay the same, where each comes from, what keeps them alive), of a
    plan that writes x."""
    operands = [s if type(s) is _Spot else _Spot(-1, s) for s in operands]
    attributes = {name: s.value if type(s) is _Spot else s for name, s in named.items()}
    if any(isinstance(a, Tensor) for a in attributes.values()) or not all(
            isinstance(s.value, (Tensor, float, int)) and type(s.value) is not bool
            for s in operands):
        return None
    if called is not op and _is_valued(op) and any(
            type(s) is _Spot and s.place > 0 and type(s.value) in (float, int)
            for s in (*operands, *named.values())):
        return None  # fronts do not tell values apart for the sake of an op inside another
    keyed, _ = split_attributes(op, attributes)
    planned = plan(op, tuple([s.value.sig if isinstance(s.value, Tensor) else s.value
                              for s in operands]), keyed, x.sig)
    _, _, run, last, *_ = planned
    numbers = [named.get(name, op.defaults.get(name)) for name, kind in keyed
               if type(kind) is type]
    tensors = [s for s in operands if isinstance(s.value, Tensor)]
    others = [s for s in (*operands, *[s if type(s) is _Spot else _Spot(-1, s) for s in numbers])
              if not isinstance(s.value, Tensor) and not op.bakes(s.value)]
    return run, (None, *[None for s in tensors], *[s.value for s in others], last), array("q", [
        0, *[2 * s.place for s in tensors],
        *[-1 if s.place < 0 else 2 * s.place + 1 for s in others], -1]), planned


#: arguments that are known by their type and value
_VALUES = frozenset((bool, str, type(None)))


def _called_with(x: Tensor, given: tuple, names: tuple, valued: bool) -> tuple | None:
    """What native fronts find a call in place by; None if it is one for Python."""
    key: list = [x.sig, names or None]
    for a in given:
        if isinstance(a, Tensor):
            key += (a.sig, None)
        elif type(a) is float or type(a) is int:
            key += (type(a), a if valued else None)
        elif type(a) in _VALUES:
            key += (type(a), a)
        else:
            return None
    plain = all([type(a) in PLAIN and (not isinstance(a, Tensor) or (
        a.sig.tag is None and a.sig.device is not META)) for a in (x, *given)])
    return tuple(key) if plain and not tracers else None


def one_step(op: Op, args: tuple, kwargs: dict) -> tuple | None:
    """What a composite comes to, if that is one pointwise op on what it was given: it is asked
    with symbols for the tensors and numbers. None if it is more, or depends on their values."""
    dtype = args[0].value.sig.dtype
    if dtype.kind != "f":
        return None
    symbols: dict[int, _Spot] = {}

    def symbol(spot: _Spot):
        if isinstance(spot.value, Tensor):
            if spot.value.sig.dtype is not dtype:
                raise TypeError("operands of several dtypes are promoted")
            made = ex.input(spot.place, dtype)
        elif type(spot.value) in (float, int):
            made = ex.param(spot.place, dtype)
        else:
            return spot.value
        symbols[id(made)] = spot
        return made

    try:
        found = op.body(*map(symbol, args), **{name: symbol(s) for name, s in kwargs.items()})
    except (AttributeError, TypeError):
        return None
    if not isinstance(found, ex.Expr) or not isinstance(found.head, Pointwise) or (
            found.dtype is not dtype):
        return None
    operands = [a.attr if a.head == "const" else symbols.get(id(a)) for a in found.args]
    named = {name: symbols.get(id(a)) if isinstance(a, ex.Expr) else a
             for name, a in found.attr or ()}
    if any(o is None for o in operands) or any(
            isinstance(a, ex.Expr) and named[name] is None for name, a in found.attr or ()):
        return None
    return found.head, operands, named


def composite_forms(form, table: dict) -> tuple:
    """(method, function) of a composite's form in place, natively where that is one kernel."""
    return native_forms(form, table, MANY)


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


def replace_history(x: Tensor, node) -> None:
    """x was changed by this step; if it is a view, so was its base."""
    base = base_of(x)
    if base is None:
        x.node = node
        _refresh_views(x, x)
        return
    first = edge_of(base) if base.node is not None else None
    slices = new_node(ChangedSlice(node, x.sig, x.ptr - base.ptr), (first, *node.parents[1:]),
                      (base.sig,), (base.sig,))
    base.node = slices
    _record_as_view(x, base)
    _refresh_views(base, base, but=x)


class ChangedSlice:
    """Goes back through a change of a view: the change's own gradient where the view is."""

    def __init__(self, step, sig, offset: int):
        self.step, self.sig, self.offset = step, sig, offset

    def name(self) -> str:
        return "torch::autograd::CopySlices"

    def pull(self, node, g):
        base_sig = node.kept[0] if node.kept else kept_values(node)[0]
        whole = engine.laid_out(g, base_sig)
        part = engine.strided_part(whole, self.sig, self.offset)
        grads = self.step.back.pull(self.step, engine.clone(part))
        inner = grads[0]
        if inner is None:
            inner = engine.zeros_like(part)
        first = None
        if node.parents[0] is not None:
            first = engine.with_part(whole, self.sig, self.offset, inner)
        return [first, *grads[1:]]


def _record_as_view(x: Tensor, base: Tensor) -> None:
    """x recorded anew, as a view of its base."""
    attach(x, SliceOf(x.sig, x.ptr - base.ptr), (edge_of(base),), (base.sig,))


class SliceOf:
    """Goes back through a view given by strides."""

    def __init__(self, sig, offset: int):
        self.sig, self.offset = sig, offset

    def name(self) -> str:
        return "AsStridedBackward0"

    def pull(self, node, g):
        (base_sig,) = kept_values(node)
        zeros = engine.zeros_laid_out(base_sig)
        if modes.grad or tracers:
            return [engine.with_part(zeros, self.sig, self.offset, g)]
        copy_into(make(self.sig, zeros.mem, zeros.ptr + self.offset), g)
        return [zeros]


def _refresh_views(x: Tensor, base: Tensor, but: Tensor | None = None) -> None:
    """Record the views of x, and theirs, anew as views of a base that has changed."""
    for reference in list(getattr(x, "views", ())):
        view = reference()
        if view is None:
            continue
        if view is not but and view.sig.dtype.kind in "fc":
            _record_as_view(view, base)
        _refresh_views(view, base, but)


# -- out= -----------------------------------------------------------------------------------------


def into_out(op: Pointwise, args, attributes, out: Tensor) -> Tensor:
    """Compute an op into `out`, resized if it has another shape."""
    result = engine.without_grad(op.run, *args, **attributes)
    if op.rule == dt.COMPLEX and isinstance(out, Tensor) and out.sig.dtype is not result.sig.dtype:
        raise RuntimeError(f"{op.name}: Expected object of scalar type {spoken(result.sig.dtype)} "
                           f"but got scalar type {spoken(out.sig.dtype)} for argument 'out'")
    return write_out(op.name, result, args, out)


def write_out(name: str, result, args, out):
    """Copy a result into the tensor or tensors given as `out=`."""
    if isinstance(out, (tuple, list)):
        for r, o in zip(result, out, strict=True):
            write_out(name, r, args, o)
        return type(result)(out) if type(result) is tuple else engine.like_named(result, out)
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if modes.grad and (out.node is not None or any(
            isinstance(a, Tensor) and a.node is not None for a in args)):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic "
                           "differentiation, but one of the arguments requires grad.")
    traced = lazily_traced()
    if traced and (name in APART_OUT or out.sig.shape != result.sig.shape):
        return plainly(write_out, name, result, args, out)
    _check_out(name, result.sig.dtype, args, out)
    if not traced:
        for a in args:
            demand_apart(a, out)
    if traced and (found := tracers[-1](COPY, (out, result), {})) is not None:
        return found[0]
    if out.sig.shape != result.sig.shape:
        engine.resize(out, result.sig.shape)
    if out.sig.device is not META:
        copy_into(out, result)
    changed(out)
    return out


class _Copy:
    """copy_, as traces see it."""

    name = "copy_"

    @staticmethod
    def run(x: Tensor, source) -> Tensor:
        return copy_(x, source)


COPY = _Copy()

#: ops that write only into tensors of exactly their result's dtype
EXACT_OUT = frozenset((
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "cummax", "cummin", "gather",
    "index_select", "kthvalue", "log_softmax", "masked_select", "matmul", "max", "median", "min",
    "mode", "nanmedian", "softmax", "sort", "take", "topk"))
#: ops whose `out` may not share memory with what they read
APART_OUT = frozenset((
    "cat", "gather", "index_select", "kthvalue", "masked_select", "stack", "take"))


#: what torch says of another dtype, where it says it in other words
_OUT_WORDS = dict.fromkeys(("amax", "amin"), "Expected the dtype for input and out to match, but "
                           "got {0} for input's dtype and {3} for out's dtype.")


def _check_out(name: str, found: dt.dtype, args, out: Tensor) -> None:
    given = out.sig.dtype
    if name in EXACT_OUT and given is not found:
        words = _OUT_WORDS.get(name, "Expected out tensor to have dtype {1}, but got {2} instead")
        raise RuntimeError(f"{name}: " + words.format(spoken(found), dt.short_name(found),
                                                      dt.short_name(given), spoken(given)))
    if not dt.can_cast(found, given):
        raise RuntimeError(f"{name}: result type {found.name} can't be cast to the desired output "
                           f"type {given.name}")
    if any(s == 0 and n > 1 for s, n in zip(out.sig.strides, out.sig.shape, strict=True)):
        raise RuntimeError(f"{name}: unsupported operation: more than one element of the "
                           "written-to tensor refers to a single memory location. Please clone() "
                           "the tensor before performing the operation.")
    read = [t for a in args for t in (a if isinstance(a, (list, tuple)) else (a,))]
    if name in APART_OUT and any(isinstance(t, Tensor) and t.mem is out.mem for t in read):
        raise RuntimeError(f"{name}: unsupported operation: some elements of the input tensor and "
                           "the written-to tensor refer to a single memory location. Please "
                           "clone() the tensor before performing the operation.")


def copy_into(target: Tensor, source: Tensor) -> None:
    """Copy elements, converting dtype and broadcasting; nothing is recorded."""
    if not target.sig.numel or target.sig.device is META:
        return
    if source.mem is not target.mem and not tracers:
        found = _copy_plan(target.sig, source.sig)
        if found is not UNUSUAL:
            found[2](target.ptr, source.ptr, found[3])
            return
    if source.sig is not target.sig:
        sh.broadcast("copy_", target.sig.shape, source.sig.shape)
    pointwise_into(engine.identity, target, (source,), {})


def _check_fits(target: Signature, source: Signature) -> None:
    wide = sh.broadcast("copy_", target.shape, source.shape)
    if tuple(wide) != tuple(target.shape):
        raise RuntimeError(f"copy_: output with shape {list(target.shape)} doesn't match the "
                           f"broadcast shape {list(wide)}")


def copy_(x: Tensor, source, non_blocking: bool = False) -> Tensor:
    """Copy another tensor's elements into x."""
    check_writable(x, "copy_")
    if not isinstance(source, Tensor):
        source = engine.tensor(source)
    recording = modes.grad and (source.node is not None or x.node is not None)
    parents = (edge_of(x) if x.node is not None else None,
               edge_of(source) if source.node is not None else None)
    if x.sig.device is META or source.sig.device is META:
        return x
    demand_apart(source, x)
    if not x.sig.numel:  # nothing is copied, and nothing is refused on the way
        _check_fits(x.sig, source.sig)
    safe = source if not overlaps(source, x) else engine.clone(source.detach())
    copy_into(x, safe)
    changed(x)
    if recording and x.sig.dtype.kind in "fc":
        node = new_node(CopyBack(source.sig), parents, (), (x.sig,))
        replace_history(x, node)
    return x


def replace_values(tensors, values) -> None:
    """copy_ of each value into its tensor, in one go where they are plain and no step is recorded.

    Small statistics that follow every batch cost far less to copy than to be asked about.
    """
    line = None
    for x, new in zip(tensors, values, strict=True):
        if not copy_plainly(x, new):
            copy_(x, new)
        elif line is None:
            changed(x)
            line = x.mem.changed
        else:
            x.mem.version += 1
            x.mem.changed = line


#: plans of copies: signature of what is written, of what is read -> plan
_copies = new_table()


def copy_plainly(x: Tensor, source) -> bool:
    """Copy a tensor, if no step is recorded and nobody has to be asked."""
    if (type(x) not in PLAIN or not isinstance(source, Tensor) or type(source) not in PLAIN
            or x.mem is source.mem or x.mem.version < 0 or tracers):
        return False
    if modes.grad and (x.node is not None or source.node is not None or not _is_free(x)):
        return False
    found = _copy_plan(x.sig, source.sig)
    if found is UNUSUAL:
        return False
    found[2](x.ptr, source.ptr, found[3])
    return True


def _copy_plan(target: Signature, source: Signature):
    """The plan of a copy, made once."""
    table = _copies.get(target)
    if table is None:
        table = _copies[target] = {}
    found = table.get(source)
    if found is None:
        found = table[source] = _prepared_copy(target, source)
    return found


def _prepared_copy(target: Signature, source: Signature):
    """The plan of a copy that converts and broadcasts; UNUSUAL if it is not plain."""
    if any([s.tag is not None or s.device is META or not s.numel for s in (target, source)]):
        return UNUSUAL
    sh.broadcast("copy_", target.shape, source.shape)
    return plan(engine.identity, (source,), (), target)


def install_copy(form) -> None:
    """Give tensors their `copy_`, of which `form` does what is unusual."""
    Tensor.copy_, _ = native_forms(form, _copies, INSTEAD, more="source, non_blocking=False")


class CopyBack:
    """Goes back through copy_: nothing to what was there, everything to what was copied."""

    def __init__(self, sig):
        self.sig = sig

    def name(self) -> str:
        return "torch::autograd::CopyBackwards"

    def pull(self, node, g):
        if node.parents[1] is None:
            return [engine.zeros_like(g), None]
        part = engine.sum_to(g, self.sig.shape)
        return [engine.zeros_like(g), engine.cast(part, self.sig.dtype)]


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


def resized(x: Tensor, shape) -> None:
    """Give an `out` another shape in place; memory grows if it must."""
    from .fresh import empty

    if x.sig.numel:
        warn_caller("An output with one or more elements was resized since it had shape "
                    f"{list(x.sig.shape)}, which does not match the required output shape "
                    f"{list(shape)}. This behavior is deprecated, and in a future PyTorch release "
                    "outputs will not be resized unless they have zero elements. You can "
                    "explicitly reuse an out tensor t by resizing it, inplace, to zero elements "
                    "with t.resize_(0).")
    sig = signature(x.sig.dtype, tuple(shape), None, x.sig.device)
    room = x.mem.nbytes - (x.ptr - x.mem.address)
    if sig.nbytes > room and sig.device is not META:
        fresh = empty(sig)
        x.mem, x.ptr = fresh.mem, fresh.ptr
    x.sig = sig


engine.pointwise_in_place = pointwise_inplace
engine.replace_values = replace_values


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
