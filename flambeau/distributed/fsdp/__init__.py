"""Fully sharded data parallel: torch.distributed.fsdp."""

from .fully_sharded import FullyShardedDataParallel
from .options import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictType,
)

__all__ = [
    "FullyShardedDataParallel", "ShardingStrategy", "StateDictType", "BackwardPrefetch",
    "CPUOffload", "MixedPrecision", "StateDictConfig", "FullStateDictConfig",
    "LocalStateDictConfig", "ShardedStateDictConfig", "OptimStateDictConfig",
    "FullOptimStateDictConfig", "ShardedOptimStateDictConfig",
]  # fmt: skip
