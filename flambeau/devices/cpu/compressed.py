"""Products of matrices in compressed rows, by one native call: see assembly/compressed.py."""

from __future__ import annotations

import functools

from .foundry import machine_code

#: dtypes of values, and of indices, that there is code for
KINDS, INDICES = ("float32", "float64"), ("int64", "int32")
#: so many products are worth a range of rows of its own
_RANGE = 1 << 14


@functools.cache
def _code(which: str, dtype: str, index: str):
    name = f"compressed_{which}_{dtype}_{index}"
    return machine_code("compressed", (name,), which, dtype, index)[name]


def _run(which: str, dtype: str, index: str, pointers, width: int, rows: int, count: int) -> None:
    work = count * width + rows
    grain = max(1, _RANGE * rows // max(work, 1))
    _code(which, dtype, index)(*pointers, width, rows, grain, work)


def times(dtype: str, index: str, pointers, width: int, rows: int, count: int) -> None:
    """out = sparse @ dense; pointers to out, starts, places, values and dense."""
    _run("times", dtype, index, pointers, width, rows, count)


def sampled(dtype: str, index: str, pointers, width: int, rows: int, count: int) -> None:
    """out = (left @ right.T) where there are elements; pointers to out, starts, places, both."""
    _run("sampled", dtype, index, pointers, width, rows, count)
