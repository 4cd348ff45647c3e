"""Linear algebra: the functions of `torch.linalg`, collected from the registry."""

from __future__ import annotations

from ..assemble import functions

_PREFIX = "linalg."
globals().update({key.removeprefix(_PREFIX): function for key, function in functions.items()
                  if key.startswith(_PREFIX)})
__all__ = sorted(key.removeprefix(_PREFIX) for key in functions if key.startswith(_PREFIX))
