"""Running combinations of what stands along a dimension, in logarithmically many steps."""

from __future__ import annotations

import flambeau
from flambeau import Tensor
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["associative_scan"]


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """Trees of tensors whose n-th slice along `dim` combines the first n slices of those given.

    `combine_fn(left, right)` joins two trees of slices and must be associative.

    >>> import flambeau as torch
    >>> associative_scan(lambda a, b: a * b, torch.arange(1, 6), 0)
    tensor([  1,   2,   6,  24, 120])
    """
    leaves, spec = tree_flatten(xs)
    _check(combine_fn, leaves, combine_mode)
    dim = dim % leaves[0].dim() if leaves[0].dim() else dim
    length = leaves[0].size(dim)
    if any(leaf.size(dim) != length for leaf in leaves):
        raise ValueError("All xs leaves must have the same scan dimension size, but got "
                         f"{[leaf.size(dim) for leaf in leaves]}")

    def joined(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        found, made = tree_flatten(combine_fn(tree_unflatten(left, spec),
                                              tree_unflatten(right, spec)))
        if made != spec:
            raise RuntimeError("combine_fn must return what it is given: "
                               f"expected {spec}, but got {made}")
        return found

    turned = [leaf.flip([dim]) for leaf in leaves] if reverse else leaves
    scanned = _scanned(joined, turned, dim)
    return tree_unflatten([x.flip([dim]) for x in scanned] if reverse else scanned, spec)


def _check(combine_fn, leaves: list, combine_mode: str) -> None:
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError("Combine_mode must either 'pointwise' or 'generic', "
                         f"but got {combine_mode}")
    if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise ValueError(f"All xs leaves must be a Tensor, and one at least, but got {leaves}")


def _scanned(joined, xs: list[Tensor], dim: int) -> list[Tensor]:
    """Neighbours are joined, the half that is left is scanned, and fills in the other half."""
    length = xs[0].size(dim)
    if length < 2:
        return xs

    def part(tensors: list[Tensor], start: int, stop: int, step: int = 1) -> list[Tensor]:
        return [x[(slice(None),) * dim + (slice(start, stop, step),)] for x in tensors]

    odd = _scanned(joined, joined(part(xs, 0, length - 1, 2), part(xs, 1, length, 2)), dim)
    even = part(xs, 0, 1)
    if length > 2:
        later = joined(part(odd, 0, (length - 1) // 2), part(xs, 2, length, 2))
        even = [flambeau.cat(pair, dim) for pair in zip(even, later, strict=True)]
    pairs = [flambeau.stack([e.narrow(dim, 0, length // 2), o], dim + 1).flatten(dim, dim + 1)
             for e, o in zip(even, odd, strict=True)]
    if length % 2 == 0:
        return pairs
    return [flambeau.cat([p, e.narrow(dim, length // 2, 1)], dim)
            for p, e in zip(pairs, even, strict=True)]
