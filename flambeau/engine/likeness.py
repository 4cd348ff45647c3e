"""The front of `equal`: both tensors are read once, by one kernel that says whether they differ."""

from __future__ import annotations

import ctypes

from ..core import dtype as dt
from ..core import expr as ex
from ..core.device import CPU
from ..core.rows import each, row_program
from ..ops.declare import Op
from . import rows as runs
from .eager import PLAIN, new_table, tracers
from .storage import readers
from .tensor import Signature, Tensor, empty

_KINDS = frozenset((dt.float32, dt.float64))
_read = ctypes.c_float.from_address


@row_program
def differ(rows, x: each, y: each):
    """1 if an element is not what the other is, else 0."""
    other = ex.where(x == y, ex.const(0, x.dtype), ex.const(1, x.dtype))
    return rows.once(rows.top(other), dt.float32)


def _equal(op: Op, otherwise):
    plans = new_table()

    def front(input, other):
        try:
            sig, code, last, count, _ = plans[input.sig, other.sig]
        except (KeyError, AttributeError, TypeError):  # not met yet, no tensor, or not planned
            return missed(input, other)
        if tracers or readers or Tensor not in PLAIN:
            return otherwise(input, other)
        out = empty(sig)
        code(out.ptr, other.ptr, input.ptr, count, last)
        return _read(out.ptr).value == 0

    def missed(x, y):
        result = otherwise(x, y)
        if not tracers and isinstance(x, Tensor) and (x.sig, y.sig) not in plans:
            plans[x.sig, y.sig] = _planned(x, y)
        return result

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _planned(x: Tensor, y: Tensor):
    a, b = x.sig, y.sig
    if not (_plain(a) and _plain(b)) or a.shape != b.shape or a.dtype is not b.dtype:
        return None
    dims = tuple(range(a.rank))
    runs.run(differ, x, y, dims=dims)
    (sig,), *rest = runs.plans[differ, dims, a, b]
    return sig, *rest


def _plain(sig: Signature) -> bool:
    return (sig.tag is None and sig.device is CPU and sig.dtype in _KINDS and sig.rank > 0
            and sig.numel > 0)


FRONTS = {"equal": _equal}
