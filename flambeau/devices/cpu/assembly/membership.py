"""Whether numbers are among others, or fractions of one: a look at each."""

from __future__ import annotations

from .fills import TYPES
from .writer import Function


def _among(dtype: str) -> Function:
    """among_<dtype>(out, x, others, count, absent, n): absent turns the answer round."""
    kind = TYPES[dtype][0]
    f = Function(f"among_{dtype}", "ptr out, ptr x, ptr others, i64 count, i64 absent, i64 n")
    with f.each(0, f.n) as i:
        x, found = f.x.load(kind, i), f.var("i64", 0)
        with f.each(0, f.count) as k:
            found.set(found() | (f.others.load(kind, k) == x).to("i64"))
        f.out.store((found() ^ f.absent).to("i8"), i)
    return f


def _fractions(dtype: str) -> Function:
    """fractions_<dtype>(x, n): 1 if all are in [0, 1], else 0; NaN is not."""
    kind = TYPES[dtype][0]
    f = Function(f"fractions_{dtype}", "ptr x, i64 n", "i64")
    all_ = f.var("i64", 1)
    with f.each(0, f.n) as i:
        x = f.x.load(kind, i)
        all_.set(all_() & ((x >= 0) & (x <= 1)).to("i64"))
    f.give(all_())
    return f


_MADE = {"among": _among, "fractions": _fractions}


def build(name: str, dtype: str) -> list[Function]:
    return [_MADE[name](dtype)]
