"""Resampling of the last dimensions, one after the other, by tables of indices and weights.

A table has, for each element of the result, the elements it is made of and how much of each. The
table of the transpose is made by turning it around, so there and back are the same routine.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ...core.lazily import np
from .routines import routine

#: with more elements than this behind each one, a matrix product is faster
FEW = 8


class Table:
    """out[i] = sum over t of weights[t, i] * x[indices[t, i]], along one dimension."""

    def __init__(self, indices: np.ndarray, weights: np.ndarray | None, size: int):
        self.indices, self.weights, self.size = indices, weights, size
        self.out = indices.shape[1]
        self._matrices: dict = {}

    @property
    def copies(self) -> bool:
        """Whether every element of the result is one of the input's."""
        return self.weights is None

    @property
    def still(self) -> bool:
        """Whether nothing changes."""
        return self.copies and self.out == self.size and bool(
            (self.indices[0] == np.arange(self.size)).all())

    def matrix(self, dtype) -> np.ndarray:
        found = self._matrices.get(dtype)
        if found is None:
            found = np.zeros((self.out, self.size))
            weights = 1.0 if self.weights is None else self.weights
            rows = np.broadcast_to(np.arange(self.out), self.indices.shape)
            np.add.at(found, (rows, self.indices), weights)
            found = self._matrices[dtype] = found.astype(dtype)
        return found

    def turned(self) -> Table:
        """The table of the transpose."""
        taken = np.broadcast_to(np.arange(self.out), self.indices.shape).reshape(-1)
        given = self.indices.reshape(-1)
        weights = np.ones(given.shape) if self.weights is None else self.weights.reshape(-1)
        kept = weights != 0
        given, taken, weights = given[kept], taken[kept], weights[kept]
        order = np.argsort(given, kind="stable")
        given, taken, weights = given[order], taken[order], weights[order]
        counts = np.bincount(given, minlength=self.size)
        depth = np.arange(len(given)) - np.repeat(np.cumsum(counts) - counts, counts)
        indices = np.zeros((max(int(counts.max(initial=0)), 1), self.size), np.int64)
        spread = np.zeros(indices.shape)
        indices[depth, given], spread[depth, given] = taken, weights
        return Table(indices, spread, self.out)


# -- where each element comes from ----------------------------------------------------------------


def _ratio(size: int, out: int, align: bool, scale, kind):
    """How far apart in the input neighbours of the result are, in the arithmetic torch uses."""
    if align:
        return kind(size - 1) / kind(out - 1) if out > 1 else kind(0)
    return kind(1.0 / scale) if scale else kind(size) / kind(out)


def _source(size, out, align, scale, kind) -> np.ndarray:
    ratio, at = _ratio(size, out, align, scale, kind), np.arange(out, dtype=kind)
    return ratio * at if align else ratio * (at + kind(0.5)) - kind(0.5)


def _nearest(size, out, align, scale, kind):
    at = np.arange(out)
    if size == out:
        return at[None], None
    if out == 2 * size and not (scale and scale != 2):
        return at[None] >> 1, None
    ratio = _ratio(size, out, False, scale, np.float32)
    at = np.floor(at.astype(np.float32) * ratio).astype(np.int64)
    return np.minimum(at, size - 1)[None], None


def _nearest_exact(size, out, align, scale, kind):
    ratio = _ratio(size, out, False, scale, np.float32)
    at = np.floor((np.arange(out, dtype=np.float32) + np.float32(0.5)) * ratio).astype(np.int64)
    return np.minimum(at, size - 1)[None], None


