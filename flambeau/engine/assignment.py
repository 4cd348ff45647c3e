"""x[...] = value: written into the view that is asked for, or where tensors say."""

from __future__ import annotations

from operator import is_
from typing import Any

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import META
from ..core.lazily import np
from ..devices.cpu.remember import keep
from ..ops.refusal import check_fits
from . import copying, inplace
from . import pointwise as pw
from .basic_index import FULL, basic, plain_key, run_basic
from .convert import from_data, from_lists
from .create import filled
from .eager import engine, new_table
from .fresh import empty
from .indexing import INTEGERS, LISTS, any_tagged, pick, selection, signature_of
from .indices import parsed
from .interception import PLAIN, intercepted, tracers
from .modes import modes
from .selection import Selection, put_, writing
from .storage import checkers
from .tensor import Tensor
from .views import view_plan
from .writing import changed, check_writable


def setitem(x: Tensor, index, value) -> None:
    """x[index] = value"""
    if x.sig.tag is not None or tracers:  # who traces may know more of the value than its memory
        found = intercepted(setitem_op, (x, index, value), {})
        if found is not None:
            return
    if type(value) is float and x.sig.dtype.kind in "iu":
        check_fits(value, x.sig.dtype)
    key = (index,) if type(index) is int else plain_key(index)
    tensors = None
    if key is None:
        if type(index) in LISTS or type(index) is tuple:
            if type(index) is list and set(map(type, index)) == INTEGERS and x.sig.rank:
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
            assign(run_basic(x, key), value)
        return
    view = x if key.count(FULL) == len(key) else run_basic(x, key)
    chosen = selection(view, tensors)
    fitting = _fitting(_value(x, value), chosen.loops)
    put_(view, chosen, fitting, None, "index_put_", "IndexPutBackward0")
    if view is x and (type(index) is Tensor or type(index) is tuple):
        remember_placing(x, chosen, index if type(index) is tuple else (index,), value, fitting,
                         None)


def _answered(x: Tensor, index, value) -> bool:
    """Whether an assignment to a plain tensor was made by who stands for its value or an index."""
    return not tracers and any_tagged((index, value)) and (
        intercepted(setitem_op, (x, index, value), {}) is not None)


_placings = new_table()  # signatures of a tensor, indices and a value, how combined -> plan


def placed_again(x: Tensor, indices, value, combine: str | None) -> bool:
    """Whether a value was put where tensors of integers say, as before; nothing is recorded."""
    kind = type(value)
    try:
        plan = _placings.get((x.sig, combine, kind if kind in _NUMBERS else value.sig,
                              *map(signature_of, indices)))
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
    found = pick(sig, chosen)
    if found is not None:
        given = fitting.sig if number else None
        run, last, numbers, program = writing(frame, sig, fitting.sig, combine)
        _placings[sig, combine, type(value) if number else value.sig,
                  *map(signature_of, indices)] = found[1], given, run, last, numbers, program


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
        plan = keep(_assignments, (x.sig, key, what), _assignment(x.sig, key, value))
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


setitem.__name__ = setitem.__qualname__ = "__setitem__"
engine.fitting, engine.remember_placing = _fitting, remember_placing
Tensor.__setitem__ = setitem
