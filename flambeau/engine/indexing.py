"""x[...] and x[...] = value: integers, slices, None, Ellipsis, masks, integer tensors and lists.

What integers, slices, None and Ellipsis ask for is one view, planned once. What tensors ask for is
then read from, or written to, that view.
"""

from __future__ import annotations

from operator import attrgetter, is_
from typing import Any

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import META
from ..core.lazily import np
from ..devices.cpu.bounds import within
from ..ops.declare import View
from ..ops.shape import bounds
from . import copying, inplace, masking
from . import pointwise as pw
from .access import ASKED, check_bounds
from .convert import from_data, from_lists, from_numpy, raw_array
from .create import filled
from .eager import engine, new_table
from .fresh import empty
from .interception import PLAIN, intercepted, tracers
from .modes import modes
from .node import fronts
from .selection import Frame, Selection, put_, reading, taken, taken_again, writing
from .storage import checkers
from .tensor import Tensor, signature
from .views import take, view_plan
from .writing import changed, check_writable

_plans = new_table()   # (signature, (integer,)) -> plan, which native code looks up
_signature = attrgetter("sig")
_basic = new_table()   # (signature, index made hashable) -> plan


# -- views ----------------------------------------------------------------------------------------


def _walk(x, key):
    """Shape, strides and offset of what a tuple of integers, slices, None and Ellipsis asks for."""
    taken = len(key) - key.count(None) - key.count(Ellipsis)
    if taken > x.rank:
        raise _too_many(x)
    shape, strides, offset, d = [], [], 0, 0
    sizes, steps = tuple(x.shape), x.strides
    for k in key:
        if k is None:
            shape.append(1)
            strides.append(sizes[d] * steps[d] if d < x.rank else 1)
        elif k is Ellipsis:
            skipped = x.rank - taken
            shape.extend(sizes[d:d + skipped])
            strides.extend(steps[d:d + skipped])
            d, taken = d + skipped, x.rank
        elif type(k) is int:
            n = sizes[d]
            if not -n <= k < n:
                raise IndexError(f"index {k} is out of bounds for dimension {d} with size {n}; the "
                                 f"tensor has shape {tuple(x.shape)}")
            offset += k % n * steps[d]
            d += 1
        else:
            start, count = bounds(k[1], k[2], k[3], sizes[d])
            shape.append(count)
            strides.append(steps[d] * k[3])
            offset += start * steps[d] if count else 0
            d += 1
    return (*shape, *sizes[d:]), (*strides, *steps[d:]), offset


def _too_many(x) -> IndexError:
    if not x.rank:
        return IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python to "
                          "convert a 0-dim tensor to a number")
    return IndexError(f"too many indices for tensor of dimension {x.rank}")


_NAMES = {int: "SelectBackward0", tuple: "SliceBackward0", type(None): "UnsqueezeBackward0",
          type(Ellipsis): "AliasBackward0"}


class _Basic(View):
    """The view of basic indexing; its grad_fn is called after the last thing done."""

    def __init__(self):
        super().__init__(_walk, "basic_index", method=False, function_form=False,
                         backward=lambda bound: _NAMES[type(bound["key"][-1])]
                         if bound["key"] else "AliasBackward0")
        self.engine = engine


basic = _Basic()


def _run_basic(x, key):
    plan = _basic.get((x.sig, key))
    if plan is None:
        plan = _basic[x.sig, key] = view_plan(basic, x.sig, {"key": key})
    return take(x, plan)


basic.run = _run_basic


_INTEGERS = {int}
#: stands for dimensions that a mask covers besides its first
MISSING = object()


