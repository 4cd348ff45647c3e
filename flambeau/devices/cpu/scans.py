"""Running sums of exponentials, as numpy computes them."""

from __future__ import annotations

from ...core.lazily import np
from .routines import routine

#: what sums are accumulated in
_WIDE = {np.dtype("float16"): np.float32, np.dtype("float32"): np.float64}


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
