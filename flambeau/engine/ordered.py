"""Fronts of sorting, selection, distinct values and places: one lookup, then native code.

A front finds what to run by signature and options. Meta tensors, subclasses, complex numbers,
0-d tensors, empty ones and errors are left to the front that an op has anyway.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU
from ..core.lazily import Lazily
from ..ops.declare import Op
from .eager import engine, new_table
from .formula import bind, record
from .fresh import empty
from .interception import PLAIN
from .modes import modes
from .results import TYPES, name_of
from .storage import allocate
from .tensor import Signature, Tensor, make, signature

routines: Any = Lazily("flambeau.devices.cpu.ordering")
scans: Any = Lazily("flambeau.devices.cpu.scans")

_new_tuple = tuple.__new__


def usable(sig: Signature) -> bool:
    """Whether there is native code for tensors of a signature."""
    return sig.tag is None and sig.device is CPU and sig.dtype.kind != "c" and sig.numel > 0


def plain(x: Tensor) -> Tensor:
    """The same elements in a row, unrecorded; to be kept while they are read."""
    if x.sig.contiguous:
        return x
    return engine.without_grad(engine.contiguous, make(x.sig, x.mem, x.ptr))


def rows_of(sig: Signature, dim: int) -> tuple[int, int]:
    """How many elements a row along a dimension has, and how far apart they are."""
    return sig.shape[dim], prod(sig.shape[dim + 1:])


# -- values and their places ---------------------------------------------------------------------


def _sort_plan(sig: Signature, bound: dict, sigs: list):
    n, inner = rows_of(sig, sh.wrap_dim(bound["dim"], sig.rank, "sort"))
    run, bytes_ = routines.sorting(sig.dtype.name, n, sig.numel)
    return run, bytes_, (n, inner, -int(bool(bound["descending"])), sig.numel)


def _topk_plan(sig: Signature, bound: dict, sigs: list):
    n, inner = rows_of(sig, sh.wrap_dim(bound["dim"], sig.rank, "topk"))
    k = int(bound["k"])
    if not k or 8 * k > n > 64:
        return None
    run, bytes_, slot = routines.best(sig.dtype.name, n, k, sig.numel)
    return run, bytes_, (n, inner, -int(not bound["largest"]), k, slot, sig.numel)


def _rank_plan(name: str):
    def plan(sig: Signature, bound: dict, sigs: list):
        n, inner = rows_of(sig, sh.wrap_dim(bound["dim"], sig.rank, name))
        run, bytes_, slot = routines.ranked(name, sig.dtype.name, n, sig.numel)
        return run, bytes_, (n, inner, 0, int(bound.get("k", 0)), slot, sig.numel)
    return plan


def _mode_plan(sig: Signature, bound: dict, sigs: list):
    n, inner = rows_of(sig, sh.wrap_dim(bound["dim"], sig.rank, "mode"))
    run, bytes_ = routines.sorting(sig.dtype.name, n, sig.numel, "mode")
    return run, bytes_, (n, inner, 0, sig.numel)


#: op -> what decides (machine code, bytes it needs beside, its last arguments) or None
PAIRS = {
    "sort":            _sort_plan,
    "topk":            _topk_plan,
    "kthvalue":        _rank_plan("kthvalue"),
    "median_along":    _rank_plan("median"),
    "nanmedian_along": _rank_plan("nanmedian"),
    "mode":            _mode_plan,
}


def pair_front(op: Op, otherwise):
    """The front of an op whose results are values and where they are."""
    plans, kind, choose = new_table(), TYPES[name_of(op)], PAIRS[op.name]

    def planned(sig: Signature, args, kwargs):
        if not usable(sig) or not sig.rank:
            return None
        bound = bind(op, args, kwargs)
        ruled = op.body(**{**bound, "input": sig})
        sigs = [signature(dtype, shape) for shape, dtype in ruled]
        found = choose(sig, bound, sigs)
        return None if found is None else (*sigs, *found)

    def front(*args, **kwargs):
        x = args[0] if args else None
        if type(x) is not Tensor or Tensor not in PLAIN:
            return otherwise(*args, **kwargs)
        sig = x.sig
        key = (sig, args[1:], *kwargs.items()) if kwargs else (sig, args[1:])
        try:
            plan = plans[key]
        except (KeyError, TypeError):
            try:
                plan = plans[key] = planned(sig, args, kwargs)
            except TypeError:
                plan = None
        if plan is None:
            return otherwise(*args, **kwargs)
        first, second, run, bytes_, numbers = plan
        source = x if sig.contiguous else plain(x)
        values, places = empty(first), empty(second)
        if bytes_:
            scratch = allocate(bytes_)
            run(source.ptr, values.ptr, places.ptr, scratch.address, *numbers)
        else:
            run(source.ptr, values.ptr, places.ptr, 0, *numbers)
        if x.node is not None and modes.grad:
            record(op, bind(op, args, kwargs), (values, places))
        return _new_tuple(kind, (values, places))

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def median_front(name: str):
    """The median of everything, where no gradient is wanted."""
    def wrapped(op: Op, otherwise):
        plans = new_table()

        def planned(sig: Signature):
            if not usable(sig) or sig.dtype.kind == "b":
                return None
            run, bytes_, slot = routines.ranked(name, sig.dtype.name, sig.numel, sig.numel)
            return signature(sig.dtype, ()), run, bytes_, (sig.numel, 1, 0, 0, slot, sig.numel)

        def front(input, dim=None, keepdim=False, **named):
            if named or dim is not None or type(input) is not Tensor or Tensor not in PLAIN or (
                    input.node is not None and modes.grad):
                return otherwise(input, dim, keepdim, **named)
            plan = plans.get(input.sig)
            if plan is None:
                plan = plans[input.sig] = planned(input.sig) or False
            if not plan:
                return otherwise(input)
            out, run, bytes_, numbers = plan
            value, place = empty(out), empty(_number)
            scratch = allocate(bytes_) if bytes_ else None
            source = plain(input)
            run(source.ptr, value.ptr, place.ptr, scratch.address if scratch else 0, *numbers)
            return value

        front.__name__, front.__doc__ = op.name, op.doc
        return front
    return wrapped


_number = signature(dt.int64, ())


def argsort_front(op: Op, otherwise):
    plans = new_table()

    def planned(sig: Signature, dim, descending):
        if not usable(sig) or not sig.rank or type(dim) is not int:
            return None
        found = _sort_plan(sig, {"dim": dim, "descending": descending}, [])
        return signature(dt.int64, sig.shape), *found

    def front(input, dim=-1, descending=False, stable=False, **named):
        if named or type(input) is not Tensor or Tensor not in PLAIN:
            return otherwise(input, dim, descending, stable, **named)
        key = (input.sig, dim, descending)
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = planned(*key) or False
        if not plan:
            return otherwise(input, dim, descending, stable)
        out, run, bytes_, numbers = plan
        places = empty(out)
        scratch = allocate(bytes_) if bytes_ else None
        source = plain(input)
        run(source.ptr, 0, places.ptr, scratch.address if scratch else 0, *numbers)
        return places

    front.__name__, front.__doc__ = op.name, op.doc
    return front


# -- distinct values -----------------------------------------------------------------------------


#: bytes that may lie unused behind a result
LITTLE = 4096


def cut(x: Tensor, count: int) -> Tensor:
    """The first elements of a vector; in memory of their own where most of it is not needed."""
    sig = signature(x.sig.dtype, (count,))
    if count == x.sig.numel:
        return x
    if count and (2 * sig.nbytes >= x.sig.nbytes or x.sig.nbytes <= LITTLE):
        return make(sig, x.mem, x.ptr)
    out = empty(sig)
    if count:
        engine.copy_into(out, make(sig, x.mem, x.ptr))
    return out


def distinct_front(name: str):
    """unique or unique_consecutive, of all elements."""
    def wrapped(op: Op, otherwise):
        def front(*args, **kwargs):
            bound = bind(op, args, kwargs) if kwargs or len(args) != 1 else None
            x = args[0] if bound is None else bound["input"]
            if type(x) is not Tensor or Tensor not in PLAIN or not usable(x.sig) or (
                    bound is not None and bound["dim"] is not None):
                return otherwise(*args, **kwargs)
            if bound is None:
                return distinct(name, x, False, False)
            return distinct(name, x, bound["return_inverse"], bound["return_counts"])

        front.__name__, front.__doc__ = op.name, op.doc
        return front
    return wrapped


def distinct(name: str, x: Tensor, inverse: bool, counts: bool):
    """Distinct values; if wanted, which of them each element is, and how often each occurs."""
    sig, n = x.sig, x.sig.numel
    run, bytes_ = routines.distinct(name, sig.dtype.name, n)
    values = empty(signature(sig.dtype, (n,)))
    places = empty(signature(dt.int64, sig.shape)) if inverse else None
    numbers = empty(signature(dt.int64, (n,))) if counts else None
    results = [t.ptr if t is not None else 0 for t in (values, places, numbers)]
    scratch = allocate(bytes_) if bytes_ else None
    beside = [scratch.address] if scratch is not None else []
    source = plain(x)
    count = run(source.ptr, *results, *beside, n)
    found = [cut(values, count)]
    if places is not None:
        found.append(places)
    if numbers is not None:
        found.append(cut(numbers, count))
    return tuple(found) if len(found) > 1 else found[0]


# -- places --------------------------------------------------------------------------------------


def places_front(op: Op, otherwise):
    """Where values belong in sorted rows: searchsorted and bucketize, their arguments checked."""
    def front(sorted_sequence, input, right=False, sorter=None, out_int32=False):
        for t in (sorted_sequence, input):
            if type(t) is not Tensor or not usable(t.sig):
                return otherwise(sorted_sequence, input, right, sorter, out_int32)
        if sorter is not None or sorted_sequence.sig.dtype is not input.sig.dtype:
            return otherwise(sorted_sequence, input, right, sorter, out_int32)
        row, source, values = plain(sorted_sequence), plain(input), input.sig
        out = empty(signature(dt.int32 if out_int32 else dt.int64, values.shape))
        each = values.shape[-1] if row.sig.rank > 1 else values.numel
        routines.places(values.dtype.name)(
            row.ptr, source.ptr, out.ptr, row.sig.shape[-1], each, int(bool(right)),
            int(bool(out_int32)), values.numel)
        return out

    return front


_rows: dict = new_table()


def _row_plan(row: Signature, values: Signature, right, short):
    """(signature of the result, machine code, its last arguments), or None."""
    if not (usable(row) and usable(values) and row.rank == 1 and row.contiguous
            and values.contiguous and row.dtype is values.dtype):
        return None
    out = signature(dt.int32 if short else dt.int64, values.shape)
    return out, routines.places(values.dtype.name), (row.numel, values.numel, int(bool(right)),
                                                     int(bool(short)), values.numel)


def _in_row(row, input, right, short) -> Tensor | None:
    """Places in one row, the commonest case; None for others."""
    if type(row) is not Tensor or type(input) is not Tensor or Tensor not in PLAIN:
        return None
    key = (row.sig, input.sig, right, short)
    try:
        plan = _rows[key]
    except KeyError:
        plan = _rows[key] = _row_plan(*key)
    if plan is None:
        return None
    sig, run, numbers = plan
    out = empty(sig)
    run(row.ptr, input.ptr, out.ptr, *numbers)
    return out


def searched_front(op: Op, otherwise):
    def front(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
        if side is None and sorter is None:
            found = _in_row(sorted_sequence, input, right, out_int32)
            if found is not None:
                return found
        return otherwise(sorted_sequence, input, out_int32=out_int32, right=right, side=side,
                         sorter=sorter)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def bucketed_front(op: Op, otherwise):
    def front(input, boundaries, *, out_int32=False, right=False):
        found = _in_row(boundaries, input, right, out_int32)
        if found is not None:
            return found
        return otherwise(input, boundaries, out_int32=out_int32, right=right)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


# -- counts --------------------------------------------------------------------------------------


def bincount_front(op: Op, otherwise):
    def front(input, weights=None, minlength=0):
        if type(input) is not Tensor or weights is not None or Tensor not in PLAIN or not (
                usable(input.sig) and input.sig.rank == 1 and input.sig.dtype.kind in "iu"
                and type(minlength) is int and minlength >= 0):
            return otherwise(input, weights, minlength)
        return counted(input, minlength)

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def counted(x: Tensor, least: int) -> Tensor:
    """How often each number occurs, for at least so many of them."""
    x, n = plain(x), x.sig.numel
    largest, count = routines.counting(x.sig.dtype.name)
    high = largest(x.ptr, n)
    if high < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs, got a "
                           "negative number")
    out = empty(signature(dt.int64, (max(high + 1, least),)))
    count(x.ptr, out.ptr, out.sig.numel, n)
    return out


def histogram_front(op: Op, otherwise):
    def front(input, bins, low, high):
        sig = input.sig
        if not usable(sig) or sig.dtype not in (dt.float32, dt.float64) or type(bins) is not int:
            return otherwise(input, bins, low, high)
        out, words = empty(signature(sig.dtype, (bins,))), empty(signature(dt.int64, (bins,)))
        source = plain(input)
        routines.histogram(sig.dtype.name)(source.ptr, out.ptr, words.ptr, bins, float(low),
                                           float(high), bins / (high - low), sig.numel)
        return out

    return front


# -- running results -----------------------------------------------------------------------------


def logs_front(op: Op, otherwise):
    """logcumsumexp of float32 and float64."""
    def front(*args, **kwargs):
        bound = bind(op, args, kwargs)
        x, dim = bound["input"], bound["dim"]
        if type(x) is not Tensor or Tensor not in PLAIN or not usable(x.sig) or not x.sig.rank or (
                x.sig.dtype not in (dt.float32, dt.float64) or type(dim) is not int):
            return otherwise(*args, **kwargs)
        sig = x.sig
        n, inner = rows_of(sig, sh.wrap_dim(dim, sig.rank, "logcumsumexp"))
        out, source = empty(signature(sig.dtype, sig.shape)), plain(x)
        scans.running_logs(sig.dtype.name)(out.ptr, source.ptr, n, inner, sig.numel)
        if x.node is not None and modes.grad:
            record(op, bound, out)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {
    **dict.fromkeys(PAIRS, pair_front),
    "argsort":            argsort_front,
    "median":             median_front("median"),
    "nanmedian":          median_front("nanmedian"),
    "unique":             distinct_front("distinct"),
    "unique_consecutive": distinct_front("runs"),
    "places":             places_front,
    "searchsorted":       searched_front,
    "bucketize":          bucketed_front,
    "bincount":           bincount_front,
    "even_histogram":     histogram_front,
    "logcumsumexp":       logs_front,
}
