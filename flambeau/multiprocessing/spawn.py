"""Several processes that run one function: started, watched and joined together."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from multiprocessing import connection
from typing import Any


class ProcessException(Exception):
    """A process that was started together with others has failed."""

    def __init__(self, msg: str, error_index: int, pid: int):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process raised; the message has its traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process ended by a signal, or with an exit code."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int,
                 signal_name: str | None = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _wrapped(fn, index: int, args: tuple, failures) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent is told too
    except Exception:
        failures.send(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that belong together: when one fails, the others are ended."""

    def __init__(self, processes, failures):
        self.processes, self._failures = processes, failures
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The processes' numbers in the system."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one has ended; True when all have. A failure is raised, the others ended."""
        if not self.sentinels:
            return True
        ready = connection.wait(list(self.sentinels), timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        self._end_others(grace_period)
        raise self._failure(failed)

    def _end_others(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + (30.0 if grace_period is None else grace_period)
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _failure(self, index: int) -> ProcessException:
        process = self.processes[index]
        if self._failures[index].poll():
            try:
                text = self._failures[index].recv()
            except EOFError:
                text = None
            if text is not None:
                return ProcessRaisedException(
                    f"\n\n-- Process {index} terminated with the following error:\n{text}", index,
                    process.pid)
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            return ProcessExitedException(f"process {index} terminated with signal {name}", index,
                                          process.pid, code, name)
        return ProcessExitedException(f"process {index} terminated with exit code {code}", index,
                                      process.pid, code)


SpawnContext = ProcessContext


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run fn(i, *args) in processes i = 0 .. nprocs - 1; joined, or as a context to join."""
    context: Any = multiprocessing.get_context(start_method)
    processes, failures = [], []
    for index in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_wrapped, args=(fn, index, args, theirs),
                                  daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        failures.append(ours)
    started = ProcessContext(processes, failures)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run fn(i, *args) in nprocs fresh processes; an error in one ends all and is raised here."""
    if start_method != "spawn":
        warnings.warn(f"spawn: start_method={start_method!r} is for start_processes; spawn always "
                      "uses 'spawn'", FutureWarning, stacklevel=2)
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
