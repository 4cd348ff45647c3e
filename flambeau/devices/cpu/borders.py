"""Borders that repeat, mirror or continue a plane: tables of where they are taken from."""

from __future__ import annotations

import functools

from .assembly.conv_words import address_of, table
from .foundry import machine_code

#: mode -> which element of a line of n stands at a place before or behind it
SOURCES = {
    "replicate": lambda i, n: min(max(i, 0), n - 1),
    "reflect":   lambda i, n: -i if i < 0 else 2 * (n - 1) - i if i >= n else i,
    "circular":  lambda i, n: i % n,
}


@functools.cache
def _routine(size: int):
    return machine_code("borders", ("bordered",), size)["bordered"]


class Plan:
    """Planes of so many lines and columns, with borders (before, after) of lines and of columns."""

    def __init__(self, size: int, planes: int, height: int, width: int, down: tuple[int, int],
                 across: tuple[int, int], mode: str):
        source = SOURCES[mode]
        self.function, (top, bottom), (left, right) = _routine(size), down, across
        self.tall, self.broad = top + height + bottom, left + width + right
        self.table = table([source(i, height) for i in range(-top, height + bottom)]
                           + [source(i, width) for i in range(-left, width + right)])
        lines = planes * self.tall
        self.numbers = (address_of(self.table), height, width, self.tall, self.broad, left, lines,
                        lines * self.broad)
