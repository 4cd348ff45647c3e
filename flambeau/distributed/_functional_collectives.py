"""Collectives that give their result, rather than to write it into a tensor that is passed."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor
from flambeau import distributed as dist
from flambeau.autograd import Function

__all__ = ["all_gather_tensor", "all_reduce", "all_to_all_single", "all_to_all_single_autograd",
           "broadcast", "reduce_scatter_tensor", "wait_tensor"]

_OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "max": dist.ReduceOp.MAX,
        "min": dist.ReduceOp.MIN, "product": dist.ReduceOp.PRODUCT}


def _group(group: Any) -> Any:
    """The group that is meant by a group, by a mesh, or by a mesh and one of its dimensions."""
    if isinstance(group, tuple):
        return group[0].get_group(group[1])
    return group.get_group() if isinstance(group, dist.DeviceMesh) else group


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, which is there: collectives of this module have ended when they return."""
    return tensor


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """What the tensors of all ranks come to."""
    out = self.detach().clone()
    dist.all_reduce(out, _OPS[reduceOp.lower()], _group(group))
    return out


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of one rank."""
    out = self.detach().clone()
    dist.broadcast(out, src, _group(group))
    return out


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, joined along a dimension."""
    parts = [flambeau.empty_like(self) for _ in range(dist.get_world_size(_group(group)))]
    dist.all_gather(parts, self.detach().contiguous(), _group(group))
    return flambeau.cat(parts, gather_dim)


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any,
                          tag: str = "") -> Tensor:
    """This rank's part, along a dimension, of what the tensors of all ranks come to."""
    size = dist.get_world_size(_group(group))
    if self.size(scatter_dim) % size:
        raise RuntimeError(f"reduce_scatter_tensor: dimension {scatter_dim} of "
                           f"{tuple(self.shape)} cannot be dealt out to {size} ranks")
    parts = [part.contiguous() for part in self.detach().chunk(size, scatter_dim)]
    out = flambeau.empty_like(parts[0])
    dist.reduce_scatter(out, parts, _OPS[reduceOp.lower()], _group(group))
    return out


def all_to_all_single(self: Tensor, output_split_sizes: list[int] | None,
                      input_split_sizes: list[int] | None, group: Any, tag: str = "") -> Tensor:
    """Rows of this tensor to every rank, and rows from every rank."""
    rows = self.size(0) if output_split_sizes is None else sum(output_split_sizes)
    out = self.new_empty((rows, *self.shape[1:]))
    dist.all_to_all_single(out, self.detach().contiguous(), output_split_sizes, input_split_sizes,
                           _group(group))
    return out


class _AllToAll(Function):
    @staticmethod
    def forward(ctx, x, received, sent, group):
        ctx.sizes = sent, received, group
        return all_to_all_single(x, received, sent, group)

    @staticmethod
    def backward(ctx, g):
        return _AllToAll.apply(g, *ctx.sizes), None, None, None


def all_to_all_single_autograd(self: Tensor, output_split_sizes: list[int] | None,
                               input_split_sizes: list[int] | None, group: Any,
                               tag: str = "") -> Tensor:
    """The same, and gradients go back where the rows came from."""
    return _AllToAll.apply(self, output_split_sizes, input_split_sizes, group)