def getitem(x: Tensor, index):
    """x[index]"""
    if type(index) is int:
        return _missed(x, index)
    if type(index) is list and set(map(type, index)) == _INTEGERS and x.sig.rank:
        index = from_lists(index, None)
    if x.sig.tag is not None:
        found = intercepted(getitem_op, (x, index), {})
        if found is not None:
            return found[0]
    if type(index) is tuple and len(index) > 1 and type(index[0]) is slice and (
            type(index[-1]) in _LAST) and not (
            tracers or checkers or (x.node is not None and modes.grad)):
        found = _from_each(x, index)
        if found is not None:
            return found
    key = plain_key(index)
    if key is not None:
        plan = _basic.get((x.sig, key))
        return _run_basic(x, key) if plan is None else take(x, plan)
    if x.sig.tag is None and _any_tagged((index,)):
        answered = intercepted(getitem_op, (x, index), {})
        if answered is not None:
            return answered[0]
    found = _picked(x, (index,) if isinstance(index, Tensor) else index)
    if found is not None:
        return found
    if isinstance(index, Tensor) and index.sig.rank and x.sig.rank and index.sig.dtype is dt.int64:
        chosen = _along_first(x.sig, index)
        _picks[x.sig, index.sig] = _pick(x.sig, chosen)
        return taken(x, chosen, "IndexBackward0")
    if type(index) is Tensor and (x.node is None or not modes.grad) and (
            masking.covers(index.sig, x.sig)):
        return masking.chosen(x, index)
    if isinstance(index, Tensor) and index.sig.dtype is dt.bool_ and index.sig.rank > 1 and (
            index.sig.shape == x.sig.shape and x.sig.contiguous and x.sig.device is not META):
        x, index = engine.reshape(x, (-1,)), engine.reshape(index, (-1,))
    key, tensors = parsed(x, index)
    if tensors is None:
        return _run_basic(x, key)
    view = x if key == _WHOLE else _run_basic(x, key)
    chosen = selection(view, tensors)
    if type(index) is tuple and len(index) == len(chosen.indices) and all(
            map(is_, index, chosen.indices)):
        _picks[x.sig, *chosen.frame.kinds] = _pick(x.sig, chosen)
    return taken(view, chosen, "IndexBackward0")


_LAST = frozenset((list, Tensor))


def _from_each(x: Tensor, index: tuple):
    """x[:, index] or x[:, :, index] of integers, outside the graph; None for all else."""
    *whole, last = index
    for item in whole:
        if type(item) is not slice or item.start is not None or item.stop is not None or (
                item.step is not None):
            return None
    if type(last) is list:
        if set(map(type, last)) != _INTEGERS:
            return None
        last = from_lists(last, None)
    if last is None or last.sig.dtype not in ASKED or not last.sig.rank or (
            len(index) > x.sig.rank or x.sig.tag is not None or last.sig.tag is not None):
        return None
    key = x.sig, len(whole), last.sig
    plan = _picks.get(key)
    if plan is None:
        chosen = selection(x, [*[None] * len(whole), last, *[None] * (x.sig.rank - len(index))])
        _picks[key] = _pick(x.sig, chosen)
        return taken(x, chosen, "IndexBackward0")
    _, ((check, count, n),), sig, run, at, numbers = plan
    if not check(last.ptr, count, -n, n):
        return None
    out = empty(sig)
    run(out.ptr, x.ptr, last.ptr, *numbers, at)
    return out


_picks = new_table()  # signatures of a tensor and of indices for its first dimensions -> plan


def _picked(x: Tensor, indices):
    """What tensors of integers select from the first dimensions, if such were met; else None."""
    try:
        plan = _picks.get((x.sig, *map(_signature, indices)))
    except (AttributeError, TypeError):  # not all are tensors, or it is no sequence
        return None
    if plan is None:
        return None
    frame, checks, sig, run, last, numbers = plan
    places = []
    for index, (check, count, n) in zip(indices, checks, strict=True):
        places.append(index.ptr)
        if not check(index.ptr, count, -n, n):
            return None
    out = empty(sig)
    run(out.ptr, x.ptr, *places, *numbers, last)
    if x.node is not None and modes.grad:
        return taken_again(out, x, Selection(frame, tuple(indices)), "IndexBackward0")
    return out


