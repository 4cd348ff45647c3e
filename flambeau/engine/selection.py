"""Reading and writing the elements of a tensor that indices select.

A Selection says, for each place of a loop, which element of a tensor is meant: along some
dimensions the loop itself steps, along others an index says where. `taken` takes those elements,
`put` gives a copy of the tensor with them replaced or added to, `put_` does so in place. Each is
the other's gradient. Indices are checked before a selection is made.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ..core import dtype as dt
from ..core import expr as ex
from ..core import shape as sh
from ..core.device import META
from ..core.kernel import Store
from .access import Part, Program
from .eager import engine, new_table
from .fresh import empty
from .history import replace_history
from .modes import modes
from .node import edge_of, new_node
from .tensor import Signature, Tensor, signature
from .views import Step, recorded
from .writing import changed, check_writable


class Frame:
    """What is known of a selection before its indices are: shared by all of one layout.

    loops: sizes of the loop; kinds: signatures of the indices; steps: their strides over the loops;
    dims: which dimension of the tensor each index is for; free: for each loop, the dimension of
    the tensor it steps through, or None; wrap: whether -1 means the last place.
    """

    __slots__ = ("dims", "free", "kinds", "loops", "programs", "steps", "wrap")

    def __init__(self, loops, kinds, steps, dims, free, wrap: bool = False):
        self.loops, self.kinds, self.steps = tuple(loops), tuple(kinds), tuple(steps)
        self.dims, self.free, self.wrap = tuple(dims), tuple(free), wrap
        self.programs: dict = {}

    def parts(self, sig: Signature, written: bool) -> list[Part]:
        """The operands of a kernel: the tensor, and the indices."""
        strides = [0 if d is None else sig.strides[d] for d in self.free]
        own = [sig.strides[d] for d in self.dims]
        return [Part(sig.dtype, strides, own, written),
                *(Part(k.dtype, s) for k, s in zip(self.kinds, self.steps, strict=True))]

    def index_dtypes(self) -> tuple[dt.dtype, ...]:
        return tuple([kind.dtype for kind in self.kinds])

    def params(self) -> tuple:
        return (dt.int64,) * len(self.kinds) if self.wrap else ()

    def numbers(self, sig: Signature) -> list[int]:
        return [sig.shape[d] for d in self.dims] if self.wrap else []


class Selection:
    """Which elements of a tensor are meant, at each place of a loop: a frame, and indices."""

    __slots__ = ("frame", "indices", "loops")

    def __init__(self, frame: Frame, indices):
        self.frame, self.indices, self.loops = frame, indices, frame.loops


_frames = new_table()


def along(index: Tensor, dim: int, wrap: bool = False) -> Selection:
    """As gather and scatter do: an index for every place, along one dimension."""
    return Selection(frame_along(index.sig, dim, wrap), (index,))


def frame_along(sig: Signature, dim: int, wrap: bool) -> Frame:
    frame = _frames.get((sig, dim, wrap))
    if frame is None:
        free = [None if d == dim else d for d in range(sig.rank)]
        frame = _frames[sig, dim, wrap] = Frame(sig.shape, [sig], [sig.strides],
                                                [dim] if sig.rank else [], free, wrap)
    return frame


def rows(index: Tensor, shape, dim: int) -> Selection:
    """As index_select does: a vector of places along one dimension."""
    sig = index.sig
    frame = _frames.get((sig, shape, dim))
    if frame is None:
        loops = (*shape[:dim], sig.numel, *shape[dim + 1:])
        step = sig.strides[0] if sig.rank else 0
        steps = [tuple(step if d == dim else 0 for d in range(len(loops)))]
        frame = _frames[sig, shape, dim] = Frame(
            loops, [sig], steps, [dim], [None if d == dim else d for d in range(len(loops))])
    return Selection(frame, (index,))


def flat_rows(index: Signature, shape) -> Frame:
    """Rows of a matrix by a contiguous index of any shape, one after another."""
    frame = _frames.get((index, shape))
    if frame is None:
        frame = _frames[index, shape] = Frame(
            (index.numel, shape[1]), [index], [(1, 0)], [0], [None, 1])
    return frame


_COMBINE_BOOL = {"add": "amax", "mul": "amin"}


@lru_cache(maxsize=1024)
def _coordinates(dtypes: tuple, wrap: bool) -> tuple:
    """Where a tensor is read or written, by indices of these dtypes: operands 2, 3 ..."""
    found = []
    for k, dtype in enumerate(dtypes):
        at = ex.cast(ex.input(2 + k, dtype), dt.int64)
        found.append(ex.where(at < 0, at + ex.param(k, dt.int64), at) if wrap else at)
    return tuple(found)


@lru_cache(maxsize=1024)
def _reading_store(dtype: dt.dtype, indices: tuple, wrap: bool) -> Store:
    return Store(0, ex.load(1, _coordinates(indices, wrap), dtype.compute))


@lru_cache(maxsize=1024)
def _writing_store(dtype: dt.dtype, given: dt.dtype, indices: tuple, wrap: bool,
                   combine: str | None) -> Store:
    value = ex.cast(ex.input(1, given.compute), dtype.compute)
    return Store(0, value, _coordinates(indices, wrap), combine)


def read(x: Tensor, chosen: Selection) -> Tensor:
    """The selected elements."""
    sig, run, last, numbers, _ = reading(chosen.frame, x.sig)
    out = empty(sig)
    if run is not None:
        run(out.ptr, x.ptr, *[i.ptr for i in chosen.indices], *numbers, last)
    return out


def reading(frame: Frame, sig: Signature) -> tuple:
    """(signature of the result, machine code, last argument, numbers, what keeps them alive)."""
    plan = frame.programs.get(sig)
    if plan is None:
        plan = frame.programs[sig] = _reading(frame, sig)
    return plan


def _reading(frame: Frame, sig: Signature) -> tuple:
    out = signature(sig.dtype, frame.loops, None, sig.device)
    if not out.numel or sig.device is META:
        return out, None, 0, (), None
    parts = [Part(out.dtype, out.strides, (), True), *frame.parts(sig, False)]
    store = _reading_store(sig.dtype, frame.index_dtypes(), frame.wrap)
    program = Program(frame.loops, parts, [store], frame.params())
    return out, program.run, program.last, tuple(frame.numbers(sig)), program


def write(x: Tensor, chosen: Selection, value: Tensor, combine: str | None) -> None:
    """Put values at the selected places, unrecorded; they broadcast to the loops."""
    if not prod(chosen.loops) or x.sig.device is META:
        return
    if value.mem is x.mem:
        value = engine.without_grad(engine.clone, value)
    run, last, numbers, _ = writing(chosen.frame, x.sig, value.sig, combine)
    run(x.ptr, value.ptr, *[i.ptr for i in chosen.indices], *numbers, last)


def writing(frame: Frame, sig: Signature, given: Signature, combine: str | None) -> tuple:
    """(machine code, last argument, numbers, what keeps them alive)."""
    key = sig, given, combine
    plan = frame.programs.get(key)
    if plan is None:
        plan = frame.programs[key] = _writing(frame, *key)
    return plan


def _writing(frame: Frame, sig: Signature, given: Signature, combine: str | None) -> tuple:
    if sig.dtype is dt.bool_:
        combine = _COMBINE_BOOL.get(combine or "", combine)
    spread = sh.expand_strides(given.shape, given.strides, frame.loops)
    target, *indices = frame.parts(sig, True)
    store = _writing_store(sig.dtype, given.dtype, frame.index_dtypes(), frame.wrap, combine)
    program = Program(frame.loops, [target, Part(given.dtype, spread), *indices], [store],
                      frame.params())
    return program.run, program.last, tuple(frame.numbers(sig)), program


# -- recorded -------------------------------------------------------------------------------------


def taken(x: Tensor, chosen: Selection, label: str) -> Tensor:
    """`read`, with its gradient: a sum over all that read from one place."""
    return taken_again(read(x, chosen), x, chosen, label)


def taken_again(out: Tensor, x: Tensor, chosen: Selection, label: str) -> Tensor:
    """What was read, with its gradient."""
    sig = x.sig
    return recorded(out, label, (x,), lambda g: [
        put(engine.zeros_of(sig), chosen, g, "add", label)], chosen.indices)


def put(x: Tensor, chosen: Selection, value: Tensor, combine: str | None, label: str) -> Tensor:
    """A copy of x with values at the selected places: replaced, or added to what is there."""
    out = engine.without_grad(engine.clone, x)
    write(out, chosen, value, combine)
    return recorded(out, label, (x, value), put_back(x, chosen, value, combine, label),
                    chosen.indices)


def put_(x: Tensor, chosen: Selection, value: Tensor, combine: str | None, name: str,
         label: str) -> Tensor:
    """The same in place."""
    return change(x, name, label, lambda: write(x, chosen, value, combine), (value,),
                  put_back(x, chosen, value, combine, label), chosen.indices)


def put_back(x: Tensor, chosen: Selection, value: Tensor, combine, label: str):
    """How gradients of what was put go back to what was there, and to the values."""
    shape, dtype = value.sig.shape, value.sig.dtype
    into_x, into_value = x.node is not None, value.node is not None

    def back(g):
        rest = g
        if combine is None and into_x:
            nothing = engine.full((), 0, g.sig.dtype, g.sig.device)
            rest = put(g, chosen, nothing, None, label)
        part = None
        if into_value:
            part = engine.cast(engine.sum_to(taken(g, chosen, label), tuple(shape)), dtype)
        return [rest, part]

    return back


def change(x: Tensor, name: str, label: str, write_now, others, back, kept=()) -> Tensor:
    """Change x by running `write_now`; `back(g)` gives the gradients of what was, and of others."""
    check_writable(x, name)
    inputs = (x, *others)
    recording = modes.grad and x.sig.dtype.kind in "fc" and any(i.node is not None for i in inputs)
    parents = tuple(edge_of(i) if i.node is not None else None for i in inputs)
    write_now()
    changed(x)
    if recording:
        replace_history(x, new_node(Step(label, back), parents, tuple(kept), (x.sig,)))
    return x


def scatter_sum(places: Tensor, values: Tensor, size: int) -> Tensor:
    """A vector of sums: each value added at its place. Unrecorded."""
    out = engine.full((size,), 0, values.sig.dtype)
    write(out, rows(places, (size,), 0), values, "add")
    return out


engine.scatter_sum = scatter_sum
engine.tracked = lambda *inputs: modes.grad and any(
    isinstance(x, Tensor) and x.node is not None for x in inputs)
engine.along, engine.rows = along, rows
engine.taken, engine.put, engine.put_ = taken, put, put_
