"""Eager: one key, one lookup, one call.

The front of each op is generated Python, one frame long. It looks its plan up by the operands'
signatures; whatever is not in the table (a new shape, a number, a subclass, a trace, an error) is a
miss, and the slow path decides. Fronts are registered in `linecache`, so a debugger can step in.
"""

from __future__ import annotations

import linecache
import sys

from ..core import dtype as dt
from ..core.device import META
from ..ops.declare import Op, Pointwise, engine
from . import pointwise as pw
from .modes import modes
from .node import Node, attach, edge_of, new_node, next_sequence
from .storage import grow
from .tensor import LEAF, Signature, Tensor, base_of, forget_plans, make, new, signature

NUMBERS = pw.NUMBERS
_NO_VERSIONS = {1: (0, 0), 2: (0, 0, 0)}

UNARY = '''
def {name}({parameters}):
    if {special}:
        return general({passed})
    try:
        sig, pop, run, size, back = plans[{x}.sig]
    except (KeyError, AttributeError):
        sig = None
    if sig is None:
        return miss({x})
    try:
        mem = pop()
    except IndexError:
        mem = grow(sig.nbytes)
    result = new(Tensor)
    result.sig = sig
    result.mem = mem
    result.ptr = ptr = mem.address
    run(ptr, {x}.ptr, size)
    node = {x}.node
    if node is None or back is None or not modes.grad:
        result.node = None
        return result
    return record(result, back, {x}, node)
'''

BINARY = '''
def {name}({parameters}):
    if {special}:
        return general({passed})
    try:
        if type({y}) in NUMBERS:
            sig, pop, run, size, back = plans[{x}.sig][{number_key}]
            there = {y}
            after = None
        else:
            sig, pop, run, size, back = plans[{x}.sig][{y}.sig]
            there = {y}.ptr
            after = {y}.node
    except (KeyError, AttributeError):
        sig = None
    if sig is None:
        return miss({x}, {y})
    try:
        mem = pop()
    except IndexError:
        mem = grow(sig.nbytes)
    result = new(Tensor)
    result.sig = sig
    result.mem = mem
    result.ptr = ptr = mem.address
    run(ptr, {x}.ptr, there, size)
    node = {x}.node
    if (node is None and after is None) or back is None or not modes.grad:
        result.node = None
        return result
    return record(result, back, {x}, node, {y}, after)
'''

REFLECTED = '''
def {name}(self, other):
    try:
        sig, pop, run, size, back = plans[type(other)][self.sig]
    except (KeyError, AttributeError):
        sig = None
    if sig is None:
        return miss(other, self)
    try:
        mem = pop()
    except IndexError:
        mem = grow(sig.nbytes)
    result = new(Tensor)
    result.sig = sig
    result.mem = mem
    result.ptr = ptr = mem.address
    run(ptr, self.ptr, other, size)
    node = self.node
    if node is None or back is None or not modes.grad:
        result.node = None
        return result
    return record(result, back, other, None, self, node)
'''


def _record_unary(out, back, x, node):
    """Attach a step with one operand."""
    made = new(Node)
    made.back, made.sigs, made.seq, made.extra = back, (out.sig,), next_sequence(), None
    made.parents = (x if node is LEAF else node,)
    keep = back.keep[1]
    if keep == 0 and not modes.pack and not modes.anomaly:
        made.kept, made.versions = (None, None), (0, 0)
        out.node = made
        return out
    out.node = None
    kept = (x if keep & 1 else None, alias(out) if keep & 2 else None)
    out.node = new_node(back, made.parents, kept, made.sigs)
    return out


def _record_binary(out, back, x, node, y, after):
    """Attach a step with two operands, one of them maybe a number."""
    parents = (x if node is LEAF else node, y if after is LEAF else after)
    keep = back.keep[(node is not None) + 2 * (after is not None)]
    out.node = None
    kept = (x if keep & 1 else None, y if keep & 2 else None, alias(out) if keep & 4 else None)
    if modes.pack or modes.anomaly:
        out.node = new_node(back, parents, kept, (out.sig,))
        return out
    made = new(Node)
    made.back, made.parents, made.sigs, made.seq = back, parents, (out.sig,), next_sequence()
    made.kept, made.extra = kept, None
    made.versions = _NO_VERSIONS[2] if keep == 0 else (
        x.mem.version if keep & 1 and type(x) not in NUMBERS else 0,
        y.mem.version if keep & 2 and type(y) not in NUMBERS else 0, 0)
    out.node = made
    return out


