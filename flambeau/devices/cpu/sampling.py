"""Images read at the points of a grid: machine code by dtype and way."""

from __future__ import annotations

import functools

from .foundry import machine_code

#: ways for which there is code, by their numbers
MODES, PADDINGS = ("bilinear", "nearest"), ("zeros", "border", "reflection")


@functools.cache
def sampled(dtype: str, mode: int, padding: int, align: bool):
    """The routine (out, x, grid, images, channels, height, width, points, work)."""
    return machine_code("sampling", ("sampled",), dtype, MODES[mode], PADDINGS[padding],
                        align)["sampled"]
