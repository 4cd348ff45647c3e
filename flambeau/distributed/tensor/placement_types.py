"""How a tensor lies along one dimension of a mesh: in parts, whole at each, or as summands."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """Where the elements are."""

    def is_shard(self, dim: int | None = None) -> bool:
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each process has a part along a dimension, the first ones the larger parts.

    >>> [Shard.local_shard_size_and_offset(5, 4, rank) for rank in range(4)]
    [(2, 0), (2, 2), (1, 4), (0, 5)]
    """

    dim: int

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int,
                                    rank: int) -> tuple[int, int]:
        """(how much of a dimension a process has, where that begins)"""
        whole = -(-curr_local_size // num_chunks)
        start = min(whole * rank, curr_local_size)
        return min(whole, curr_local_size - start), start


@dataclass(frozen=True)
class _StridedShard(Shard):
    """Parts of parts: the dimension is first cut into `split_factor` pieces."""

    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """Each process has it all."""


@dataclass(frozen=True)
class Partial(Placement):
    """Each process has one operand of a reduction that is still to be done."""

    reduce_op: str = "sum"
