"""Whether two rows of elements are equal: it stops where they are not."""

from __future__ import annotations

from .fills import TYPES
from .writer import Function, wide

#: elements that are compared before it is asked whether all were equal
BLOCK = 32


def build(dtype: str) -> list[Function]:
    """equal_<dtype>(x, y, n): 1 if all are equal, else 0; a NaN equals nothing."""
    kind = TYPES[dtype][0]
    f = Function(f"equal_{dtype}", "ptr x, ptr y, i64 n", "i64")
    whole = f.n & -BLOCK
    with f.each(0, whole, BLOCK) as i:
        x, y = (row.load(wide(kind, BLOCK), i) for row in (f.x, f.y))
        with f.when((x != y).mask() != 0):
            f.give(f.const("i64", 0))
    with f.each(whole, f.n) as i, f.when(f.x.load(kind, i) != f.y.load(kind, i)):
        f.give(f.const("i64", 0))
    f.give(f.const("i64", 1))
    return [f]
