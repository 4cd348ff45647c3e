"""The types of ops with several results: `max(x, 0)` is a `return_types.max`."""

from __future__ import annotations

from .engine.results import TYPES

__all__ = sorted(TYPES)
all_return_types = [TYPES[name] for name in __all__]
globals().update(TYPES)
