"""Tensors shared with other libraries without a copy."""

from flambeau import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
