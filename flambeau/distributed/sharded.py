"""A piece of a tensor whose other pieces other ranks hold: what sharded checkpoints consist of."""

from __future__ import annotations

from typing import Any


class ShardedTensor:
    """Elements [offset, offset + len) of a tensor, counted as if it were flat."""

    def __init__(self, local: Any, shape: tuple[int, ...], offset: int) -> None:
        self.local, self.shape, self.offset = local, tuple(shape), offset

    @property
    def dtype(self) -> Any:
        return self.local.dtype

    def size(self) -> tuple[int, ...]:
        return self.shape

    def local_tensor(self) -> Any:
        return self.local

    def numel(self) -> int:
        count = 1
        for each in self.shape:
            count *= each
        return count

    def __repr__(self) -> str:
        end = self.offset + self.local.numel()
        return f"ShardedTensor({self.shape}, {self.dtype}, here [{self.offset}, {end}))"
