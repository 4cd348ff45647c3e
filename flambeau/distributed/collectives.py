"""The collectives on tensors: what torch.distributed has, each one non-blocking MPI operation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import flambeau

from .buffers import (
    Summand,
    check_alike,
    check_tensor,
    check_tensors,
    dense,
    nbytes,
    raw,
    typed,
    write_back,
)
from .groups import ProcessGroup, get_group_rank, resolve, submit, world
from .reduce_op import ReduceOp
from .store import seconds
from .work import Work


def answer(work: Work, async_op: bool) -> Work | None:
    """The handle, or nothing once it is done."""
    if async_op:
        return work
    work.wait()
    return None


def collective(**checks: Callable):
    """Decorator: the common part of all. The body is given the group itself, and returns a Work.

    Arguments named here are checked: one tensor, or a list of them. A rank outside of the group
    gets None. What is not asynchronous is waited for.
    """

    def add(body):
        name, signature = body.__name__, inspect.signature(body)

        @functools.wraps(body)
        def run(*args, **kwargs):
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            for argument, check in checks.items():
                check(given.arguments[argument], argument, name)
            group = resolve(given.arguments["group"], name)
            if group is None:
                return None
            given.arguments["group"] = group
            return answer(body(*given.args, **given.kwargs), given.arguments["async_op"])

        return run

    return add


def member(group: ProcessGroup, rank: Any, group_rank: Any, name: str, default: Any = None) -> int:
    """The place in the group of a rank that was named by its number in the world, or there."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"{name}: Can't specify both the global and the group rank")
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(f"Group rank {group_rank} is not part of group {group}")
        return group_rank
    if rank is None:
        if default is None:
            raise ValueError(f"{name}: Must specify a rank, in the world or in the group")
        return default
    return get_group_rank(group, rank)


@collective()
def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """Until every rank has come here."""
    work = submit(group, "barrier", lambda: [group.comm.Ibarrier()])
    if timeout is not None:
        work.timeout = seconds(timeout)
    return work


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier whose error names every rank that did not come."""
    g = resolve(group, "monitored_barrier")
    if g is not None:
        submit(g, "monitored_barrier", lambda: [g.comm.Ibarrier()]).wait(timeout)


@collective(tensor=check_tensor)
def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Give the tensor of rank `src` to all."""
    root = member(group, src, group_src, "broadcast")
    data = dense(tensor)
    return submit(group, "broadcast", lambda: [group.comm.Ibcast(raw(data), root)],
                  lambda: write_back(tensor, data), nbytes(data), [tensor])


