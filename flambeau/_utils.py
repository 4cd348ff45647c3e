"""Tensors joined into one and taken apart again, as programs that average gradients do it."""

from __future__ import annotations

from collections.abc import Sequence

import flambeau
from flambeau import Tensor
from flambeau.serialization.rebuild import tensor_v2

__all__ = ["_flatten_dense_tensors", "_rebuild_tensor_v2", "_unflatten_dense_tensors"]

_rebuild_tensor_v2 = tensor_v2


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all tensors in one dimension; a copy, unless there is one tensor only."""
    flat = [x.contiguous().view(-1) for x in tensors]
    return flat[0] if len(flat) == 1 else flambeau.cat(flat)


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of what was joined, in the shapes of these tensors."""
    parts, start = [], 0
    for x in tensors:
        parts.append(flat.narrow(0, start, x.numel()).view_as(x))
        start += x.numel()
    return tuple(parts)
