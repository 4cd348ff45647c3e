"""From one rank to another: send, recv, and lists of them."""

from __future__ import annotations

from typing import Any

from .buffers import check_tensor, dense, nbytes, raw, write_back
from .collectives import member
from .groups import get_rank, resolve, submit, world
from .work import Work


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Begin to send a tensor to a rank."""
    check_tensor(tensor, "tensor", "isend")
    g = resolve(group, "isend")
    if g is None:
        return None
    to = member(g, dst, group_dst, "isend")
    if to == g.rank():
        raise ValueError("Invalid destination rank: destination rank should not be the same as "
                         "the rank of the current process.")
    data = dense(tensor)
    return submit(g, f"send to rank {g.ranks[to]}",
                  lambda: [g.mail.Isend(raw(data), to, tag)], None, nbytes(data), [tensor],
                  lane=False)


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Begin to receive a tensor; from any rank where none is named."""
    check_tensor(tensor, "tensor", "irecv")
    g = resolve(group, "irecv")
    if g is None:
        return None
    anyone = src is None and group_src is None
    origin = world.mpi.ANY_SOURCE if anyone else member(g, src, group_src, "irecv")
    if origin == g.rank():
        raise ValueError("Invalid source rank: source rank should not be the same as the rank of "
                         "the current process.")
    data = dense(tensor)
    title = "recv from any rank" if anyone else f"recv from rank {g.ranks[origin]}"
    letter = Letter(g, data, origin, tag)

    def finish():
        write_back(tensor, data)
        work.source = g.ranks[letter.request.source]

    work: Work = submit(g, title, letter.start, finish, nbytes(data), [tensor], lane=False)
    return work


class Letter:
    """A message to be received: like a request, and who sent it."""

    def __init__(self, group: Any, data: Any, origin: int, tag: int) -> None:
        self.group, self.data, self.origin, self.tag = group, data, origin, tag
        self.request: Any = None

    def start(self) -> list:
        self.request = Received(self.group.mail.Irecv(raw(self.data), self.origin, self.tag))
        return [self.request]


class Received:
    """A request whose status is kept."""

    def __init__(self, request: Any) -> None:
        self.inner, self.source = request, -1

    def Test(self) -> bool:
        status = world.mpi.Status()
        done = self.inner.Test(status)
        if done:
            self.source = status.Get_source()
        return done


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Send a tensor to a rank."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor, src=None, group=None, tag=0, group_src=None) -> int:
    """Receive a tensor; the rank it came from, -1 outside the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One send or receive of a list for batch_isend_irecv."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type "
                             "``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        check_tensor(tensor, "tensor", "P2POp")
        self.op, self.tensor, self.peer, self.group = op, tensor, peer, group
        self.tag, self.group_peer = tag, group_peer

    def __repr__(self) -> str:
        return (f"P2POp({self.op.__name__} pg={self.group}, peer={self.peer}, "
                f"shape={tuple(self.tensor.shape)}, rank={get_rank()})")


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Begin all of them; their handles."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(o, P2POp) for o in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to be of type "
                         "``torch.distributed.P2POp``.")
    works = []
    for each in p2p_op_list:
        peer = {"group_dst" if each.op is isend else "group_src": each.group_peer}
        works.append(each.op(each.tensor, each.peer, each.group, each.tag, **peer))
    return [work for work in works if work is not None]