@collective(tensor=check_tensor)
def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce the tensors of all ranks; each gets the result, in place."""
    one = Summand(tensor, op, "all_reduce", group)

    def start():
        return [group.comm.Iallreduce(world.mpi.IN_PLACE, one.buffer(), one.reduction.op)]

    return submit(group, "all_reduce", start, one.finish, nbytes(one.wide), [tensor])


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    """all_reduce of several tensors."""
    check_tensors(tensors, "tensors", "all_reduce_coalesced")
    works = [all_reduce(tensor, op, group, True) for tensor in tensors]
    for work in works[:0 if not works else -1 if async_op else None]:
        if work is not None:
            work.wait()
    return works[-1] if async_op and works else None


@collective(tensor=check_tensor)
def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """Reduce the tensors of all ranks; rank `dst` gets the result, in place."""
    root = member(group, dst, group_dst, "reduce")
    one = Summand(tensor, op, "reduce", group)
    here = group.rank() == root

    def start():
        give = world.mpi.IN_PLACE if here else one.buffer()
        return [group.comm.Ireduce(give, one.buffer() if here else None, one.reduction.op, root)]

    return submit(group, "reduce", start, one.finish if here else None, nbytes(one.wide), [tensor])


@collective(input_tensor=check_tensor, output_tensor=check_tensor)
def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """The tensors of all ranks, one after another in one tensor."""
    name, size = "all_gather_into_tensor", group.size()
    _check_multiple(name, output_tensor, input_tensor, size)
    out, given = dense(output_tensor), dense(input_tensor)
    return submit(group, name, lambda: [group.comm.Iallgather(raw(given), raw(out, size))],
                  lambda: write_back(output_tensor, out), nbytes(out), [output_tensor])


def _check_multiple(name: str, large: Any, small: Any, size: int) -> None:
    if large.dtype != small.dtype:
        raise TypeError(f"{name}: output and input tensor must have one dtype, got {large.dtype} "
                        f"and {small.dtype}")
    if large.numel() != small.numel() * size:
        raise ValueError(f"{name}: the larger tensor must have world_size times the elements of "
                         f"the smaller: got {large.numel()} and {small.numel()} with {size} ranks")


@collective(tensor_list=check_tensors, tensor=check_tensor)
def all_gather(tensor_list, tensor, group=None, async_op=False):
    """The tensor of every rank, into a list of tensors."""
    _check_length("all_gather", tensor_list, group)
    for each in tensor_list:
        if each.dtype != tensor.dtype:
            check_alike("all_gather", each, tensor)
    given, counts = dense(tensor), [nbytes(each) for each in tensor_list]
    flat = flambeau.empty(sum(counts), dtype=flambeau.uint8)
    rank = group.rank()
    if counts[rank] != nbytes(given):
        raise ValueError(f"all_gather: rank {rank} gives {tuple(tensor.shape)}, but its place "
                         f"in the list is {tuple(tensor_list[rank].shape)}")

    def start():
        return [group.comm.Iallgatherv(raw(given), [raw(flat)[0], counts, None, world.mpi.BYTE])]

    return submit(group, "all_gather", start, lambda: _deal(flat, tensor_list), sum(counts),
                  tensor_list)


def _deal(flat: Any, tensors: Any) -> None:
    """The bytes of several tensors, each to its own."""
    begin = 0
    with flambeau.no_grad():
        for tensor in tensors:
            end = begin + nbytes(tensor)
            if end > begin:
                piece = flat[begin:end].clone().view(tensor.dtype)
                tensor.detach().copy_(piece.view(tensor.shape))
            begin = end


def _joined(tensors: Any) -> Any:
    """The bytes of several tensors, one after another."""
    flat = [dense(tensor).reshape(-1).view(flambeau.uint8) for tensor in tensors if tensor.numel()]
    return flambeau.cat(flat) if flat else flambeau.empty(0, dtype=flambeau.uint8)


def _check_length(name: str, tensors: Any, group: ProcessGroup) -> None:
    if len(tensors) != group.size():
        raise ValueError(f"{name}: one tensor for each of {group.size()} ranks is wanted, got "
                         f"{len(tensors)}")


def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    """all_gather of several tensors: one list of outputs for every rank."""
    g = resolve(group, "all_gather_coalesced")
    if g is None:
        return None
    work = None
    for place, tensor in enumerate(input_tensor_list):
        outputs = [outputs[place] for outputs in output_tensor_lists]
        work = all_gather(outputs, tensor, group, async_op)
    return work


@collective(tensor=check_tensor)
def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """The tensor of every rank, into a list at rank `dst`."""
    root = member(group, dst, group_dst, "gather", default=0)
    here = group.rank() == root
    _check_list_at("gather", "gather_list", "destination", gather_list, tensor, group, here)
    given, count = dense(tensor), group.size()
    size = nbytes(given)
    flat = flambeau.empty(size * count if here else 0, dtype=flambeau.uint8)

    def start():
        return [group.comm.Igather(raw(given), raw(flat, count) if here else None, root)]

    finish = (lambda: _deal(flat, gather_list)) if here else None
    return submit(group, "gather", start, finish, size, gather_list)


@collective(tensor=check_tensor)
def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """One tensor of the list at rank `src` for every rank."""
    root = member(group, src, group_src, "scatter", default=0)
    here = group.rank() == root
    _check_list_at("scatter", "scatter_list", "source", scatter_list, tensor, group, here)
    flat = _joined(scatter_list) if here else None
    data = dense(tensor)

    def start():
        return [group.comm.Iscatter(raw(flat, group.size()) if here else None, raw(data), root)]

    return submit(group, "scatter", start, lambda: write_back(tensor, data), nbytes(data),
                  [tensor])


def _check_list_at(name: str, argument: str, end: str, tensors: Any, tensor: Any,
                   group: ProcessGroup, here: bool) -> None:
    """One rank, and no other, has a list of tensors, one like this for every rank."""
    if here:
        if tensors is None:
            raise ValueError(f"Argument ``{argument}`` must be specified on {end} rank.")
        check_tensors(tensors, argument, name)
        _check_length(name, tensors, group)
        check_alike(name, tensor, *tensors)
    elif tensors:
        raise ValueError(f"Argument ``{argument}`` must NOT be specified on non-{end} ranks.")


@collective(output=check_tensor, input=check_tensor)
def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce the tensors of all ranks; each gets its own part of the result."""
    name, size = "reduce_scatter_tensor", group.size()
    _check_multiple(name, input, output, size)
    one = Summand(input, op, name, group)
    out = flambeau.empty(output.numel(), dtype=one.reduction.dtype)
    if out.dtype == output.dtype and output.is_contiguous():
        out = output.detach().view(-1)

    def start():
        return [group.comm.Ireduce_scatter_block(
            one.buffer(size), typed(out, one.reduction.type), one.reduction.op)]

    return submit(group, name, start, lambda: write_back(output, one.divide(out)),
                  nbytes(one.wide), [output])


