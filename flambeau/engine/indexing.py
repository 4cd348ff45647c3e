"""x[...]: integers, slices, None, Ellipsis, masks, integer tensors and lists.

What integers, slices, None and Ellipsis ask for is one view: see basic_index.py. What tensors ask
for is then read from that view, or written to it: see assignment.py.
"""

from __future__ import annotations

from operator import attrgetter, is_

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import META
from ..core.lazily import np
from ..devices.cpu.bounds import within
from ..devices.cpu.remember import keep
from . import masking
from .access import ASKED, check_bounds
from .basic_index import WHOLE, basic, known_view, plain_key, run_basic, too_many
from .convert import from_lists, from_numpy, raw_array
from .eager import engine, new_table
from .fresh import empty
from .indices import MISSING, parsed
from .interception import intercepted, tracers
from .modes import modes
from .node import fronts
from .selection import Frame, Selection, reading, taken, taken_again
from .storage import checkers
from .tensor import Tensor, signature
from .views import take, view_plan

_plans = new_table()   # (signature, (integer,)) -> plan, which native code looks up
signature_of = attrgetter("sig")

#: the types in a list of integers, and the types of what lists places
INTEGERS, LISTS = {int}, frozenset((list, Tensor))


def getitem(x: Tensor, index):
    """x[index]"""
    if type(index) is int:
        return _missed(x, index)
    if type(index) is list and set(map(type, index)) == INTEGERS and x.sig.rank:
        index = from_lists(index, None)
    if x.sig.tag is not None:
        found = intercepted(getitem_op, (x, index), {})
        if found is not None:
            return found[0]
    if type(index) is tuple and len(index) > 1 and type(index[0]) is slice and (
            type(index[-1]) in LISTS) and not (
            tracers or checkers or (x.node is not None and modes.grad)):
        found = _from_each(x, index)
        if found is not None:
            return found
    key = plain_key(index)
    if key is not None:
        plan = known_view((x.sig, key))
        return run_basic(x, key) if plan is None else take(x, plan)
    if x.sig.tag is None and any_tagged(index if type(index) is tuple else (index,)):
        answered = intercepted(getitem_op, (x, index), {})
        if answered is not None:
            return answered[0]
    found = _picked(x, (index,) if isinstance(index, Tensor) else index)
    if found is not None:
        return found
    if isinstance(index, Tensor) and index.sig.rank and x.sig.rank and index.sig.dtype is dt.int64:
        chosen = _along_first(x.sig, index)
        _picks[x.sig, index.sig] = pick(x.sig, chosen)
        return taken(x, chosen, "IndexBackward0")
    if type(index) is Tensor and (x.node is None or not modes.grad) and (
            masking.covers(index.sig, x.sig)):
        return masking.chosen(x, index)
    if isinstance(index, Tensor) and index.sig.dtype is dt.bool_ and index.sig.rank > 1 and (
            index.sig.shape == x.sig.shape and x.sig.contiguous and x.sig.device is not META):
        x, index = engine.reshape(x, (-1,)), engine.reshape(index, (-1,))
    key, tensors = parsed(x, index)
    if tensors is None:
        return run_basic(x, key)
    view = x if key == WHOLE else run_basic(x, key)
    chosen = selection(view, tensors)
    if type(index) is tuple and len(index) == len(chosen.indices) and all(
            map(is_, index, chosen.indices)):
        _picks[x.sig, *chosen.frame.kinds] = pick(x.sig, chosen)
    return taken(view, chosen, "IndexBackward0")


def _from_each(x: Tensor, index: tuple):
    """x[:, index] or x[:, :, index] of integers, outside the graph; None for all else."""
    *whole, last = index
    for item in whole:
        if type(item) is not slice or item.start is not None or item.stop is not None or (
                item.step is not None):
            return None
    if type(last) is list:
        if set(map(type, last)) != INTEGERS:
            return None
        last = from_lists(last, None)
    if last is None or last.sig.dtype not in ASKED or not last.sig.rank or (
            len(index) > x.sig.rank or x.sig.tag is not None or last.sig.tag is not None):
        return None
    key = x.sig, len(whole), last.sig
    plan = _picks.get(key)
    if plan is None:
        chosen = selection(x, [*[None] * len(whole), last, *[None] * (x.sig.rank - len(index))])
        _picks[key] = pick(x.sig, chosen)
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
        plan = _picks.get((x.sig, *map(signature_of, indices)))
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


def pick(sig, chosen: Selection):
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


class _GetItem:
    """What interceptors see of indexing."""

    name = "__getitem__"


getitem_op = _GetItem()


def _missed(x: Tensor, index: int):
    found = intercepted(getitem_op, (x, index), {})
    if found is not None:
        return found[0]
    if not x.sig.rank:
        raise too_many(x.sig)
    n = x.sig.shape[0]
    if not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for dimension 0 with size {n}")
    plan = view_plan(basic, x.sig, {"key": (index,)})
    return take(x, keep(_plans, (x.sig, (index,)), plan))


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


def any_tagged(values) -> bool:
    """Whether some of these, or of those in tuples among them, are no plain tensors."""
    return any([v.sig.tag is not None if isinstance(v, Tensor) else
                type(v) is tuple and any_tagged(v) for v in values])


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


engine.getitem = getitem
engine.index_selection = selection
engine.nonzero = nonzero
engine.overwritten = overwritten
_, _context = fronts.adopt(getitem, _plans, "v", "__getitem__", "x[index]", True)
# Python reads the signature of native code from its documentation.
Tensor.__getitem__ = fronts.method(_context, "v", "__getitem__",
                                   "__getitem__($self, index, /)\n--\n\nx[index]")