def _pick(sig, chosen: Selection):
    """The plan of a selection by plain indices that are asked about their bounds at once."""
    frame = chosen.frame
    for kind in frame.kinds:
        if kind.kin is None or not kind.contiguous or kind.dtype not in ASKED:
            return None
    if sig.tag is not None or sig.device is META or not sig.numel:
        return None
    checks = [(within(k.dtype.name), k.numel, sig.shape[d])
              for d, k in zip(frame.dims, frame.kinds, strict=True)]
    out, run, last, numbers, _ = reading(frame, sig)
    return None if run is None else (frame, checks, out, run, last, numbers)


def _along_first(sig, index: Tensor) -> Selection:
    """What one tensor of integers selects, the commonest of advanced indices."""
    key = (sig.shape, (0,), (index.sig,))
    frame = _frames.get(key)
    if frame is None:
        frame = _frames[key] = _frame(*key)
    _check(index, sig.shape[0], 0)
    return Selection(frame, (index,))


def _check(index: Tensor, n: int, d: int) -> None:
    check_bounds(index, -n, n, lambda i: IndexError(
        f"index {i} is out of bounds for dimension {d} with size {n}"))


_WHOLE = (("slice", None, None, 1),)
_PLAIN = frozenset((int, type(None), type(Ellipsis)))


def plain_key(index):
    """The key of an index of plain integers, slices, None and one Ellipsis; else None."""
    kind = type(index)
    if kind is slice:
        items = (index,)
    elif kind is tuple:
        items = index
    elif index is None or index is Ellipsis:
        return (index,)
    else:
        return None
    key, dots = [], 0
    for item in items:
        kind = type(item)
        if kind is slice:
            start, stop, step = item.start, item.stop, item.step
            if step is None:
                step = 1
            if (start is None or type(start) is int) and (stop is None or type(stop) is int) and (
                    type(step) is int and step > 0):
                key.append(("slice", start, stop, step))
            else:
                return None
        elif kind in _PLAIN:
            dots += item is Ellipsis
            key.append(item)
        else:
            return None
    return tuple(key) if dots < 2 else None


class _GetItem:
    """What interceptors see of indexing."""

    name = "__getitem__"


getitem_op = _GetItem()


def _missed(x: Tensor, index: int):
    found = intercepted(getitem_op, (x, index), {})
    if found is not None:
        return found[0]
    if not x.sig.rank:
        raise _too_many(x.sig)
    n = x.sig.shape[0]
    if not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for dimension 0 with size {n}")
    plan = _plans[x.sig, (index,)] = view_plan(basic, x.sig, {"key": (index,)})
    return take(x, plan)


# -- reading an index -----------------------------------------------------------------------------


def _items(index) -> tuple:
    if type(index) is tuple:
        return index
    if isinstance(index, tuple):
        return tuple(index)
    if isinstance(index, list) and len(index) < 32 and any(
            isinstance(i, (Tensor, list, tuple, slice, np.ndarray)) or i is None or i is Ellipsis
            for i in index):
        return tuple(index)
    return (index,)


def _whole(value):
    """A bound of a slice."""
    if value is None or type(value) is int:
        return value
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method"
                        ) from None


def parsed(x: Tensor, index):
    """(key of the basic view, None or one tensor or None for each of that view's dimensions).

    A mask of several dimensions keeps them all in the view; its tensor then stands at the first of
    them, followed by as many marks.
    """
    key: list = []
    tensors: list = []
    simple = True
    for item in _items(index):
        kind = type(item)
        if kind is int:
            key.append(item)
        elif kind is slice:
            step = _whole(item.step)
            step = 1 if step is None else step
            if step <= 0:
                raise ValueError("slice step cannot be zero" if step == 0 else
                                 "step must be greater than zero")
            key.append(("slice", _whole(item.start), _whole(item.stop), step))
            tensors.append(None)
        elif item is None:
            key.append(None)
            tensors.append(None)
        elif item is Ellipsis:
            if Ellipsis not in key:  # a second one stands for nothing
                key.append(Ellipsis)
                tensors.append(Ellipsis)
        else:
            simple = _one_more(x, item, key, tensors) and simple
    return tuple(key), None if simple else _placed(x, tuple(key), tensors)


