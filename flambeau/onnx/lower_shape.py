"""Shapes, indexing, joining and splitting in ONNX."""

from __future__ import annotations

import numpy as np

import flambeau
from flambeau.export.graph import Extent, Value, example

from .build import Builder, UnsupportedOperatorError
from .registry import Call, axes_of, axis_of, lowers, several

END = (1 << 63) - 1


@lowers("view", "reshape")
def reshape(b: Builder, call: Call, x, shape):
    if isinstance(shape, flambeau.dtype):
        raise UnsupportedOperatorError("view(dtype) reads the same bytes as other numbers, for "
                                       "which ONNX has no words")
    return b.reshape(x, call.out.shape)


@lowers("flatten", "unflatten", "ravel", "view_as", "reshape_as")
def flatten(b: Builder, call: Call, x, *rest):
    return b.reshape(x, call.out.shape)


@lowers("squeeze")
def squeeze(b: Builder, call: Call, x, dim):
    axes = range(x.rank) if dim is None else axes_of(dim, x.rank) or []
    return b.squeeze(x, [d for d in axes if x.rank and x.shape[d] == 1])


@lowers("unsqueeze")
def unsqueeze(b: Builder, call: Call, x, dim):
    return b.unsqueeze(x, [axis_of(dim, x.rank + 1)])


@lowers("transpose")
def transpose(b: Builder, call: Call, x, one, other):
    if not x.rank:
        return b.name(x)
    order = list(range(x.rank))
    one, other = axis_of(one, x.rank), axis_of(other, x.rank)
    order[one], order[other] = other, one
    return b.transpose(x, order)


@lowers("t", "T_", "mT", "adjoint", "H")
def swapped(b: Builder, call: Call, x):
    order = list(range(x.rank))
    if call.key == "T_":
        order.reverse()
    elif x.rank > 1:
        order[-2:] = order[-1], order[-2]
    return b.transpose(x, order)


@lowers("permute")
def permute(b: Builder, call: Call, x, dims):
    return b.transpose(x, [axis_of(d, x.rank) for d in dims])


@lowers("expand", "expand_as", "broadcast_to")
def expand(b: Builder, call: Call, x, size):
    return b.op("Expand", x, b.ints(list(call.out.shape)))


@lowers("contiguous", "detach", "alias", "positive")
def same(b: Builder, call: Call, x, *rest):
    return b.name(x)


@lowers("select")
def select(b: Builder, call: Call, x, dim, index):
    index = b.name(index) if isinstance(index, Value) else b.scalar(index)
    return b.op("Gather", x, index, axis=axis_of(dim, x.rank))


@lowers("slice")
def slice_(b: Builder, call: Call, x, dim, start, end, step):
    return b.slice(x, axis_of(dim, x.rank), 0 if start is None else start,
                   END if end is None else end, step)


@lowers("narrow")
def narrow(b: Builder, call: Call, x, dim, start, length):
    axis = axis_of(dim, x.rank)
    if isinstance(start, Value):
        first = b.op("Reshape", b.cast(start, flambeau.int64), b.ints([1]))
        return b.op("Slice", x, first, b.op("Add", first, b.ints([length])), b.ints([axis]))
    last = b.op("Add", b.ints([start]), b.ints([length])) if isinstance(
        start, Extent) or isinstance(length, Extent) else b.ints([start + length])
    return b.op("Slice", x, b.ints([start]), last, b.ints([axis]))


@lowers("diagonal")
def diagonal(b: Builder, call: Call, x, offset, dim1, dim2):
    one, other = axis_of(dim1, x.rank), axis_of(dim2, x.rank)
    rest = [d for d in range(x.rank) if d not in (one, other)]
    moved = b.transpose(x, [one, other, *rest])
    count = example(call.out.shape[-1])
    rows = np.arange(count) + max(0, -offset)
    columns = np.arange(count) + max(0, offset)
    found = b.op("GatherND", moved, b.const(np.stack([rows, columns], 1).astype(np.int64)))
    return b.transpose(found, [*range(1, len(rest) + 1), 0])


