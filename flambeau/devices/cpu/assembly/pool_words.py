"""Words of pooling plans; shared by plans and machine code."""

from __future__ import annotations

from .conv_words import Record

_AXES = "zyx"

#: planes and sizes; windows that lie wholly inside and side by side are outputs `low` to `high` of
#: a line; for each axis, tables of where windows begin and end, of the first tap inside, and of how
#: many elements a mean is over; then dilation, padding, stride and taps. `moves` is a table of how
#: far each tap is from its window's corner
POOL = Record("planes d h w od oh ow low high divisor grain moves "
              + " ".join(f"{axis}{what}" for what in ("begin", "end", "first", "count", "apart",
                                                      "pad", "step", "taps") for axis in _AXES))
