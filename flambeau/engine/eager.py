"""Eager: one key, one lookup, one call.

Everything that can vary is in the signatures; everything decided from them is in the plan, made
once and kept in a table the front looks into. The front of a pointwise op is machine code (see
native.py); what is written here is the same front in Python, which native code calls for all it
does not know: a new shape, keywords, `out=`, a subclass, a trace, an error.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..core import dtype as dt
from ..core import shape as sh
from ..devices.cpu.remember import TABLES, new_table
from ..ops.declare import Pointwise, engine
from . import number_first, way_back
from . import pointwise as pw
from .caller import ours
from .fresh import empty
from .modes import modes, watchers
from .node import attach, edge_of, fronts
from .tensor import LEAF, Signature, Tensor, base_of, forget_plans, make

NUMBERS = pw.NUMBERS

def _forget_all() -> None:
    for table in TABLES:
        table.clear()


forget_plans.append(_forget_all)


compile_front = way_back.compile_text


def alias(out: Tensor) -> Tensor:
    """The same bytes outside the graph, so that a kept result makes no cycle."""
    return make(out.sig, out.mem, out.ptr)


# -- pointwise fronts ------------------------------------------------------------------------------


def plug_pointwise(op: Pointwise) -> None:
    """Give a pointwise op its front: native for one or two operands, with Python behind it."""
    op.plans, op.kin_plans, op.quick, op.alike = new_table(), {}, new_table(), new_table()
    op.engine = engine
    op.run = op.method_form = front = python_front(op)
    arity = len(op.operands)
    if arity <= 2:
        form = str(arity)
        op.run, context = fronts.adopt(front, op.plans, form, op.name, op.doc,
                                       bool(op.baked_values), op.kin_plans, op)
        method = fronts.method(context, form, op.name, op.doc) if op.method else None
        if method is not None:
            op.method_form = method
            op.reflected = fronts.reflected(context, op.name, op.doc) if arity == 2 else None


#: no keyword arguments
NOTHING: dict = {}


def python_front(op: Pointwise):
    """The front of an op in Python: arguments sorted, then the plan looked up or made."""
    public = dict(zip(public_names(op), op.operands, strict=True))
    count, attributes = len(op.operands), frozenset(op.attributes)

    def front(*args, out=None, **named):
        if tracers and out is None and not named and (
                followed := tracers[-1].follow(op, args, NOTHING, modes.grad)) is not None:
            return followed
        if named and not attributes.issuperset(named):
            named = {public.get(k, k): v for k, v in named.items()}
        if len(args) != count:
            args, named = _complete(op, args, named)
        if out is not None:
            return engine.into_out(op, args, named, out)
        if count > 2:
            return pointwise_call(op, args, named)
        if named:
            return (op.run(*args) if _are_defaults(op, named) else
                    pointwise_call(op, args, named))
        return plain_call(op, args)

    front.__name__, front.__doc__ = op.name, op.doc
    return front if count != 3 or op.baked_values else _quick_front(op, front)


def _are_defaults(op: Pointwise, named: dict) -> bool:
    """Whether all that is given by name is what it would be anyway."""
    for name, value in named.items():
        default = op.defaults.get(name)
        if value is not default and not (type(value) is type(default) is float
                                         and value == default != 0):  # 0 has two signs
            return False
    return True


def _quick_front(op: Pointwise, general):
    """The front of three operands: one lookup where such were met before."""
    alike = op.alike

    def front(*args, **named):
        if len(args) == 3 and not (named or tracers) and Tensor in PLAIN:
            x, y, z = args
            quick = alike.get((x.sig if x.__class__ is Tensor else x.__class__,
                               y.sig if y.__class__ is Tensor else y.__class__,
                               z.sig if z.__class__ is Tensor else z.__class__))
            if quick is not None:
                return run_alike(op, quick, args, NOTHING)
        return general(*args, **named)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def operator_forms(op: Pointwise):
    """(method, reflected method) as Python operators: what they cannot take is left to others."""
    front = python_front(op)

    def careful(*args):
        for a in args:
            if type(a) not in NUMBERS and not isinstance(a, Tensor) and not is_number(a):
                return NotImplemented
        return front(*args)

    _, context = fronts.adopt(careful, op.plans, "2", op.name, op.doc, bool(op.baked_values),
                              op.kin_plans, op)
    method = fronts.method(context, "2", op.name, op.doc)
    return method, fronts.reflected(context, op.name, op.doc)


def public_names(op: Pointwise) -> list[str]:
    """What callers may call the operands: torch's names, unless the declaration has its own."""
    return [{"x": "input", "y": "other"}.get(name, name) for name in op.operands]


