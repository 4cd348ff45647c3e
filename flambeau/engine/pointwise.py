"""Plans for pointwise ops: dtype, shape, strides, kernel, and how to go back.

A plan is (signature of the result, where its memory comes from, machine code, its last argument,
the way back). It is made once for each op and combination of signatures.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..core import dtype as dt
from ..core import expr as ex
from ..core import shape as sh
from ..core.device import CPU, META
from ..core.kernel import Kernel, Store
from ..devices.cpu import transpose
from ..devices.cpu.compile import ADDRESSES, compile_kernel
from ..ops.declare import Pointwise
from . import native
from .layout import Walk, operands_of, pointwise_walk
from .tensor import Signature, signature
from .way_back import Back, Derived, FixedBack, param_dtype, shared_back

NUMBERS = frozenset((float, int, bool, complex))


def common_dtype(operands) -> dt.dtype:
    """Joined dtype of signatures and number types."""
    dims: list[dt.dtype] = []
    zeros: list[dt.dtype] = []
    numbers = []
    for o in operands:
        if isinstance(o, Signature):
            (dims if o.rank else zeros).append(o.dtype)
        else:
            numbers.append(dt.of_scalar(o))
    return dt.result_type(dims, zeros, numbers)


def operating_dtype(op: Pointwise, operands) -> dt.dtype:
    """The dtype an op's promoted operands are converted to."""
    if isinstance(op, Derived):
        return op.compute
    joined = [operands[i] for i in op.promoted] or operands  # a conversion joins nothing
    return dt.operating(op.rule, common_dtype(joined))


def result_dtype(op: Pointwise, operating: dt.dtype) -> dt.dtype:
    return dt.RULES[op.rule](operating)


@lru_cache(maxsize=8192)
def _element(op, dtypes, operating, attributes, written: dt.dtype):
    """The element expr of an op over operands of given dtypes.

    dtypes holds, per operand, a dtype (of a tensor), a Python type (of a number given when the
    kernel runs), or ("=", value) for a number that is part of the kernel. Attributes are
    (name, type) for numbers given when the kernel runs or (name, ("=", value)).
    """
    compute = operating.compute
    args: list[ex.Expr] = []
    params: list[dt.dtype] = []
    position = 1
    for k, d in enumerate(dtypes):
        if isinstance(d, dt.dtype):
            leaf = ex.input(position, d.compute)
            position += 1
        elif isinstance(d, tuple):
            leaf = ex.const(d[1], compute)
        else:
            kind = param_dtype(d, compute)
            leaf = ex.param(len(params), kind)
            params.append(kind)
        args.append(ex.cast(leaf, compute) if k in op.promoted else leaf)
    values = {}
    for name, given in attributes:
        if isinstance(given, tuple):
            values[name] = given[1]
        else:
            kind = param_dtype(given, compute)
            values[name] = ex.param(len(params), kind)
            params.append(kind)
    value = op.element(args, values)
    if not isinstance(value, ex.Expr):
        value = ex.const(value, written.compute)
    return ex.cast(value, written.compute), tuple(params)


def _nothing(*_):
    """Runs instead of a kernel where there is nothing to compute."""


def split_attributes(op: Pointwise, attributes: dict):
    """Attributes as (name, type) for numbers given at run time, or (name, ("=", value))."""
    keyed: list[tuple[str, Any]] = []
    numbers = []
    for name in op.attributes:
        value: Any = attributes.get(name, op.defaults.get(name))
        if hasattr(value, "item"):  # a number in a tensor, or one of numpy's
            value = attributes[name] = value.item()
        if type(value) in (float, int) and name not in op.baked:
            keyed.append((name, type(value)))
            numbers.append(value)
        else:
            keyed.append((name, ("=", value)))
    return tuple(keyed), numbers


class Typed:
    """An op on operands of given dtypes: all that is decided the same for every shape of them."""

    __slots__ = ("attributes", "back", "codes", "copies", "dtypes", "kind", "op", "operating",
                 "ruled", "written")

    def __init__(self, op: Pointwise, operands: tuple, attributes: tuple, into: dt.dtype | None):
        sigs = [o for o in operands if isinstance(o, Signature)]
        self.op, self.attributes, self.dtypes = op, attributes, dtype_keys(op, operands)
        self.operating = operating_dtype(op, operands) if sigs or into is None else into
        self.ruled = op.written_dtype or result_dtype(op, self.operating)
        self.written = self.ruled if into is None else into
        self.kind = number_kind(op, operands, self.operating)
        self.copies = op.name == "clone" and sigs[0].dtype is self.written
        flows = self.written.kind in "fc" and any(s.dtype.kind in "fc" for s in sigs)
        self.back = shared_back(op, self.operating, self.dtypes, attributes, self.written) if (
            flows) else None
        self.codes: dict[tuple, Any] = {}  # by how operands step along the lanes, and loops

    def code(self, walk: Walk):
        """The machine code for all shapes that are walked like this."""
        key = walk.steps, walk.kept
        found = self.codes.get(key)
        if found is None:
            value, params = _element(self.op, self.dtypes, self.operating, self.attributes,
                                     self.written)
            tensors = [d for d in self.dtypes if isinstance(d, dt.dtype)]
            found = self.codes[key] = compile_kernel(Kernel(
                operands_of(walk, [self.written, *tensors]), params, walk.kept, 0, "kept",
                (("row", (Store(0, value),)),), walk.dense))
        return found

    def back_of(self, operands: tuple, out: Signature) -> Back | None:
        """How to go back from a result to these operands, or None where no gradient flows."""
        if self.back is None:
            return None
        shape = out.shape
        for o in operands:
            if isinstance(o, Signature) and o.shape != shape:
                return FixedBack(self.back, tuple([
                    o.shape if isinstance(o, Signature) and o.shape != shape else None
                    for o in operands]))
        return self.back


