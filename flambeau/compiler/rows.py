"""Launches that fetch whole rows of a table by number, or add to them, or put rows in order."""

from __future__ import annotations

from typing import NamedTuple

from ..core import expr as ex
from ..engine.launch import Launch, Place
from .fuse import is_pointwise

SIZES = {"float32": 4, "float64": 8}


class Rows(NamedTuple):
    """Rows of a table at places of a batch: fetched from it, or added to it."""

    table: Place
    batch: Place
    numbers: Place
    many: int
    width: int      # elements
    pitch: int      # bytes from row to row of the table
    dtype: str


def fetched(step) -> Rows | None:
    """What a launch fetches, if it is whole rows by number: out = load[1](x2)."""
    if not isinstance(step, Launch) or step.kernel is None or step.kernel.indirect != (0, 1, 0):
        return None
    store = _only_store(step)
    if store is None or store.coordinates is not None or store.combine or not (
            (store.value.head, store.value.attr) == ("load", 1) and _is_number(store.value.args)):
        return None
    return _rows(step, 0, 1)


def added(step) -> Rows | None:
    """What a launch adds, if it is whole rows by number: out[x2] add x1."""
    if not isinstance(step, Launch) or step.kernel is None or step.kernel.indirect != (1, 0, 0):
        return None
    store = _only_store(step)
    if store is None or store.combine != "add" or not _is_number(store.coordinates) or (
            (store.value.head, store.value.attr) != ("input", 1)):
        return None
    return _rows(step, 1, 0)


def _only_store(step: Launch):
    stages = step.kernel.stages
    if [kind for kind, _ in stages] != ["row"] or len(stages[0][1]) != 1:
        return None
    return stages[0][1][0]


def _is_number(coordinates: tuple[ex.Expr, ...] | None) -> bool:
    """Whether the only coordinate is what the third operand holds."""
    return coordinates is not None and len(coordinates) == 1 and (
        (coordinates[0].head, coordinates[0].attr) == ("input", 2))


def _rows(step: Launch, batch: int, table: int) -> Rows | None:
    """Rows of the batch side by side, by numbers side by side."""
    kernel, words = step.kernel, step.words
    if kernel.kept != 2 or kernel.reduced or words is None:
        return None
    kinds = [operand.dtype for operand in kernel.operands]
    if kinds[batch] is not kinds[table] or kinds[batch].name not in SIZES or (
            kinds[2].name != "int64"):
        return None
    size, (_, many, width, *strides, pitch) = kinds[batch].itemsize, words
    steps = {batch: [width * size, size], table: [0, size], 2: [8, 0]}
    if strides != steps[0] + steps[1] + steps[2] or pitch % size:
        return None
    return Rows(step.args[table], step.args[batch], step.args[2], many, width, pitch,
                kinds[batch].name)


class Turned(NamedTuple):
    """Rows of a grid copied so that those side by side come to stand below each other."""

    target: Place
    source: Place
    down: int       # rows of the target's grid
    across: int
    width: int      # elements of what is moved


def turned(step) -> Turned | None:
    """What a launch copies, if it turns a grid of rows: out[i, j, :] = in[j, i, :]."""
    if not isinstance(step, Launch) or not is_pointwise(step.kernel) or len(
            step.kernel.operands) != 2 or step.kernel.kept not in (2, 3) or step.words is None:
        return None
    store, (to, source) = step.kernel.stages[0][1][0], step.kernel.operands
    if (store.value.head, store.value.attr) != ("input", 1) or to.dtype is not source.dtype:
        return None
    inner = step.kernel.kept == 3
    size, (_, down, across, *rest) = to.dtype.itemsize, step.words
    width = rest[0] if inner else 1
    row = width * size
    if rest != [*[width] * inner, across * row, row, *[size] * inner,
                row, down * row, *[size] * inner]:
        return None
    return Turned(step.args[0], step.args[1], down, across, width)
