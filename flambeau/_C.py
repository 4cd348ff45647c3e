"""The few names of torch's compiled core that programs reach for directly."""

from __future__ import annotations

import contextlib

from flambeau import Generator

__all__ = ["Generator", "_DisableFuncTorch", "_get_tracing_state"]


@contextlib.contextmanager
def _DisableFuncTorch():
    """No transform is ever under way below Python, so there is none to suspend."""
    yield


def _get_tracing_state() -> None:
    """The trace being recorded: there is none, since operations are never traced."""
    return None
