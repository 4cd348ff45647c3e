"""Which modules are being run: their names, as long as a `with` lasts."""

from __future__ import annotations

import weakref
from typing import Any

from flambeau.assemble import modes
from flambeau.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """`parents` has the names of the modules that are being run, and always "Global".

    A module that is called by the program itself goes by its class, one inside of it by its place.
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._handles: list = []

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass is under way."""
        return modes.walk is not None

    def __enter__(self):
        self._handles = [register_module_forward_pre_hook(self._begin),
                         register_module_forward_hook(self._end, always_call=True)]
        return self

    def __exit__(self, *failure: Any) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _name_of(self, module: Any) -> str:
        if module not in self._names:
            outer = type(module).__name__
            for name, inner in module.named_modules():
                self._names.setdefault(inner, f"{outer}.{name}" if name else outer)
        return self._names[module]

    def _begin(self, module: Any, args: Any) -> None:
        self.parents.add(self._name_of(module))

    def _end(self, module: Any, args: Any, result: Any) -> None:
        self.parents.discard(self._name_of(module))
