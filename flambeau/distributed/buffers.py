"""Tensors as MPI sees them: an address, a number of bytes, and a type."""

from __future__ import annotations

from typing import Any

import flambeau

from .groups import ProcessGroup, world
from .reduce_op import Reduction


def check_tensor(value: Any, argument: str, name: str) -> None:
    if not isinstance(value, flambeau.Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{argument}` of {name} to "
                        f"be of type torch.Tensor but got {type(value)} instead.")


def check_tensors(values: Any, argument: str, name: str) -> None:
    if not isinstance(values, (list, tuple)) or not all(
            isinstance(value, flambeau.Tensor) for value in values):
        raise TypeError(f"Invalid function argument. Expected parameter `{argument}` of {name} to "
                        f"be of type List[torch.Tensor] but got {type(values)} instead.")


def check_alike(name: str, *tensors: Any) -> None:
    """MPI moves bytes: what does not fit would be written past the end."""
    first = tensors[0]
    for other in tensors[1:]:
        if other.dtype != first.dtype:
            raise ValueError(f"{name}: tensors of one dtype are wanted, got {first.dtype} and "
                             f"{other.dtype}")
        if other.numel() != first.numel():
            raise ValueError(f"{name}: tensors of one size are wanted, got {tuple(first.shape)} "
                             f"and {tuple(other.shape)}")


def nbytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()


def dense(tensor: Any) -> Any:
    """The tensor itself, outside the graph, or a contiguous copy of it."""
    found = tensor.detach()
    return found if found.is_contiguous() else found.contiguous()


def raw(tensor: Any, parts: int = 1) -> list:
    """A contiguous tensor as bytes: where each rank has a part, MPI is told the size of one."""
    size = nbytes(tensor)
    memory = world.mpi.buffer.fromaddress(tensor.data_ptr() if size else 0, size)
    return [memory, size // parts, world.mpi.BYTE]


def typed(tensor: Any, kind: Any, parts: int = 1) -> list:
    """A contiguous tensor as numbers."""
    size = nbytes(tensor)
    memory = world.mpi.buffer.fromaddress(tensor.data_ptr() if size else 0, size)
    return [memory, tensor.numel() // parts, kind]


def write_back(target: Any, source: Any) -> None:
    """Copy a result to where it was wanted, unless it is there already."""
    with flambeau.no_grad():
        if source.data_ptr() != target.data_ptr() or source.dtype != target.dtype:
            target.detach().copy_(source.view(target.shape).to(target.dtype))


class Summand:
    """A tensor on its way through a reduction: in a dtype MPI knows, and back."""

    def __init__(self, tensor: Any, op: Any, name: str, group: ProcessGroup) -> None:
        if tensor.is_sparse:
            raise RuntimeError(f"{name}: sparse tensors are not reduced; use to_dense()")
        self.target = tensor
        self.reduction = Reduction(world.mpi, op, tensor.dtype, name, group.size())
        wide = dense(tensor)
        if self.reduction.dtype != tensor.dtype:
            wide = (wide.view(self.reduction.dtype) if tensor.dtype == flambeau.bool
                    else wide.to(self.reduction.dtype))
        self.wide = wide

    def buffer(self, parts: int = 1) -> list:
        return typed(self.wide, self.reduction.type, parts)

    def divide(self, result: Any) -> Any:
        if self.reduction.divisor is not None:
            with flambeau.no_grad():
                result.div_(self.reduction.divisor)
        return result

    def finish(self) -> None:
        """The result is where the summand was: bring it home."""
        result = self.divide(self.wide)
        if self.target.dtype == flambeau.bool:
            result = result.view(flambeau.bool)
        write_back(self.target, result)
