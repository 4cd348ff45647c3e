"""What `fully_shard` makes of modules in PyTorch; here they are wrapped, as FSDP does it.

Programs ask whether a module is one before they treat it as such; none is.
"""

from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau import nn

__all__ = ["CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy",
           "fully_shard"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a module's parameters, of sums of gradients, and of its outputs."""

    param_dtype: flambeau.dtype | None = None
    reduce_dtype: flambeau.dtype | None = None
    output_dtype: flambeau.dtype | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parameters stay where they are computed with."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters are kept on the CPU."""

    pin_memory: bool = True


def fully_shard(module: Any, **options: Any) -> Any:
    """Share a module's parameters out in place. Raises RuntimeError."""
    raise RuntimeError("fully_shard: modules are wrapped here, not changed in place: use "
                       "torch.distributed.fsdp.FullyShardedDataParallel(module)")


class FSDPModule(nn.Module):
    """A module whose parameters are shared out in place."""
