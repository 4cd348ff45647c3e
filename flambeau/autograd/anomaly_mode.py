"""Finding where nan came from: each step remembers the call that recorded it."""

import warnings

from ..engine.modes import modes


class detect_anomaly:
    """Inside, a gradient that holds nan raises, with the forward call that recorded its step."""

    def __init__(self, check_nan=True):
        self.before = modes.anomaly, modes.anomaly_check_nan
        self.check_nan = check_nan
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and "
                      "should only be enabled for debugging.", UserWarning, stacklevel=2)

    def __enter__(self):
        self.before = modes.anomaly, modes.anomaly_check_nan
        modes.anomaly_check_nan = self.check_nan
        modes.anomaly = True

    def __exit__(self, *_):
        modes.anomaly, modes.anomaly_check_nan = self.before


class set_detect_anomaly:
    """Anomaly detection on or off, from now on or, as a context, until its end."""

    def __init__(self, mode, check_nan=True):
        self.before = modes.anomaly, modes.anomaly_check_nan
        modes.anomaly, modes.anomaly_check_nan = mode, check_nan

    def __enter__(self):
        pass

    def __exit__(self, *_):
        modes.anomaly, modes.anomaly_check_nan = self.before


def is_anomaly_enabled():
    """Whether anomaly detection is on."""
    return modes.anomaly


def is_anomaly_check_nan_enabled():
    """Whether anomaly detection looks for nan."""
    return modes.anomaly_check_nan


__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
           "set_detect_anomaly"]
