"""Collectives that gradients go back through: the way back of each is another collective.

Each gives its result, rather than to write it into a tensor that is passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau import distributed as dist
from flambeau.autograd import Function

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce",
           "reduce_scatter", "scatter"]


def _added(group: Any, g: Tensor, op: Any = dist.ReduceOp.SUM) -> Tensor:
    total = g.clone()
    dist.all_reduce(total, op=op, group=group)
    return total


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, op, group, x):
        ctx.op, ctx.group = op, group
        return _added(group, x.contiguous(), op)

    @staticmethod
    def backward(ctx, g):
        return None, None, _AllReduce.apply(ctx.op, ctx.group, g)


class _AllToAll(Function):
    """Rank i's part j goes to rank j as part i; gradients go the same way."""

    @staticmethod
    def forward(ctx, group, outs, *parts):
        ctx.group, ctx.like = group, [p.shape for p in parts]
        outs = [flambeau.empty_like(out) for out in outs]
        dist.all_to_all(outs, [p.contiguous() for p in parts], group=group)
        return tuple(outs)

    @staticmethod
    def backward(ctx, *grads):
        outs = [grads[0].new_empty(shape) for shape in ctx.like]
        return (None, None, *_AllToAll.apply(ctx.group, outs, *grads))


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, src, group, x):
        ctx.src, ctx.group = src, group
        out = x.clone()
        dist.broadcast(out, src, group=group)
        return out

    @staticmethod
    def backward(ctx, g):
        total = _added(ctx.group, g.contiguous())
        return None, None, total if dist.get_rank() == ctx.src else flambeau.zeros_like(total)


def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None) -> Tensor:
    """What the tensors of all ranks come to, at every rank."""
    return _AllReduce.apply(op, group, tensor)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of one rank, at every rank."""
    return _Broadcast.apply(src, group, tensor)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor],
               group: Any = None) -> tuple[Tensor, ...]:
    """One part from every rank, and one part to every rank."""
    return _AllToAll.apply(group, output_tensor_list, *input_tensor_list)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, at every rank."""
    size = dist.get_world_size(group)
    return _AllToAll.apply(group, [tensor] * size, *[tensor] * size)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, at one; zeros at the others."""
    found = all_gather(tensor, group)
    return found if dist.get_rank() == dst else tuple(x * 0 for x in found)


def reduce(tensor: Tensor, dst: int, op: Any = dist.ReduceOp.SUM, group: Any = None) -> Tensor:
    """What the tensors of all ranks come to, at one; the others keep their own."""
    total = all_reduce(tensor, op, group)
    return total if dist.get_rank() == dst else tensor.clone()


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """The part that one rank has for this one."""
    return _AllToAll.apply(group, [tensors[0]] * len(tensors), *tensors)[src]


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = dist.ReduceOp.SUM,
                   group: Any = None) -> Tensor:
    """What the parts that all ranks have for this one come to."""
    parts = _AllToAll.apply(group, [output] * len(input_list), *input_list)
    return _TOGETHER[op](flambeau.stack(parts))


_TOGETHER = {
    dist.ReduceOp.SUM: lambda x: x.sum(0), dist.ReduceOp.AVG: lambda x: x.mean(0),
    dist.ReduceOp.PRODUCT: lambda x: x.prod(0),
    dist.ReduceOp.MAX: lambda x: x.amax(0), dist.ReduceOp.MIN: lambda x: x.amin(0),
}
