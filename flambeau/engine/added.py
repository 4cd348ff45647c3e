"""Fronts of products that are added to something: one native call, the sum in the tile's epilogue.

What generated code has no form for (integers and complex numbers, an input whose last dimension is
neither contiguous nor expanded, meta tensors) is left to the composite's front, as is every error.
"""

from __future__ import annotations

from ..core import shape as sh
from ..core.device import CPU
from ..devices.cpu.matmul import front as real
from ..devices.cpu.matmul.product import SUMS
from ..ops.declare import Op
from ..ops.product import product_shape
from .eager import new_table
from .formula import record
from .fresh import empty
from .interception import PLAIN
from .modes import modes
from .product import Side, real_words
from .tensor import Signature, Tensor, signature

_NUMBERS = (int, float, bool)
#: op -> ranks of the two factors
_RANKS = {"addmm": (2, 2), "addmv": (2, 1), "baddbmm": (3, 3)}


class _Sum:
    """How beta * input + alpha * (x @ w) is computed for known signatures and numbers."""

    __slots__ = ("function", "out", "words")

    def __init__(self, shape: tuple, c: Signature, x: Signature, w: Signature, beta, alpha):
        self.out = signature(x.dtype, shape)
        a, b = Side(x, True), Side(w, False)
        strides = _strides(c, (*shape, 1) if w.rank == 1 else shape, w.rank == 1)
        added = strides[-2:] if beta != 0 else None
        self.words = real_words(a, b, x.dtype, added, strides[:-2], float(alpha), float(beta))
        self.function = real.product_function(x.dtype.name, True)

    def __call__(self, c: Tensor, x: Tensor, w: Tensor) -> Tensor:
        out = empty(self.out)
        self.function(out.ptr, x.ptr, w.ptr, c.ptr, self.words.address)
        return out


def _strides(c: Signature, shape: tuple, column: bool) -> tuple:
    """The input's strides as one of the product's shape; 0 where there is one element."""
    sizes, steps = tuple(c.shape), tuple(c.strides)
    if column:
        sizes, steps = (*sizes, 1), (*steps, 0)
    found = sh.expand_strides(sizes, steps, shape)
    return tuple(0 if n == 1 else step for n, step in zip(shape, found, strict=True))


def _planned(op: Op, c: Signature, x: Signature, w: Signature, beta, alpha) -> _Sum | None:
    """The plan of a call, None where it is the composite's."""
    known = x.dtype.name in SUMS and c.dtype is x.dtype is w.dtype
    here = c.device is x.device is w.device is CPU
    if not known or not here or (x.rank, w.rank) != _RANKS[op.name] or 0 in x.shape:
        return None
    if x.shape[-1] != w.shape[-2 if w.rank > 1 else 0] or x.shape[:-2] != w.shape[:-2]:
        return None
    shape = tuple(product_shape(x, w))
    if 0 in shape or not _fits(tuple(c.shape), shape):
        return None
    strides = _strides(c, (*shape, 1) if w.rank == 1 else shape, w.rank == 1)
    along = strides[-2] if w.rank == 1 or shape[-1] == 1 else strides[-1]
    return _Sum(shape, c, x, w, beta, alpha) if along in (0, 1) else None


def _fits(have: tuple, shape: tuple) -> bool:
    """Whether a shape expands to another."""
    return len(have) <= len(shape) and all(
        n in (1, m) for n, m in zip(reversed(have), reversed(shape), strict=False))


def added_front(op: Op, slow):
    """The front that runs known calls at once, and `slow` otherwise."""
    plans, names = new_table(), op.names

    def front(*args, **kwargs):
        beta, alpha = (kwargs.get("beta", 1), kwargs.get("alpha", 1)) if kwargs else (1, 1)
        try:  # a signature that asks for another's answer is in no plan
            c, x, w = args
            known = plans[c.sig, x.sig, w.sig, beta, alpha]
        except (KeyError, ValueError, AttributeError, TypeError):
            known = miss(args, kwargs, beta, alpha)
        if known is None or len(kwargs) > ("beta" in kwargs) + ("alpha" in kwargs):
            return slow(*args, **kwargs)
        out = known(c, x, w)
        if (c.node is not None or x.node is not None or w.node is not None) and modes.grad:
            record(op, dict(zip(names, (c, x, w, beta, alpha), strict=True)), out)
        return out

    def miss(args, kwargs, beta, alpha) -> _Sum | None:
        if len(args) != 3 or "out" in kwargs or type(beta) not in _NUMBERS or (
                type(alpha) not in _NUMBERS) or not PLAIN.issuperset(map(type, args)) or any(
                [not isinstance(t, Tensor) or t.sig.tag is not None for t in args]):
            return None
        key = (*[t.sig for t in args], beta, alpha)
        plans[key] = found = _planned(op, *key)
        return found

    front.__name__, front.__doc__ = op.name, op.doc
    return front


#: ops with such fronts
FRONTS = dict.fromkeys(_RANKS, added_front)