def alias(out: Tensor) -> Tensor:
    """The same bytes outside the graph, so that a kept result makes no cycle."""
    return make(out.sig, out.mem, out.ptr)


def compile_front(source: str, name: str, scope: dict):
    """A front from its text, visible to debuggers and tracebacks."""
    filename = f"<front {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), scope)
    return scope[name]


#: every table of plans, to be forgotten together
_tables: list[dict] = []
forget_plans.append(lambda: [table.clear() for table in _tables])


def new_table() -> dict:
    table: dict = {}
    _tables.append(table)
    return table


def plug_pointwise(op: Pointwise) -> None:
    """Give a pointwise op its front."""
    op.plans = new_table()
    op.engine = engine
    general = _general(op)
    if len(op.operands) > 2:
        op.run = general
        return
    operands = public_names(op)
    options = [*op.attributes, "out"]
    defaults = {**{k: op.defaults.get(k) for k in op.attributes}, "out": None}
    scope = {"plans": op.plans, "grow": grow, "new": new, "Tensor": Tensor, "modes": modes,
             "NUMBERS": NUMBERS, "general": general,
             "miss": lambda *args: pointwise_miss(op, args),
             "record": _record_unary if len(operands) == 1 else _record_binary,
             **{f"default_{k}": v for k, v in defaults.items()}}
    name = op.name if op.name.isidentifier() else "front"
    text = (UNARY if len(operands) == 1 else BINARY).format(
        name=name, x=operands[0], y=operands[-1],
        parameters=", ".join([*operands, *[f"{k}=default_{k}" for k in options]]),
        special=" or ".join(f"{k} is not default_{k}" for k in options),
        passed=", ".join([*operands, *[f"{k}={k}" for k in options]]),
        number_key=_number_key(op, operands[-1]))
    op.run = compile_front(text, name, scope)
    op.run.__doc__ = op.doc
    if len(operands) == 2:
        op.reflected = compile_front(REFLECTED.format(name=f"r{name}"), f"r{name}", dict(scope))


def _number_key(op, y: str) -> str:
    return f"type({y}), {y}" if getattr(op, "baked_values", None) else f"type({y})"


def public_names(op: Pointwise) -> list[str]:
    """What callers may call the operands: torch's names, unless the declaration has its own."""
    return [{"x": "input", "y": "other"}.get(name, name) for name in op.operands]


def _general(op: Pointwise):
    """The front for everything out of the ordinary: attributes, `out`, three operands."""
    public = {**dict(zip(public_names(op), op.operands, strict=True))}

    def general(*args, out=None, **named):
        named = {public.get(k, k): v for k, v in named.items()}
        args = list(args)
        for name in op.operands[len(args):]:
            args.append(named.pop(name) if name in named else _default_operand(op, name))
        extra = args[len(op.operands):]
        named.update(zip(op.attributes, extra, strict=False))
        args = tuple(args[:len(op.operands)])
        if out is None:
            return pointwise_call(op, args, named)
        return engine.into_out(op, args, named, out)

    general.__name__, general.__doc__ = op.name, op.doc
    return general


def _default_operand(op, name):
    if name not in op.defaults:
        raise TypeError(f"{op.name}() missing 1 required positional argument: '{name}'")
    return op.defaults[name]


pw.plug = plug_pointwise


def pointwise_miss(op: Pointwise, args: tuple):
    """Plan a one- or two-operand op, store the plan where the front looks, and run it."""
    found = intercepted(op, args, {})
    if found is not None:
        return found[0]
    args = tuple(operand(op, a) for a in args)
    key = tuple(a.sig if isinstance(a, Tensor) else a for a in args)
    if all(not isinstance(a, Tensor) for a in args):
        args = (as_scalar_tensor(args[0]), *args[1:])
        return op.run(*args)
    same_place(op, args)
    baked = _baked_defaults(op)
    plan = _derived_plan(op, key, baked) or pw.plan(op, key, baked)
    first, *rest = [_slot(op, k) for k in key]
    if rest:
        op.plans.setdefault(first, {})[rest[0]] = plan
    else:
        op.plans[first] = plan
    return execute_pointwise(op, args, plan, {})


