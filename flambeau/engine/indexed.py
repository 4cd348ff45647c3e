"""Declared indexed ops: out[i...] = x[f(i...)], and the scatter-add that is their transpose."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as ex
from ..core.device import META
from ..core.kernel import Store
from ..core.numbers import plain
from ..devices.cpu.remember import keep
from ..ops.declare import Indexed
from .access import Part, Program
from .eager import engine, new_table
from .formula import bind
from .fresh import empty
from .interception import PLAIN, intercepted, tracers
from .tensor import Signature, Tensor, signature
from .views import recorded
from .way_back import backward_name


class Reader:
    """What the body of an indexed op reads: elements at coordinates, and sizes."""

    def __init__(self, sig: Signature, params: list):
        self.sig, self.rank, self._params = sig, sig.rank, params

    def __getitem__(self, coordinates):
        return ex.load(1, coordinates, self.sig.dtype.compute)

    def size(self, d: int) -> ex.Expr:
        return number(self.sig.shape[d], self._params)


def number(value, params: list) -> ex.Expr:
    """An expr for an integer that is given when the kernel runs."""
    params.append(value)
    return ex.param(len(params) - 1, dt.int64)


def _lifted(value, params: list):
    """Integers, alone or in tuples, as exprs; anything else as it is."""
    if type(value) is int:
        return number(value, params)
    return tuple(_lifted(v, params) for v in value) if type(value) is tuple else value


class IndexedPlan:
    """How an indexed op runs on one signature with given arguments, and how its transpose does."""

    def __init__(self, op: Indexed, sig: Signature, bound: dict):
        self.op, self.sig, self.bound = op, sig, bound
        shape = tuple(op.shape(sig, *bound.values()))
        self.out = signature(sig.dtype, shape, None, sig.device)
        self.numbers: list[int] = []
        at = tuple(ex.index(d) for d in range(len(shape)))
        self.value = op.body(Reader(sig, self.numbers), at,
                             *[_lifted(v, self.numbers) for v in bound.values()])
        self.forward: Program | None = None
        self.backward: Program | None = None

    def _stepping(self, coordinates) -> dict[int, int]:
        """Dimension of x -> loop, for those the loops step through as they are."""
        return {d: c.attr for d, c in enumerate(coordinates) if c.head == "index"}

    def _program(self, parts_of, stores_of) -> Program:
        loads = sorted(_loads(self.value), key=str)
        plain = set.intersection(*(set(self._stepping(e.args).items()) for e in loads))
        strides = [0] * self.out.rank
        for d, loop in plain:
            strides[loop] += self.sig.strides[d]
        dims = [d for d in range(self.sig.rank) if d not in dict(plain)]
        own = [self.sig.strides[d] for d in dims]

        def computed(e):
            return tuple(e.args[d] for d in dims)

        parts, stores = parts_of(strides, own), stores_of(loads, computed)
        return Program(self.out.shape, parts, stores, (dt.int64,) * len(self.numbers))

    def run(self, x: Tensor) -> Tensor:
        out = empty(self.out)
        if not out.sig.numel or out.sig.device is META:
            return out
        if self.forward is None:
            self.forward = self._program(
                lambda strides, own: [Part(self.out.dtype, self.out.strides, (), True),
                                      Part(self.sig.dtype, strides, own)],
                lambda loads, computed: [Store(0, ex.substitute(self.value, {
                    e: ex.load(1, computed(e), e.dtype) for e in loads}))])
        self.forward.run(out.ptr, x.ptr, *self.numbers, self.forward.last)
        return out

    def transposed(self, g: Tensor) -> Tensor:
        """The gradient of x, unrecorded: what was read is added to."""
        zeros = engine.zeros_of(self.sig)
        if zeros.sig is not self.sig:
            return plan_of(self.op, zeros.sig, self.bound).transposed(g)
        if not g.sig.numel or g.sig.device is META:
            return zeros
        g = engine.contiguous(g)
        if self.backward is None:
            given = ex.input(1, self.out.dtype.compute)
            one = ex.const(1, self.out.dtype.compute)
            self.backward = self._program(
                lambda strides, own: [Part(self.sig.dtype, strides, own, True),
                                      Part(self.out.dtype, self.out.strides)],
                lambda loads, computed: [
                    Store(0, _weighted(given, ex.tangent(self.value, {e: one})), computed(e), "add")
                    for e in loads])
        self.backward.run(zeros.ptr, g.ptr, *self.numbers, self.backward.last)
        return zeros


def _weighted(g: ex.Expr, slope: ex.Expr | None) -> ex.Expr:
    """g times a slope, where a slope of 0 outweighs what is not finite."""
    if slope is None:
        return ex.const(0, g.dtype)
    if slope.head == "select":
        return ex.where(slope.args[0], _weighted(g, slope.args[1]), _weighted(g, slope.args[2]))
    return slope if ex.is_const(slope, 0) else g * slope


def _loads(e: ex.Expr) -> set:
    return {e} if e.head == "load" else set().union(*map(_loads, e.args))


_indexed_plans = new_table()


def plan_of(op: Indexed, sig: Signature, bound: dict) -> IndexedPlan:
    key = (op, sig, tuple(bound.values()))
    plan = _indexed_plans.get(key)
    if plan is None:
        plan = keep(_indexed_plans, key, IndexedPlan(op, sig, bound))
    return plan


_INT = frozenset((int,))


def _whole(args: tuple) -> bool:
    """Whether arguments are integers, alone or in tuples: 2.0 would be found where 2 is."""
    return _INT.issuperset(map(type, args)) or all([
        type(a) is int or (type(a) is tuple and _INT.issuperset(map(type, a))) for a in args])


def indexed_front(op: Indexed):
    """The front of a declared indexed op."""
    label = backward_name(op)

    known = new_table()  # (signature, integers) -> plan of a call that has gone well

    def front(*args, **kwargs):
        if not tracers and not kwargs and Tensor in PLAIN:
            try:
                plan = known.get((args[0].sig, *args[1:]))
            except (AttributeError, TypeError, IndexError):
                plan = None
            if plan is not None and _whole(args[1:]):
                x, out = args[0], empty(plan.out)
                plan.forward.run(out.ptr, x.ptr, *plan.numbers, plan.forward.last)
                return out if x.node is None else made(out, x, plan)
        found = intercepted(op, args, kwargs)
        if found is not None:
            return found[0]
        bound = bind(op, args, kwargs)
        x = bound.pop(op.names[0])
        if not isinstance(x, Tensor):
            raise TypeError(f"{op.name}(): argument 'input' (position 1) must be Tensor, not "
                            f"{type(x).__name__}")
        bound = {n: plain(tuple(bound[n]) if isinstance(bound[n], list) else bound[n])
                 for n in op.names[1:]}
        out = forward(x, bound)
        plan = plan_of(op, x.sig, bound)
        if not kwargs and x.sig.tag is None and plan.forward is not None and _whole(args[1:]):
            keep(known, (x.sig, *args[1:]), plan)
        return out

    def forward(x, bound):
        plan = plan_of(op, x.sig, bound)
        return made(plan.run(x), x, plan)

    def made(out, x, plan):
        return recorded(out, label, (x,), lambda g: [backward(g, plan)])

    def backward(g, plan):
        return recorded(plan.transposed(g), label, (g,), lambda gg: [forward(gg, plan.bound)])

    front.__name__, front.__doc__ = op.name, op.doc
    vars(front)["made"] = made  # for who knows another way to the result
    return front
