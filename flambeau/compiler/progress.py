"""One line on a terminal while programs take long to compile; gone when one is done."""

from __future__ import annotations

import os
import sys
import time

from ..devices.switches import switch

#: shorter waits are not worth a word; programs compiled within this time are one wait
PATIENCE_SECONDS = 1.0


class _Wait:
    """Programs that are compiled one after the other, as segments of a call are."""

    began = ended = float("-inf")
    done = total = 0


class Progress:
    """`with Progress(total) as progress:` then `progress.advance()` before each kernel."""

    def __init__(self, total: int):
        self.total, self.shown = total, False

    def __enter__(self) -> Progress:
        now = time.monotonic()
        if now - _Wait.ended > PATIENCE_SECONDS:
            _Wait.began, _Wait.done, _Wait.total = now, 0, 0
        _Wait.total += self.total
        return self

    def __exit__(self, *failure: object) -> None:
        _Wait.ended = time.monotonic()
        if self.shown:
            self._write("")

    def advance(self) -> None:
        """One more kernel is about to be compiled."""
        _Wait.done += 1
        if self.shown or (time.monotonic() - _Wait.began > PATIENCE_SECONDS and _is_watched()):
            self.shown = True
            self._write(f"compiling: {_Wait.done} of {_Wait.total} kernels")

    @staticmethod
    def _write(line: str) -> None:
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


def _is_watched() -> bool:
    """Whether somebody sits before a terminal and wants to know."""
    is_terminal = getattr(sys.stderr, "isatty", bool)
    return is_terminal() and os.environ.get("TERM") != "dumb" and switch("FLAMBEAU_PROGRESS") != "0"
