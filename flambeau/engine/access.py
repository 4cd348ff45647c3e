"""Kernels with computed loads and stores, and the check of indices before they run."""

from __future__ import annotations

from array import array
from functools import lru_cache
from math import prod

from ..core import dtype as dt
from ..core import expr as ex
from ..core import shape as sh
from ..core.device import META
from ..core.kernel import Fold, Kernel, Operand, Store
from ..devices.cpu.bounds import within
from ..devices.cpu.bridge import unwatched
from ..devices.cpu.compile import compile_kernel
from . import convert
from .eager import engine
from .layout import step_of
from .storage import checkers
from .tensor import Tensor


class Part:
    """An operand: how it steps through the loops, and the strides of its computed coordinates."""

    __slots__ = ("dtype", "own", "strides", "written")

    def __init__(self, dtype: dt.dtype, strides, own=(), written: bool = False):
        self.dtype, self.written = dtype, written
        self.strides, self.own = tuple(strides), tuple(own)


class Program:
    """Machine code, and the layout it is given."""

    __slots__ = ("last", "layout", "run")

    def __init__(self, shape, parts, stores, params=()):
        stored = tuple([(s.operand, s.value, s.coordinates, s.combine) for s in stores])
        facts = _facts(stored)
        sizes, strides = tuple(shape), [p.strides for p in parts]
        if not facts.counts:
            order = sh.loop_order(sizes, strides)
            sizes, strides = sh.coalesce([sizes[d] for d in order],
                                         [[s[d] for d in order] for s in strides])
        if not sizes:
            sizes, strides = (1,), [(0,)] * len(parts)
        words, operands, indirect = [prod(sizes), *sizes], [], []
        for p, s in zip(parts, strides):
            operands.append((p.dtype, step_of(s[-1]), p.written))
            indirect.append(len(p.own))
            words += [stride * p.dtype.itemsize for stride in s]
        for p in parts:
            words += [stride * p.dtype.itemsize for stride in p.own]
        lanes = "kept" if facts.has_lanes(sizes, [s[-1] for s in strides]) else "none"
        self.run = _code(stored, tuple(params), len(sizes), lanes, tuple(operands), tuple(indirect))
        self.layout = array("q", words)
        self.last = self.layout.buffer_info()[0] + 8


class _Facts:
    """What the stores of a kernel say of its loops, whatever their sizes."""

    __slots__ = ("axes", "combined", "counts", "inputs", "loads")

    def __init__(self, stored: tuple):
        exprs = [e for _, value, coordinates, _ in stored for e in (value, *(coordinates or ()))]
        self.counts = any(ex.leaves(e, "index") for e in exprs)
        self.combined = [operand for operand, *_, combine in stored if combine]
        told = list(_coordinates(stored))
        self.axes = {axis for c in told for axis in ex.leaves(c, "index")}
        self.inputs = {k for c in told for k in ex.leaves(c, "input")}
        self.loads = any(ex.leaves(c, "load") for c in told)

    def has_lanes(self, sizes, lane: list[int]) -> bool:
        """Whether neighbours along the innermost loop have all coordinates in common, and a place
        of their own to be added to."""
        if sizes[-1] > 1 and any([lane[k] == 0 for k in self.combined]):
            return False
        return not self.loads and len(sizes) - 1 not in self.axes and not any(
            [lane[k] for k in self.inputs])


_facts = lru_cache(maxsize=4096)(_Facts)


@lru_cache(maxsize=4096)
def _code(stored: tuple, params: tuple, loops: int, lanes: str, operands: tuple, indirect: tuple):
    """The machine code for all shapes that are walked like this."""
    stores = tuple([Store(*s) for s in stored])
    return compile_kernel(Kernel(tuple([Operand(*o) for o in operands]), params, loops, 0, lanes,
                                 (("row", stores),), indirect=indirect))


def _coordinates(stored: tuple):
    """Every expr that says where something is read or written."""
    seen, stack = set(), []
    for _, value, coordinates, _ in stored:
        yield from coordinates or ()
        stack.append(value)
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            if e.head == "load":
                yield from e.args
            stack.extend(e.args)


# -- bounds ---------------------------------------------------------------------------------------


def _extremes_kernel(dtype: dt.dtype):
    """The least and the greatest of some integers."""
    x = ex.cast(ex.input(2, dtype), dt.int64)
    low, high, low2, high2 = (ex.make("state", (), k, dt.int64) for k in range(4))
    big = ex.const(2**63 - 1, dt.int64)
    fold = Fold((big, ex.const(-(2**63), dt.int64)), (ex.minimum(low, x), ex.maximum(high, x)),
                (ex.minimum(low, low2), ex.maximum(high, high2)))
    stores = tuple(Store(k, ex.make("fold", (), k, dt.int64)) for k in (0, 1))
    operands = (Operand(dt.int64, "0", True), Operand(dt.int64, "0", True), Operand(dtype, "1"))
    return compile_kernel(Kernel(operands, (), 1, 1, "reduced", (("fold", fold), ("row", stores))))


_extremes: dict = {}


def extremes(index: Tensor) -> tuple[int, int]:
    """The least and the greatest element of an index that has some."""
    if not index.sig.contiguous:
        index = engine.contiguous(index)
    run, words = extremes_code(index)
    found = array("q", (0, 0, *words))
    here = found.buffer_info()[0]
    if checkers:  # what a trace does about bounds it decides
        run = unwatched(run)
    run(here, here + 8, index.ptr, here + 24)
    return found[0], found[1]


def extremes_code(index: Tensor):
    """Code that finds the least and the greatest of a contiguous index, and its layout's words."""
    dtype, n = index.sig.dtype, index.sig.numel
    run = _extremes.get(dtype)
    if run is None:
        run = _extremes[dtype] = _extremes_kernel(dtype)
    return run, (n, 1, n, 0, 0, 0, 0, 0, dtype.itemsize)


ASKED = frozenset((dt.int64, dt.int32))  # dtypes of which one native call tells that all is well


def check_bounds(index: Tensor, low: int, high: int, refuse) -> None:
    """Every element of an index from low to before high, or what `refuse(element)` raises."""
    sig = index.sig
    if sig.kin is not None and sig.contiguous and sig.dtype in ASKED and not checkers and (
            within(sig.dtype.name)(index.ptr, sig.numel, low, high)):
        return
    if not index.sig.numel or index.sig.device is META:
        return
    if not index.sig.contiguous:
        index = engine.contiguous(index)
    least, most = extremes(index)
    if least < low or most >= high:
        raise refuse(least if least < low else most)
    if checkers:
        checkers[-1](index, low, high, refuse)


def check_none(count: Tensor, refuse) -> None:
    """A count of what must not be is 0, or what `refuse()` raises."""
    if checkers:
        check_bounds(engine.cast(count, dt.int64), 0, 1, lambda _: refuse())
    elif convert.item(count):
        raise refuse()


engine.check_bounds = check_bounds
engine.check_none = check_none
engine.checks_are_recorded = lambda: bool(checkers)
