"""Who wants to know that random numbers are drawn."""

from __future__ import annotations

from threading import get_ident


class Onlooker:
    """Somebody who wants to know whether numbers are drawn in a thread: the one that makes it."""

    def __init__(self) -> None:
        self.thread, self.saw_one = get_ident(), False


#: all of them
onlookers: list[Onlooker] = []


def notice() -> None:
    """Numbers are drawn, or will be: whoever looks on in this thread is told."""
    for onlooker in onlookers:
        onlooker.saw_one |= onlooker.thread == get_ident()
