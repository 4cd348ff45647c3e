"""What each thread has switched on: recording, inference, autocast, anomaly detection.

Native fronts need to know too, and fast: they are told how many threads do not record, which one
if it is only one, how many do something out of the ordinary, and which ones infer.
"""

from __future__ import annotations

import os
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
        thread = own["leaving"].thread
        with _Telling.lock:
            if name == "grad":
                (_off.discard if value else _off.add)(thread)
                _tell_off()
            else:
                odd = self.inference or self.anomaly or bool(self.pack)
                (odd_threads.add if odd else odd_threads.discard)(thread)
                (inferring.add if self.inference else inferring.discard)(thread)
                _tell_odd()


class _Telling:
    """One thread at a time changes what native fronts are told; it may be interrupted by the
    collector, which lets go of threads that have ended."""

    lock = threading.RLock()


def _tell_off() -> None:
    if len(_off) == 1:  # before the count: a single thread off is never looked for under another's
        (Native.off_ident.value,) = _off
    Native.off_count.value = len(_off)


def _tell_odd() -> None:
    """In one go, as other threads read while they hold the GIL: a slice is set without letting
    it go. Where there is no room for all, the counts differ and fronts ask Python."""
    told = Native.inferring
    threads = tuple(inferring)[:len(told) - 1]
    told[:len(threads) + 1] = [len(threads), *threads]
    Native.special.value = len(odd_threads)


def _begin_in_child() -> None:
    """After a fork there is one thread: the others' switches, and their hold of the lock, end."""
    _Telling.lock = threading.RLock()
    for group in (_off, odd_threads, inferring):
        group.intersection_update((threading.get_ident(),))
    _tell_off()
    _tell_odd()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


def is_watched() -> bool:
    """Whether every step of the graph is told of in this thread, so that none may be left out."""
    return modes.anomaly or bool(modes.pack)


def infers() -> bool:
    """Whether memory taken now is marked: asked by code that takes it."""
    return bool(inferring) and threading.get_ident() in inferring


def mark_inferred(memory) -> None:
    """Say of memory just taken that it is inference mode's, if that is on."""
    if inferring and infers():
        for mem in memory:
            mem.version = INFERENCE


class _Leaving:
    """Dies with its thread, whose number the system may then give to another."""

    def __init__(self, thread: int):
        self.thread = thread

    def __del__(self, ending=sys.is_finalizing):
        if ending():  # the names of this module may be gone already
            return
        with _Telling.lock:
            for group in (_off, odd_threads, inferring):
                group.discard(self.thread)
            _tell_off()
            _tell_odd()


modes = Modes()

#: threads in which operations are cast to another precision, see autocast.py
autocasting: set[int] = set()
