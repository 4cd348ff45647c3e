"""Storages: the bytes under tensors."""

from flambeau import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
