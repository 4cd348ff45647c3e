"""Loops, and how operands are walked through in them: see row_groups.py."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ..core.kernel import Operand
from ..engine.launch import Launch


class Walk(NamedTuple):
    """Where an operand is: its memory, its dtype, strides in bytes of the loops."""

    root: tuple
    offset: int
    dtype: Any
    strides: tuple[int, ...]

    def among(self, sizes: tuple[int, ...], fine: tuple[int, ...]) -> Walk:
        """The same in finer loops."""
        return self._replace(strides=split(sizes, self.strides, fine))


class Member(NamedTuple):
    """A launch of a group, how it walks through operands, and whether rows are elements to it."""

    step: Launch
    walks: list[Walk]
    once: bool

    @property
    def operands(self) -> list[tuple[Walk, Operand]]:
        return [*zip(self.walks, self.step.kernel.operands, strict=True)]

    @property
    def taken(self) -> list[Walk]:
        return [walk for walk, operand in self.operands if not operand.written]

    @property
    def made(self) -> list[Walk]:
        return [walk for walk, operand in self.operands if operand.written]


def ends(sizes: tuple[int, ...]) -> list[int]:
    """How many places all loops have, all but the outermost, and so on."""
    return [prod(sizes[k:]) for k in range(len(sizes))]


def refined(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """Loops that both are made of; None if there are none. Both have as many places."""
    found, before = [], 1
    for end in sorted({*ends(one), *ends(other)} - {1}):
        if end % before:
            return None
        found.append(end // before)
        before = end
    return tuple(found[::-1])


def split(sizes: tuple[int, ...], strides: tuple[int, ...], fine: tuple[int, ...]) -> tuple:
    """Strides of loops, for those that they are made of."""
    found: list[int] = []
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        inner = 1
        while inner < size:
            found.append(stride * inner)
            inner *= fine[-len(found)]
    return tuple(found[::-1])


def coalesced(sizes: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple:
    """Loops, and strides of walks in them, with those as one that all walks go through as one:
    threads share the outermost."""
    found, rows = [sizes[-1]], [[s[-1]] for s in strides]
    for k in range(len(sizes) - 2, -1, -1):
        if all(s[k] == row[0] * found[0] for s, row in zip(strides, rows, strict=True)):
            found[0] *= sizes[k]
        else:
            found.insert(0, sizes[k])
            for s, row in zip(strides, rows, strict=True):
                row.insert(0, s[k])
    return tuple(found), rows
