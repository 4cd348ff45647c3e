"""Who is alive and how far each rank has come: the lifeline of this process to the store.

A thread sends the numbers of the collectives begun and hears of ranks that are gone. Then what
waits here is told at once; what times out asks who is behind.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable

from .store import dial, receive_message, send_message

BEAT = 0.2  # seconds between two beats, at least


class Watch:
    """The lifeline: begun collectives go out, losses come in."""

    def __init__(self, host: str, port: int, rank: int, on_loss: Callable[[str], None]) -> None:
        self.rank, self.on_loss = rank, on_loss
        self.host, self.port = host, port
        self.progress: dict[str, list] = {}
        self.lost: dict[int, str] = {}
        self._leaving, self._news = threading.Event(), threading.Event()
        self._line = dial(host, port, 30)
        self._line.settimeout(None)
        self._sending = threading.Lock()
        self._send(b"watch", b"%d" % rank)
        for job in (self._listen, self._beat):
            threading.Thread(target=job, daemon=True, name="flambeau-watch").start()
        self._before = sys.excepthook
        sys.excepthook = self._excepthook

    def began(self, group: str, name: str) -> int:
        """Count a collective of a group; its number."""
        entry = self.progress.setdefault(group, [0, ""])
        entry[0] += 1
        entry[1] = name
        self._news.set()
        return entry[0]

    def leave(self) -> None:
        """Say farewell: from now on nobody misses this rank."""
        self._leaving.set()
        self._news.set()
        if sys.excepthook == self._excepthook:
            sys.excepthook = self._before
        with contextlib.suppress(OSError):
            self._send(b"leave")
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()

    def behind(self, group: str, ranks: list[int], number: int) -> list[str]:
        """For each rank that has not begun collective `number`: who, and where it stands."""
        found = []
        beats = self._ask_beats()
        for rank in ranks:
            if rank == self.rank:
                continue
            count, name = json.loads(beats.get(str(rank), "{}")).get(group, (0, ""))
            if rank in self.lost:
                found.append(f"rank {rank} is gone: {self.lost[rank]}")
            elif count < number:
                where = f"its last was {name} (#{count})" if count else "it has begun none"
                found.append(f"rank {rank} has not come: {where}")
        return found

    def _ask_beats(self) -> dict[str, str]:
        try:
            with dial(self.host, self.port, 2) as line:
                line.settimeout(2)
                send_message(line, b"beats")
                return json.loads(receive_message(line)[0])
        except (OSError, EOFError, RuntimeError):
            return {}

    def _send(self, *parts: bytes) -> None:
        with self._sending:
            send_message(self._line, *parts)

    def _beat(self) -> None:
        """The first collective is told of at once: who stops soon after it has begun some."""
        with contextlib.suppress(OSError):
            while self._news.wait() and not self._leaving.is_set():
                self._news.clear()
                self._send(b"beat", json.dumps(self.progress).encode())
                self._leaving.wait(BEAT)

    def _listen(self) -> None:
        try:
            while True:
                _, rank, reason = receive_message(self._line)
                self.lost[int(rank)] = reason.decode(errors="replace")
                self.on_loss(f"rank {int(rank)} is gone: {self.lost[int(rank)]}")
        except (EOFError, OSError):
            if not self._leaving.is_set():
                self.lost.setdefault(0, "the store it hosts does not answer")
                self.on_loss(f"the store at {self.host}:{self.port} is gone, with the process "
                             "that hosts it (rank 0, or the launcher)")

    def _excepthook(self, kind, error, trace) -> None:
        """An error that ends this process is told to the others before they miss it."""
        self.fail(f"it raised {kind.__name__}: {error}")
        self._before(kind, error, trace)

    def fail(self, reason: str) -> None:
        with contextlib.suppress(OSError):
            self._send(b"fail", reason.encode()[:2000])
