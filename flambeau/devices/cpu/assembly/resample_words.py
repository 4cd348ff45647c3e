"""Words of resampling plans; shared by plans and machine code."""

from __future__ import annotations

from .conv_words import Record

#: how lines of the result are made of a line: the same, by doubling each element, or by tables
SAME, TWICE, TABLES = 0, 1, 2

#: sizes before and after; for depth and height, taps and tables of [output, tap]; across, tables of
#: [tap, output] with `padded` outputs. `plain` says that a line of the result is made of one line
RESAMPLE = Record("planes grain d h w od oh ow z_taps z_index z_weight y_taps y_index y_weight "
                  "x_taps x_index x_weight padded across plain")
