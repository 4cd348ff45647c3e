"""Tensors that are shared out among processes, which flambeau has not: whole models are (see fsdp).

Programs ask whether a tensor is one before they treat it as such; none is.
"""

from flambeau import Tensor

__all__ = ["DTensor"]


class DTensor(Tensor):
    """A tensor whose parts lie in several processes."""

    def __new__(cls, *args, **kwargs):
        raise RuntimeError("DTensor: tensors are not shared out among processes here; shard the "
                           "model with torch.distributed.fsdp.FullyShardedDataParallel")
