"""Queues of work and moments in them, on the CPU: a call has done its work when it returns."""

from __future__ import annotations

import time

import flambeau

__all__ = ["Event", "Stream"]


def _on_cpu(what: str, device) -> flambeau.device:
    where = flambeau.device("cpu" if device is None else device)
    if where.type != "cpu":
        raise RuntimeError(f"torch.{what}: there is no device {where}; only the CPU is here")
    return where


class Stream:
    """A queue of work, which is always empty.

    >>> stream = Stream()
    >>> stream.query()
    True
    """

    __module__ = "torch"
    stream_id = 0

    def __init__(self, device=None, *, priority=0) -> None:
        self.device = _on_cpu("Stream", device)
        self.device_index = -1

    def query(self) -> bool:
        """Whether all its work is done: yes."""
        return True

    def synchronize(self) -> None:
        """Wait for its work: it is done."""

    def wait_stream(self, stream) -> None:
        """Wait for another queue: it is empty."""

    def wait_event(self, event) -> None:
        """Wait for a moment in another queue: it has passed."""

    def record_event(self, event=None) -> Event:
        """The moment at which all work so far is done: now."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_error) -> None:
        return None

    def __eq__(self, other) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash((self.device, self.stream_id))

    def __repr__(self) -> str:
        return (f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, "
                f"stream_id={self.stream_id}")


class Event:
    """A moment in a queue of work."""

    __module__ = "torch"
    event_id = 0

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False):
        self.device = _on_cpu("Event", device)
        self._timed, self._time = enable_timing, None

    def record(self, stream=None) -> None:
        self._time = time.perf_counter()

    def query(self) -> bool:
        """Whether the work before it is done: yes."""
        return True

    def synchronize(self) -> None:
        """Wait for the work before it: it is done."""

    def wait(self, stream=None) -> None:
        """Let a queue wait for it: it has passed."""

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds from this moment to another."""
        if not (self._timed and other._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or other._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (other._time - self._time) * 1000

    def __repr__(self) -> str:
        return (f"torch.Event device_type={self.device.type}, device_index=-1, "
                f"event_flag={int(self._time is not None)}, event_id={self.event_id}")
