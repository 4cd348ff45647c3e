"""What an asynchronous operation returns: Work, to wait for, and Future, to go on from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .errors import DistBackendError
from .store import seconds


class Work:
    """One operation between processes, on its way."""

    def __init__(self, name: str, timeout: float, result: Any = None,
                 explain: Callable[[], str] | None = None) -> None:
        self.name, self.timeout, self._result = name, timeout, result
        self._explain = explain
        self._done = threading.Event()
        self._error: BaseException | str | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def complete(self) -> None:
        self._end(None)

    def fail(self, error: BaseException | str) -> None:
        self._end(error)

    def _end(self, error: BaseException | str | None) -> None:
        with self._lock:
            if self._done.is_set():
                return
            self._error = error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call this when the operation has ended, at once if it has."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, timeout: Any = None) -> bool:
        """Until it is done; raises if it failed, or took longer than the timeout of its group."""
        patience = self.timeout if timeout is None else seconds(timeout)
        if not self._done.wait(patience if patience > 0 else self.timeout):
            why = self._explain() if self._explain else ""
            raise DistBackendError(f"{self.name} timed out after {patience:g} s{why}")
        error = self.exception()
        if error is not None:
            raise error
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        if self._error is None or isinstance(self._error, BaseException):
            return self._error
        return DistBackendError(f"{self.name} failed: {self._error}")

    def result(self) -> list:
        self.wait()
        return self._result if isinstance(self._result, list) else [self._result]

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        """From whom a recv came."""
        source = getattr(self, "source", None)
        if source is None:
            raise RuntimeError("sourceRank() may only be called on work objects that correspond to "
                               "a recv or recv-from-any call.")
        return source

    def get_future(self) -> Future:
        return Future.of(self)


class Future:
    """The value of an operation, once it is there; `then` goes on from it."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._next: list[Callable[[], None]] = []

    @classmethod
    def of(cls, work: Work) -> Future:
        future = cls()

        def pass_on():
            error = work.exception()
            if error is not None:
                future.set_exception(error)
            else:
                result = work._result
                future.set_result(result if isinstance(result, list) else [result])

        work.when_done(pass_on)
        return future

    def set_result(self, value: Any) -> None:
        self._value = value
        self._end()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._end()

    def _end(self) -> None:
        self._done.set()
        following, self._next = self._next, []
        for callback in following:
            callback()

    def done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> Any:
        self._done.wait()
        return self.value()

    def value(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what the callback returns, given this one when it is done."""
        following = Future()

        def run():
            try:
                following.set_result(callback(self))
            except Exception as error:
                following.set_exception(error)

        if self._done.is_set():
            run()
        else:
            self._next.append(run)
        return following

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        self.then(callback)
