"""Modules that are loaded when something of them is first used, so that importing is quick."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class Lazily:
    """Stands for a module; becomes a mirror of it on first use."""

    def __init__(self, name: str):
        self.__dict__["__name__"] = name

    def __getattr__(self, attribute: str):
        module = importlib.import_module(self.__dict__["__name__"])
        self.__dict__.update(vars(module))
        return getattr(module, attribute)


if not TYPE_CHECKING:
    np = Lazily("numpy")