def _complete(op: Pointwise, given: tuple, named: dict):
    """Operands from keywords and defaults; attributes given by position by name."""
    if number_first.is_scaled(op, given):
        given, scale = number_first.scaled(op, given)
        return given, {**named, **scale}
    args = list(given)
    for name in op.operands[len(args):]:
        if name in named:
            args.append(named.pop(name))
        elif name in op.defaults:
            args.append(op.defaults[name])
        else:
            raise TypeError(f"{op.name}() missing 1 required positional argument: '{name}'")
    count = len(op.operands)
    extra = args[count:]
    if len(extra) > len(op.attributes):
        raise TypeError(f"{op.name}() takes {count + len(op.attributes)} positional arguments but "
                        f"{len(args)} were given")
    return tuple(args[:count]), {**named, **dict(zip(op.attributes, extra, strict=False))}


def plain_call(op: Pointwise, args: tuple):
    """One or two operands, attributes at their defaults: the plan native fronts look up too."""
    found = intercepted(op, args, {})
    if found is not None:
        return found[0]
    args = tuple([operand(op, a) for a in args])
    key = tuple([a.sig if isinstance(a, Tensor) else a for a in args])
    if not any([isinstance(k, Signature) for k in key]):
        args = from_numbers(op, args)
        key = (args[0].sig, *args[1:])
    first, *rest = [_slot(op, k) for k in key]
    table = op.plans if not rest else op.plans.setdefault(first, {})
    plan = table.get(rest[0] if rest else first)
    if plan is None:
        plan = _own_kin(op, key)
    if plan is None:
        same_place(op, args)
        if op.check is not None:
            op.check(key, {})
        plan = pw.plan(op, key, baked_defaults(op))
        if not _serves_kin(op, key, plan):
            table[rest[0] if rest else first] = plan
    return execute_pointwise(op, args, plan, {})


def _slot(op, key):
    """What a front looks an operand up by."""
    if isinstance(key, Signature):
        return key
    return (type(key), key) if op.baked_values else type(key)


def baked_defaults(op) -> tuple:
    return tuple([(name, ("=", op.defaults.get(name))) for name in op.attributes])


def _own_kin(op: Pointwise, key):
    """The plan that serves all shapes of this kind, if it was made for this one.

    Native fronts have found it by themselves; who comes here does so because a trace listens.
    """
    first, *rest = _kin_slots(op, key)
    plan = op.kin_plans.get(first)
    if rest and plan is not None:
        plan = plan.get(rest[0])
    if plan is None or plan[0] is not key[plan[5][4]] or any(
            isinstance(k, Signature) and k.shape != plan[0].shape for k in key):
        return None
    return plan


def _kin_slots(op: Pointwise, key) -> list:
    return [k.kin if isinstance(k, Signature) else _slot(op, k) for k in key]


def _serves_kin(op: Pointwise, key, plan) -> bool:
    """Keep a plan for every shape of this kind, if one kernel serves them all.

    Operands of one shape, contiguous or one element repeated, and a result that has the signature
    of one of them: then native fronts need no plan of a shape's own. Who comes here with another
    shape, and not by them, gets one.
    """
    out, packed = plan[0], plan[5]
    if packed is None or plan.walk is None or not plan.walk.dense or out not in key:
        return False
    for k in key:
        if isinstance(k, Signature) and (k.kin is None or k.shape != out.shape):
            return False
    first, *rest = _kin_slots(op, key)
    table, last = (op.kin_plans.setdefault(first, {}), rest[0]) if rest else (op.kin_plans, first)
    if last in table:
        return False
    packed[4] = next(i for i, k in enumerate(key) if k is out)
    table[last] = plan
    return True


way_back.plug = plug_pointwise


def operand(op, a):
    """A tensor or a plain number, or torch's TypeError."""
    kind = type(a)
    if kind in NUMBERS or isinstance(a, Tensor):
        return a
    if isinstance(a, (bool, int, float, complex)):
        return {bool: bool, int: int, float: float, complex: complex}[
            next(t for t in (bool, int, float, complex) if isinstance(a, t))](a)
    if is_number(a):
        return a.item()
    raise TypeError(f"{op.name}(): argument must be Tensor or Number, not {kind.__name__}")


def is_number(a) -> bool:
    """Whether this is a number of Python or numpy."""
    return isinstance(a, (bool, int, float, complex)) or (
        hasattr(a, "dtype") and getattr(a, "shape", None) == ())


