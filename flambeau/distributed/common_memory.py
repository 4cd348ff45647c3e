"""Memory that all ranks of a group on one host see: an average without a message.

Each rank computes one part of the result from everybody's numbers and writes it for all. Order of
summation is that of ranks, so every rank has the same bits.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import flambeau
from flambeau.distributed import groups, objects, pmi
from flambeau.distributed.buffers import nbytes
from flambeau.distributed.courier import GATED
from flambeau.distributed.work import Work

FOLDER = "/dev/shm"
PIECE = 1 << 18  # elements that are summed at a time: they stay in the cache


def common_tensors(group: Any, size: int, dtype: Any) -> list[Any] | None:
    """A tensor of each rank, which all can write to; None where they share no memory."""
    if group.size() == 1 or not size:
        return None
    room = _aligned(size * flambeau.empty(0, dtype=dtype).element_size())
    known = [pmi.node_name(), None]
    if group.rank() == 0:
        known[1] = _create(room * group.size())
    every: list = [None] * group.size()
    objects.all_gather_object(every, known, group)
    path = every[0][1]
    near = path is not None and all(name == every[0][0] for name, _ in every)
    memory = _open(path) if near else None
    opened: list = [None] * group.size()
    objects.all_gather_object(opened, memory is not None, group)
    if group.rank() == 0 and path is not None:
        os.unlink(path)  # it lives as long as someone has it mapped
    if not all(opened):
        return None
    return [flambeau.frombuffer(memory, dtype=dtype, count=size, offset=rank * room)
            for rank in range(group.size())]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _create(nbytes: int) -> str | None:
    """A file whose memory is really there: writing to a full disk would end the process."""
    try:
        number, path = tempfile.mkstemp(prefix="flambeau-", dir=FOLDER)
    except OSError:
        return None
    try:
        os.posix_fallocate(number, 0, nbytes)
        return path
    except (OSError, AttributeError):
        os.unlink(path)
        return None
    finally:
        os.close(number)


def _open(path: str) -> mmap.mmap | None:
    try:
        with open(path, "r+b") as file:
            return mmap.mmap(file.fileno(), 0)
    except OSError:
        return None


def average(group: Any, tensors: list[Any], divisor: int) -> Work:
    """Begin to replace all tensors by their sum over the divisor."""
    rank, size = group.rank(), group.size()
    share = -(-tensors[0].numel() // size)
    begin, end = rank * share, min((rank + 1) * share, tensors[0].numel())

    def start():
        _average_part(tensors, begin, end, divisor)
        return [group.comm.Ibarrier()]  # nobody reads before all have written

    return groups.submit(group, "average", start, None, max(nbytes(tensors[0]), GATED),
                         [tensors[rank]])


def _average_part(tensors: list[Any], begin: int, end: int, divisor: int) -> None:
    with flambeau.no_grad():
        for first in range(begin, end, PIECE):
            total, *others = (tensor[first:min(first + PIECE, end)] for tensor in tensors)
            for other in others:
                total.add_(other)
            if divisor & (divisor - 1):
                total.div_(divisor)
            else:
                total.mul_(1 / divisor)  # exact for a power of two, and sooner
            for other in others:
                other.copy_(total)
