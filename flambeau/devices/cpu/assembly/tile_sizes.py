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


def tile_of(element: str) -> tuple[int, int]:
    """Rows and columns of a tile, which with what it is made of fills the registers."""
    return tile_shape().rows, 2 * width_of(element)
