"""Inverses and factors of small matrices by native code; numpy answers for large ones, and for
those that have none."""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core.device import CPU
from ..devices.cpu import inverse as factors
from ..devices.cpu.inverse import KINDS, MOST, inverse
from ..devices.cpu.routines import NATIVE
from ..devices.cpu.systems import system
from ..ops.declare import Op
from .convolve import plain_values
from .fresh import empty
from .interception import PLAIN, tracers
from .modes import modes
from .storage import checkers
from .tensor import Signature, Tensor, signature


def _inverse(sigs: tuple[Signature, Signature], bound: dict):
    """The routine of inv_ex."""
    sig, infos = sigs
    if sig.device is not CPU or sig.dtype.name not in KINDS or not 0 < sig.shape[-1] <= MOST or (
            not sig.numel):
        return None
    n, count = sig.shape[-1], infos.numel
    x, out, info = plain_values(bound["A"], sig.dtype), empty(sig), empty(infos)
    two, pivots = empty(signature(dt.float64, (2, n, n))), empty(signature(dt.int32, (n,)))
    failed = inverse(sig.dtype.name)(out.ptr, info.ptr, x.ptr, two.ptr, pivots.ptr, n, count,
                                     count * n * n * n)
    return None if failed else [out, info]


def has_code(sig: Signature) -> bool:
    return sig.device is CPU and sig.tag is None and sig.dtype.name in KINDS and sig.numel > 0 and (
        max(sig.shape[-2:]) <= MOST)


def _lower(sig: Signature, infos: Signature, x: Tensor, upper: bool = False):
    """[factor, infos] of Cholesky's, or None if one of the matrices has no factor."""
    n, count = sig.shape[-1], infos.numel
    out, info, one = empty(sig), empty(infos), empty(signature(dt.float64, (n, n)))
    failed = factors.cholesky(sig.dtype.name)(
        out.ptr, info.ptr, x.ptr, one.ptr, int(upper), n, count, count * n * n * n)
    return None if failed else [out, info]


def _cholesky_ex(sigs: tuple[Signature, Signature], bound: dict):
    """The routine of cholesky_ex."""
    if not has_code(sigs[0]):
        return None
    return _lower(*sigs, plain_values(bound["A"], sigs[0].dtype), bool(bound["upper"]))


def _cholesky(op: Op, otherwise):
    """linalg.cholesky of matrices of which nothing is recorded."""
    op.takes_out = True
    if op.where != "linalg":
        return otherwise

    def front(*args, **named):
        x = args[0] if len(args) == 1 else None
        if named or type(x) is not Tensor or tracers or checkers or Tensor not in PLAIN or (
                modes.grad and x.node is not None):
            return otherwise(*args, **named)
        sig = x.sig
        if sig.rank < 2 or not sig.contiguous or sig.shape[-2] != sig.shape[-1] or (
                not has_code(sig)):
            return otherwise(x)
        infos = _one_info if sig.rank == 2 else signature(dt.int32, tuple(sig.shape[:-2]))
        found = _lower(sig, infos, x)
        return otherwise(x) if found is None else found[0]

    front.__name__, front.__doc__ = op.name, op.doc
    return front


_one_info = signature(dt.int32, ())


#: products in one triangular solution up to which substitution is sooner done than BLAS is called
_SMALL = 1 << 14


def _turned(sig: Signature) -> bool:
    """Whether matrices lie by columns."""
    n = sig.shape[-1]
    return tuple(sig.strides[-2:]) == (1, n) and n > 1 and sig.numel == prod(sig.shape) and (
        sig.rank == 2 or (sig.rank == 3 and sig.strides[0] == n * n))


def _triangle(sig: Signature, bound: dict):
    """The routine of solve_triangular; matrices that are not one for each result are repeated."""
    A, B, left = bound["A"], bound["B"], bool(bound["left"])
    rows, columns = sig.shape[-2:]
    n, m = (rows, columns) if left else (columns, rows)
    one, count = rows * columns, sig.numel // max(1, rows * columns)
    if sig.dtype.name not in KINDS or sig.device is not CPU or not sig.numel or (
            A.sig.numel not in (n * n, count * n * n) or B.sig.numel not in (one, sig.numel)):
        return None
    turned = _turned(A.sig) and A.sig.dtype is sig.dtype
    a, b, out = A if turned else plain_values(A, sig.dtype), plain_values(B, sig.dtype), empty(sig)
    steps = n * n if A.sig.numel > n * n else 0, one if B.sig.numel > one else 0
    upper, unit = bool(bound["upper"]), bool(bound["unitriangular"])
    if n * n * m > _SMALL:
        system("trsm", sig.dtype.name)(
            out.ptr, a.ptr, b.ptr, *steps, ord("R" if left else "L"),
            ord("U" if upper is turned else "L"), ord("T" if turned else "N"),
            ord("U" if unit else "N"), n, rows, columns, count, count * n * n * m)
        return out
    # What is multiplied from the right is turned, and solved from the left.
    layout = (n, 1) if left is not turned else (1, n)
    sides = (columns, 1) if left else (1, columns)
    factors.triangle(sig.dtype.name)(
        out.ptr, a.ptr, b.ptr, *steps, *layout, *sides, n, m, int(upper is not left), int(unit),
        count, count * n * n * m)
    return out


NATIVE["inv_ex"], NATIVE["cholesky_ex"] = _inverse, _cholesky_ex
NATIVE["solve_triangular"] = _triangle
FRONTS = {"cholesky": _cholesky}