def _linear(size, out, align, scale, kind):
    at = np.arange(out)
    if size == out and not (scale and scale != 1):
        return at[None], None
    real = np.maximum(_source(size, out, align, scale, kind), 0)
    low = np.minimum(real.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    share = np.clip(real - low, 0, 1).astype(np.float64)
    return np.stack([low, high]), np.stack([1 - share, share])


def _cubic_weights(t: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic at t + 1, t, 1 - t and 2 - t."""
    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return np.stack([far(t + 1), near(t), near(1 - t), far(2 - t)])


def _cubic(size, out, align, scale, kind):
    real = _source(size, out, align, scale, kind)
    low = np.floor(real)
    indices = low.astype(np.int64) + np.arange(-1, 3)[:, None]
    return np.clip(indices, 0, size - 1), _cubic_weights((real - low).astype(np.float64), -0.75)


def _area(size, out, align, scale, kind):
    at = np.arange(out)
    begin, end = at * size // out, -(-(at + 1) * size // out)
    length = end - begin
    taps = np.arange(int(length.max(initial=1)))[:, None]
    weights = np.where(taps < length, 1.0 / length, 0.0)
    return np.minimum(begin + taps, size - 1), weights


def _triangle(x):
    return np.maximum(1 - np.abs(x), 0)


def _keys(x):
    x, a = np.abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(x):
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


def _antialiased(filter, width: int):
    """A filter widened, when shrinking, to all the elements that one of the result stands for."""
    def table(size, out, align, scale, kind):
        ratio = float(_ratio(size, out, align, scale, kind))
        support = width / 2 * max(ratio, 1.0)
        centre = ratio * (np.arange(out) + 0.5)
        begin = np.maximum((centre - support + 0.5).astype(np.int64), 0)
        length = np.minimum((centre + support + 0.5).astype(np.int64), size) - begin
        taps = np.arange(max(int(length.max(initial=1)), math.ceil(support)))[:, None]
        weights = filter((taps + begin - centre + 0.5) / max(ratio, 1.0))
        weights = np.where(taps < length, weights, 0.0)
        totals = weights.sum(0)
        return np.minimum(begin + taps, size - 1), weights / np.where(totals == 0, 1, totals)
    return table


MODES = {
    "nearest":       _nearest,
    "nearest-exact": _nearest_exact,
    "linear":        _linear,
    "cubic":         _cubic,
    "area":          _area,
    "linear-aa":     _antialiased(_triangle, 2),
    "cubic-aa":      _antialiased(_keys, 4),
    "lanczos-aa":    _antialiased(_lanczos, 6),
}


@lru_cache(256)
def table_of(mode: str, size: int, out: int, align: bool, scale, kind) -> Table:
    indices, weights = MODES[mode](size, out, align, scale, kind)
    return Table(indices, weights, size)


@lru_cache(256)
def turned_table_of(mode: str, size: int, out: int, align: bool, scale, kind) -> Table:
    return table_of(mode, size, out, align, scale, kind).turned()


# -- applying tables ------------------------------------------------------------------------------


def _along(x: np.ndarray, table: Table, axis: int) -> np.ndarray:
    if table.still:
        return x
    if table.weights is None:
        return x.take(table.indices[0], axis)
    rest = [1] * (-axis - 1)
    if len(table.indices) > FEW:
        return _by_matrix(x, table.matrix(x.dtype), axis)
    weights = table.weights.astype(x.dtype)
    out = x.take(table.indices[0], axis) * weights[0].reshape(-1, *rest)
    for indices, weight in zip(table.indices[1:], weights[1:], strict=True):
        part = x.take(indices, axis)
        part *= weight.reshape(-1, *rest)
        out += part
    return out


def _by_matrix(x: np.ndarray, matrix: np.ndarray, axis: int) -> np.ndarray:
    if axis == -1:
        return np.matmul(x, matrix.T)
    lead, rest = x.shape[:axis], x.shape[axis + 1:]
    out = np.matmul(matrix, x.reshape(*lead, x.shape[axis], -1))
    return out.reshape(*lead, len(matrix), *rest)


def _all_along(x: np.ndarray, tables: list[Table]) -> np.ndarray:
    """Every dimension in turn, those that shrink most first."""
    given = x.dtype
    if given.kind == "u" and not all(t.copies for t in tables):
        return _bytes_along(x, tables)
    if given == np.float16:
        x = x.astype(np.float32)
    places = sorted(range(len(tables)), key=lambda d: tables[d].out / max(tables[d].size, 1))
    for d in places:
        x = _along(x, tables[d], d - len(tables))
    return x.astype(given, copy=False)


def _bytes_along(x: np.ndarray, tables: list[Table]) -> np.ndarray:
    """Images of bytes: in fixed point, the last dimension first, and bytes again after each."""
    for d in range(len(tables) - 1, -1, -1):
        table, axis = tables[d], d - len(tables)
        if table.weights is None:
            x = x.take(table.indices[0], axis)
            continue
        weights, bits = _fixed_point(table.weights)
        total = np.full((), 1 << (bits - 1), np.int32)
        for indices, weight in zip(table.indices, weights, strict=True):
            total = total + x.take(indices, axis) * weight.reshape(-1, *[1] * (-axis - 1))
        x = np.clip(total >> bits, 0, 255).astype(np.uint8)
    return x


def _fixed_point(weights: np.ndarray) -> tuple[np.ndarray, int]:
    """Weights as 16-bit whole numbers, and how many bits of them are behind the point."""
    bits, largest = 0, float(weights.max(initial=0.0))
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    scaled = weights * (1 << bits)
    return np.where(scaled < 0, scaled - 0.5, scaled + 0.5).astype(np.int32), bits


def _tables(maker, sizes, outs, mode, align_corners, scales, dtype) -> list[Table]:
    kind = np.float64 if dtype == np.float64 else np.float32
    scales = scales or [None] * len(sizes)
    return [maker(mode, size, out, bool(align_corners), scale, kind)
            for size, out, scale in zip(sizes, outs, scales, strict=True)]


@routine
def resample(input, sizes, mode, align_corners, scales):
    given = input.shape[-len(sizes):]
    if not input.size or 0 in sizes:
        return np.zeros((*input.shape[:-len(sizes)], *sizes), input.dtype)
    return _all_along(input, _tables(table_of, given, sizes, mode, align_corners, scales,
                                     input.dtype))


@routine
def resample_back(g, sizes, mode, align_corners, scales):
    outs = g.shape[-len(sizes):]
    if not g.size:
        return np.zeros((*g.shape[:-len(sizes)], *sizes), g.dtype)
    return _all_along(g, _tables(turned_table_of, sizes, outs, mode, align_corners, scales,
                                 g.dtype))
