"""The line of the program that made a call: the first frame that is not the library's own."""

from __future__ import annotations

import sys
import warnings


class _Ours(dict):
    """Whether a file of code is one of the library's, or text that it generated."""

    def __missing__(self, name: str) -> bool:
        found = self[name] = name.startswith(__file__.rpartition("engine")[0]) or name[:1] == "<"
        return found


ours = _Ours()


def warn_caller(message: str) -> None:
    """Warn at the line of the program that made the call."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and ours[frame.f_code.co_filename]:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
