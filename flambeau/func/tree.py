"""Nests of tensors, as functions take and give them: their leaves, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.utils._pytree import (
    tree_flatten,
    tree_is_leaf,
    tree_leaves,
    tree_map,
    tree_structure,
    tree_unflatten,
)

leaves, mapped = tree_leaves, tree_map


def filled(x: Any, values: Sequence) -> Any:
    """The same nest with other leaves."""
    return tree_unflatten(list(values), tree_structure(x))


def spread(prefix: Any, x: Any, complain: Callable[[], Exception]) -> list:
    """For each leaf of x what `prefix` says there; a leaf of `prefix` stands for all below it."""
    if tree_is_leaf(prefix):
        return [prefix] * len(leaves(x))
    if tree_is_leaf(x):
        raise complain()
    named, given = _children(prefix), _children(x)
    if len(named) != len(given):
        raise complain()
    return [value for p, c in zip(named, given, strict=True) for value in spread(p, c, complain)]


def _children(x: Any) -> list:
    return tree_flatten(x, is_leaf=lambda below: below is not x)[0]