_typed: dict[tuple, Typed] = {}


def typed(op: Pointwise, operands: tuple, attributes: tuple, into: dt.dtype | None) -> Typed:
    """What an op decides by the dtypes of its operands (and which are 0-d), and by numbers."""
    key: list = [op, attributes, into, dt.default_float()]
    for o in operands:
        if isinstance(o, Signature):
            key += o.dtype, o.rank == 0
        else:
            key += type(o), o if op.bakes(o) else None
    known = tuple(key)
    found = _typed.get(known)
    if found is None:
        found = _typed[known] = Typed(op, operands, attributes, into)
    return found


def plan(op: Pointwise, operands: tuple, attributes: tuple, into: Signature | None = None):
    """The plan of an op on operands (signatures, or numbers), with split attributes."""
    sigs = [o for o in operands if isinstance(o, Signature)]
    case = typed(op, operands, attributes, None if into is None else into.dtype)
    shape = sh.broadcast(op.said, *[s.shape for s in sigs])
    meta = False if into is None else into.device is META
    regular = True  # whether all of them are walked forwards as they are
    for s in sigs:
        meta = meta or s.device is META
        regular = regular and s.regular
    if into is None:
        lying = None if regular else sh.result_strides(shape, [(s.shape, s.strides) for s in sigs])
        out = signature(case.written, shape, lying, META if meta else CPU)
    else:
        out = _check_target(op, into, shape, case.ruled)
        regular = regular and out.regular
    run, last, walk = _nothing, 0, None
    if out.numel and not meta:
        run, last, walk = _walked(case, out, sigs, regular)
    return finished(out, run, last, case.back_of(operands, out), case.kind, walk)


def _walked(case: Typed, out: Signature, sigs: list[Signature], regular: bool):
    """(machine code, its last argument, the walk that keeps the layout)."""
    shape = tuple(out.shape)
    strides, itemsizes = [out.strides], [out.dtype.itemsize]
    for s in sigs:
        strides.append(sh.expand_strides(s.shape, s.strides, shape))
        itemsizes.append(s.dtype.itemsize)
    walk = pointwise_walk(shape, strides, itemsizes, regular)
    if case.copies and walk.steps == ("1", "s"):
        turn = transpose.turn_of(walk.sizes, *walk.strides, out.dtype.itemsize)
        if turn is not None:
            return turn.run, turn.last, walk
    return case.code(walk), walk.last, walk


def finished(out: Signature, run, last: int, back, kind, walk: Walk | None = None) -> Plan:
    """A plan with what a native front reads of it."""
    address = ADDRESSES.get(run)
    packed = free = None
    if address is not None and kind is not None:
        packed, free = native.pack(address, last, kind), out.free
        if back is not None:
            back.enlist(packed)
        else:
            native.set_keep(packed, (0, 0, 0, 0))
    return Plan((out, out.pop, run, last, back, packed, free, (out,)), walk)


def number_kind(op, operands, operating: dt.dtype) -> int | None:
    """How a kernel takes its number: 0 there is none, 1 as a double, 2 as an integer, 3 baked."""
    numbers = [o for o in operands if not isinstance(o, Signature)]
    if len(operands) > 2 or any(isinstance(o, complex) for o in numbers):
        return None
    if not numbers:
        return 0
    if op.bakes(numbers[0]):
        return 3
    return 1 if param_dtype(type(numbers[0]), operating.compute).kind in "fc" else 2


class Plan(tuple):
    """(result's signature, where its memory comes from, machine code, its last argument, way back;
    and for native fronts: packed words, free list, signatures of the results)."""

    walk: Walk | None

    def __new__(cls, parts, walk: Walk | None = None):
        made = super().__new__(cls, parts)
        made.walk = walk  # keeps the layout alive
        return made

    def __repr__(self) -> str:
        return f"plan -> {self[0]!r} back {self[4]!r}"


def refits(op: Pointwise, target: dt.dtype, args) -> bool:
    """Whether a float becomes an element of a tensor of integers. It may not fit, so that an op's
    check is told of each."""
    return target.kind in "iu" and op.promoted == (0,) and float in map(type, args)


#: stands for a plan where the usual way has to be gone
UNUSUAL = (None,) * 6


def dtype_keys(op, operands) -> tuple:
    return tuple(o.dtype if isinstance(o, Signature) else
                 ("=", o) if op.bakes(o) else type(o) for o in operands)


def _check_target(op, into: Signature, shape, written) -> Signature:
    if shape and tuple(into.shape) != tuple(shape):
        wide = sh.broadcast(op.said, into.shape, shape)
        if tuple(wide) != tuple(into.shape):
            raise RuntimeError(
                f"{op.said}: output with shape {list(into.shape)} doesn't match the broadcast "
                f"shape {list(wide)}")
    # A copy converts to whatever is written to; other ops do only where nothing of kind is lost.
    if not dt.can_cast(written, into.dtype) and op is not op.engine.identity:
        raise RuntimeError(f"{op.name}: result type {dt.spoken(written)} can't be cast to the "
                           f"desired output type {dt.spoken(into.dtype)}")
    if into.numel > 1 and any(s == 0 and n > 1
                              for s, n in zip(into.strides, into.shape, strict=True)):
        raise RuntimeError(
            f"{op.name}: unsupported operation: more than one element of the written-to tensor "
            "refers to a single memory location. Please clone() the tensor before performing the "
            "operation.")
    return into