_FULL = ("slice", None, None, 1)


def _one_more(x: Tensor, item, key: list, tensors: list) -> bool:
    """Add what is no plain integer, slice, None or Ellipsis; says whether it was an integer."""
    if isinstance(item, (bool, np.bool_)):
        key.append(None)
        tensors.append(engine.full((1,) if item else (0,), 0, dt.int64))
        return False
    if isinstance(item, (np.ndarray, list, tuple, range)):
        item = _tensor_of(item)
    if not isinstance(item, Tensor):
        if hasattr(item, "__index__"):
            key.append(item.__index__())
            return True
        if isinstance(item, str):
            raise TypeError("new(): invalid data type 'str'")
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte "
                         f"Variables are valid indices (got {type(item).__name__})")
    dtype = item.sig.dtype
    if dtype in (dt.bool_, dt.uint8):
        if item.sig.rank == 0:
            return _one_more(x, bool(engine.item(item)), key, tensors)
        key += [_FULL] * item.sig.rank
        tensors += [item] + [MISSING] * (item.sig.rank - 1)
        return False
    if dtype.kind not in "i" or dtype in (dt.int8, dt.int16):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors, not "
                         f"{dtype}")
    if item.sig.rank == 0 and item.sig.device is not META:
        key.append(int(engine.item(item)))
        return True
    key.append(_FULL)
    tensors.append(item)
    return False


def _tensor_of(item) -> Tensor:
    found = from_lists(item, None) if type(item) is list or type(item) is tuple else None
    if found is None:
        found = from_data(item)
    if found.sig.numel == 0 and not isinstance(item, np.ndarray):
        found = engine.cast(found, dt.int64)
    return found


def _placed(x: Tensor, key: tuple, tensors: list) -> list:
    """One entry for each dimension of the basic view, Ellipsis filled in."""
    taken = sum(1 for k in key if k is not None and k is not Ellipsis)
    if taken > x.sig.rank:
        raise _too_many(x.sig)
    rest = [None] * (x.sig.rank - taken)
    if Ellipsis not in key:
        return tensors + rest
    at = next(i for i, t in enumerate(tensors) if t is Ellipsis)
    return tensors[:at] + rest + tensors[at + 1:]


# -- tensors as indices ---------------------------------------------------------------------------


def selection(view: Tensor, tensors: list) -> Selection:
    """What index tensors, one or None per dimension of a view, select from it."""
    shape = view.sig.shape
    dims: list[int] = []
    indices = []
    for d, item in enumerate(tensors):
        if item is None or item is MISSING:
            continue
        if item.sig.dtype in (dt.bool_, dt.uint8):
            found = _mask(view, item, d)
            indices += found
            dims += range(d, d + len(found))
        else:
            indices.append(item)
            dims.append(d)
    key = (shape, tuple(dims), tuple([i.sig for i in indices]))
    frame = _frames.get(key)
    if frame is None:
        frame = _frames[key] = _frame(*key)
    for index, d in zip(indices, dims, strict=True):
        _check(index, shape[d], d)
    return Selection(frame, tuple(indices))


_frames = new_table()


