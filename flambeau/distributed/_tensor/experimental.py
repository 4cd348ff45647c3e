"""torch.distributed.tensor.experimental under its first name."""

from flambeau.distributed.tensor.experimental import implicit_replication

__all__ = ["implicit_replication"]
