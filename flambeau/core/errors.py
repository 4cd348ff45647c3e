"""Exceptions that programs catch by name."""

from __future__ import annotations


class LinAlgError(RuntimeError):
    """A matrix for which a decomposition or a solution does not exist."""

    __module__ = "torch.linalg"
