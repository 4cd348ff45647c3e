"""x[...] and its kin in ONNX: what is read from, and written to, places that are told."""

from __future__ import annotations

import numpy as np

import flambeau
from flambeau.export.graph import Extent, Value, example

from .build import Builder
from .registry import Call, axis_of, lowers

END = (1 << 63) - 1


@lowers("getitem", raw=True)
def getitem(b: Builder, call: Call, x, index):
    return Selection(b, x, index).read()


@lowers("setitem", raw=True)
def setitem(b: Builder, call: Call, x, index, value):
    """The elements that are asked for are found by their places, and written there."""
    count = int(np.prod([example(n) for n in x.shape]))
    if any(isinstance(n, Extent) for n in x.shape):
        size = b.op("Size", x)
        places = b.op("Range", b.const(0, flambeau.int64), size, b.const(1, flambeau.int64))
        places = b.op("Reshape", places, b.op("Shape", x))
    else:
        places = b.const(np.arange(count, dtype=np.int64).reshape([example(n) for n in x.shape]))
    numbered = Value("places", flambeau.int64, x.shape)
    b.declare(numbered, places)
    chosen = Selection(b, numbered, index).read()
    value = b.op("Expand", b.cast(value, x.dtype), b.op("Shape", chosen))
    flat = b.op("Reshape", x, b.ints([-1]))
    where = b.op("Reshape", chosen, b.ints([-1]))
    changed = b.op("ScatterElements", flat, where, b.op("Reshape", value, b.ints([-1])), axis=0)
    return b.op("Reshape", changed, b.op("Shape", x))


class Selection:
    """x[index]: slices and integers first, then tensors of integers or a mask."""

    def __init__(self, b: Builder, x: Value, index):
        self.b, self.x = b, x
        self.index = list(index) if isinstance(index, tuple) else [index]

    def read(self) -> str:
        b = self.b
        self.name, self.shape = b.name(self.x), list(self.x.shape)
        tensors: dict[int, str] = {}
        axis = 0
        taken = sum(self._dims(i) for i in self.index)
        adjacent = True
        for item in self.index:
            if item is Ellipsis:
                axis += self.x.rank - taken
            elif item is None:
                self.name = b.unsqueeze(self.name, [axis])
                self.shape.insert(axis, 1)
                axis += 1
            elif isinstance(item, slice):
                self._slice(item, axis)
                axis += 1
            elif isinstance(item, (int, Extent)) and not isinstance(item, bool) and (
                    not self._has_tensors()):
                self.name = b.op("Gather", self.name, b.scalar(item), axis=axis)
                del self.shape[axis]
            else:
                if tensors and axis - 1 not in tensors:
                    adjacent = False
                axis = self._tensor(item, axis, tensors)
        return self._gathered(tensors, adjacent) if tensors else self.name

    def _has_tensors(self) -> bool:
        return any(isinstance(i, (Value, list)) for i in self.index)

    def _dims(self, item) -> int:
        if item is None or item is Ellipsis:
            return 0
        return item.rank if isinstance(item, Value) and item.dtype is flambeau.bool else 1

    def _slice(self, item: slice, axis: int) -> None:
        if item == slice(None):
            return
        start, end = item.start, item.stop
        step = 1 if item.step is None else item.step
        self.name = self.b.op("Slice", self.name, self.b.ints([0 if start is None else start]),
                              self.b.ints([END if end is None else end]), self.b.ints([axis]),
                              self.b.ints([step]))

    def _tensor(self, item, axis: int, tensors: dict[int, str]) -> int:
        b = self.b
        if isinstance(item, Value) and item.dtype is flambeau.bool:
            found = b.op("NonZero", item)  # (rank of the mask, how many)
            for d in range(item.rank):
                tensors[axis + d] = b.op("Gather", found, b.const(d, flambeau.int64), axis=0)
            return axis + item.rank
        if isinstance(item, Value):
            tensors[axis] = b.cast(item, flambeau.int64)
        elif isinstance(item, Extent):
            tensors[axis] = b.scalar(item)
        else:
            tensors[axis] = b.const(np.array(item, np.int64))
        return axis + 1

    def _gathered(self, tensors: dict[int, str], adjacent: bool) -> str:
        b, axes = self.b, sorted(tensors)
        if len(axes) == 1:
            return b.op("Gather", self.name, tensors[axes[0]], axis=axes[0])
        rank = len(self.shape)
        rest = [d for d in range(rank) if d not in tensors]
        moved = b.transpose(self.name, [*axes, *rest])
        wide = tensors[axes[0]]
        for d in axes[1:]:
            wide = b.op("Add", wide, tensors[d])
        shape = b.op("Shape", wide)
        sizes = b.op("Shape", moved)
        columns = []
        for k, d in enumerate(axes):  # negative places count from the end
            size = b.op("Gather", sizes, b.const(k, flambeau.int64))
            place = b.op("Mod", tensors[d], size)
            columns.append(b.unsqueeze(b.op("Expand", place, shape), [-1]))
        found = b.op("GatherND", moved, b.op("Concat", *columns, axis=-1))
        lead = self._broadcast_rank()
        if not adjacent or axes[0] == 0:
            return found
        order = [*range(lead, lead + axes[0]), *range(lead),
                 *range(lead + axes[0], lead + len(rest))]
        return b.transpose(found, order)

    def _broadcast_rank(self) -> int:
        ranks = []
        for item in self.index:
            if isinstance(item, Value):
                ranks.append(1 if item.dtype is flambeau.bool else item.rank)
            elif isinstance(item, list):
                ranks.append(np.ndim(item))
        return max(ranks)


