"""Fully sharded data parallel: torch.distributed.fsdp."""

from .fully_sharded import FullyShardedDataParallel
from .in_place import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
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
    "CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy", "fully_shard",
    "FSDPModule", "FullyShardedDataParallel", "ShardingStrategy", "StateDictType",
    "BackwardPrefetch",
    "CPUOffload", "MixedPrecision", "StateDictConfig", "FullStateDictConfig",
    "LocalStateDictConfig", "ShardedStateDictConfig", "OptimStateDictConfig",
    "FullOptimStateDictConfig", "ShardedOptimStateDictConfig",
]  # fmt: skip