#: ops that take numbers alone
OF_NUMBERS = frozenset(("add", "sub", "mul", "true_divide", "truncated_quotient",
                        "floored_quotient"))


def from_numbers(op: Pointwise, args: tuple) -> tuple:
    """Operands that are all numbers, the first as a tensor; most ops refuse them."""
    if op.name not in OF_NUMBERS:
        raise TypeError(f"{op.name}(): argument '{public_names(op)[0]}' (position 1) must be "
                        f"Tensor, not {type(args[0]).__name__}")
    return (engine.tensor(args[0]), *args[1:])


def same_place(op, args) -> None:
    """All tensors on one device; a 0-d one may come from the CPU."""
    places = [a.sig.device for a in args if isinstance(a, Tensor) and a.sig.rank]
    if len(places) > 1 and len({*places}) > 1:
        raise RuntimeError(f"{op.name}: Expected all tensors to be on the same device, but found "
                           f"at least two devices, {' and '.join(sorted(map(str, {*places})))}!")


def pointwise_call(op: Pointwise, args: tuple, attributes: dict):
    """An op with attributes or more operands: what was run before on alike arguments, or a plan."""
    alike = None
    if not (tracers or op.baked_values) and PLAIN.issuperset(map(type, args)):
        alike = (*[a.sig if isinstance(a, Tensor) else type(a) for a in args],
                 *[(name, float) if type(v) is float else (name, type(v), v)
                   for name, v in attributes.items()])
        try:
            quick = op.alike.get(alike)
        except TypeError:  # an attribute that is a list, or the like
            quick = alike = None
        if quick is not None:
            return run_alike(op, quick, args, attributes)
    return _planned_call(op, args, attributes, alike)


def run_alike(op: Pointwise, quick: tuple, args: tuple, attributes: dict) -> Tensor:
    """Run what was run before on arguments like these, and record the step."""
    sig, run, back, tensors, _ = quick
    out = empty(sig)
    run(out.ptr, args, attributes)
    for i in tensors:
        if args[i].node is not None:
            record_pointwise(op, out, back, args, attributes)
            break
    return out


def _planned_call(op: Pointwise, args: tuple, attributes: dict, alike: tuple | None):
    """The same by a plan that is keyed by everything; others like it need not ask as much."""
    found = intercepted(op, args, attributes)
    if found is not None:
        return found[0]
    args = tuple([operand(op, a) for a in args])
    keyed, numbers = pw.split_attributes(op, attributes)
    key = tuple([a.sig if isinstance(a, Tensor) else
                 (type(a), a) if op.bakes(a) else type(a) for a in args]), keyed
    plan = op.plans.get(key)
    if plan is None:
        unknown = set(attributes) - set(op.attributes)
        if unknown:
            raise TypeError(f"{op.name}() got an unexpected keyword argument '{unknown.pop()}'")
        if not any(isinstance(a, Tensor) for a in args):
            return _planned_call(op, from_numbers(op, args), attributes, None)
        same_place(op, args)
        operands = tuple(a.sig if isinstance(a, Tensor) else a for a in args)
        if op.check is not None:
            op.check(operands, attributes)
        plan = op.plans[key] = pw.plan(op, operands, keyed)
    if alike is not None and all([type(v) in _ASKED for v in attributes.values()]) and not any(
            [type(a) is complex for a in args]):
        tensors = tuple([i for i, a in enumerate(args) if isinstance(a, Tensor)])
        names = tuple([name for name, kind in keyed if not isinstance(kind, tuple)])
        run = _passing(len(args), tensors, names)(plan[2], plan[3], op.defaults)
        op.alike[alike] = plan[0], run, plan[4], tensors, plan
    return execute_pointwise(op, args, plan, dict(zip(
        [name for name, kind in keyed if not isinstance(kind, tuple)], numbers, strict=True)),
        attributes)


@functools.cache
def _passing(count: int, tensors: tuple[int, ...], names: tuple[str, ...]):
    """From machine code, its last argument and defaults to a function that calls it.

    It is given where the result goes, the operands, of which some are tensors, and attributes.
    """
    given = [*(f"args[{i}].ptr" for i in tensors),
             *(f"args[{i}]" for i in range(count) if i not in tensors),
             *(f"named.get({name!r}, defaults.get({name!r}))" for name in names)]
    return compile_front(f"""def passing(run, last, defaults):
    def call(out, args, named):
        run(out, {", ".join(given)}, last)
    return call
""", "passing", {})


#: attributes that are plain, and hashed by what they are
_ASKED = frozenset((float, int, bool, str, type(None)))


