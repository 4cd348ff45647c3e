"""What each thread has switched on: recording, inference, autocast, anomaly detection.

Native fronts need to know too, and fast: they are told how many threads do not record, which one
if it is only one, and how many do something out of the ordinary.
"""

from __future__ import annotations

import threading
from typing import Any


class Native:
    """The words native fronts read; plugged in when they are loaded."""

    class _Word:
        value = 0

    off_count: Any = _Word()
    off_ident: Any = _Word()
    special: Any = _Word()


_off: set[int] = set()
_odd: set[int] = set()


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
        if own.get(name, getattr(Modes, name, own)) is value:
            return
        own[name] = value
        if "leaving" not in own:
            own["leaving"] = _Leaving(threading.get_ident())
        if name == "grad":
            (_off.discard if value else _off.add)(own["leaving"].thread)
            _tell_off()
        else:
            odd = self.inference or self.anomaly or bool(self.pack)
            (_odd.add if odd else _odd.discard)(own["leaving"].thread)
            Native.special.value = len(_odd)


def _tell_off() -> None:
    Native.off_count.value = count = len(_off)
    if count == 1:
        (Native.off_ident.value,) = _off


class _Leaving:
    """Dies with its thread, whose number the system may then give to another."""

    def __init__(self, thread: int):
        self.thread = thread

    def __del__(self, off=_off, odd=_odd, native=Native):
        off.discard(self.thread)
        odd.discard(self.thread)
        native.off_count.value, native.special.value = len(off), len(odd)
        if len(off) == 1:
            (native.off_ident.value,) = off


modes = Modes()
