"""Fronts of ops that write where an index says, in place or to a copy: what is known already takes
one frame.

Each looks up what was planned for these signatures, asks one native call whether indices are in
bounds, and runs the kernel. Changes in place that are recorded for gradients, what is traced, and
all errors are left to the op's usual front.
"""

from __future__ import annotations

from ..core.device import CPU
from ..devices.cpu.bounds import within
from ..ops.declare import Op
from ..ops.refusal import check_element
from . import selection
from .access import ASKED
from .assignment import placed_again
from .create import filled
from .eager import engine, new_table
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .storage import checkers
from .tensor import Signature, Tensor, make, signature
from .views import recorded
from .writing import changed, check_writable

_NUMBERS = frozenset((int, float, bool))


def _by_index(frame_of, combine: str | None, write, is_copied: bool = False):
    """The front of f(x, dim, index, source), where write(op, plan, x, index, source) gives None if
    it is left to the usual one."""
    def wrapped(op: Op, otherwise):
        plans, op.takes_out = new_table(), is_copied

        def front(*args, **named):
            if named or len(args) != 4 or tracers or checkers or Tensor not in PLAIN:
                return otherwise(*args, **named)
            x, dim, index, source = args
            kind = type(source)
            try:
                key = x.sig, dim, index.sig, kind if kind in _NUMBERS else source.sig
                plan = plans.get(key)
            except (AttributeError, TypeError):
                return otherwise(*args)
            if plan is None:
                result = otherwise(*args)
                plans[key] = ((x.sig.contiguous or not is_copied) and _planned(
                    frame_of, combine, x.sig, dim, index, key[3])) or False
                return result
            found = write(op, plan, x, index, source) if plan else None
            return otherwise(*args) if found is None else found

        front.__name__, front.__doc__ = op.name, op.doc
        return front

    return wrapped


def _in_place(frame_of, combine: str | None):
    """The front of a form in place, where nothing is recorded."""
    def write(op: Op, plan, x: Tensor, index: Tensor, source):
        check, count, high, given, run, last, *_ = plan
        if modes.grad and (x.node or (given is None and source.node)):
            return None
        if not check(index.ptr, count, 0, high) or index.mem is x.mem:
            return None
        if given is not None:
            source = _one_number(given, source)
        elif source.mem is x.mem:
            return None
        check_writable(x, op.name)
        run(x.ptr, source.ptr, index.ptr, last)
        changed(x)
        return x

    return _by_index(frame_of, combine, write)


def _copied(frame_of, combine: str | None, label: str):
    """The front that leaves x as it is; tensors that are written may be recorded."""
    def write(op: Op, plan, x: Tensor, index: Tensor, source):
        check, count, high, given, run, last, frame, _ = plan
        wanted = modes.grad and (x.node or (given is None and source.node))
        if not check(index.ptr, count, 0, high) or (wanted and given is not None):
            return None
        if given is not None:
            source = _one_number(given, source)
        out = engine.clone(make(x.sig, x.mem, x.ptr) if x.node else x)
        run(out.ptr, source.ptr, index.ptr, last)
        if not wanted:
            return out
        chosen = selection.Selection(frame, (index,))
        return recorded(out, label, (x, source), selection.put_back(
            x, chosen, source, combine, label), chosen.indices)

    return _by_index(frame_of, combine, write, is_copied=True)


def _one_number(sig: Signature, value) -> Tensor:
    """A number as a tensor that is written."""
    if sig.dtype.kind in "iu":
        check_element(value, sig.dtype)
    return filled(empty(sig), value)


def _planned(frame_of, combine, x: Signature, dim, index: Tensor, given):
    """(check, count, size, signature of a number, code, last argument, what keeps them alive)."""
    where, number = index.sig, given in _NUMBERS
    if type(dim) is not int or not x.rank or not x.numel or x.device is not CPU or (
            x.tag is not None or where.kin is None or not where.contiguous
            or where.dtype not in ASKED):
        return None
    dim %= x.rank
    frame = frame_of(x, dim, index)
    source = signature(x.dtype, ()) if number else given
    if frame is None or source.tag is not None or source.dtype is not x.dtype or not (
            number or tuple(source.shape) == tuple(frame.loops)):
        return None
    run, last, _, program = selection.writing(frame, x, source, combine)
    return (within(where.dtype.name), where.numel, x.shape[dim], source if number else None, run,
            last, frame, program)


