"""Random numbers that are not the library's: Python's and numpy's, which no program draws."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class Dice:
    """Sees whether numbers are drawn from those that code can reach, from when it is made on."""

    def __init__(self, rows: list[tuple]):
        """rows: what the code can reach, see search.py."""
        self.looks = [*_of_all(), *(look for *_, value in rows if (look := _look_at(value)))]
        self.before = [look() for look in self.looks]

    def are_thrown(self) -> bool:
        return any(look() != state for look, state in zip(self.looks, self.before, strict=True))


def _of_all() -> list[Callable]:
    """How to see the states that all code shares, of modules that are there."""
    python, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    found = [python.getstate] if python is not None else []
    return found if numpy is None else [*found, lambda: _comparable(numpy.get_state())]


def _look_at(value: Any) -> Callable | None:
    """How to see the state of a value, if it is a source of random numbers."""
    python, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    if python is not None and isinstance(value, python.Random):
        return value.getstate
    if numpy is not None and isinstance(value, (numpy.Generator, numpy.RandomState)):
        bits = value.bit_generator if isinstance(value, numpy.Generator) else value._bit_generator
        return lambda: _comparable(bits.state)
    return None


def _comparable(state: Any) -> Any:
    """A state of numpy's, in which arrays are bytes."""
    if isinstance(state, dict):
        return {key: _comparable(value) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(map(_comparable, state))
    return state.tobytes() if hasattr(state, "tobytes") else state