@lowers("unfold")
def unfold(b: Builder, call: Call, x, dimension, size, step):
    axis = axis_of(dimension, x.rank)
    count = (example(x.shape[axis]) - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    found = b.op("Gather", x, b.const(places.astype(np.int64)), axis=axis)
    order = [d for d in range(x.rank + 1) if d != axis + 1]
    return b.transpose(found, [*order, axis + 1])


# -- joining and splitting -----------------------------------------------------------------------


@lowers("cat")
def cat(b: Builder, call: Call, tensors, dim):
    kind = call.out.dtype
    parts = [b.cast(t, kind) for t in tensors if not (t.rank == 1 and t.shape[0] == 0)]
    return b.op("Concat", *parts, axis=axis_of(dim, call.out.rank))


@lowers("stack")
def stack(b: Builder, call: Call, tensors, dim):
    axis = axis_of(dim, call.out.rank)
    parts = [b.unsqueeze(b.cast(t, call.out.dtype), [axis]) for t in tensors]
    return b.op("Concat", *parts, axis=axis)


def _cut(b: Builder, call: Call, x, dim: int):
    axis = axis_of(dim, x.rank)
    sizes = [out.shape[axis] for out in call.outs]
    if len(sizes) == 1:
        return [b.name(x)]
    return b.op("Split", x, b.ints(sizes), results=len(sizes), axis=axis)


@lowers("chunk", "split_with_sizes")
def chunk(b: Builder, call: Call, x, chunks, dim):
    return _cut(b, call, x, dim)


@lowers("split")
def split(b: Builder, call: Call, x, size, dim, *rest):
    return _cut(b, call, x, dim)


@lowers("tensor_split")
def tensor_split(b: Builder, call: Call, x, sections, dim, *rest):
    return _cut(b, call, x, dim)


@lowers("unbind")
def unbind(b: Builder, call: Call, x, dim):
    axis = axis_of(dim, x.rank)
    return [b.op("Gather", x, b.const(k, flambeau.int64), axis=axis)
            for k in range(len(call.outs))]


@lowers("repeat", "tile", raw=True)
def repeat(b: Builder, call: Call, x, *repeats, **named):
    repeats = tuple(next(iter(named.values()), repeats))
    if len(repeats) == 1 and isinstance(repeats[0], (tuple, list)):
        repeats = tuple(repeats[0])
    counts = [1] * (x.rank - len(repeats)) + list(repeats)
    if len(counts) > x.rank:
        x = b.unsqueeze(x, list(range(len(counts) - x.rank)))
    return b.op("Tile", x, b.ints(counts))


@lowers("flip")
def flip(b: Builder, call: Call, x, dims):
    for d in axes_of(dims, x.rank) or []:
        x = b.slice(x, d, -1, -END, -1)
    return b.name(x)


@lowers("roll")
def roll(b: Builder, call: Call, x, shifts, dims):
    name, shape = b.name(x), list(x.shape)
    shifts = several(shifts, 1)
    if dims is None or dims == ():
        name, axes, shape = b.op("Reshape", x, b.ints([-1])), [0], [int(np.prod(x.sizes))]
    else:
        axes = [axis_of(d, x.rank) for d in several(dims, 1)]
    for shift, axis in zip(shifts, axes, strict=True):
        n = shape[axis]
        if isinstance(n, int):
            shift = shift % n
        if shift:
            name = b.op("Concat", b.slice(name, axis, -shift, END), b.slice(name, axis, 0, -shift),
                        axis=axis)
    return name if len(shape) == x.rank and dims not in (None, ()) else b.reshape(name, x.shape)


@lowers("tril", "triu")
def trilu(b: Builder, call: Call, x, diagonal):
    if x.dtype is flambeau.bool:
        name = b.op("Trilu", b.cast(x, flambeau.int64), b.scalar(diagonal),
                    upper=int(call.key == "triu"))
        return b.op("Cast", name, to=9)
    return b.op("Trilu", x, b.scalar(diagonal), upper=int(call.key == "triu"))


@lowers("constant_pad_nd")
def constant_pad(b: Builder, call: Call, x, pad, value):
    return padded(b, x, pad, "constant", value)


@lowers("nn.functional.pad")
def pad(b: Builder, call: Call, x, pad, mode, value):
    return padded(b, x, pad, mode, value)


def padded(b: Builder, x: Value, pad, mode: str, value) -> str:
    """Sizes come in pairs, the last dimension first."""
    count = len(pad) // 2
    begins, ends = [0] * x.rank, [0] * x.rank
    for k in range(count):
        begins[x.rank - 1 - k], ends[x.rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    if mode == "circular":
        return _wrapped(b, x, begins, ends)
    kinds = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if mode == "constant" and x.dtype is flambeau.bool:
        inner = b.op("Pad", b.cast(x, flambeau.int32), b.ints([*begins, *ends]),
                     b.const(int(value or 0), flambeau.int32))
        return b.op("Cast", inner, to=9)
    number = b.const(value or 0, x.dtype) if mode == "constant" else None
    return b.op("Pad", x, b.ints([*begins, *ends]), number, mode=kinds[mode])


def _wrapped(b: Builder, x: Value, begins, ends) -> str:
    name = b.name(x)
    for axis, (before, after) in enumerate(zip(begins, ends, strict=True)):
        parts = [name]
        if before:
            parts.insert(0, b.slice(name, axis, -before, END))
        if after:
            parts.append(b.slice(name, axis, 0, after))
        if len(parts) > 1:
            name = b.op("Concat", *parts, axis=axis)
    return name


@lowers("nn.functional.one_hot")
def one_hot(b: Builder, call: Call, x, classes):
    depth = example(call.out.shape[-1]) if classes == -1 else classes
    return b.op("OneHot", x, b.const(depth, flambeau.int64), b.const(np.array([0, 1], np.int64)))


# -- new tensors ---------------------------------------------------------------------------------


def _filled(b: Builder, call: Call, value) -> str:
    return b.op("Expand", b.cast(value, call.out.dtype), b.ints(list(call.out.shape)))


@lowers("zeros", "new_zeros", "zeros_like", "empty_like", raw=True)
def zeros(b: Builder, call: Call, *args, **named):
    return _filled(b, call, 0)


@lowers("ones", "new_ones", "ones_like", raw=True)
def ones(b: Builder, call: Call, *args, **named):
    return _filled(b, call, 1)


@lowers("full", "full_like", raw=True)
def full(b: Builder, call: Call, size, fill_value, **named):
    return _filled(b, call, fill_value)


@lowers("new_full", raw=True)
def new_full(b: Builder, call: Call, x, size, fill_value, **named):
    return _filled(b, call, fill_value)


@lowers("type_as", raw=True)
def type_as(b: Builder, call: Call, x, other):
    return b.cast(x, other.dtype)


@lowers("copy_", raw=True)
def copy(b: Builder, call: Call, x, source, *rest):
    return b.op("Expand", b.cast(source, x.dtype), b.ints(list(x.shape)))


@lowers("arange", raw=True)
def arange(b: Builder, call: Call, *ends, dtype=None, start=0, end=None, step=1, **named):
    if ends:
        start, end, step = (0, ends[0], step) if len(ends) == 1 else (*ends, step)[:3]
    kind = call.out.dtype
    return b.op("Range", *[b.cast(b.scalar(n) if isinstance(n, Extent) else n, kind)
                           for n in (start, end, step)])


@lowers("eye", "linspace", "tril_indices", "triu_indices", raw=True)
def made_now(b: Builder, call: Call, *args, **named):
    """What these make is a constant, so their sizes may not vary."""
    if any(isinstance(a, Extent) for a in (*args, *named.values())):
        raise UnsupportedOperatorError(f"{call.key} of a size that varies has no lowering")
    made = getattr(flambeau, call.key)(*args, **named)
    return b.const(made.numpy())


@lowers("meshgrid", raw=True)
def meshgrid(b: Builder, call: Call, *tensors, indexing="ij"):
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else (
        list(tensors))
    shape = b.ints(list(call.out.shape))
    found = []
    for k, t in enumerate(given):
        axis = 1 - k if indexing == "xy" and k < 2 else k
        others = [d for d in range(len(given)) if d != axis]
        found.append(b.op("Expand", b.unsqueeze(t, others) if others else b.name(t), shape))
    return found