@collective(output=check_tensor, input_list=check_tensors)
def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce lists of tensors; each rank gets the result of its place."""
    _check_length("reduce_scatter", input_list, group)
    check_alike("reduce_scatter", output, input_list[group.rank()])
    with flambeau.no_grad():
        joined = flambeau.cat([tensor.detach().reshape(-1) for tensor in input_list])
    one = Summand(joined, op, "reduce_scatter", group)
    counts = [tensor.numel() for tensor in input_list]
    out = flambeau.empty(output.numel(), dtype=one.reduction.dtype)

    def start():
        return [group.comm.Ireduce_scatter(one.buffer(), typed(out, one.reduction.type), counts,
                                           one.reduction.op)]

    return submit(group, "reduce_scatter", start, lambda: write_back(output, one.divide(out)),
                  nbytes(one.wide), [output])


def _exchange(group: ProcessGroup, name: str, sent: Any, give: list[int], got: Any,
              take: list[int], finish: Callable, result: Any) -> Work:
    """Bytes of every rank to every rank."""

    def start():
        byte = world.mpi.BYTE
        return [group.comm.Ialltoallv([raw(sent)[0], give, None, byte],
                                      [raw(got)[0], take, None, byte])]

    return submit(group, name, start, finish, sum(give) + sum(take), result)


@collective(output=check_tensor, input=check_tensor)
def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None,
                      async_op=False):
    """Cut the input along its first dimension; part i goes to rank i."""
    name = "all_to_all_single"
    if output.dtype != input.dtype:
        check_alike(name, output, input)
    give = _split_bytes(name, input, input_split_sizes, group.size())
    take = _split_bytes(name, output, output_split_sizes, group.size())
    out = dense(output)
    return _exchange(group, name, dense(input), give, out, take,
                     lambda: write_back(output, out), [output])


def _split_bytes(name: str, tensor: Any, sizes: Any, count: int) -> list[int]:
    rows = tensor.size(0) if tensor.dim() else 1
    row = nbytes(tensor) // rows if rows else 0
    if not sizes:
        if rows % count:
            raise RuntimeError(f"Tensor's dim 0 does not divide equally across group size: {rows} "
                               f"rows in {name} for {count} ranks")
        return [rows // count * row] * count
    if len(sizes) != count or sum(sizes) != rows:
        raise RuntimeError(f"Split sizes doesn't match total dim 0 size: {name} was given {sizes} "
                           f"for {rows} rows and {count} ranks")
    return [size * row for size in sizes]


@collective(output_tensor_list=check_tensors, input_tensor_list=check_tensors)
def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Tensor i of the list goes to rank i; what they send comes back."""
    for tensors in (output_tensor_list, input_tensor_list):
        _check_length("all_to_all", tensors, group)
    give, take = ([nbytes(tensor) for tensor in tensors]
                  for tensors in (input_tensor_list, output_tensor_list))
    out = flambeau.empty(sum(take), dtype=flambeau.uint8)
    return _exchange(group, "all_to_all", _joined(input_tensor_list), give, out, take,
                     lambda: _deal(out, output_tensor_list), output_tensor_list)
