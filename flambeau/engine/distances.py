"""Fronts of `cdist` and `pdist`: each distance is one fold of differences, none of which is stored.

What is recorded, few rows, and errors are left to the fronts that the ops have anyway.
"""

from __future__ import annotations

import math
import operator
from array import array
from functools import lru_cache

from ..core import dtype as dt
from ..core import expr as ex
from ..core.device import CPU
from ..core.kernel import Fold, Kernel, Operand, Store
from ..devices.cpu.compile import compile_kernel
from ..ops.declare import Op
from ..ops.matrix_norm import by_products
from .convolve import plain_values
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .storage import checkers
from .tensor import Tensor, signature

#: elements of all differences, and of all rows, from which on these kernels are sooner done; of
#: rows that are shorter than vectors they never are
_ENOUGH, _LONG, _SHORT = 1 << 17, 4096, 8

#: norm -> (what an element adds, how two parts join, what becomes of all)
_KINDS = {
    0.0:      (lambda d, p: ex.cast(d != 0, d.dtype), operator.add, lambda s, p: s),
    1.0:      (lambda d, p: d, operator.add, lambda s, p: s),
    2.0:      (lambda d, p: d * d, operator.add, lambda s, p: ex.call("sqrt", s)),
    math.inf: (lambda d, p: d, ex.maximum, lambda s, p: s),
    None:     (lambda d, p: ex.call("pow", d, p), operator.add,
               lambda s, p: ex.call("pow", s, 1 / p)),
}


@lru_cache(maxsize=64)
def _code(dtype: dt.dtype, kind: float | None):
    """Code for (out, rows, other rows, [p,] layout): loops over both, and a fold along them."""
    element, join, finish = _KINDS[kind]
    p = ex.param(0, dtype)
    one, other = (ex.make("state", (), k, dtype) for k in (0, 1))
    apart = ex.call("abs", ex.input(1, dtype) - ex.input(2, dtype))
    fold = Fold((ex.const(0, dtype),), (join(one, element(apart, p)),), (join(one, other),))
    value = finish(ex.make("fold", (), 0, dtype), p)
    operands = Operand(dtype, "0", True), Operand(dtype, "1"), Operand(dtype, "1")
    return compile_kernel(Kernel(operands, () if kind is not None else (dtype,), 2, 1, "reduced",
                                 (("fold", fold), ("row", (Store(0, value),)))))


def _distances(out: int, a: int, b: int, dtype: dt.dtype, sizes: tuple, p: float) -> None:
    """Distances of n rows at a to k rows at b, of m elements each."""
    n, k, m = sizes
    size = dtype.itemsize
    words = array("q", (n * k * m, n, k, m, k * size, size, 0, m * size, 0, size, 0, m * size,
                        size))
    kind = p if p in _KINDS else None
    _code(dtype, kind)(out, a, b, *(() if kind is not None else (p,)),
                       words.buffer_info()[0] + 8)


def _is_plain(*tensors) -> bool:
    if tracers or checkers or Tensor not in PLAIN:
        return False
    for x in tensors:
        if type(x) not in PLAIN or not isinstance(x, Tensor) or x.sig.tag is not None or (
                x.sig.device is not CPU or x.sig.rank != 2
                or x.sig.dtype not in (dt.float32, dt.float64)
                or (modes.grad and x.node is not None)):
            return False
    return True


def _cdist(op: Op, otherwise):
    def front(*args, **named):
        if named or len(args) < 2 or len(args) > 4 or not _is_plain(*args[:2]):
            return otherwise(*args, **named)
        x, y = args[:2]
        p, mode = args[2] if len(args) > 2 else 2.0, args[3] if len(args) > 3 else None
        (n, m), (k, columns) = x.sig.shape, y.sig.shape
        if m != columns or m < _SHORT or n * k * m < _ENOUGH or not p >= 0 or (
                x.sig.dtype is not y.sig.dtype or by_products(x, y, p, mode)):
            return otherwise(*args)
        kind = x.sig.dtype
        x, y, out = plain_values(x, kind), plain_values(y, kind), empty(signature(kind, (n, k)))
        _distances(out.ptr, x.ptr, y.ptr, kind, (n, k, m), float(p))
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


def _pdist(op: Op, otherwise):
    def front(*args, **named):
        if named or not 1 <= len(args) <= 2 or not _is_plain(args[0]):
            return otherwise(*args, **named)
        x, p = (*args, 2.0)[:2]
        n, m = x.sig.shape
        if n * m < _LONG or not p >= 0:
            return otherwise(*args)
        kind = x.sig.dtype
        x, out = plain_values(x, kind), empty(signature(kind, (n * (n - 1) // 2,)))
        size, at = kind.itemsize, out.ptr
        for i in range(n - 1):
            rest, row = n - 1 - i, x.ptr + i * m * size
            _distances(at, row, row + m * size, kind, (1, rest, m), float(p))
            at += rest * size
        return out

    front.__name__, front.__doc__ = op.name, op.doc
    return front


FRONTS = {"cdist": _cdist, "pdist": _pdist}
