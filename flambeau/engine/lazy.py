"""Sub-packages that are imported when first asked for, so that `import flambeau` stays quick."""

from __future__ import annotations

import importlib
import os
import sys


def subpackages(package: str, folder: str, elsewhere: dict[str, str] | None = None):
    """(__getattr__, __dir__) of a package that imports what lies in its folder when asked.

    `elsewhere` says which of its public names are made in which of its sub-packages.
    """
    homes = elsewhere or {}
    stems = (name.removesuffix(".py") for name in os.listdir(folder))
    names = frozenset(stem for stem in stems if "." not in stem and stem not in (
        "__init__", "__main__", "__pycache__"))

    def __getattr__(name: str):
        if name in names:
            return importlib.import_module(f"{package}.{name}")
        if name in homes:
            found = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
            setattr(sys.modules[package], name, found)
            return found
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    def __dir__():
        return sorted({*vars(sys.modules[package]), *names, *homes})

    return __getattr__, __dir__


def methods(cls: type, package: str, homes: dict[str, str]) -> None:
    """Give a class methods that are made in sub-packages of a package, imported at first call."""
    for name, home in homes.items():
        setattr(cls, name, _method(name, f"{package}.{home}"))


def _method(name: str, module: str):
    def first(self, *args, **kwargs):
        return getattr(importlib.import_module(module), name)(self, *args, **kwargs)

    first.__name__ = first.__qualname__ = name
    return first
