"""Running results along rows: machine code (assembly/scans.py), or numpy for complex numbers."""

from __future__ import annotations

import functools

from ...core.lazily import np
from .foundry import machine_code
from .routines import routine

_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32",
             "uint64")
#: (dtype given, dtype made) that rows of sums and products have machine code for
RUNNING = {("float32", "float32"), ("float64", "float64"), *((name, "int64") for name in _INTEGERS)}


@functools.cache
def running(name: str, source: str, target: str):
    """cumsum or cumprod of contiguous rows: a routine (out, x, sizes), or None."""
    if (source, target) not in RUNNING:
        return None
    symbol = f"{name}_{source}_{target}"
    return machine_code("scans", (symbol,), name, source, target)[symbol]


@functools.cache
def running_extremes(name: str, dtype: str):
    """cummax or cummin of contiguous rows: a routine (values, places, x, sizes), or None."""
    if dtype not in ("float32", "float64", "int32", "int64"):
        return None
    symbol = f"{name}_{dtype}"
    return machine_code("scans", (symbol,), name, dtype)[symbol]


@functools.cache
def running_logs(dtype: str):
    """logcumsumexp: a routine (out, x, n, inner, total)."""
    symbol = f"logcumsumexp_{dtype}"
    return machine_code("scans", (symbol,), "logcumsumexp", dtype)[symbol]


#: what sums are accumulated in
_WIDE = {"float16": "float32", "float32": "float64"}


@routine
def logcumsumexp(input, dim):
    if not input.ndim:
        return input.copy()
    with np.errstate(all="ignore"):
        if input.dtype.kind != "c":
            wide = input.astype(_WIDE.get(input.dtype.name, input.dtype))
            return np.logaddexp.accumulate(wide, axis=dim).astype(input.dtype)
        return _complex_logcumsumexp(input, dim)


def _complex_logcumsumexp(input, dim):
    rows = np.moveaxis(input.astype(np.complex128), dim, 0)
    out = np.empty_like(rows)
    for k, row in enumerate(rows):
        if not k:
            out[0] = row
            continue
        before = out[k - 1]
        high = np.where(before.real >= row.real, before, row)
        low = np.where(before.real >= row.real, row, before)
        gap = np.where(np.isneginf(low.real), -np.inf, low - high)
        out[k] = np.where(np.isneginf(high.real), high, high + np.log1p(np.exp(gap)))
    return np.moveaxis(out, 0, dim).astype(input.dtype)
