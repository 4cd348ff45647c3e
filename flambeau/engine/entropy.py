"""Quick fronts for the cross entropy of plain logits, and for that of plain log-probabilities: both
kernels by one lookup."""

from __future__ import annotations

import ctypes
import math

from ..core import dtype as dt
from ..core.device import META
from ..ops.cross_entropy import averaged, class_dim, dims_of, entropies, likelihoods
from .eager import new_table
from .fresh import empty
from .interception import PLAIN
from .keeping import KeepingBack
from .modes import modes
from .node import new_node
from .rows import plans
from .storage import checkers
from .tensor import LEAF, Signature

_READERS = {dt.float32: ctypes.c_float.from_address, dt.float64: ctypes.c_double.from_address}


def entropy_front(op, general):
    """The front of `class_entropy`: `general` answers what has not been met, and all refusals."""
    known, back = new_table(), KeepingBack(op)

    def front(input, target, weight, ignored, reduction, smoothing):
        plain = weight is None and smoothing is None and (
            type(input) in PLAIN and type(target) in PLAIN)
        if plain:
            plan = known.get((input.sig, target.sig, ignored, reduction))
            if plan is not None:
                (each, one), mean, read, (code, last, count), (code2, last2, count2) = plan
                losses, lse, loss, divisor = empty(each), empty(each), empty(one), empty(one)
                code(losses.ptr, lse.ptr, target.ptr, input.ptr, count, last)
                code2(loss.ptr, divisor.ptr, target.ptr, losses.ptr, count2, last2)
                if not math.isnan(read(divisor.ptr).value):
                    node = input.node
                    if node is not None and modes.grad:
                        kept = (input, target, None, ignored, None, lse, divisor if mean else None)
                        loss.node = new_node(back, (input if node is LEAF else node,), kept, (one,))
                    return loss
        result = general(input, target, weight, ignored, reduction, smoothing)
        if plain and reduction != "none":
            _remember(known, input.sig, target.sig, ignored, reduction)
        return result

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _remember(known: dict, logits: Signature, target: Signature, ignored: int, reduction: str,
              program=entropies, more=(None,)) -> None:
    """Keep the plans of a plain call that has gone well."""
    read = _READERS.get(logits.dtype)
    if read is None or logits.tag or target.tag or logits.device is META or not logits.numel:
        return
    dim = class_dim(logits.rank)
    classes, mean = logits.shape[dim], reduction == "mean"
    found = plans.get((program, (dim,), logits, target, None, ignored, *more))
    if found is None:
        return
    each = found[0][0]
    last = plans.get((averaged, dims_of(each.rank), each, None, target, ignored, classes, mean))
    if last is not None:
        known[logits, target, ignored, reduction] = (
            (each, last[0][0]), mean, read, found[1:4], last[1:4])


def likelihood_front(op, general):
    """The front of `class_likelihood`, made the same way."""
    known, back = new_table(), KeepingBack(op)

    def front(input, target, weight, ignored, reduction):
        plain = weight is None and not checkers and (
            type(input) in PLAIN and type(target) in PLAIN)
        if plain:
            plan = known.get((input.sig, target.sig, ignored, reduction))
            if plan is not None:
                (each, one), mean, read, (code, last, count), (code2, last2, count2) = plan
                losses, loss, divisor = empty(each), empty(one), empty(one)
                code(losses.ptr, target.ptr, input.ptr, count, last)
                code2(loss.ptr, divisor.ptr, target.ptr, losses.ptr, count2, last2)
                if not math.isnan(read(divisor.ptr).value):
                    node = input.node
                    if node is not None and modes.grad:
                        kept = (input, target, None, ignored, divisor if mean else None)
                        loss.node = new_node(back, (input if node is LEAF else node,), kept, (one,))
                    return loss
        result = general(input, target, weight, ignored, reduction)
        if plain and reduction != "none":
            _remember(known, input.sig, target.sig, ignored, reduction, likelihoods, ())
        return result

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {"class_entropy": entropy_front, "class_likelihood": likelihood_front}
