"""The vector registers of this machine, and the tiles of sums that products keep in them."""

from __future__ import annotations

import functools

from ...core.record import Record
from .bridge import jit


class Shape(Record):
    """Rows and vectors of a tile, and how many steps of its sums an innermost loop writes out."""

    rows: int
    vectors: int
    steps: int


#: bits of a vector register, whether there are 32 of them -> the tile. Its sums, `vectors` of the
#: right operand and one or two of the left fit the registers. Steps written out save what goes
#: around them, but LLVM lets them overlap: where vectors are wide that saves nothing, and of a tile
#: that fills 32 registers it moves sums to memory and back, at half the speed.
_SHAPES = {
    (128, False): Shape(5, 2, 1),   # SSE, where a product takes a register too before it is added
    (128, True):  Shape(8, 3, 1),   # NEON
    (256, False): Shape(6, 2, 4),   # AVX2
    (512, True):  Shape(12, 2, 1),  # AVX-512
}  # fmt: skip


def many_registers() -> bool:
    """Whether there are 32 vector registers, not 16."""
    return jit().bits == 512 or jit().linker.processor.triple.startswith(("aarch64", "arm64"))


@functools.cache
def tile_shape() -> Shape:
    """The tile that suits this machine."""
    return _SHAPES[jit().bits, many_registers()]