def _frame(shape, dims: tuple, kinds: tuple) -> Frame:
    """Loops over the broadcast indices where they stand, or in front if they stand apart."""
    shapes = [tuple(k.shape) for k in kinds]
    try:
        wide = sh.broadcast("index", *shapes)
    except RuntimeError:
        raise IndexError("shape mismatch: indexing tensors could not be broadcast together with "
                         f"shapes {', '.join(str(list(s)) for s in shapes)}") from None
    free = [d for d in range(len(shape)) if d not in dims]
    adjacent = dims == tuple(range(dims[0], dims[0] + len(dims)))
    before = [d for d in free if d < dims[0]] if adjacent else []
    after = [d for d in free if d not in before]
    loops = (*(shape[d] for d in before), *wide, *(shape[d] for d in after))
    steps = [(*(0,) * len(before), *sh.expand_strides(k.shape, k.strides, wide),
              *(0,) * len(after)) for k in kinds]
    return Frame(loops, kinds, steps, dims, (*before, *(None,) * len(wide), *after), True)


def _mask(view: Tensor, mask: Tensor, d: int) -> list[Tensor]:
    """The places where a mask holds, one index for each of its dimensions."""
    have = view.sig.shape[d:d + mask.sig.rank]
    if tuple(have) != tuple(mask.sig.shape):
        k = next(k for k, (a, b) in enumerate(zip(mask.sig.shape, (*have, None), strict=False))
                 if a != b)
        raise IndexError(f"The shape of the mask {list(mask.sig.shape)} at index {k} does not "
                         f"match the shape of the indexed tensor {list(view.sig.shape)} at index "
                         f"{d + k}")
    if mask.sig.device is META:
        raise RuntimeError("indexing with a mask on the meta device: the shape depends on its "
                           "values")
    if mask.sig.rank == 1 and mask.sig.dtype is dt.bool_:
        return [engine.reshape(masking.places(mask), (-1,))]
    return [from_numpy(places) for places in raw_array(mask).nonzero()]


# -- assignment -----------------------------------------------------------------------------------


def setitem(x: Tensor, index, value) -> None:
    """x[index] = value"""
    if x.sig.tag is not None or tracers:  # who traces may know more of the value than its memory
        found = intercepted(setitem_op, (x, index, value), {})
        if found is not None:
            return
    key = (index,) if type(index) is int else plain_key(index)
    tensors = None
    if key is None:
        if type(index) in _LAST or type(index) is tuple:
            if type(index) is list and set(map(type, index)) == _INTEGERS and x.sig.rank:
                index = from_lists(index, None)
            indices = index if type(index) is tuple else (index,)
            if placed_again(x, indices, value, None):
                return
        if _answered(x, index, value):
            return
        if isinstance(index, Tensor) and _filled(x, index, value):
            return
        key, tensors = parsed(x, index)
    if tensors is None:
        if (x.node is not None or not _assigned(x, key, value)) and not _answered(x, index, value):
            assign(_run_basic(x, key), value)
        return
    view = x if key.count(_FULL) == len(key) else _run_basic(x, key)
    chosen = selection(view, tensors)
    fitting = _fitting(_value(x, value), chosen.loops)
    put_(view, chosen, fitting, None, "index_put_", "IndexPutBackward0")
    if view is x and (type(index) is Tensor or type(index) is tuple):
        remember_placing(x, chosen, index if type(index) is tuple else (index,), value, fitting,
                         None)


def _answered(x: Tensor, index, value) -> bool:
    """Whether an assignment to a plain tensor was made by who stands for its value or an index."""
    return not tracers and _any_tagged((index, value)) and (
        intercepted(setitem_op, (x, index, value), {}) is not None)


def _any_tagged(values) -> bool:
    """Whether some of these, or of those in tuples among them, are no plain tensors."""
    return any([v.sig.tag is not None if isinstance(v, Tensor) else
                type(v) is tuple and _any_tagged(v) for v in values])


_placings = new_table()  # signatures of a tensor, indices and a value, how combined -> plan


