"""Modules that are shared out in place, where they were at first."""

from flambeau.distributed.fsdp.in_place import FSDPModule, MixedPrecisionPolicy, fully_shard

__all__ = ["FSDPModule", "MixedPrecisionPolicy", "fully_shard"]
