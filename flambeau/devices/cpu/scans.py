"""Running results along a dimension, as numpy computes them."""

from __future__ import annotations

import numpy as np

from ...core import dtype as dt
from .routines import routine

#: what sums and products are accumulated in
_WIDE = {np.dtype("float16"): np.float32, np.dtype("float32"): np.float64,
         np.dtype("complex64"): np.complex128}


def _accumulated(function, input, dim, dtype):
    if input.dtype.kind in "bui" and dtype is None:
        dtype = dt.int64
    given = input.dtype if dtype is None else np.dtype(
        np.float32 if dtype is dt.bfloat16 else dtype.numpy)
    x = input.astype(given, copy=False)
    if not x.ndim:
        return x.copy()
    with np.errstate(all="ignore"):
        return function(x, axis=dim, dtype=_WIDE.get(given, given)).astype(given, copy=False)


@routine
def cumsum(input, dim, dtype):
    return _accumulated(np.cumsum, input, dim, dtype)


@routine
def cumprod(input, dim, dtype):
    return _accumulated(np.cumprod, input, dim, dtype)


def _running_extreme(input, dim, extreme):
    """Values so far and their positions: the last of equals, and the last NaN."""
    if not input.ndim:
        return input.copy(), np.zeros((), np.int64)
    with np.errstate(invalid="ignore"):
        values = extreme.accumulate(input, axis=dim)
        taken = (input == values) | (input != input)
    shape = [1] * input.ndim
    shape[dim] = input.shape[dim]
    positions = np.arange(input.shape[dim]).reshape(shape)
    return values, np.maximum.accumulate(np.where(taken, positions, 0), axis=dim)


@routine
def cummax(input, dim):
    return _running_extreme(input, dim, np.maximum)


@routine
def cummin(input, dim):
    return _running_extreme(input, dim, np.minimum)


@routine
def logcumsumexp(input, dim):
    if not input.ndim:
        return input.copy()
    with np.errstate(all="ignore"):
        if input.dtype.kind != "c":
            wide = input.astype(_WIDE.get(input.dtype, input.dtype))
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
