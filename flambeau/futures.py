"""Results that are there later: torch.futures' names, on Python's threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A result, or a failure, that some thread gives and others wait for.

    >>> found = Future()
    >>> after = found.then(lambda f: f.value() + 1)
    >>> found.set_result(2)
    >>> after.wait()
    3
    """

    def __init__(self, *, devices: Any = None):
        self._there = threading.Condition()
        self._done = False
        self._result: Any = None
        self._failure: BaseException | None = None
        self._after: list[Callable[[Future], Any]] = []

    def done(self) -> bool:
        """Whether the result is there."""
        return self._done

    def wait(self) -> Any:
        """The result, once it is there; a failure is raised."""
        with self._there:
            self._there.wait_for(self.done)
        return self.value()

    def value(self) -> Any:
        """The result, which is there."""
        if not self._done:
            raise RuntimeError("Future.value: the result is not there yet; wait() waits for it")
        if self._failure is not None:
            raise self._failure
        return self._result

    def set_result(self, result: Any) -> None:
        """Give the result, once."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Give the failure that whoever waits is to see."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def _finish(self, result: Any, failure: BaseException | None) -> None:
        with self._there:
            if self._done:
                raise RuntimeError("Future can only be marked completed once.")
            self._result, self._failure, self._done = result, failure, True
            waiting, self._after = self._after, []
            self._there.notify_all()
        for callback in waiting:
            callback(self)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call callback(self) when the result is there, or now if it is."""
        with self._there:
            if not self._done:
                self._after.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """The result of callback(self), later."""
        following: Future = Future()

        def go_on(finished: Future) -> None:
            try:
                found = callback(finished)
            except Exception as failure:
                following.set_exception(failure)
            else:
                following.set_result(found)

        self.add_done_callback(go_on)
        return following


def collect_all(futures: Iterable[Future]) -> Future:
    """A future of all these futures, when all of them are done."""
    members = list(futures)
    whole: Future = Future()
    left, lock = [len(members)], threading.Lock()

    def one_more(_: Future) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            whole.set_result(members)

    for member in members:
        member.add_done_callback(one_more)
    if not members:
        whole.set_result(members)
    return whole


def wait_all(futures: Iterable[Future]) -> list:
    """The results of all these futures; a failure of one is raised."""
    return [each.wait() for each in collect_all(futures).wait()]
