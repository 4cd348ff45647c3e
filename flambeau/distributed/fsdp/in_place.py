"""What `fully_shard` makes of modules in PyTorch; here they are wrapped, as FSDP does it.

Programs ask whether a module is one before they treat it as such; none is.
"""

from flambeau import nn

__all__ = ["FSDPModule"]


class FSDPModule(nn.Module):
    """A module whose parameters are shared out in place."""
