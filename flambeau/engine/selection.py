"""Reading and writing the elements of a tensor that indices select.

A Selection says, for each place of a loop, which element of a tensor is meant: along some
dimensions the loop itself steps, along others an index says where. `taken` takes those elements,
`put` gives a copy of the tensor with them replaced or added to, `put_` does so in place. Each is
the other's gradient. Indices are checked before a selection is made.
"""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core import expr as ex
from ..core import shape as sh
from ..core.device import META
from ..core.kernel import Store
from .access import Part, Program
from .eager import changed, check_writable, engine, new_table, overlaps
from .inplace import replace_history
from .modes import modes
from .node import edge_of, new_node
from .tensor import Signature, Tensor, empty, signature
from .views import Step, recorded


class Selection:
    """Which elements of a tensor are meant, at each place of a loop.

    loops: sizes of the loop; indices: integer tensors; steps: their strides over the loops;
    dims: which dimension of the tensor each index is for; free: for each loop, the dimension of
    the tensor it steps through, or None.
    """

    __slots__ = ("dims", "free", "indices", "key", "loops", "steps", "wrap")

    def __init__(self, loops, indices, steps, dims, free, wrap: bool = False):
        self.loops, self.indices, self.steps = tuple(loops), indices, steps
        self.dims, self.free, self.wrap = tuple(dims), tuple(free), wrap
        self.key = (self.loops, tuple(i.sig for i in indices), tuple(steps), self.dims, self.free,
                    wrap)

    def parts(self, sig: Signature, written: bool) -> list[Part]:
        """The operands of a kernel: the tensor, and the indices."""
        strides = [0 if d is None else sig.strides[d] for d in self.free]
        own = [sig.strides[d] for d in self.dims]
        return [Part(sig.dtype, strides, own, written),
                *(Part(i.sig.dtype, s) for i, s in zip(self.indices, self.steps, strict=True))]

    def coordinates(self, first: int):
        """Where the tensor is read or written, with indices from operand number `first` on."""
        found = []
        for k, index in enumerate(self.indices):
            at = ex.cast(ex.input(first + k, index.sig.dtype), dt.int64)
            found.append(ex.where(at < 0, at + ex.param(k, dt.int64), at) if self.wrap else at)
        return tuple(found)

    def params(self) -> tuple:
        return (dt.int64,) * len(self.indices) if self.wrap else ()

    def numbers(self, sig: Signature) -> list[int]:
        return [sig.shape[d] for d in self.dims] if self.wrap else []


def along(index: Tensor, dim: int, wrap: bool = False) -> Selection:
    """As gather and scatter do: an index for every place, along one dimension."""
    rank = index.sig.rank
    free = [None if d == dim else d for d in range(rank)]
    return Selection(index.sig.shape, [index], [index.sig.strides], [dim] if rank else [], free,
                     wrap)


def rows(index: Tensor, shape, dim: int) -> Selection:
    """As index_select does: a vector of places along one dimension."""
    loops = (*shape[:dim], index.sig.numel, *shape[dim + 1:])
    step = index.sig.strides[0] if index.sig.rank else 0
    return Selection(loops, [index], [tuple(step if d == dim else 0 for d in range(len(loops)))],
                     [dim], [None if d == dim else d for d in range(len(loops))])


_programs = new_table()
_COMBINE_BOOL = {"add": "amax", "mul": "amin"}


def read(x: Tensor, chosen: Selection) -> Tensor:
    """The selected elements."""
    out = empty(signature(x.sig.dtype, chosen.loops, None, x.sig.device))
    if out.sig.numel and x.sig.device is not META:
        key = ("read", x.sig, chosen.key)
        program = _programs.get(key)
        if program is None:
            parts = [Part(out.sig.dtype, out.sig.strides, (), True), *chosen.parts(x.sig, False)]
            value = ex.load(1, chosen.coordinates(2), x.sig.dtype.compute)
            program = _programs[key] = Program(chosen.loops, parts, [Store(0, value)],
                                               chosen.params())
        program.run(out.ptr, x.ptr, *[i.ptr for i in chosen.indices],
                    *chosen.numbers(x.sig), program.last)
    return out


def write(x: Tensor, chosen: Selection, value: Tensor, combine: str | None) -> None:
    """Put values at the selected places, unrecorded; they broadcast to the loops."""
    if not prod(chosen.loops) or x.sig.device is META:
        return
    if overlaps(value, x) or value.mem is x.mem:
        value = engine.without_grad(engine.clone, value)
    if x.sig.dtype is dt.bool_:
        combine = _COMBINE_BOOL.get(combine, combine)
    key = ("write", x.sig, value.sig, chosen.key, combine)
    program = _programs.get(key)
    if program is None:
        spread = sh.expand_strides(value.sig.shape, value.sig.strides, chosen.loops)
        target, *indices = chosen.parts(x.sig, True)
        given = ex.cast(ex.input(1, value.sig.dtype.compute), x.sig.dtype.compute)
        store = Store(0, given, chosen.coordinates(2), combine)
        program = _programs[key] = Program(
            chosen.loops, [target, Part(value.sig.dtype, spread), *indices], [store],
            chosen.params())
    program.run(x.ptr, value.ptr, *[i.ptr for i in chosen.indices], *chosen.numbers(x.sig),
                program.last)


# -- recorded -------------------------------------------------------------------------------------


def taken(x: Tensor, chosen: Selection, label: str) -> Tensor:
    """`read`, with its gradient: a sum over all that read from one place."""
    out = read(x, chosen)
    sig = x.sig
    return recorded(out, label, (x,), lambda g: [
        put(engine.zeros_of(sig), chosen, g, "add", label)], chosen.indices)


def put(x: Tensor, chosen: Selection, value: Tensor, combine: str | None, label: str) -> Tensor:
    """A copy of x with values at the selected places: replaced, or added to what is there."""
    out = engine.without_grad(engine.clone, x)
    write(out, chosen, value, combine)
    return recorded(out, label, (x, value), _put_back(x, chosen, value, combine, label),
                    chosen.indices)


def put_(x: Tensor, chosen: Selection, value: Tensor, combine: str | None, name: str,
         label: str) -> Tensor:
    """The same in place."""
    return change(x, name, label, lambda: write(x, chosen, value, combine), (value,),
                  _put_back(x, chosen, value, combine, label), chosen.indices)


def _put_back(x: Tensor, chosen: Selection, value: Tensor, combine, label: str):
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
