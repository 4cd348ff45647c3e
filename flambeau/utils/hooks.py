"""The handle that takes a hook away again, where programs look for it."""

from flambeau.nn.modules.handles import RemovableHandle

__all__ = ["RemovableHandle"]
