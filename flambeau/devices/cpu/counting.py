"""Histograms and counts, as numpy computes them."""

from __future__ import annotations

from ...core.lazily import np
from .routines import routine


@routine
def bincount(input, weights, minlength):
    if input.size and input.min() < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs, got a "
                           "negative number")
    if weights is None:
        return np.bincount(input, minlength=minlength)
    found = np.bincount(input, weights, minlength)
    return found.astype(np.float32 if weights.dtype == np.float32 else np.float64)


@routine
def even_histogram(input, bins, low, high):
    x = input.reshape(-1)
    x = x[(x >= low) & (x <= high)]
    at = ((x - x.dtype.type(low)) * x.dtype.type(bins / (high - low))).astype(np.int64)
    return np.bincount(np.minimum(at, bins - 1), minlength=bins).astype(input.dtype)


@routine
def binned(input, weight, edges, density):
    shape = [max(len(e) - 1, 0) for e in edges]
    inside = np.ones(len(input), bool)
    cells = np.zeros(len(input), np.int64)
    for k, borders in enumerate(edges):
        column = input[:, k]
        with np.errstate(invalid="ignore"):
            inside &= (column >= borders[0]) & (column <= borders[-1])
        at = np.searchsorted(borders, column, "right") - 1
        cells = cells * shape[k] + np.minimum(at, shape[k] - 1)
    weights = None if weight is None else weight[inside].astype(np.float64)
    found = np.bincount(cells[inside], weights, int(np.prod(shape))).reshape(shape)
    found = found.astype(np.float64)
    if density:
        found = found / found.sum()
        for k, borders in enumerate(edges):
            spread = [1] * len(edges)
            spread[k] = -1
            found = found / np.diff(borders).reshape(spread)
    return found
