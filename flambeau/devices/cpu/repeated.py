"""Rows that are the same, kept once: machine code (assembly/repeated.py) by dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from .foundry import machine_code


class Routines(NamedTuple):
    """Of rows of one dtype; see the file for what they do."""

    repeats: Callable       # (ids, kinds, count, marks, numbers, high, n)
    expand_rows: Callable   # (x, kinds, n, width)
    fold_rows: Callable     # (x, kinds, n, width)
    add_rows: Callable      # (table, x, ids, count, pitch, n, width)


@functools.cache
def routines(dtype: str) -> Routines:
    names = tuple(f"{name}_{dtype}" for name in Routines._fields)
    found = machine_code("repeated", names, dtype)
    return Routines(*(found[name] for name in names))