def _slot(op, key):
    """What a front looks an operand up by."""
    if isinstance(key, Signature):
        return key
    return (type(key), key) if op.baked_values else type(key)


def _baked_defaults(op) -> tuple:
    return tuple((name, ("=", op.defaults.get(name))) for name in op.attributes)


def _derived_plan(op: Pointwise, key, baked):
    """A known layout with a new shape: contiguous operands of one shape reuse the kernel."""
    first = key[0]
    if not isinstance(first, Signature) or not first.contiguous or first.numel == 0 or (
            first.device is META):
        return None
    if len(key) == 2 and isinstance(key[1], Signature):
        if key[1].shape != first.shape or not key[1].contiguous or first.rank == 0:
            return None
    kinds = (*pw.dtype_keys(op, key), first.rank == 0)
    known = op.__dict__.setdefault("_layouts", {}).get(kinds)
    if known is None:
        plan = pw.plan(op, key, baked)
        if plan.walk is None or not plan.walk.dense:
            return plan
        op._layouts[kinds] = (plan[0].dtype, plan[2], plan[4])
        return plan
    dtype, run, back = known
    out = first if dtype is first.dtype else signature(dtype, first.shape, None, first.device)
    return (out, out.pop, run, out.numel, back)


def operand(op, a):
    """A tensor or a plain number, or torch's TypeError."""
    kind = type(a)
    if kind in NUMBERS or isinstance(a, Tensor):
        return a
    if isinstance(a, (bool, int, float, complex)):
        return {bool: bool, int: int, float: float, complex: complex}[
            next(t for t in (bool, int, float, complex) if isinstance(a, t))](a)
    if hasattr(a, "dtype") and getattr(a, "shape", None) == ():
        return a.item()
    raise TypeError(f"{op.name}(): argument must be Tensor or Number, not {kind.__name__}")


def as_scalar_tensor(value):
    return engine.tensor(value)


def same_place(op, args) -> None:
    """All tensors on one device; a 0-d one may come from the CPU."""
    places = {a.sig.device for a in args if isinstance(a, Tensor) and a.sig.rank}
    if len(places) > 1:
        raise RuntimeError(f"{op.name}: Expected all tensors to be on the same device, but found at "
                           f"least two devices, {' and '.join(sorted(map(str, places)))}!")


def pointwise_call(op: Pointwise, args: tuple, attributes: dict):
    """An op with attributes or more operands: the plan is keyed by everything."""
    found = intercepted(op, args, attributes)
    if found is not None:
        return found[0]
    args = tuple(operand(op, a) for a in args)
    keyed, numbers = pw.split_attributes(op, attributes)
    key = tuple([a.sig if isinstance(a, Tensor) else
                 (type(a), a) if op.bakes(a) else type(a) for a in args]), keyed
    plan = op.plans.get(key)
    if plan is None:
        unknown = set(attributes) - set(op.attributes)
        if unknown:
            raise TypeError(f"{op.name}() got an unexpected keyword argument '{unknown.pop()}'")
        if not any(isinstance(a, Tensor) for a in args):
            args = (as_scalar_tensor(args[0]), *args[1:])
            return pointwise_call(op, args, attributes)
        same_place(op, args)
        operands = tuple(a.sig if isinstance(a, Tensor) else a for a in args)
        plan = op.plans[key] = pw.plan(op, operands, keyed)
    return execute_pointwise(op, args, plan, dict(zip(
        [name for name, kind in keyed if not isinstance(kind, tuple)], numbers, strict=True)),
        attributes)


