"""Images and volumes read at the points of a grid, and the ways back: machine code by dtype and
how."""

from __future__ import annotations

import functools

from .foundry import machine_code

#: modes and paddings by their numbers
MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@functools.cache
def sampled(way: str, dtype: str, rank: int, mode: int, padding: int, align: bool):
    """The routine (out, x, grid, g, images, channels, depth, height, width, points, work).

    `way` is "read", or how gradients of what was read go back: "spread" to the input, which x is
    not asked for, or "move" to the grid.
    """
    return machine_code("sampling", ("sampled",), way, dtype, rank, MODES[mode], PADDINGS[padding],
                        align)["sampled"]
