"""Where the elements of a matrix in compressed rows are, and the products that follow from that.

A pattern is shared by tensors that differ in their values; what it looks like by columns is found
once. Products are functions of values and of strided matrices, differentiated by each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..assemble import convert, engine
from ..devices.cpu import compressed as code
from ..engine.inplace import detached
from ..engine.modes import modes
from ..engine.node import edge_of, new_node
from ..engine.tensor import Tensor
from ..engine.views import Step


class Pattern:
    """Rows of a matrix: where each begins among the places, which are numbers of columns."""

    __slots__ = ("_turned", "columns", "places", "rows", "starts")

    def __init__(self, starts: Tensor, places: Tensor, rows: int, columns: int):
        self.starts, self.places, self.rows, self.columns = starts, places, rows, columns
        self._turned: Any = None

    @property
    def count(self) -> int:
        return self.places.shape[-1]

    def row_numbers(self) -> np.ndarray:
        """Of each element the number of its row."""
        starts = convert.to_array(self.starts)
        return np.repeat(np.arange(self.rows), np.diff(starts))

    def turned(self) -> tuple[Pattern, Tensor]:
        """The same elements by columns, and the order that they have there."""
        versions = self.starts._version, self.places._version
        if self._turned is None or self._turned[0] != versions:
            places = convert.to_array(self.places)
            order = np.argsort(places, kind="stable")
            starts = np.zeros(self.columns + 1, places.dtype)
            np.cumsum(np.bincount(places, minlength=self.columns), out=starts[1:])
            rows = self.row_numbers()[order].astype(places.dtype)
            found = [convert.from_numpy(a) for a in (starts, rows)]
            other = Pattern(found[0], found[1], self.columns, self.rows)
            self._turned = versions, other, convert.from_numpy(order)
        return self._turned[1:]

    def same_as(self, other: Pattern) -> bool:
        """Whether elements are at the same places."""
        if self is other:
            return True
        pairs = ((self.starts, other.starts), (self.places, other.places))
        return all(a is b or np.array_equal(convert.to_array(a), convert.to_array(b))
                   for a, b in pairs)


def _native(pattern: Pattern, *operands: Tensor) -> bool:
    kinds = {x.dtype for x in operands}
    return len(kinds) == 1 and kinds.pop().name in code.KINDS and (
        pattern.starts.dtype is pattern.places.dtype)


def _run(routine, pattern: Pattern, out: Tensor, *operands: Tensor) -> Tensor:
    kept = [x.contiguous() for x in (pattern.starts, pattern.places, *map(detached, operands))]
    pointers = [out.ptr, *(x.ptr for x in kept)]
    width = operands[-1].shape[-1]
    routine(out.dtype.name, pattern.places.dtype.name, pointers, width, pattern.rows,
            pattern.count)
    return out


def recorded_product(out: Tensor, label: str, operands, back) -> Tensor:
    """A result with its step; `back` gives functions, called where a gradient is wanted."""
    wanted = [x.node is not None for x in operands]
    if modes.grad and any(wanted):
        def slopes(g):
            return [slope() if want else None for want, slope in zip(wanted, back(g), strict=True)]

        edges = tuple(edge_of(x) if want else None
                      for x, want in zip(operands, wanted, strict=True))
        out.node = new_node(Step(label, slopes), edges, (), (out.sig,))
    return out


def times(pattern: Pattern, values: Tensor, dense: Tensor, label: str = "MmBackward0") -> Tensor:
    """The matrix with these values times a strided one."""
    if values.dtype is not dense.dtype:
        raise RuntimeError(f"mm: expected operands of one dtype, got {values.dtype} and "
                           f"{dense.dtype}: convert one of them with to()")
    if values.dim() > 1:
        return _blocks_times(pattern, values, dense)
    if not _native(pattern, values, dense):
        rows = values.reshape(-1, 1) * dense.index_select(0, pattern.places)
        out = engine.full((pattern.rows, dense.shape[1]), 0, rows.dtype)
        return out.index_add(0, convert.from_numpy(pattern.row_numbers()), rows)
    out = engine.empty((pattern.rows, dense.shape[1]), values.dtype)
    _run(code.times, pattern, out, values, dense)

    def back(g):
        return (lambda: sampled(pattern, g, dense),
                lambda: times_turned(pattern, values, g))

    return recorded_product(out, label, (values, dense), back)


def times_turned(pattern: Pattern, values: Tensor, dense: Tensor) -> Tensor:
    """The transposed matrix with these values times a strided one."""
    other, order = pattern.turned()
    moved = values.index_select(0, order)
    return times(other, moved.mT if moved.dim() > 1 else moved, dense)


def sampled(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """left @ right.T where the pattern has elements."""
    if not _native(pattern, left, right):
        rows = left.index_select(0, convert.from_numpy(pattern.row_numbers()))
        return (rows * right.index_select(0, pattern.places)).sum(1)
    out = engine.empty((pattern.count,), left.dtype)
    _run(code.sampled, pattern, out, left, right)

    def back(g):
        return lambda: times(pattern, g, right), lambda: times_turned(pattern, g, left)

    return recorded_product(out, "SparseSampledAddmmBackward0", (left, right), back)


def _blocks_times(pattern: Pattern, values: Tensor, dense: Tensor) -> Tensor:
    """The same where each value is a block."""
    _, tall, broad = values.shape
    parts = dense.reshape(pattern.columns, broad, dense.shape[1])
    found = values.bmm(parts.index_select(0, pattern.places))
    out = engine.full((pattern.rows, tall, dense.shape[1]), 0, found.dtype)
    out = out.index_add(0, convert.from_numpy(pattern.row_numbers()), found)
    return out.reshape(pattern.rows * tall, dense.shape[1])