def placed_again(x: Tensor, indices, value, combine: str | None) -> bool:
    """Whether a value was put where tensors of integers say, as before; nothing is recorded."""
    kind = type(value)
    try:
        plan = _placings.get((x.sig, combine, kind if kind in _NUMBERS else value.sig,
                              *map(_signature, indices)))
    except (AttributeError, TypeError):  # not all are tensors
        return False
    if plan is None or tracers or checkers or Tensor not in PLAIN or (modes.grad and (
            x.node is not None or (kind not in _NUMBERS and value.node is not None))):
        return False
    checks, given, run, last, numbers, _ = plan
    places = []
    for index, (check, count, n) in zip(indices, checks, strict=True):
        places.append(index.ptr)
        if index.mem is x.mem or not check(index.ptr, count, -n, n):
            return False
    if given is not None:
        value = filled(empty(given), value)
    elif value.mem is x.mem:
        return False
    check_writable(x, "index_put_")
    run(x.ptr, value.ptr, *places, *numbers, last)
    changed(x)
    return True


def remember_placing(x: Tensor, chosen: Selection, indices, value, fitting: Tensor,
                     combine: str | None) -> None:
    """Plan what `placed_again` repeats, if it is plain."""
    frame, sig, number = chosen.frame, x.sig, type(value) in _NUMBERS
    if len(indices) != len(chosen.indices) or not all(map(is_, indices, chosen.indices)) or (
            fitting.sig.tag is not None or fitting.sig.dtype is not sig.dtype
            or not (number or (isinstance(value, Tensor) and fitting.sig is value.sig))):
        return
    found = _pick(sig, chosen)
    if found is not None:
        given = fitting.sig if number else None
        run, last, numbers, program = writing(frame, sig, fitting.sig, combine)
        _placings[sig, combine, type(value) if number else value.sig,
                  *map(_signature, indices)] = found[1], given, run, last, numbers, program


def _filled(x: Tensor, mask: Tensor, value) -> bool:
    """Whether one value was written wherever a mask of the leading dimensions holds."""
    rank = mask.sig.rank
    if mask.sig.dtype is not dt.bool_ or not rank or mask.sig.shape != x.sig.shape[:rank]:
        return False
    if isinstance(value, Tensor):
        if value.sig.rank or value.sig.dtype is not x.sig.dtype:
            return False
    elif type(value) not in _NUMBERS:
        return False
    elif type(value) is float and x.sig.dtype.kind not in "fc":
        value = int(value)
    if rank < x.sig.rank:
        mask = engine.reshape(mask, (*mask.sig.shape, *(1,) * (x.sig.rank - rank)))
    inplace.pointwise_inplace(engine.masked_fill, x, mask, value)
    return True


_assignments = new_table()


def _assigned(x: Tensor, key: tuple, value) -> bool:
    """Whether an assignment that nothing records was made at once, by a plan for its place."""
    kind = type(value)
    if kind in _NUMBERS:
        what: Any = kind
    elif isinstance(value, Tensor) and value.mem is not x.mem and value.sig.tag is None and (
            value.node is None or not modes.grad):
        what = value.sig
    else:
        return False
    plan = _assignments.get((x.sig, key, what))
    if plan is None:
        plan = _assignments[x.sig, key, what] = _assignment(x.sig, key, value)
    run, move, last, _ = plan
    if run is None:
        return False
    check_writable(x, "copy_")
    run(x.ptr + move, value if what is kind else value.ptr, last)
    changed(x)
    return True


_NUMBERS = frozenset((float, int, bool))


def _assignment(sig, key: tuple, value):
    """(machine code, bytes further, last argument, what keeps them alive); without code: slowly."""
    part, move, _ = view_plan(basic, sig, {"key": key})
    if isinstance(value, Tensor):
        given = value.sig
        if sig.device is META or given.device is META or given.rank > part.rank:
            return None, 0, 0, None
        sh.broadcast("copy_", part.shape, given.shape)
        plan = pw.plan(engine.identity, (given,), (), part)
    elif sig.device is META or sig.dtype.kind == "c":
        return None, 0, 0, None
    else:
        plan = pw.plan(engine.constant, (value,), (), part)
    return plan[2], move, plan[3], plan


