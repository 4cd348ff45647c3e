"""Sub-packages that are imported when first asked for, so that `import flambeau` stays quick."""

from __future__ import annotations

import importlib
import os
import sys


def subpackages(package: str, folder: str):
    """(__getattr__, __dir__) of a package that imports what lies in its folder when asked."""
    names = frozenset(name.removesuffix(".py") for name in os.listdir(folder)
                      if not name.startswith("__"))

    def __getattr__(name: str):
        if name in names:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    def __dir__():
        return sorted({*vars(sys.modules[package]), *names})

    return __getattr__, __dir__
