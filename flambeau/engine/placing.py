"""Fronts of copies in which some values are put in the place of others: what is known takes one
frame.

Each looks up what was planned for these signatures and runs it. What is traced, most of what is
recorded for gradients, and all errors are left to the op's usual front.
"""

from __future__ import annotations

from typing import Any

from ..core import dtype as dt
from ..core.device import CPU
from ..core.lazily import Lazily
from ..devices.cpu.bounds import within
from ..ops.declare import Op, registry
from ..ops.refusal import check_element
from . import pointwise as pw
from . import selection
from .create import filled
from .eager import engine, new_table, run_alike
from .formula import record
from .fresh import empty
from .interception import PLAIN, tracers
from .masking import covers
from .modes import modes
from .storage import checkers
from .tensor import Signature, Tensor, signature

routines: Any = Lazily("flambeau.devices.cpu.ordering")


def _plain(sig: Signature) -> bool:
    return sig.tag is None and sig.device is CPU and sig.contiguous and sig.numel > 0


def _front(op: Op, otherwise, key_of, plan_of, run):
    """The front of f(*args): `run(plan, *args)` by what was planned for the key of the arguments.

    The usual front answers where there is no key, no plan yet, or `run` gives None.
    """
    plans, op.takes_out = new_table(), True

    def front(*args, **named):
        if named or tracers or checkers or Tensor not in PLAIN:
            return otherwise(*args, **named)
        assert op  # by which a profiler knows whose frame this is
        key = key_of(args)
        if key is None:
            return otherwise(*args)
        plan = plans.get(key)
        if plan:
            out = run(plan, *args)
            return otherwise(*args) if out is None else out
        result = otherwise(*args)
        if plan is None:
            plans[key] = plan_of(*args) or False
        return result

    front.__name__, front.__doc__ = op.name, op.doc
    return front


# -- diagonals -------------------------------------------------------------------------------------


def _diag(op: Op, otherwise):
    """diag of a vector."""
    embedding = registry["diag_embed"]

    def key_of(args):
        x = args[0] if args else None
        if type(x) is not Tensor or len(args) > 2 or (len(args) == 2 and type(args[1]) is not int):
            return None
        return x.sig, *args[1:]

    def plan_of(x, diagonal=0):
        """(signature of the result, machine code, its last argument, where the diagonal starts)"""
        sig = x.sig
        if sig.rank != 1 or sig.tag is not None or sig.device is not CPU or not sig.numel:
            return None
        size = sig.shape[0] + abs(diagonal)
        out = signature(sig.dtype, (size, size))
        part = signature(sig.dtype, sig.shape, (size + 1,))
        copy = pw.plan(engine.identity, (sig,), (), part)
        start = diagonal if diagonal > 0 else -diagonal * size
        return out, copy[2], copy[3], start * sig.dtype.itemsize, copy

    def run(plan, x, diagonal=0):
        sig, code, last, start, _ = plan
        out = filled(empty(sig), 0)
        code(out.ptr + start, x.ptr, last)
        if x.node is not None and modes.grad:
            record(embedding, {"x": x, "offset": diagonal, "dim1": -2, "dim2": -1}, out)
        return out

    return _front(op, otherwise, key_of, plan_of, run)


# -- masks and indices -----------------------------------------------------------------------------


def _masked_scatter(op: Op, otherwise):
    """masked_scatter that nothing records, of a tensor and a mask of one shape."""
    def key_of(args):
        if len(args) != 3:
            return None
        x, mask, source = args
        if type(x) is type(mask) is type(source) is Tensor:
            return x.sig, mask.sig, source.sig
        return None

    def plan_of(x, mask, source):
        sig, given = x.sig, source.sig
        if not (_plain(sig) and _plain(mask.sig) and _plain(given)) or (
                sig.shape != mask.sig.shape or not covers(mask.sig, sig)
                or given.dtype is not sig.dtype):
            return None
        code = routines.masks()
        return code["mask_count"], code[f"mask_put_{sig.dtype.itemsize}"], sig, given.numel

    def run(plan, x, mask, source):
        count, put, sig, most = plan
        if (modes.grad and (x.node is not None or source.node is not None)) or (
                count(mask.ptr, sig.numel) > most):
            return None
        out = empty(sig)
        put(mask.ptr, x.ptr, source.ptr, out.ptr, sig.numel)
        return out

    return _front(op, otherwise, key_of, plan_of, run)


_NUMBERS = frozenset((int, float, bool))


def _index_fill(op: Op, otherwise):
    """index_fill with a number that nothing records."""
    def key_of(args):
        if len(args) != 4:
            return None
        x, dim, index, value = args
        kind = type(value)
        if type(x) is type(index) is Tensor and type(dim) is int and kind in _NUMBERS:
            return x.sig, dim, index.sig, kind
        return None

    def plan_of(x, dim, index, value):
        sig, where = x.sig, index.sig
        if not (_plain(sig) and _plain(where)) or not sig.rank or where.rank != 1:
            return None
        dim %= sig.rank
        frame = selection.rows(index, tuple(sig.shape), dim).frame
        given = signature(sig.dtype, ())
        code, last, numbers, program = selection.writing(frame, sig, given, None)
        return None if numbers else (within(where.dtype.name), where.numel, sig.shape[dim], given,
                                     code, last, program)

    def run(plan, x, dim, index, value):
        check, count, high, given, code, last, _ = plan
        if given.dtype.kind in "iu":
            check_element(value, given.dtype)
        if (modes.grad and x.node is not None) or not check(index.ptr, count, 0, high):
            return None
        out, source = engine.clone(x), filled(empty(given), value)
        code(out.ptr, source.ptr, index.ptr, last)
        return out

    return _front(op, otherwise, key_of, plan_of, run)


# -- numbers that are none -------------------------------------------------------------------------


#: what `replaced` is told, by name
_TOLD = tuple((name, float) for name in ("nan", "posinf", "neginf"))


def _nan_to_num(op: Op, otherwise):
    """nan_to_num with what is put there unless told."""
    replaced = registry["replaced"]

    def key_of(args):
        return args[0].sig if len(args) == 1 and type(args[0]) is Tensor else None

    def plan_of(x):
        """What the usual front has just run, and what it was told."""
        quick = replaced.alike.get((x.sig, *_TOLD))
        if quick is None:
            return None
        most = float(dt.finfo(x.sig.dtype).max)
        return quick, {"nan": 0.0, "posinf": most, "neginf": -most}

    def run(plan, x):
        return run_alike(replaced, plan[0], (x,), plan[1])

    return _front(op, otherwise, key_of, plan_of, run)


FRONTS = {
    "diag":           _diag,
    "masked_scatter": _masked_scatter,
    "index_fill":     _index_fill,
    "nan_to_num":     _nan_to_num,
}