class _SetItem:
    name = "__setitem__"


setitem_op = _SetItem()


def _value(x: Tensor, value) -> Tensor:
    """What is assigned, as a tensor of x's dtype."""
    if isinstance(value, Tensor):
        return engine.cast(value, x.sig.dtype)
    if not isinstance(value, (bool, int, float, complex, np.generic, np.ndarray, list, tuple)):
        raise TypeError(f"can't assign a {type(value).__name__} to a {x.sig.dtype} tensor")
    if isinstance(value, complex) and x.sig.dtype.kind != "c":
        raise RuntimeError(f"value cannot be converted to type {x.sig.dtype.name} without overflow")
    return engine.cast(from_data(value), x.sig.dtype)


def _fitting(value: Tensor, shape: tuple) -> Tensor:
    """A value that broadcasts to a shape, leading dimensions of size 1 dropped."""
    given = tuple(value.sig.shape)
    while len(given) > len(shape) and given[0] == 1:
        given = given[1:]
    if given != tuple(value.sig.shape):
        value = engine.reshape(value, given)
    spare = len(shape) - len(given)
    if spare < 0 or any(a not in (1, b) for a, b in zip(given, shape[spare:], strict=True)):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(value.sig.shape)} cannot "
                           f"be broadcast to indexing result of shape {list(shape)}")
    return value


def assign(view: Tensor, value) -> None:
    """Fill a view with a number, or copy a tensor into it."""
    if isinstance(value, Tensor):
        shape = tuple(value.sig.shape)
        while len(shape) > view.sig.rank and shape[0] == 1:
            shape = shape[1:]
        if shape != tuple(value.sig.shape):
            value = engine.reshape(value, shape)
        copying.copy_(view, value)
    elif type(value) in (float, int, bool) and (view.node is None or not modes.grad):
        check_writable(view, "fill_")
        engine.fill(view, value)
        changed(view)
    else:
        copying.copy_(view, _value(view, value))


def index_tensors(x: Tensor, indices) -> list:
    """The tensors of a call of index_put, one or None per dimension."""
    _, tensors = parsed(x, tuple(slice(None) if i is None else i if not (
        isinstance(i, Tensor) and i.sig.rank == 0) else engine.reshape(i, (1,)) for i in indices))
    return [None] * x.sig.rank if tensors is None else tensors


def nonzero(x: Tensor) -> Tensor:
    """The places of elements that are not zero, one row each."""
    if x.sig.device is META:
        raise RuntimeError("nonzero: the shape of the result depends on values that a meta tensor "
                           "does not have")
    if x.sig.rank:
        if x.sig.dtype is dt.bool_:
            return masking.places(x)
        return masking.places(x.ne(0) if x.node is None else engine.without_grad(x.ne, 0))
    return from_numpy(np.empty((int(bool(engine.item(x))), 0), np.int64))


def overwritten(form, x: Tensor, *args) -> Tensor:
    """What an in-place form makes of a copy."""
    return form(engine.copied_as(x, signature(
        x.sig.dtype, x.sig.shape, None, x.sig.device)), *args)


setitem.__name__ = setitem.__qualname__ = "__setitem__"
engine.getitem = getitem
engine.index_selection = selection
engine.index_tensors = index_tensors
engine.fitting, engine.remember_placing = _fitting, remember_placing
engine.nonzero = nonzero
engine.overwritten = overwritten
_, _context = fronts.adopt(getitem, _plans, "v", "__getitem__", "x[index]", True)
# Python reads the signature of native code from its documentation.
Tensor.__getitem__ = fronts.method(_context, "v", "__getitem__",
                                   "__getitem__($self, index, /)\n--\n\nx[index]")
Tensor.__setitem__ = setitem
