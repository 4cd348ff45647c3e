"""How a kernel walks memory: loop order, coalesced sizes, byte strides, packed for native code."""

from __future__ import annotations

from array import array
from math import prod

from ..core import shape as sh
from ..core.kernel import Operand

#: strides along the lanes that kernels know; any other is "s"
STEPS = {1: "1", 0: "0", -1: "-1"}


#: elements of a row that is too short for lanes along it, and rows that are enough for lanes across
SHORT, MANY_ROWS = 31, 32


class Walk:
    """Coalesced loops over several operands, and the layout array a kernel reads them from."""

    __slots__ = ("address", "dense", "kept", "lanes", "reduced", "sizes", "steps", "strides",
                 "words")

    def __init__(self, kept, reduced, strides, itemsizes, lanes_reduced: bool):
        self.kept, self.reduced, self.strides = len(kept), len(reduced), strides
        self.sizes = (*kept, *reduced)
        self.lanes = "reduced" if lanes_reduced else "kept"
        lane = len(self.sizes) - 1 if lanes_reduced else len(kept) - 1
        self.steps = tuple(step_of(s[lane] if s else 0) for s in strides)
        self.dense = not reduced and len(kept) == 1 and {*self.steps} <= {"0", "1"}
        flat = [s * size for row, size in zip(strides, itemsizes, strict=True) for s in row]
        self.words = array("q", [prod(self.sizes), *self.sizes, *flat])
        self.address = self.words.buffer_info()[0] + 8

    @property
    def whole(self) -> bool:
        """Whether all elements of a contiguous operand, the last, are folded into one place."""
        return (self.sizes[:-1] == (1,) and self.reduced == 1 and self.strides[-1] == (0, 1)
                and not any(map(any, self.strides[:-1])))

    @property
    def last(self) -> int:
        """The kernel's last argument: a count, or where the layout is."""
        return self.sizes[0] if self.dense else self.address


def step_of(stride: int) -> str:
    return STEPS.get(stride, "s")


def pointwise_walk(shape, strides, itemsizes) -> Walk:
    """Loops over every element; the first operand is the one written."""
    order = sh.loop_order(shape, strides)
    shape = tuple(shape[d] for d in order)
    strides = [tuple(s[d] for d in order) for s in strides]
    sizes, merged = sh.coalesce(shape, strides)
    if not sizes:
        sizes, merged = (1,), [(1,)] * len(strides)
    return Walk(sizes, (), merged, itemsizes, False)


def reduction_walk(shape, dims, strides, itemsizes, ordered: bool = False,
                   short: int = 0) -> Walk:
    """Kept loops outside, reduced ones inside; lanes where memory is contiguous.

    `ordered` keeps the reduced dimensions in their own order, for folds that count positions. Rows
    of at most `short` elements, which would leave lanes idle, have lanes across many of them.
    """
    source = strides[-1]
    kept = [d for d in range(len(shape)) if d not in dims]
    inner = list(dims)

    def arranged(axes, sort):
        if sort:
            axes = sorted(axes, key=lambda d: -abs(source[d]))
        sizes, merged = sh.coalesce(tuple(shape[d] for d in axes),
                                    [tuple(s[d] for d in axes) for s in strides])
        return sizes, merged

    kept_sizes, kept_strides = arranged(kept, True)
    inner_sizes, inner_strides = arranged(inner, not ordered)
    at = len(strides) - 1
    along = bool(inner_sizes) and inner_strides[at][-1] == 1
    across = bool(kept_sizes) and kept_strides[at][-1] == 1 and kept_sizes[-1] >= 4
    if along and len(inner_sizes) == 1 and inner_sizes[0] <= short and kept_sizes and (
            kept_sizes[-1] >= MANY_ROWS):
        along, across = False, True
    if not kept_sizes:
        kept_sizes, kept_strides = (1,), [(0,)] * len(strides)
    if not inner_sizes:
        inner_sizes, inner_strides = (1,), [(0,)] * len(strides)
    merged = [k + i for k, i in zip(kept_strides, inner_strides, strict=True)]
    return Walk(kept_sizes, inner_sizes, merged, itemsizes, along or not across)


def operands_of(walk: Walk, dtypes, written: int = 1) -> tuple[Operand, ...]:
    """Kernel operands for a walk: the first `written` of them are results."""
    return tuple(Operand(dtype, step, k < written)
                 for k, (dtype, step) in enumerate(zip(dtypes, walk.steps, strict=True)))
