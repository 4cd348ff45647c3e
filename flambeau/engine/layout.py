"""How a kernel walks memory: loop order, coalesced sizes, byte strides, packed for native code."""

from __future__ import annotations

from array import array
from math import prod

from ..core import shape as sh
from ..core.kernel import Operand

#: strides along the lanes that kernels know; any other is "s"
STEPS = {1: "1", 0: "0", -1: "-1"}
DENSE = frozenset(("0", "1"))

#: elements of a row that is too short for lanes along it, and rows that are enough for lanes across
SHORT, MANY_ROWS = 31, 32


class Walk:
    """Coalesced loops over several operands, and the layout array a kernel reads them from."""

    __slots__ = ("address", "dense", "kept", "lanes", "reduced", "sizes", "steps", "strides",
                 "words")

    def __init__(self, kept, reduced, strides, itemsizes, lanes_reduced: bool):
        self.kept, self.reduced, self.strides = len(kept), len(reduced), strides
        self.sizes = sizes = kept + reduced
        self.lanes = "reduced" if lanes_reduced else "kept"
        lane = len(sizes if lanes_reduced else kept) - 1
        words, steps = [prod(sizes), *sizes], []
        for row, itemsize in zip(strides, itemsizes):
            steps.append(STEPS.get(row[lane], "s"))
            for stride in row:
                words.append(stride * itemsize)
        self.steps = tuple(steps)
        self.dense = not reduced and len(kept) == 1 and DENSE.issuperset(steps)
        self.words = array("q", words)
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


def pointwise_walk(shape, strides, itemsizes, in_order: bool = False) -> Walk:
    """Loops over every element; the first operand is the one written.

    `in_order` says that all operands are known to be walked forwards as they are.
    """
    if not in_order:
        order = sh.loop_order(shape, strides)
        shape = [shape[d] for d in order]
        strides = [[s[d] for d in order] for s in strides]
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
    source, count = strides[-1], len(strides)
    kept = sorted([d for d in range(len(shape)) if d not in dims], key=lambda d: -abs(source[d]))
    inner = dims if ordered or len(dims) == 1 else sorted(dims, key=lambda d: -abs(source[d]))
    kept_sizes, kept_strides = _merged(shape, strides, kept)
    inner_sizes, inner_strides = _merged(shape, strides, inner)
    along = bool(inner_sizes) and inner_strides[-1][-1] == 1
    across = bool(kept_sizes) and kept_strides[-1][-1] == 1 and kept_sizes[-1] >= 4
    if along and len(inner_sizes) == 1 and inner_sizes[0] <= short and kept_sizes and (
            kept_sizes[-1] >= MANY_ROWS):
        along, across = False, True
    if not kept_sizes:
        kept_sizes, kept_strides = (1,), [(0,)] * count
    if not inner_sizes:
        inner_sizes, inner_strides = (1,), [(0,)] * count
    merged = [k + i for k, i in zip(kept_strides, inner_strides)]
    return Walk(kept_sizes, inner_sizes, merged, itemsizes, along or not across)


def _merged(shape, strides, axes) -> tuple[sh.Ints, list[sh.Ints]]:
    """Sizes and strides of some dimensions, merged where they can be."""
    return sh.coalesce([shape[d] for d in axes], [[s[d] for d in axes] for s in strides])


def operands_of(walk: Walk, dtypes, written: int = 1) -> tuple[Operand, ...]:
    """Kernel operands for a walk: the first `written` of them are results."""
    return tuple(Operand(dtype, step, k < written)
                 for k, (dtype, step) in enumerate(zip(dtypes, walk.steps, strict=True)))
