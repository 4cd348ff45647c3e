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
    hooks_refused = None  # why saved-tensor hooks are not allowed, if they are not

    def __setattr__(self, name, value):
        if getattr(self, name, self) is value:
            return
        super().__setattr__(name, value)
        me = threading.get_ident()
        if name == "grad":
            (_off.discard if value else _off.add)(me)
            Native.off_count.value = len(_off)
            if len(_off) == 1:
                (Native.off_ident.value,) = _off
        else:
            odd = self.inference or self.anomaly or bool(self.pack)
            (_odd.add if odd else _odd.discard)(me)
            Native.special.value = len(_odd)


modes = Modes()
