"""Small products of a program become code of their own: their sizes are known by then."""

from __future__ import annotations

from collections import Counter

from ..devices.cpu.matmul.block import WORDS
from ..devices.cpu.matmul.small import small_product
from ..engine.launch import Launch
from ..engine.tape import integers_at
from .epilogue import PRODUCTS, words_at

#: so many of them, those that are called most: each takes a moment to be compiled
_KINDS = 16


def known(launches: list) -> list:
    """Launches, small products among them by code that knows their sizes and strides."""
    calls = Counter(_kind(launch) for launch in launches if _is_product(launch))
    found = {kind: _code(*kind) for kind, _ in calls.most_common(_KINDS)}
    return [launch.by(code.__name__, code) if _is_product(launch) and (
        code := found.get(_kind(launch))) else launch for launch in launches]


def _is_product(launch) -> bool:
    return isinstance(launch, Launch) and launch.name in PRODUCTS


def _kind(launch: Launch) -> tuple[str, int]:
    """The name of a product's usual code, and the address of its words."""
    return launch.name, launch.args[-1]


def _code(name: str, address: int):
    """The code of a small product; None of others, and of those that start within an operand."""
    words = words_at(address, WORDS)
    if any(integers_at(words["offsets"], 4)):
        return None
    return small_product(words, PRODUCTS[name][1])
