"""The collectives on tensors: what torch.distributed has, each one non-blocking MPI operation."""

from __future__ import annotations

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


def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """Until every rank has come here."""
    g = resolve(group, "barrier")
    if g is None:
        return None
    work = submit(g, "barrier", lambda: [g.comm.Ibarrier()])
    if timeout is not None:
        work.timeout = seconds(timeout)
    return answer(work, async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier whose error names every rank that did not come."""
    g = resolve(group, "monitored_barrier")
    if g is not None:
        submit(g, "monitored_barrier", lambda: [g.comm.Ibarrier()]).wait(timeout)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Give the tensor of rank `src` to all."""
    check_tensor(tensor, "tensor", "broadcast")
    g = resolve(group, "broadcast")
    if g is None:
        return None
    root = member(g, src, group_src, "broadcast")
    data = dense(tensor)
    work = submit(g, "broadcast", lambda: [g.comm.Ibcast(raw(data), root)],
                  lambda: write_back(tensor, data), nbytes(data), [tensor])
    return answer(work, async_op)


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce the tensors of all ranks; each gets the result, in place."""
    check_tensor(tensor, "tensor", "all_reduce")
    g = resolve(group, "all_reduce")
    if g is None:
        return None
    one = Summand(tensor, op, "all_reduce", g)

    def start():
        return [g.comm.Iallreduce(world.mpi.IN_PLACE, one.buffer(), one.reduction.op)]

    return answer(submit(g, "all_reduce", start, one.finish, nbytes(one.wide), [tensor]), async_op)


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    """all_reduce of several tensors."""
    check_tensors(tensors, "tensors", "all_reduce_coalesced")
    works = [all_reduce(tensor, op, group, True) for tensor in tensors]
    for work in works[:0 if not works else -1 if async_op else None]:
        if work is not None:
            work.wait()
    return works[-1] if async_op and works else None


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """Reduce the tensors of all ranks; rank `dst` gets the result, in place."""
    check_tensor(tensor, "tensor", "reduce")
    g = resolve(group, "reduce")
    if g is None:
        return None
    root = member(g, dst, group_dst, "reduce")
    one = Summand(tensor, op, "reduce", g)
    here = g.rank() == root

    def start():
        give = world.mpi.IN_PLACE if here else one.buffer()
        return [g.comm.Ireduce(give, one.buffer() if here else None, one.reduction.op, root)]

    finish = one.finish if here else None
    return answer(submit(g, "reduce", start, finish, nbytes(one.wide), [tensor]), async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """The tensors of all ranks, one after another in one tensor."""
    name = "all_gather_into_tensor"
    check_tensor(input_tensor, "input_tensor", name)
    check_tensor(output_tensor, "output_tensor", name)
    g = resolve(group, name)
    if g is None:
        return None
    _check_multiple(name, output_tensor, input_tensor, g.size())
    out, given = dense(output_tensor), dense(input_tensor)
    work = submit(g, name, lambda: [g.comm.Iallgather(raw(given), raw(out, g.size()))],
                  lambda: write_back(output_tensor, out), nbytes(out), [output_tensor])
    return answer(work, async_op)


def _check_multiple(name: str, large: Any, small: Any, size: int) -> None:
    if large.dtype != small.dtype:
        raise TypeError(f"{name}: output and input tensor must have one dtype, got {large.dtype} "
                        f"and {small.dtype}")
    if large.numel() != small.numel() * size:
        raise ValueError(f"{name}: the larger tensor must have world_size times the elements of "
                         f"the smaller: got {large.numel()} and {small.numel()} with {size} ranks")


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """The tensor of every rank, into a list of tensors."""
    check_tensors(tensor_list, "tensor_list", "all_gather")
    check_tensor(tensor, "tensor", "all_gather")
    g = resolve(group, "all_gather")
    if g is None:
        return None
    _check_length("all_gather", tensor_list, g)
    for each in tensor_list:
        if each.dtype != tensor.dtype:
            check_alike("all_gather", each, tensor)
    given, counts = dense(tensor), [nbytes(each) for each in tensor_list]
    flat = flambeau.empty(sum(counts), dtype=flambeau.uint8)
    moved = sum(counts)

    def start():
        return [g.comm.Iallgatherv(raw(given), [raw(flat)[0], counts, None, world.mpi.BYTE])]

    if counts[g.rank()] != nbytes(given):
        raise ValueError(f"all_gather: rank {g.rank()} gives {tuple(tensor.shape)}, but its place "
                         f"in the list is {tuple(tensor_list[g.rank()].shape)}")
    work = submit(g, "all_gather", start, lambda: _deal(flat, tensor_list), moved, tensor_list)
    return answer(work, async_op)


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


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """The tensor of every rank, into a list at rank `dst`."""
    check_tensor(tensor, "tensor", "gather")
    g = resolve(group, "gather")
    if g is None:
        return None
    root = member(g, dst, group_dst, "gather", default=0)
    here = g.rank() == root
    if here:
        if gather_list is None:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        check_tensors(gather_list, "gather_list", "gather")
        _check_length("gather", gather_list, g)
        check_alike("gather", tensor, *gather_list)
    elif gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    given = dense(tensor)
    size = nbytes(given)
    flat = flambeau.empty(size * g.size() if here else 0, dtype=flambeau.uint8)

    def start():
        return [g.comm.Igather(raw(given), raw(flat, g.size()) if here else None, root)]

    work = submit(g, "gather", start,
                  (lambda: _deal(flat, gather_list)) if here else None, size, gather_list)
    return answer(work, async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """One tensor of the list at rank `src` for every rank."""
    check_tensor(tensor, "tensor", "scatter")
    g = resolve(group, "scatter")
    if g is None:
        return None
    root = member(g, src, group_src, "scatter", default=0)
    here = g.rank() == root
    if here:
        if scatter_list is None:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        check_tensors(scatter_list, "scatter_list", "scatter")
        _check_length("scatter", scatter_list, g)
        check_alike("scatter", tensor, *scatter_list)
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    flat = _joined(scatter_list) if here else None
    data = dense(tensor)

    def start():
        return [g.comm.Iscatter(raw(flat, g.size()) if here else None, raw(data), root)]

    work = submit(g, "scatter", start,
                  lambda: write_back(tensor, data), nbytes(data), [tensor])
    return answer(work, async_op)


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce the tensors of all ranks; each gets its own part of the result."""
    name = "reduce_scatter_tensor"
    check_tensor(output, "output", name)
    check_tensor(input, "input", name)
    g = resolve(group, name)
    if g is None:
        return None
    _check_multiple(name, input, output, g.size())
    one = Summand(input, op, name, g)
    out = flambeau.empty(output.numel(), dtype=one.reduction.dtype)
    direct = out.dtype == output.dtype and output.is_contiguous()
    if direct:
        out = output.detach().view(-1)

    def start():
        return [g.comm.Ireduce_scatter_block(one.buffer(g.size()), typed(out, one.reduction.type),
                                             one.reduction.op)]

    def finish():
        write_back(output, one.divide(out))

    return answer(submit(g, name, start, finish, nbytes(one.wide), [output]), async_op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce lists of tensors; each rank gets the result of its place."""
    check_tensor(output, "output", "reduce_scatter")
    check_tensors(input_list, "input_list", "reduce_scatter")
    g = resolve(group, "reduce_scatter")
    if g is None:
        return None
    _check_length("reduce_scatter", input_list, g)
    check_alike("reduce_scatter", output, input_list[g.rank()])
    with flambeau.no_grad():
        joined = flambeau.cat([tensor.detach().reshape(-1) for tensor in input_list])
    one = Summand(joined, op, "reduce_scatter", g)
    counts = [tensor.numel() for tensor in input_list]
    out = flambeau.empty(output.numel(), dtype=one.reduction.dtype)

    def start():
        return [g.comm.Ireduce_scatter(one.buffer(), typed(out, one.reduction.type), counts,
                                       one.reduction.op)]

    def finish():
        write_back(output, one.divide(out))

    return answer(submit(g, "reduce_scatter", start, finish, nbytes(one.wide), [output]), async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None,
                      async_op=False):
    """Cut the input along its first dimension; part i goes to rank i."""
    name = "all_to_all_single"
    check_tensor(output, "output", name)
    check_tensor(input, "input", name)
    g = resolve(group, name)
    if g is None:
        return None
    if output.dtype != input.dtype:
        check_alike(name, output, input)
    give = _split_bytes(name, input, input_split_sizes, g.size())
    take = _split_bytes(name, output, output_split_sizes, g.size())
    given, out = dense(input), dense(output)
    work = submit(g, name, lambda: [g.comm.Ialltoallv([raw(given)[0], give, None, world.mpi.BYTE],
                                                      [raw(out)[0], take, None, world.mpi.BYTE])],
                  lambda: write_back(output, out), nbytes(given) + nbytes(out), [output])
    return answer(work, async_op)


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


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Tensor i of the list goes to rank i; what they send comes back."""
    check_tensors(output_tensor_list, "output_tensor_list", "all_to_all")
    check_tensors(input_tensor_list, "input_tensor_list", "all_to_all")
    g = resolve(group, "all_to_all")
    if g is None:
        return None
    _check_length("all_to_all", output_tensor_list, g)
    _check_length("all_to_all", input_tensor_list, g)
    given = _joined(input_tensor_list)
    give, take = ([nbytes(tensor) for tensor in tensors]
                  for tensors in (input_tensor_list, output_tensor_list))
    out = flambeau.empty(sum(take), dtype=flambeau.uint8)
    work = submit(g, "all_to_all",
                  lambda: [g.comm.Ialltoallv([raw(given)[0], give, None, world.mpi.BYTE],
                                             [raw(out)[0], take, None, world.mpi.BYTE])],
                  lambda: _deal(out, output_tensor_list), sum(give) + sum(take),
                  output_tensor_list)
    return answer(work, async_op)