def execute_pointwise(op, args, plan, numbers: dict, attributes: dict | None = None):
    """Run a plan on operands, and record the step."""
    sig, _, run, last, back = plan[:5]
    out = empty(sig)
    run(out.ptr, *[a.ptr for a in args if isinstance(a, Tensor)],
        *flat_numbers(op, args, numbers), last)
    record_pointwise(op, out, back, args, attributes or {})
    return out


def flat_numbers(op, args, numbers) -> list:
    """Numbers in the order the kernel takes them; a complex one as two."""
    found = []
    for a in (*args, *numbers.values()):
        if isinstance(a, Tensor) or op.bakes(a):
            continue
        found += [a.real, a.imag] if type(a) is complex else [a]
    return found


def record_pointwise(op, out, back, args, attributes) -> None:
    nodes = [a.node if isinstance(a, Tensor) else None for a in args]
    if back is None or not modes.grad or all([n is None for n in nodes]):
        return
    wanting = sum([1 << i for i, n in enumerate(nodes) if n is not None])
    keep = back.keep[wanting]
    kept = [a if keep >> i & 1 or not isinstance(a, Tensor) else None for i, a in enumerate(args)]
    kept.append(alias(out) if keep >> len(args) & 1 else None)
    parents = tuple([None if n is None else edge_of(a) for a, n in zip(args, nodes)])
    node = attach(out, back, parents, tuple(kept))
    if attributes:
        node.more("attributes").update(attributes)


# -- in place --------------------------------------------------------------------------------------


def pointwise_into(op: Pointwise, target: Tensor, args: tuple, attributes: dict, before=None):
    """Compute an op into a tensor that exists: in-place forms and `out=`.

    Returns how to go back, which `before` is told while the tensor is still what it was.
    """
    args = tuple([operand(op, a) for a in args])
    # A copy of what would be overwritten lies otherwise than its original, so before planning.
    args = tuple([engine.clone(a.detach()) if isinstance(a, Tensor) and overlaps(a, target) else a
                  for a in args])
    keyed, numbers = pw.split_attributes(op, attributes)
    sources = [a for a in args if isinstance(a, Tensor)]
    kindred = target.sig.kin is not None and all(
        [s.sig is target.sig or (s.sig.kin is not None and s.sig.shape == target.sig.shape)
         for s in sources])
    table = op.kin_plans if kindred else op.plans
    key = ("into", target.sig.kin if kindred else target.sig,
           *[(a.sig.kin if kindred else a.sig) if isinstance(a, Tensor) else
             (type(a), a) if op.bakes(a) else type(a) for a in args], keyed)
    plan = table.get(key)
    if plan is None:
        for s in sources:
            written = getattr(s.sig.tag, "into", None)  # what has a layout of its own
            if written is not None:
                return written(op, target, args, attributes)
        same_place(op, (target, *args))
        operands = tuple(a.sig if isinstance(a, Tensor) else a for a in args)
        if op.check is not None:
            op.check(operands, attributes)
        plan = table[key] = pw.plan(op, operands, keyed, target.sig)
    _, _, run, last, back = plan[:5]
    if before is not None:
        before(back)
    run(target.ptr, *[s.ptr for s in sources], *flat_numbers(
        op, args, dict(zip(range(len(numbers)), numbers, strict=True))),
        target.sig.numel if kindred else last)
    return back


def overlaps(source: Tensor, target: Tensor) -> bool:
    """Whether writing to target in some order could change what is still to be read."""
    if source.mem is not target.mem or (source.ptr == target.ptr and source.sig is target.sig):
        return False
    one, other = extent(source), extent(target)
    return one[0] < other[1] and other[0] < one[1]


def demand_apart(source, target: Tensor) -> None:
    """Refuse to write over a part of what is read, as torch does where it sees it: of tensors that
    lie in one piece each."""
    if source.__class__ is Tensor and overlaps(source, target) and (
            source.sig.numel and target.sig.numel) and all(
            sh.is_dense(x.sig.shape, x.sig.strides) for x in (source, target)) and (
            extent(source) != extent(target) or source.sig.strides != target.sig.strides):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor "
            "refer to a single memory location. Please clone() the tensor before performing the "
            "operation.")


def extent(x: Tensor) -> tuple[int, int]:
    """First and last byte a tensor touches."""
    sig = x.sig
    reach = sum((n - 1) * s for n, s in zip(sig.shape, sig.strides, strict=True) if n)
    return x.ptr, x.ptr + (reach + 1) * sig.dtype.itemsize


