"""Launches as they were recorded become fewer that do the same: sums, loops, last steps."""

from __future__ import annotations

from .epilogue import finished
from .fuse import fused
from .known import known
from .row_groups import in_rows
from .shown import shown
from .summed import settled, summed


def fewer(launches: list, buffers: list[int], results: set[int],
          filled: dict[int, bytes]) -> tuple[list, list[int], list]:
    """The launches, their buffers, and the words that they have addresses of."""
    less = summed(launches, buffers, results, filled)
    launches = shown("summed", less.launches)
    launches = shown("fused", settled(fused(launches, results), less.homes))
    launches = shown("finished", finished(launches, results))
    launches = shown("in_rows", in_rows(launches, results))
    return shown("known", known(launches)), less.buffers, less.keep
