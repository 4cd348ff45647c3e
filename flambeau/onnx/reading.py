"""The registry of ONNX operators that can be read, and what many of them need."""

from __future__ import annotations

from collections.abc import Callable

from flambeau import Tensor

READERS: dict[str, Callable] = {}


def reads(*kinds: str):
    """Decorator: what these ONNX operators call, as f(*inputs, **attributes).

    `results` tells how many outputs are wanted, and `opset` the version of the operators.
    """

    def add(function):
        for kind in kinds:
            READERS[kind] = function
        return function

    return add


def ints(x) -> list[int]:
    """A tensor, or a list, of integers as Python has them."""
    if isinstance(x, Tensor):
        found = x.tolist()
        return found if isinstance(found, list) else [found]
    return list(x)


def number(x):
    return x.item() if isinstance(x, Tensor) else x


def axes_of(given, attribute) -> list[int] | None:
    """Axes, which newer versions take as an input and older ones as an attribute."""
    found = given if given is not None else attribute
    return None if found is None else ints(found)
