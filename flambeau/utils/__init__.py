"""Helpers around training; `data` loads data sets."""

from . import _mode_utils, data

__all__ = ["_mode_utils", "data"]
