"""functionalize: a function without writes in place that can be seen from outside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

REMOVED = ("mutations", "mutations_and_views")


def functionalize(func: Callable, *, remove: str = "mutations") -> Callable:
    """A function with the same results, and the same changes of its arguments, as func.

    It exists for those who trace what a function does: traces here (`fx`, `jit`, `compile`) have
    results of writes in place as values of their own already, so the function is called as it is.
    """
    if remove not in REMOVED:
        raise RuntimeError("functionalize(f, remove='mutations'): Valid values for remove are: "
                           f"'mutations', 'mutations_and_views'. Got {remove}")

    @functools.wraps(func)
    def functional(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return functional