def check_writable(x: Tensor, name: str) -> None:
    """torch's rules for changing a tensor that is part of a graph."""
    if tracers:
        tracers[-1].writes(x, name)
    if x.__class__.__dict__.get("read_only"):
        raise RuntimeError(f"{name}: this tensor is read-only")
    if x.mem.version < 0 and not modes.inference:
        raise RuntimeError(f"{name}: Inplace update to inference tensor outside InferenceMode is "
                           "not allowed. You can make a clone to get a normal tensor before doing "
                           "inplace update.")
    if not modes.grad:
        return
    base = base_of(x)
    if x.node is LEAF:
        raise RuntimeError(f"{name}: a leaf Variable that requires grad is being used in an "
                           "in-place operation. Change it under no_grad(), or work on a clone().")
    if base is not None and base.node is LEAF:
        raise RuntimeError(f"{name}: a view of a leaf Variable that requires grad is being used in "
                           "an in-place operation. Change it under no_grad(), or work on a "
                           "clone().")


def _changed(x: Tensor) -> None:
    """Count a change of a tensor's bytes, and remember the place in the code that made it.

    Which line that is takes time to find out, and is hardly ever asked: see `_changed_message`.
    """
    mem = x.mem
    mem.version += 1
    frame = sys._getframe(1)
    while ours[frame.f_code.co_filename]:
        if frame.f_back is None:
            break
        frame = frame.f_back
    mem.changed = frame.f_code, frame.f_lasti


changed = fronts.change_counter(_changed, ours)


# -- other protocols -----------------------------------------------------------------------------


#: asked, in order, whether a call is theirs: traces, tensor subclasses, modes
interceptors: list = []


class Named:
    """What interceptors see of a function that is no op."""

    def __init__(self, name: str, run):
        self.name, self.run = name, run

    def __eq__(self, other):
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


@functools.cache
def named(name: str, run) -> Named:
    """One and the same for every call: native code tells calls by what they are calls of."""
    return Named(name, run)


#: types of arguments that are known to let every call be
PLAIN: set[type] = {Tensor, int, float, bool, complex, str, type(None), dt.dtype}


#: calls of compiled functions that are under way: asked before all others
tracers: list = []

#: how often anything was set on a module (the only element): a compiled call may depend on it
module_changes = [0]


#: tensors that factories made in compiled calls and that always hold the same numbers
constants: list = []


_follow = fronts.word("follow")
_followers: list = []


def trace_with(tracer) -> None:
    """Ask this one before all others, until `trace_no_more`."""
    tracers.append(tracer)
    _followers.append(tracer.follow)
    _follow.value = id(_followers[-1])


def trace_no_more(tracer) -> None:
    at = -1 if tracers[-1] is tracer else tracers.index(tracer)
    del _followers[at], tracers[at]
    _follow.value = id(_followers[-1]) if _followers else 0


def same_every_time(x: Tensor) -> Tensor:
    """Say of a new tensor that its numbers follow from Python's: shape, dtype, numbers given."""
    if tracers and tracers[-1].lazy:
        tracers[-1].created(x)
    return x


def tracing() -> bool:
    """Whether a compiled function is at work in this thread."""
    return bool(tracers) and tracers[-1].traces()


def settle(reason: str) -> None:
    """Before the graph, or what a tensor is, changes: what was asked for so far is computed."""
    if tracing():
        tracers[-1].settle(reason)


watchers.append(settle)


def plainly(work, *args, **kwargs):
    """Call something that reads and writes memory itself: on real tensors, nothing traced."""
    if tracing():
        return tracers[-1].run_plainly(work, *args, **kwargs)
    return work(*args, **kwargs)


def lazily_traced() -> bool:
    """Whether tensors of this thread may be promises: what looks at the graph needs real ones."""
    return tracing() and tracers[-1].lazy


def follow_nothing(op, args, kwargs, grad) -> None:
    """What a trace says that knows no path yet."""


def intercepted(op: Any, args, kwargs):
    """A 1-tuple with the result if somebody else answers this call, else None."""
    if tracers:
        followed = tracers[-1].follow(op, args, kwargs, modes.grad)
        if followed is not None:
            return (followed,)
        found = tracers[-1](op, args, kwargs)
        if found is not None:
            return found
    if PLAIN.issuperset(map(type, args)) and (
            not kwargs or PLAIN.issuperset(map(type, kwargs.values()))):
        return None
    for ask in interceptors:
        found = ask(op, args, kwargs)
        if found is not None:
            return found
    return None


def default_dtype_of(value) -> dt.dtype:
    return dt.of_scalar(value)
