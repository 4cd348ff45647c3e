"""Arguments taken apart by the structure that they are known to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.utils._pytree import TreeSpec, tree_leaves

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

#: type -> (tree, spec) -> its children
SUPPORTED_NODES: dict[type, Callable[[Any, TreeSpec], list[Any]]] = {}


def register_pytree_flatten_spec(
        cls: type, flatten_fn_spec: Callable[[Any, TreeSpec], list[Any]],
        flatten_fn_exact_match_spec: Callable[[Any, TreeSpec], bool] | None = None) -> None:
    """Says how instances of a class are taken apart by a structure."""
    SUPPORTED_NODES[cls] = flatten_fn_spec


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of a tree, as many as a structure has; where it has leaves, trees are leaves."""
    if spec.is_leaf():
        return [pytree]
    children = _children(pytree, spec)
    return [leaf for child, inner in zip(children, spec.children_specs, strict=False)
            for leaf in tree_flatten_spec(child, inner)]


def _children(tree: Any, spec: TreeSpec) -> list[Any]:
    if type(tree) in SUPPORTED_NODES:
        return SUPPORTED_NODES[type(tree)](tree, spec)
    if isinstance(tree, dict):
        return [tree[key] for key in spec.context]
    return list(tree) if isinstance(tree, (list, tuple)) else tree_leaves(tree)
