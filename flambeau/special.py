"""Special functions, under torch's names."""

from __future__ import annotations

from flambeau import _assemble

_PREFIX = "special."

_found = {name.removeprefix(_PREFIX): function for name, function in _assemble.functions.items()
          if name.startswith(_PREFIX) and not name.endswith("_")}
globals().update(_found)
__all__ = sorted(_found)
