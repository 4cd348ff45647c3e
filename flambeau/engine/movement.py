"""What moves elements without computing with them: flips, parts replaced, lists of places."""

from __future__ import annotations

import itertools

from ..core import dtype as dt
from ..core.device import META
from ..core.lazily import np
from ..devices.cpu import ramps
from ..devices.cpu.bounds import within
from ..devices.cpu.remember import keep
from . import pointwise as pw
from .access import extremes
from .convert import from_data, raw_array
from .create import filled
from .eager import engine, new_table
from .fresh import empty
from .selection import along, write, writing
from .tensor import Signature, Tensor, signature
from .views import recorded

_flips = new_table()


def flipped(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """A copy with dimensions run backwards: read from the end, with negative strides."""
    sig = x.sig
    if (plan := _flips.get((sig, dims))) is None:
        plan = _flips[sig, dims] = _flip_plan(sig, dims)
    out_sig, run, last, start, _ = plan
    out = empty(out_sig)
    run(out.ptr, x.ptr + start, last)
    return recorded(out, "FlipBackward0", (x,), lambda g: [flipped(g, dims)])


_rolls = new_table()


def rolled(x: Tensor, shift: int, dim: int) -> Tensor:
    """A copy moved along one dimension; what leaves at one end enters at the other."""
    sig = x.sig
    plan = _rolls.get((sig, shift, dim))
    if plan is None:
        plan = keep(_rolls, (sig, shift, dim), _roll_plan(sig, shift, dim))
    out_sig, parts = plan
    out = empty(out_sig)
    for run, last, source, target, _ in parts:
        run(out.ptr + target, x.ptr + source, last)
    return recorded(out, "RollBackward0", (x,), lambda g: [rolled(g, -shift, dim)])


def _roll_plan(sig: Signature, shift: int, dim: int):
    """One copy for each side of where the tensor is cut."""
    out = signature(sig.dtype, sig.shape, None, sig.device)
    n, itemsize = sig.shape[dim], sig.dtype.itemsize
    shift = shift % n if n else 0
    parts = []
    for start, count, to in ((n - shift, shift, 0), (0, n - shift, shift)):
        if count and sig.numel:
            shape = (*sig.shape[:dim], count, *sig.shape[dim + 1:])
            source, target = (signature(sig.dtype, shape, s.strides, s.device) for s in (sig, out))
            plan = pw.plan(engine.identity, (source,), (), target)
            parts.append((plan[2], plan[3], start * sig.strides[dim] * itemsize,
                          to * out.strides[dim] * itemsize, plan))
    return out, parts


def _flip_plan(sig: Signature, dims):
    strides = tuple(-s if d in dims else s for d, s in enumerate(sig.strides))
    start = sum((n - 1) * s for d, (n, s) in enumerate(zip(sig.shape, sig.strides, strict=True))
                if d in dims and n)
    source = signature(sig.dtype, sig.shape, strides, sig.device)
    out = signature(sig.dtype, sig.shape, None, sig.device)
    plan = pw.plan(engine.identity, (source,), (), out)
    return out, plan[2], plan[3], start * sig.dtype.itemsize, plan


def with_view(name: str, x: Tensor, src: Tensor, view) -> Tensor:
    """A copy of x in which what `view` shows holds other values."""
    out = engine.without_grad(engine.clone, x)
    hole = engine.without_grad(view, out)
    if hole.sig.shape != src.sig.shape:
        raise RuntimeError(f"{name}: expected src to have a size equal to the part of self it "
                           f"replaces. src size = {list(src.sig.shape)}, part size = "
                           f"{list(hole.sig.shape)}")
    engine.copy_into(hole, src)
    kind, part = x.sig, src.sig

    def back(g):
        g = engine.contiguous(g)
        rest = with_view(name, g, engine.zeros_of(hole_sig), view)
        return [rest, engine.cast(engine.clone(view(g)), part.dtype)]

    hole_sig = signature(kind.dtype, part.shape, None, kind.device)
    return recorded(out, f"{_camel(name)}Backward0", (x, src), back)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def repeated_places(repeats: Tensor, output_size=None) -> Tensor:
    """0 as often as repeats[0] says, then 1 as often as repeats[1] says, and so on."""
    if repeats.sig.rank != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.sig.dtype not in (dt.int64, dt.int32):
        raise RuntimeError("repeats has to be Long or Int tensor")
    if repeats.sig.device is META:
        raise RuntimeError("repeat_interleave: the shape depends on values that a meta tensor "
                           "lacks")
    counts = raw_array(repeats)
    if counts.size and counts.min() < 0:
        raise RuntimeError("repeats can not be negative")
    found = np.repeat(np.arange(counts.size, dtype=repeats.sig.dtype.numpy), counts)
    if output_size is not None and output_size != found.size:
        raise RuntimeError(f"repeat_interleave: output_size {output_size} does not match the sum "
                           f"of repeats {found.size}")
    return from_data(found)


def triangle(rows: int, columns: int, offset: int, lower: bool) -> Tensor:
    """The places of a triangle of a matrix, row by row."""
    if rows < 0 or columns < 0:
        raise RuntimeError(f"row and col must be non-negative, got {rows} and {columns}")
    start = offset + 1 if lower else offset
    count = _up_to(rows - 1 + start, columns) - _up_to(start - 1, columns)
    count = count if lower else rows * columns - count
    out = empty(signature(dt.int64, (2, count)))
    if count:
        ramps.triangle()(out.ptr, rows, columns, offset, int(lower), count)
    return out


def _up_to(k: int, most: int) -> int:
    """The sum of 1, 2, ... k, none counted as more than `most`."""
    if k <= most:
        return k * (k + 1) // 2 if k > 0 else 0
    return most * (most + 1) // 2 + (k - most) * most


def choices(n: int, r: int, with_replacement: bool) -> Tensor:
    """All ways to choose r of n places, one per row."""
    if r == 2:
        return engine.contiguous(triangle(n, n, 0 if with_replacement else 1, False).t())
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    found = np.array(list(choose(range(n), r)), dtype=np.int64).reshape(-1, r)
    return from_data(found)


_hot = new_table()


def one_hot(x: Tensor, classes: int) -> Tensor:
    """Rows of zeros with a one where x says."""
    plan = _hot.get((x.sig, classes))
    if plan is None:
        out = _first_one_hot(x, classes)
        if x.sig.contiguous and x.sig.kin is not None and type(classes) is int and classes > 0:
            _hot[x.sig, classes] = _hot_plan(x, out)
        return out
    check, count, sig, run, last, one, _ = plan
    if not check(x.ptr, count, 0, classes):
        return _first_one_hot(x, classes)
    out = filled(empty(sig), 0)
    run(out.ptr, one.ptr, x.ptr, last)
    return out


def _hot_plan(x: Tensor, out: Tensor) -> tuple:
    places, one = engine.reshape(x, (*x.sig.shape, 1)), engine.full((), 1, dt.int64)
    run, last, _, program = writing(along(places, x.sig.rank).frame, out.sig, one.sig, None)
    return within(x.sig.dtype.name), x.sig.numel, out.sig, run, last, one, program


def _first_one_hot(x: Tensor, classes: int) -> Tensor:
    if x.sig.dtype is not dt.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got "
                           f"{x.sig.dtype}")
    if x.sig.numel == 0:
        if classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return engine.full((*x.sig.shape, classes), 0, dt.int64)
    least, most = extremes(x)
    if least < 0:
        raise RuntimeError("Class values must be non-negative.")
    if classes == -1:
        classes = most + 1
    elif classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif most >= classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    out = engine.full((*x.sig.shape, classes), 0, dt.int64)
    places = engine.reshape(x, (*x.sig.shape, 1))
    write(out, along(places, x.sig.rank), engine.full((), 1, dt.int64), None)
    return out


engine.one_hot = one_hot
engine.flipped = flipped
engine.rolled = rolled
engine.with_view = with_view
engine.repeated_places = repeated_places
engine.choices = choices
engine.triangle = triangle
