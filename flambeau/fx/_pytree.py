"""Arguments taken apart by the structure that they are known to have."""

from __future__ import annotations

from typing import Any

from flambeau.utils._pytree import TreeSpec, tree_leaves

__all__ = ["tree_flatten_spec"]


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of a tree, as many as a structure has; where it has leaves, trees are leaves."""
    if spec.is_leaf():
        return [pytree]
    children = _children(pytree, spec)
    return [leaf for child, inner in zip(children, spec.children_specs, strict=False)
            for leaf in tree_flatten_spec(child, inner)]


def _children(tree: Any, spec: TreeSpec) -> list[Any]:
    if isinstance(tree, dict):
        return [tree[key] for key in spec.context]
    return list(tree) if isinstance(tree, (list, tuple)) else tree_leaves(tree)
