"""Plans of copies that turn memory: which loops they suit, and the words generated code reads."""

from __future__ import annotations

from math import prod

from ..switches import switch
from .assembly.conv_words import address_of, table
from .assembly.transpose_words import BLOCK, TURN
from .bridge import jit
from .foundry import machine_code
from .remember import remembered

NAME = "transposed_copy"
#: bytes of an element -> its type in generated code, and elements on a side of a square
_SQUARES = {1: ("i8", 8), 2: ("i16", 8), 4: ("i32", 8), 8: ("i64", 4)}
#: elements from which on it is worth it, and of a range of a thread
_ENOUGH, _RANGE = 1 << 10, 1 << 15


def _square(itemsize: int, columns: int = 0, rows: int = 0) -> tuple[str, int]:
    """The square that suits: whole lines of memory at once, where registers are as wide.

    Where lines are as far apart as those that share a place in the cache, they do not stay there
    until their other half is wanted.
    """
    element, side = _SQUARES[itemsize]
    line = jit().bits // (8 * itemsize)
    return (element, line) if itemsize >= 4 and side < line <= min(columns, rows) else (
        element, side)


class Turn:
    """Machine code (out, source, last), its last argument, and what keeps that alive."""

    __slots__ = ("last", "run", "words")

    def __init__(self, sizes, out, source, along: int, itemsize: int):
        inner = len(sizes) - 1
        outer = [d for d in range(inner) if d != along]
        loops = [1] * (2 - len(outer)) + [sizes[d] for d in outer]
        to, start = ([0] * (2 - len(outer)) + [strides[d] * itemsize for d in outer]
                     for strides in (out, source))
        columns, rows = sizes[along], sizes[inner]
        self.words = table(TURN.values(
            first=loops[0], second=loops[1], columns=columns, rows=rows, out_first=to[0],
            out_second=to[1], source_first=start[0], source_second=start[1],
            out=out[along] * itemsize, source=source[inner] * itemsize,
            grain=max(1, _RANGE // (min(BLOCK, columns) * rows))))
        self.last = address_of(self.words)
        self.run = machine_code("transpose", (NAME,), *_square(itemsize, columns, rows))[NAME]


@remembered
def turn_of(sizes, out, source, itemsize: int) -> Turn | None:
    """The plan of a copy over loops with strides in elements, or None where loops suffice.

    The innermost loop runs along the result's memory, and another one along the source's.
    """
    if itemsize not in _SQUARES or len(sizes) not in (2, 3, 4) or prod(sizes) < _ENOUGH or (
            out[-1] != 1 or source[-1] in (0, 1) or switch("FLAMBEAU_DEVICE") == "reference"):
        return None
    side = _square(itemsize)[1]
    along = next((d for d in range(len(sizes) - 1) if source[d] == 1), None)
    if along is None or min(sizes[along], sizes[-1]) < side:
        return None
    return Turn(sizes, out, source, along, itemsize)
