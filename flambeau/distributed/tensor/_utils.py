"""Which part of a tensor a process has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .placement_types import Shard

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(
        global_shape: Sequence[int], mesh: Any,
        placements: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape of this process's part, where it begins in the whole)"""
    shape, offset = list(global_shape), [0] * len(global_shape)
    place = mesh.get_coordinate()
    if place is None:
        return (0,), ()
    for dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            along = placement.dim
            shape[along], start = Shard.local_shard_size_and_offset(
                shape[along], mesh.size(dim), place[dim])
            offset[along] += start
    return tuple(shape), tuple(offset)
