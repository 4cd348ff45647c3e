"""Timing of ops: `profile` sees everything inside it, `record_function` names a stretch."""

from __future__ import annotations

import functools
import threading
from typing import Any

from ..assemble import functions
from ..engine import create, create_like, from_data, random, sampling, sequence
from .events import EventList, FunctionEvent, FunctionEventAvg
from .watch import Watch

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


class Active:
    """The watch that is running, if one is: there is one at a time."""

    watch: Watch | None = None
    lock = threading.Lock()


def public_functions() -> dict:
    """Everything that may be an op, by name."""
    found = dict(functions)
    for part in (create, create_like, from_data, random, sampling, sequence):
        found.update((name, f) for name, f in vars(part).items()
                     if not name.startswith("_") and getattr(f, "__module__", "") == part.__name__)
    return found


class profile:
    """Record the ops of a block: their times, and shapes and lines if asked for.

    While it runs a program is slower; times are measured by a clock that stops for the recording.
    """

    def __init__(self, enabled=True, *, record_shapes=False, with_flops=False,
                 profile_memory=False, with_stack=False, with_modules=False, use_cuda=False,
                 use_device=None, use_kineto=False, use_cpu=True, experimental_config=None,
                 acc_events=False):
        self.enabled = enabled and use_cpu
        self.record_shapes, self.with_stack = record_shapes, with_stack
        self.function_events: EventList | None = None
        self.entered = False

    def __enter__(self):
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        with Active.lock:
            if Active.watch is not None:
                raise RuntimeError("profile: another profiler is running; there can be one at a "
                                   "time")
            Active.watch = Watch(public_functions(), self.record_shapes, self.with_stack)
        Active.watch.start()
        return self

    def __exit__(self, *_):
        if not self.enabled:
            return False
        watch, Active.watch = Active.watch, None
        if watch is not None:
            watch.stop()
            self.function_events = EventList(watch.events)
        return False

    def _events(self) -> EventList:
        if self.function_events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self.function_events

    def table(self, sort_by=None, row_limit=100, **kwargs):
        """Every event as a row."""
        return self._events().table(sort_by, row_limit, **kwargs)

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0,
                     group_by_overload_name=False):
        """Sums by name."""
        return self._events().key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self):
        """Everything as one sum."""
        return self._events().total_average()

    def export_chrome_trace(self, path):
        """Write what chrome://tracing and Perfetto read."""
        self._events().export_chrome_trace(path)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write stacks for flame graphs."""
        self._events().export_stacks(path, metric)

    @property
    def self_cpu_time_total(self):
        """Microseconds in all events."""
        return self._events().self_cpu_time_total

    def __str__(self):
        return str(self.function_events) if self.function_events else "<unfinished profile>"

    __repr__ = __str__


class record_function:
    """A name for what happens inside, shown by a profiler; also a decorator."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self.watch: Any = None

    def __enter__(self):
        self.watch = Active.watch
        if self.watch is not None:
            self.watch.enter(self.name, kind="user")
        return self

    def __exit__(self, *_):
        if self.watch is not None and self.watch.running:
            self.watch.leave()
        self.watch = None

    def __call__(self, function):
        @functools.wraps(function)
        def named(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return named


class _Outside:
    """What marks ranges for a profiler of a vendor: none is here to be told."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        self.enabled, self.record_shapes = enabled, record_shapes

    def __enter__(self):
        if self.enabled:
            raise RuntimeError(f"{type(self).__name__}: there is no such profiler here; use "
                               "torch.profiler.profile")
        return None

    def __exit__(self, *_):
        return False


class emit_nvtx(_Outside):
    """Ranges for NVIDIA's profilers, which need CUDA."""


class emit_itt(_Outside):
    """Ranges for Intel's VTune."""
