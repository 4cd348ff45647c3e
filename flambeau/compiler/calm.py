"""When Python is left out of calls though nobody asked for it: once they have become calm.

A call that follows known paths from its start to its end can be written down, and be made again
without Python if nobody would miss that (see witness.py). Writing takes time, and so does looking
whether what was written still holds, so it is tried where many calls in a row have learnt nothing,
and less and less often if it is of no use.
"""

from __future__ import annotations

import functools
import sys

from ..devices.switches import switch

#: calls in a row that are tried: what one has met is known to the next
TRIES = 5
#: of so many calls with Python, and those that were made without it, a third must be such
MISSED = 64


class Calm:
    """How calls of a function have gone of late."""

    def __init__(self) -> None:
        self.calls = 0      # with Python, that learnt nothing, in a row
        self.wait = int(switch("FLAMBEAU_CALM")) or sys.maxsize
        self.tries = 0
        self.ran: set = set()   # code of the user's that calls have run, once they are watched
        self.played = 0     # calls without Python
        self.missed = self.before = 0   # those with it of late, and how many there were without
        self.reason: str | None = None  # why Python is not left out

    def went(self, is_new: bool) -> None:
        """A call was made with Python."""
        self.calls = 0 if is_new else self.calls + 1
        self.missed += 1

    def hopes(self) -> bool:
        """Whether nothing is known that stands in the way."""
        return self.reason is None and self.wait < sys.maxsize

    def of_use(self) -> bool:
        """Whether what was written down is worth being looked at in every call."""
        if self.missed < MISSED:
            return True
        useful = 2 * (self.played - self.before) >= self.missed
        self.missed, self.before = 0, self.played
        if not useful:
            self._wait_longer()
        return useful

    def tried(self, written: bool, script) -> bool:
        """A call was written down, or could not be; whether it is to be made without Python."""
        self.tries += 1
        self.reason = script.witness.reason or script.effect or script.reason
        if written and self.reason is None:
            self.calls = self.tries = 0
            return True
        self.ran |= script.witness.ran
        if self.tries == TRIES:
            self._wait_longer()
        return False

    def told(self) -> list[str]:
        """What a person is told of it."""
        if self.played:
            return [f"{self.played} calls without Python: all that it does is to call ops"]
        return [] if self.reason is None else [f"Python is not left out: {self.reason}"]

    def is_in_vain(self) -> None:
        """It would gain nothing."""
        self.reason = "it would gain nothing"
        self._wait_longer()

    def _wait_longer(self) -> None:
        self.calls, self.tries, self.wait = 0, 0, 2 * self.wait
        self.ran = set()  # it takes long to look for all that it can reach


@functools.cache
def scripts():
    """The class of what is written down; functions that are never calm have no need of it."""
    from .replay import play
    from .script import Script

    play()
    return Script
