"""The thread that speaks MPI: it starts what is submitted, and sees it through.

Everything is non-blocking, so the work of the program goes on meanwhile. A large collective first
passes a gate, a small barrier: while ranks are missing the courier looks now and then, and lets
the cores compute; once all have come, it looks often, until the data is moved.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .work import Work

GATED = 1 << 14       # bytes from which a collective passes a gate
PATIENT = 1e-3        # seconds between two looks while ranks are missing, at most
PROMPT = 1e-4         # while data is moving
EAGER = 20e-6         # and at first


class Task:
    """One operation on its way: gate, requests, and what to do with the result."""

    __slots__ = ("work", "lane", "start", "finish", "gate", "open", "requests")

    def __init__(self, work: Work, lane: Any, start: Callable[[], list], finish, gated: bool):
        self.work, self.lane, self.start, self.finish = work, lane, start, finish
        self.gate: Any = None
        self.open = not gated
        self.requests: list | None = None


class Courier:
    """A queue of tasks and the thread that carries them."""

    def __init__(self, mpi: Any) -> None:
        self.mpi = mpi
        self.failure: str | None = None
        self._new: deque[Task] = deque()
        self._tasks: list[Task] = []
        self._wake = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="flambeau-courier")
        self._thread.start()

    def submit(self, work: Work, start: Callable[[], list], finish=None, lane: Any = None,
               nbytes: int = 0) -> None:
        """Carry out `start` (which returns MPI requests), then `finish`; tasks of one lane in turn.

        A lane is a group: its collectives must be begun in one order by all ranks.
        """
        with self._wake:
            if self.failure is not None:
                work.fail(self.failure)
                return
            gated = lane is not None and nbytes >= GATED and lane.size() > 1
            self._new.append(Task(work, lane, start, finish, gated))
            self._wake.notify()

    def fail(self, reason: str) -> None:
        """A rank is lost: all that is on its way fails, and all that comes."""
        with self._wake:
            self.failure = self.failure or reason
            waiting = [*self._new, *self._tasks]
            self._new.clear()
        for task in waiting:
            task.work.fail(reason)

    def end(self, patience: float) -> bool:
        """Stop when nothing is on its way; whether the thread ended in time."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._thread.join(patience)
        return not self._thread.is_alive()

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = EAGER
        while True:
            with self._wake:
                while not self._new and not self._tasks and not self._ended:
                    self._wake.wait()
                fresh = bool(self._new)
                while self._new:
                    self._admit(self._new.popleft())
                if self.failure is not None or (self._ended and not self._tasks):
                    return
            if self._advance() or fresh:
                pause = EAGER
            elif self._tasks:
                self._rest(pause)
                pause = min(pause * 1.5, PROMPT if self._is_moving() else PATIENT)

    def _is_moving(self) -> bool:
        return any(task.gate is not None and task.open for task in self._tasks)

    def _rest(self, pause: float) -> None:
        if pause < 4 * EAGER:
            time.sleep(0)
        else:
            with self._wake:
                if not self._new:
                    self._wake.wait(pause)

    def _admit(self, task: Task) -> None:
        self._tasks.append(task)
        if not task.open:
            task.gate = task.lane.gates.Ibarrier()

    def _advance(self) -> bool:
        """Start what can be started, look at what is on its way; whether anything moved."""
        moved = self._begin_open()
        for task in list(self._tasks):
            moved |= self._look(task)
        return moved

    def _begin_open(self) -> bool:
        """Begin the first task of every lane, and all that have none."""
        busy: set[int] = set()
        moved = False
        for task in list(self._tasks):
            lane = id(task.lane)
            if task.requests is None and task.open and (task.lane is None or lane not in busy):
                moved |= self._begin(task)
            if task.lane is not None and task.requests is None:
                busy.add(lane)
        return moved

    def _begin(self, task: Task) -> bool:
        try:
            task.requests = task.start()
        except Exception as error:
            self._drop(task)
            task.work.fail(error)
        return True

    def _look(self, task: Task) -> bool:
        try:
            if not task.open:
                task.open = bool(task.gate.Test())
                return task.open
            if task.requests is None or not all([request.Test() for request in task.requests]):
                return False
            self._drop(task)
            if task.finish is not None:
                task.finish()
            task.work.complete()
        except Exception as error:
            self._drop(task)
            task.work.fail(error)
        return True

    def _drop(self, task: Task) -> None:
        if task in self._tasks:
            self._tasks.remove(task)
