"""Tensors that are shared out among processes, which flambeau has not: whole models are (see fsdp).

Programs ask whether a tensor is one before they treat it as such; none is.
"""

from typing import Any, NoReturn

from flambeau import Tensor

from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_module",
           "distribute_tensor"]

_REFUSAL = ("tensors are not shared out among processes here; shard the model with "
            "torch.distributed.fsdp.FullyShardedDataParallel")


class DTensor(Tensor):
    """A tensor whose parts lie in several processes."""

    def __new__(cls, *args, **kwargs):
        raise RuntimeError(f"DTensor: {_REFUSAL}")


def distribute_tensor(tensor: Tensor, device_mesh: Any = None, placements: Any = None,
                      **options: Any) -> NoReturn:
    """Share a tensor out among processes. Raises RuntimeError."""
    raise RuntimeError(f"distribute_tensor: {_REFUSAL}")


def distribute_module(module: Any, device_mesh: Any = None, *args: Any, **options: Any) -> NoReturn:
    """Share the parameters of a module out among processes. Raises RuntimeError."""
    raise RuntimeError(f"distribute_module: {_REFUSAL}")