@lowers("gather")
def gather(b: Builder, call: Call, x, dim, index, *rest):
    return b.op("GatherElements", x, index, axis=axis_of(dim, x.rank))


@lowers("index_select")
def index_select(b: Builder, call: Call, x, dim, index):
    if not index.rank:
        index = b.unsqueeze(index, [0])
    return b.op("Gather", x, index, axis=axis_of(dim, x.rank))


@lowers("take_along_dim")
def take_along_dim(b: Builder, call: Call, x, indices, dim):
    if dim is None:
        return b.op("Gather", b.op("Reshape", x, b.ints([-1])),
                    b.op("Reshape", indices, b.ints([-1])), axis=0)
    axis = axis_of(dim, x.rank)
    shape = [*call.out.shape]
    wide = b.op("Expand", indices, b.ints(shape))
    shape[axis] = x.shape[axis]
    return b.op("GatherElements", b.op("Expand", x, b.ints(shape)), wide, axis=axis)


@lowers("take")
def take(b: Builder, call: Call, x, index):
    return b.op("Gather", b.op("Reshape", x, b.ints([-1])), index, axis=0)


def _rows(b: Builder, x: Value, axis: int, index: Value, shape) -> str:
    """A vector of places along an axis as one place for each element."""
    name = b.cast(index, flambeau.int64)
    if not index.rank:
        name = b.unsqueeze(name, [0])
    others = [d for d in range(x.rank) if d != axis]
    return b.op("Expand", b.unsqueeze(name, others) if others else name, shape)


@lowers("index_fill", "index_fill_")
def index_fill(b: Builder, call: Call, x, dim, index, value):
    axis = axis_of(dim, x.rank)
    shape = list(x.shape)
    shape[axis] = index.shape[0] if index.rank else 1
    where = _rows(b, x, axis, index, b.ints(shape))
    source = b.op("Expand", b.cast(value, x.dtype), b.ints(shape))
    return b.op("ScatterElements", x, where, source, axis=axis)


@lowers("index_add", "index_add_", raw=True)
def index_add(b: Builder, call: Call, x, dim, index, source, *, alpha=1):
    axis, name = axis_of(dim, x.rank), b.cast(source, x.dtype)
    if alpha != 1:
        name = b.op("Mul", name, b.const(alpha, x.dtype))
    where = _rows(b, x, axis, index, b.op("Shape", source))
    return b.op("ScatterElements", x, where, name, axis=axis, reduction="add")


@lowers("index_copy", "index_copy_", raw=True)
def index_copy(b: Builder, call: Call, x, dim, index, source):
    axis = axis_of(dim, x.rank)
    where = _rows(b, x, axis, index, b.op("Shape", source))
    return b.op("ScatterElements", x, where, source, axis=axis)


@lowers("scatter", "scatter_")
def scatter(b: Builder, call: Call, x, dim, index, src, value, reduce):
    kinds = {None: None, "add": "add", "multiply": "mul"}
    source = src if src is not None else value
    if not isinstance(source, Value):
        source = b.op("Expand", b.const(source, x.dtype), b.ints(list(index.shape)))
    return b.op("ScatterElements", x, index, source, axis=axis_of(dim, x.rank),
                reduction=kinds[reduce])


@lowers("scatter_add", "scatter_add_", raw=True)
def scatter_add(b: Builder, call: Call, x, dim, index, src):
    return b.op("ScatterElements", x, index, src, axis=axis_of(dim, x.rank), reduction="add")


@lowers("nonzero")
def nonzero(b: Builder, call: Call, x, as_tuple):
    found = b.op("NonZero", x)
    if not as_tuple:
        return b.transpose(found, [1, 0])
    return [b.op("Gather", found, b.const(d, flambeau.int64), axis=0) for d in range(x.rank)]


@lowers("masked_select")
def masked_select(b: Builder, call: Call, x, mask):
    shape = b.op("Shape", b.op("Where", mask, x, x))
    x, mask = b.op("Expand", x, shape), b.op("Expand", mask, shape)
    return b.op("Compress", x, b.op("Reshape", mask, b.ints([-1])))
