"""torch.distributed.tensor under its first name."""

from flambeau.distributed.tensor import DTensor

__all__ = ["DTensor"]
