"""One line on a terminal while a program takes long to compile; gone when it is done."""

from __future__ import annotations

import os
import sys
import time

from ..devices.switches import switch

#: shorter waits are not worth a word
PATIENCE_SECONDS = 1.0


class Progress:
    """`with Progress(total) as progress:` then `progress.advance()` before each kernel."""

    def __init__(self, total: int):
        self.total, self.done, self.shown = total, 0, False

    def __enter__(self) -> Progress:
        self.began = time.monotonic()
        return self

    def __exit__(self, *failure: object) -> None:
        if self.shown:
            self._write("")

    def advance(self) -> None:
        """One more kernel is about to be compiled."""
        self.done += 1
        if self.shown or (time.monotonic() - self.began > PATIENCE_SECONDS and _is_watched()):
            self.shown = True
            self._write(f"compiling: {self.done} of {self.total} kernels")

    @staticmethod
    def _write(line: str) -> None:
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


def _is_watched() -> bool:
    """Whether somebody sits before a terminal and wants to know."""
    is_terminal = getattr(sys.stderr, "isatty", bool)
    return is_terminal() and os.environ.get("TERM") != "dumb" and switch("FLAMBEAU_PROGRESS") != "0"
