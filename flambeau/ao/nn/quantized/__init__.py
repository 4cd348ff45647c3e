"""Layers whose weights are bytes."""

from . import dynamic

__all__ = ["dynamic"]