def execute_pointwise(op, args, plan, numbers: dict, attributes: dict | None = None):
    """Run a plan on operands, and record the step."""
    sig, pop, run, last, back = plan
    try:
        mem = pop()
    except IndexError:
        mem = grow(sig.nbytes)
    out = make(sig, mem)
    run(mem.address, *[a.ptr for a in args if isinstance(a, Tensor)],
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
    if back is None or not modes.grad or all(n is None for n in nodes):
        return
    wanting = sum(1 << i for i, n in enumerate(nodes) if n is not None)
    keep = back.keep[wanting]
    kept = [a if keep >> i & 1 or not isinstance(a, Tensor) else None for i, a in enumerate(args)]
    kept.append(alias(out) if keep >> len(args) & 1 else None)
    parents = tuple(edge_of(a) if isinstance(a, Tensor) and a.node is not None else None
                    for a in args)
    node = attach(out, back, parents, tuple(kept))
    if attributes:
        node.more("attributes").update(attributes)


# -- in place --------------------------------------------------------------------------------------


def pointwise_into(op: Pointwise, target: Tensor, args: tuple, attributes: dict) -> Tensor:
    """Compute an op into a tensor that exists: in-place forms and `out=`."""
    args = tuple(operand(op, a) for a in args)
    keyed, numbers = pw.split_attributes(op, attributes)
    same_place(op, (target, *args))
    key = ("into", target.sig, *[a.sig if isinstance(a, Tensor) else
                                 (type(a), a) if op.bakes(a) else type(a) for a in args], keyed)
    plan = op.plans.get(key)
    if plan is None:
        operands = tuple(a.sig if isinstance(a, Tensor) else a for a in args)
        plan = op.plans[key] = pw.plan(op, operands, keyed, target.sig)
    sources = [a for a in args if isinstance(a, Tensor)]
    safe = [s if not overlaps(s, target) else engine.clone(s.detach()) for s in sources]
    plan[2](target.ptr, *[s.ptr for s in safe], *flat_numbers(
        op, args, dict(zip(range(len(numbers)), numbers, strict=True))), plan[3])
    return plan[4]


def overlaps(source: Tensor, target: Tensor) -> bool:
    """Whether writing to target in some order could change what is still to be read."""
    if source.mem is not target.mem or (source.ptr == target.ptr and source.sig is target.sig):
        return False
    one, other = extent(source), extent(target)
    return one[0] < other[1] and other[0] < one[1]


def extent(x: Tensor) -> tuple[int, int]:
    """First and last byte a tensor touches."""
    sig = x.sig
    reach = sum((n - 1) * s for n, s in zip(sig.shape, sig.strides, strict=True) if n)
    return x.ptr, x.ptr + (reach + 1) * sig.dtype.itemsize


def check_writable(x: Tensor, name: str) -> None:
    """torch's rules for changing a tensor that is part of a graph."""
    if x.__class__.__dict__.get("read_only"):
        raise RuntimeError(f"{name}: this tensor is read-only")
    if x.__dict__.get("_inference") and not modes.inference:
        raise RuntimeError(f"{name}: Inplace update to inference tensor outside InferenceMode is not "
                           "allowed. You can make a clone to get a normal tensor before doing inplace "
                           "update.")
    if not modes.grad:
        return
    base = base_of(x)
    if x.node is LEAF:
        raise RuntimeError(f"{name}: a leaf Variable that requires grad is being used in an in-place "
                           "operation. Change it under no_grad(), or work on a clone().")
    if base is not None and base.node is LEAF:
        raise RuntimeError(f"{name}: a view of a leaf Variable that requires grad is being used in an "
                           "in-place operation. Change it under no_grad(), or work on a clone().")


_HERE = __file__.rpartition("engine")[0]


def changed(x: Tensor) -> None:
    """Count a change of a tensor's bytes, and remember the line that made it."""
    mem = x.mem
    mem.version += 1
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename.startswith(_HERE)
                                        or frame.f_code.co_filename[:1] == "<"):
        frame = frame.f_back
    mem.changed = (frame.f_code, frame.f_lineno)


# -- other protocols -----------------------------------------------------------------------------


#: asked, in order, whether a call is theirs: traces, tensor subclasses, modes
interceptors: list = []


def intercepted(op: Op, args, kwargs):
    """A 1-tuple with the result if somebody else answers this call, else None."""
    for ask in interceptors:
        found = ask(op, args, kwargs)
        if found is not None:
            return found
    return None


def default_dtype_of(value) -> dt.dtype:
    return dt.of_scalar(value)
