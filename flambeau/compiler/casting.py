"""Autocast in compiled calls: ops that are made of others mean something else inside it."""

from __future__ import annotations

from ..core.dtype import _Default
from ..engine import autocast


def casting():
    """The dtype of new tensors, and that of autocast if it is on in this thread."""
    if not autocast.active:
        return _Default.value
    state = autocast.state
    return (_Default.value, state.dtypes["cpu"]) if state.cpu else _Default.value


def within() -> tuple:
    """What autocast does to an op call under way, which may have been cast already."""
    state = autocast.state
    return state.cpu, state.dtypes["cpu"] if state.cpu else None, state.inside


def recast(to: tuple) -> tuple:
    """Let autocast be as it was `within` another call; what it is now."""
    state, before = autocast.state, within()
    on, dtype, inside = to
    if on is not state.cpu:
        autocast.set_autocast_enabled("cpu", on)
    if on and dtype is not state.dtypes["cpu"]:
        autocast.set_autocast_dtype("cpu", dtype)
    state.inside = inside
    return before