def _along(x: Signature, dim: int, index: Tensor):
    return selection.along(index, dim).frame if index.sig.rank == x.rank else None


def _rows(x: Signature, dim: int, index: Tensor):
    return selection.rows(index, tuple(x.shape), dim).frame if index.sig.rank == 1 else None


def _flat(op: Op, otherwise):
    """The fronts of put_(x, index, source, accumulate) and of put, where nothing is recorded."""
    plans, copied = new_table(), op.name == "put"
    op.takes_out = copied

    def front(*args, **named):
        if len(args) == 3:
            accumulate = named.get("accumulate", False) if len(named) < 2 else None
        else:
            accumulate = args[3] if len(args) == 4 and not named else None
        if type(accumulate) is not bool or len(named) > ("accumulate" in named) or tracers or (
                checkers or Tensor not in PLAIN):
            return otherwise(*args, **named)
        x, index, source = args[:3]
        try:
            key = x.sig, index.sig, source.sig, accumulate
        except AttributeError:
            return otherwise(*args, **named)
        plan = plans.get(key)
        if plan is None:
            result = otherwise(*args, **named)
            plans[key] = _planned_flat(*key) or False
            return result
        if plan is False or (modes.grad and (x.node or source.node)):
            return otherwise(*args, **named)
        check, count, size, run, last, _ = plan
        if not check(index.ptr, count, -size, size) or (
                not copied and (index.mem is x.mem or source.mem is x.mem)):
            return otherwise(*args, **named)
        if copied:
            out = engine.clone(x)
            run(out.ptr, source.ptr, index.ptr, size, last)
            return out
        check_writable(x, op.name)
        run(x.ptr, source.ptr, index.ptr, size, last)
        changed(x)
        return x

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _planned_flat(x: Signature, index: Signature, source: Signature, accumulate: bool):
    """(check, count, size, code, last argument, what keeps them alive), of elements in a row."""
    plain = all(s.tag is None and s.device is CPU and s.contiguous for s in (x, index, source))
    if not plain or not x.numel or not index.numel or index.kin is None or (
            index.dtype not in ASKED):
        return None
    places = signature(index.dtype, (index.numel,))
    frame = selection.frame_along(places, 0, True)
    run, last, _, program = selection.writing(
        frame, signature(x.dtype, (x.numel,)), signature(source.dtype, (source.numel,)),
        "add" if accumulate else None)
    return within(index.dtype.name), index.numel, x.numel, run, last, program


def _index_put(op: Op, otherwise):
    """The front of index_put_(x, indices, values), as of x[indices] = values."""
    def front(*args, **named):
        accumulate = named.get("accumulate", False) if len(args) == 3 else (
            args[3] if len(args) == 4 and not named else None)
        if type(accumulate) is bool and len(named) <= (len(args) == 3 and "accumulate" in named):
            x, indices, values = args[:3]
            if isinstance(values, Tensor) and type(indices) in (tuple, list) and placed_again(
                    x, indices, values, "add" if accumulate else None):
                return x
        return otherwise(*args, **named)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {
    "scatter_":     _in_place(_along, None),
    "scatter_add_": _in_place(_along, "add"),
    "index_add_":   _in_place(_rows, "add"),
    "index_copy_":  _in_place(_rows, None),
    "index_fill_":  _in_place(_rows, None),
    "index_put_":   _index_put,
    "scatter":      _copied(_along, None, "ScatterBackward0"),
    "scatter_add":  _copied(_along, "add", "ScatterAddBackward0"),
    "index_add":    _copied(_rows, "add", "IndexAddBackward0"),
    "index_copy":   _copied(_rows, None, "IndexCopyBackward0"),
    "index_fill":   _copied(_rows, None, "IndexFillBackward0"),
    "put":          _flat,
    "put_":         _flat,
}
