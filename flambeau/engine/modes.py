"""What each thread has switched on: recording, inference, autocast, anomaly detection.

Native fronts need to know too, and fast: they are told how many threads do not record, which one
if it is only one, how many do something out of the ordinary, and which ones infer.
"""

from __future__ import annotations

import sys
import threading
from typing import Any


class Native:
    """The words native fronts read; plugged in when they are loaded."""

    class _Word:
        value = 0

    off_count: Any = _Word()
    off_ident: Any = _Word()
    special: Any = _Word()
    inferring: Any = [0] * 2  # how many threads infer, and their numbers


_off: set[int] = set()
#: threads that do something out of the ordinary: infer, look for anomalies, see what is kept
odd_threads: set[int] = set()
#: threads inside inference_mode: memory taken by them is marked with the version INFERENCE
inferring: set[int] = set()
INFERENCE = -(1 << 60)
#: told before a thread switches anything but recording
watchers: list = []

#: told of leaves before Python gives them other gradients, or none
gradient_watchers: list = []


_OUT_OF_THE_ORDINARY = frozenset(("inference", "anomaly", "pack"))


class Modes(threading.local):
    """Switches of the calling thread; a new thread starts with the defaults."""

    grad = True
    inference = False
    anomaly = False
    anomaly_check_nan = True
    multithreading = True
    pack: tuple = ()  # saved-tensor hooks: (pack, unpack) pairs, innermost last
    walk: Any = None  # the backward pass that is under way
    hooks_refused = None  # why saved-tensor hooks are not allowed, if they are not

    def __setattr__(self, name, value):
        own = self.__dict__
        if (own[name] if name in own else getattr(Modes, name, own)) is value:
            return
        if name in _OUT_OF_THE_ORDINARY:
            for tell in watchers:
                tell(f"{name} is switched")
        own[name] = value
        if "leaving" not in own:
            own["leaving"] = _Leaving(threading.get_ident())
        if name == "grad":
            (_off.discard if value else _off.add)(own["leaving"].thread)
            _tell_off()
        else:
            odd = self.inference or self.anomaly or bool(self.pack)
            (odd_threads.add if odd else odd_threads.discard)(own["leaving"].thread)
            (inferring.add if self.inference else inferring.discard)(own["leaving"].thread)
            _tell_odd()


def _tell_off() -> None:
    Native.off_count.value = count = len(_off)
    if count == 1:
        (Native.off_ident.value,) = _off


def _tell_odd() -> None:
    known = [*inferring][:len(Native.inferring) - 1]
    for i, thread in enumerate([len(known), *known]):
        Native.inferring[i] = thread
    Native.special.value = len(odd_threads)


def is_watched() -> bool:
    """Whether every step of the graph is told of in this thread, so that none may be left out."""
    return modes.anomaly or bool(modes.pack)


def infers() -> bool:
    """Whether memory taken now is marked: asked by code that takes it."""
    return bool(inferring) and threading.get_ident() in inferring


class _Leaving:
    """Dies with its thread, whose number the system may then give to another."""

    def __init__(self, thread: int):
        self.thread = thread

    def __del__(self, ending=sys.is_finalizing):
        if ending():  # the names of this module may be gone already
            return
        for group in (_off, odd_threads, inferring):
            group.discard(self.thread)
        _tell_off()
        _tell_odd()


modes = Modes()
