"""The types of ops with several results: `max(x, 0)` is a `return_types.max`."""

from __future__ import annotations

from .assemble import results

__all__ = sorted(results.TYPES)
all_return_types = [results.TYPES[name] for name in __all__]
globals().update(results.TYPES)
