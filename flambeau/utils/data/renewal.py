"""Workers that stay small: one that has copied much of what it only reads is replaced by a fork.

Reading a Python object changes its reference count, so a forked worker that walks through a large
list copies the list page by page. A worker that has copied LIMIT bytes stays behind as it is and
forks another that goes on in its place; when that one has copied as much it ends, its copies with
it, and the next is forked. This is done only where nobody can tell: the data set is fetched by
index, its attributes have not changed, no thread runs; random numbers are handed over.
"""

import ctypes
import os
import pickle
import signal
import sys
import time
from collections.abc import Sized

import numpy as np

from flambeau import Tensor

from .dataset import IterableDataset

LIMIT = 64 << 20
LIFE = 0.2  # seconds that a process serves at least; to fork takes a few hundredths of one
PAGE = 4096
PR_SET_PDEATHSIG = 1
SMALL = 1 << 16  # bytes of an array that are looked at for changes


def _read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def _private_bytes():
    """Memory that this process shares with no other."""
    for line in _read("/proc/self/smaps_rollup").splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) << 10
    return 0


def _data_bytes():
    return int(_read("/proc/self/statm").split()[5]) * PAGE


def _faults():
    return int(_read("/proc/self/stat").rpartition(")")[2].split()[7])


def _fingerprint(value):
    """What tells whether an attribute is as it was, without walking through it."""
    if isinstance(value, Tensor):
        return id(value), value._version
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes() if value.nbytes <= SMALL else value.shape
    try:
        return id(value), len(value) if isinstance(value, Sized) else 0
    except Exception:
        return id(value), 0


def _state_of(dataset, depth=3):
    """Fingerprints of a data set's attributes, and of those of data sets inside it."""
    found = {}
    for name, value in list(getattr(dataset, "__dict__", {}).items()):
        found[name] = _fingerprint(value)
        if depth and hasattr(value, "__getitem__") and hasattr(value, "__dict__"):
            found[name] += (_state_of(value, depth - 1),)
    return found


class Renewal:
    """Watches the memory of a worker, and replaces it when there is too much."""

    def __init__(self, dataset):
        self.dataset = dataset
        self.generation = 0  # how many processes have served before this one
        self.report = None  # in a replacement: the pipe to the one that stayed behind
        self.possible = hasattr(os, "fork") and os.path.exists("/proc/self/smaps_rollup") and not (
            isinstance(dataset, IterableDataset))
        if self.possible:
            self.state = _state_of(dataset)
            self._start()

    def _start(self):
        self.patience = LIMIT // PAGE
        self.until = time.monotonic() + LIFE
        self.faults, self.data = _faults(), _data_bytes()
        self.private = _private_bytes()

    def due(self):
        """Whether this process has copied more than it may, and can be replaced unnoticed."""
        if not self.possible:
            return False
        faults = _faults()
        if faults - self.faults < self.patience or time.monotonic() < self.until:
            return False
        self.faults = faults
        self.patience *= 2  # looking closely is not free
        grown = max(0, _data_bytes() - self.data)  # new memory, which others may rely on
        if _private_bytes() - self.private - grown < LIMIT * 3 // 4:
            return False
        self.possible = self.state == _state_of(self.dataset) and (
            len(os.listdir("/proc/self/task")) == 1)
        return self.possible

    def hand_over(self, save):
        """In the process that goes on, the saved streams; None in the one that has to end."""
        state = save()
        if self.report is None:
            return self._stay_behind(state)
        with open(self.report, "wb") as report:
            pickle.dump(state, report)
        return None

    def _stay_behind(self, state):
        """Fork one replacement after another; end as the last of them did."""
        while True:
            ours, theirs = os.pipe()
            sys.stdout.flush()
            sys.stderr.flush()
            self.generation += 1
            child = os.fork()
            if child == 0:
                os.close(ours)
                self.report = theirs
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                self._start()
                return state
            os.close(theirs)
            with open(ours, "rb") as report:
                told = report.read()
            _, status = os.waitpid(child, 0)
            if not told:
                _end_like(status)
            state = pickle.loads(told)


def _end_like(status):
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) not in (
            signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
