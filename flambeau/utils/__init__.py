"""Helpers around training: data sets, checkpointing, event files, a summary, progress."""

import importlib
import os

from . import _mode_utils, data

__all__ = ["_mode_utils", "data"]

_PARTS = frozenset(name.removesuffix(".py") for name in os.listdir(__path__[0])
                   if not name.startswith("__"))
_FUNCTIONS = {"progress": "progress_bar", "summary": "model_summary"}  # name -> its file


def __getattr__(name):
    """Parts are imported when first asked for."""
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f"{__name__}.{_FUNCTIONS[name]}"), name)
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
