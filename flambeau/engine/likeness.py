"""Fronts of `equal`, `isin` and `cosine_similarity` that nothing records: both tensors go through
one native call."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import expr as ex
from ..core.device import CPU
from ..core.rows import each, row_program
from ..devices.cpu import likeness
from ..ops.declare import Op
from . import rows as runs
from .eager import new_table
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .storage import checkers, readers
from .tensor import Signature, Tensor, signature

_KINDS = frozenset((dt.float32, dt.float64))


def _equal(op: Op, otherwise):
    plans = new_table()
    op.takes_out = True  # it does not, and says so

    def front(input, other) -> bool:
        try:
            code, count = plans[input.sig, other.sig]
        except (KeyError, AttributeError, TypeError):  # not met yet, no tensor, or not planned
            return missed(input, other)
        if tracers or readers:
            return otherwise(input, other)
        return code(input.ptr, other.ptr, count) == 1

    def missed(x, y):
        result = otherwise(x, y)
        if not tracers and isinstance(x, Tensor) and (x.sig, y.sig) not in plans:
            plans[x.sig, y.sig] = _comparison(x.sig, y.sig)
        return result

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _comparison(a: Signature, b: Signature):
    """(code, count) of tensors that lie alike; None of others."""
    if a is not b or a.tag is not None or a.device is not CPU or not a.contiguous or (
            a.dtype.name not in likeness.KINDS):
        return None
    return likeness.equal(a.dtype.name), a.numel


#: pairs of elements up to which comparing each is quicker than putting them in order
_FEW_PAIRS = 1 << 14


def _isin(op: Op, otherwise):
    """isin of few elements among few."""
    plans = new_table()
    op.takes_out = True

    def front(*args, **named):
        if named or len(args) != 2 or tracers or checkers or Tensor not in PLAIN:
            return otherwise(*args, **named)
        x, others = args
        if type(x) is not Tensor or type(others) is not Tensor:
            return otherwise(x, others)
        try:
            plan = plans[x.sig, others.sig]
        except KeyError:
            result = otherwise(x, others)
            plans[x.sig, others.sig] = _membership(x.sig, others.sig)
            return result
        if plan is None:
            return otherwise(x, others)
        sig, code, count, n = plan
        out = empty(sig)
        code(out.ptr, x.ptr, others.ptr, count, 0, n)
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _membership(x: Signature, others: Signature):
    """(signature of the result, code, how many others, how many); None where there is no code."""
    if x.dtype is not others.dtype or x.dtype is dt.bool_ or x.dtype.name not in likeness.KINDS:
        return None
    for sig in (x, others):
        if sig.tag is not None or sig.device is not CPU or not sig.contiguous or not sig.numel:
            return None
    if x.numel * others.numel > _FEW_PAIRS:
        return None
    return signature(dt.bool_, x.shape), likeness.among(x.dtype.name), others.numel, x.numel


def _of_rows(program, x: Tensor, y: Tensor, dims: tuple, **numbers):
    """(signature, code, last argument, count, what keeps them alive); None if it is not plain."""
    a, b = x.sig, y.sig
    if not (_plain(a) and _plain(b)) or a.shape != b.shape or a.dtype is not b.dtype:
        return None
    runs.run(program, x, y, dims=dims, **numbers)
    (sig,), *rest = runs.plans[program, dims, a, b, *map(type, numbers.values())]
    return sig, *rest


def _plain(sig: Signature) -> bool:
    return (sig.tag is None and sig.device is CPU and sig.dtype in _KINDS and sig.rank > 0
            and sig.numel > 0)


@row_program
def cosines(rows, x: each, y: each, *, eps):
    """The cosine between two rows, each divided by its length or by eps."""
    xx, yy = rows.sums(x * x, y * y)
    a, b = (ex.maximum(ex.call("sqrt", v), eps) for v in (xx, yy))
    return rows.once(rows.sum((x / a) * (y / b)))


def _cosine(op: Op, otherwise):
    plans = new_table()

    def front(x1, x2, dim=1, eps=1e-8) -> Tensor:
        try:
            sig, code, last, count, _ = plans[x1.sig, x2.sig, dim]
        except (KeyError, AttributeError, TypeError):
            return missed(x1, x2, dim, eps)
        if tracers or type(eps) is not float or type(dim) is not int or Tensor not in PLAIN or (
                modes.grad and (x1.node or x2.node)):
            return otherwise(x1, x2, dim, eps)
        out = empty(sig)
        code(out.ptr, x2.ptr, x1.ptr, count, eps, last)
        return out

    def missed(x1, x2, dim, eps):
        result = otherwise(x1, x2, dim, eps)
        if not tracers and type(dim) is int and x1.sig.rank and (
                (x1.sig, x2.sig, dim) not in plans):
            plans[x1.sig, x2.sig, dim] = _of_rows(cosines, x1, x2, (dim % x1.sig.rank,), eps=1.0)
        return result

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {"equal": _equal, "isin": _isin, "cosine_similarity": _cosine}
