"""Helpers around training; `data` loads data sets."""

from . import data

__all__ = ["data"]
