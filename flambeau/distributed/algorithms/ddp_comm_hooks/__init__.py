"""What DistributedDataParallel may do with a bucket of gradients instead of averaging it."""

from . import default_hooks

__all__ = ["default_hooks"]
