"""What each thread has switched on: recording, inference, autocast, anomaly detection."""

from __future__ import annotations

import threading


class Modes(threading.local):
    """Switches of the calling thread; a new thread starts with the defaults."""

    grad = True
    inference = False
    anomaly = False
    anomaly_check_nan = True
    multithreading = True
    pack = None  # saved-tensor hooks: (pack, unpack), innermost last


modes = Modes()
