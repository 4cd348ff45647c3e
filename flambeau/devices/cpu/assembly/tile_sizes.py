"""How large tiles and blocks of convolutions are; shared by plans and machine code."""

from __future__ import annotations

from ..bridge import jit
from ..registers import tile_shape

#: tiles side by side in a block of columns
BLOCK = 8
#: the longest run of a sum that is packed at a time: a panel stays in the first level of cache
DEPTH = 320
#: columns of a chunk where weights are summed, and rows packed together
CHUNK, ROWS = 256, 96
#: squares of a chunk where weights are summed by squares
SQUARES_CHUNK = 128

#: numbers in a square of Winograd's, and elements that keep them from meeting in the cache where
#: a power of two lies between one and the next
SQUARE, APART = 16, 16

_BYTES = {"float": 4, "double": 8}


def width_of(element: str) -> int:
    """Elements of a vector on this machine."""
    return jit().bits // (8 * _BYTES[element])


def tile_of(element: str, count: int | None = None) -> tuple[int, int]:
    """Rows and columns of a tile, which with what it is made of fills the registers.

    Where there are many registers, a lower tile does as well: so many rows in all are cut into
    those that have the least left over.
    """
    rows = tile_shape().rows
    if count is not None and rows == _HIGH:
        rows = min(_HIGH, _LOW, key=lambda high: -(-count // high) * high * _COST[high])
    return rows, 2 * width_of(element)


#: rows of tiles on AVX-512, and what a step of one costs beside that of the other
_HIGH, _LOW = 12, 8
_COST = {_HIGH: 1.0, _LOW: 1.02}
