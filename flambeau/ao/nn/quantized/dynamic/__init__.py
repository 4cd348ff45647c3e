"""Layers whose weights are bytes, and whose inputs become bytes in every call."""

from .linear import Linear

__all__ = ["Linear"]
