"""Blocks of shared memory on their way to another process.

A block is sent as a link: a name of its own beside shared memory's others, which the receiver
opens and removes. So the sender may end before the receiver begins, and what is in transit is
found by its name and removed with the last process. Where there is no name to give, the open file
itself is sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
import weakref
from multiprocessing import current_process, parent_process, reduction, util
from typing import NamedTuple

from flambeau import UntypedStorage
from flambeau.assemble import shared_memory

#: names of processes that have ended are removed by others when they are so old
STALE_SECONDS = 600
PREFIX = shared_memory.PREFIX
Block = shared_memory.Block
_numbers = itertools.count()
#: blocks that are mapped here, by the identity of their files
_mapped: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


class Parcel(NamedTuple):
    """A block of shared memory as it is pickled: by a name to open, or by an open file."""

    name: str | None
    file: object
    length: int
    identity: tuple[int, int]


def session() -> str:
    """What names of this program's processes have in common: their key, which is secret."""
    return hashlib.sha256(bytes(current_process().authkey)).hexdigest()[:12]


def pack(storage: UntypedStorage) -> Parcel:
    """A parcel for one receiver; the storage's bytes move to shared memory if need be."""
    block = storage.shared_block()
    _mapped[block.identity] = block
    name = _linked(block)
    file = reduction.DupFd(block.descriptor.number) if name is None else None
    return Parcel(name, file, storage.nbytes(), block.identity)


def _linked(block) -> str | None:
    """A new name for a block's file, or None if it cannot have one."""
    _begin()
    number = block.descriptor.number
    if block.name is None and os.fstat(number).st_nlink == 0:
        # A file that was once without a name gets one only once: this one stays with the block.
        block.name = _link(block)
        if block.name is None:
            return None
        util.Finalize(block, shared_memory.forget, (block.name, os.getpid()), exitpriority=-10)
    return _link(block)


def _link(block) -> str | None:
    number = block.descriptor.number
    for folder in shared_memory.folders():
        if os.stat(folder).st_dev != block.identity[0]:
            continue
        name = f"{folder}/{PREFIX}{session()}-{os.getpid()}-{next(_numbers)}-{time.time_ns():x}"
        try:
            if block.name is not None and os.path.exists(block.name):
                os.link(block.name, name)
            else:
                # A folder's descriptor, though it is not looked at, makes Python follow the link.
                os.link(f"/proc/self/fd/{number}", name, src_dir_fd=number)
            return name
        except OSError:
            continue
    return None


def unpack(parcel: Parcel) -> UntypedStorage:
    """The storage that was sent; the same block is mapped only once in a process."""
    _begin()
    known = _mapped.get(parcel.identity)
    if parcel.name is not None:
        number = _taken(parcel.name) if known is None else None
        with contextlib.suppress(OSError):
            os.unlink(parcel.name)
    else:
        number = _received(parcel.file)
        if known is not None:
            os.close(number)
    if known is None:
        assert number is not None
        known = Block.over(number, max(parcel.length, 1))
        _mapped[parcel.identity] = known
    return UntypedStorage.over_block(known, parcel.length)


def _taken(name: str) -> int:
    try:
        return os.open(name, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise RuntimeError(
            "a shared tensor can be received once from each pickle, and not after the program that "
            f"sent it has ended: {name} is not there any more; send it again") from None


def _received(file) -> int:
    try:
        return file.detach()
    except (FileNotFoundError, ConnectionError, EOFError) as error:
        raise RuntimeError(
            "a shared tensor was received after the process that sent it had ended: keep the "
            "sender until then, or use set_sharing_strategy('file_system'), which does not need "
            "it") from error


# -- names that nobody will open any more --------------------------------------------------------

_begun: set[int] = set()


def _begin() -> None:
    """Once in a process: see to it that names end with the program."""
    if os.getpid() in _begun:
        return
    _begun.add(os.getpid())
    # A spawned process has no parent yet while it unpickles what it is to do, but a name.
    if parent_process() is None and current_process().name == "MainProcess":
        util.Finalize(None, remove_names, (session(),), exitpriority=-100)
        remove_stale_names()


def _names(prefix: str):
    for folder in shared_memory.folders():
        with contextlib.suppress(OSError):
            yield from (f"{folder}/{name}" for name in os.listdir(folder)
                        if name.startswith(prefix))


def remove_names(of_session: str) -> None:
    """Remove what a program's processes have left."""
    for name in list(_names(f"{PREFIX}{of_session}-")):
        with contextlib.suppress(OSError):
            os.unlink(name)


def remove_stale_names() -> None:
    """Remove what programs have left that were killed."""
    for name in list(_names(PREFIX)):
        parts = os.path.basename(name).split("-")
        with contextlib.suppress(OSError, ValueError, IndexError):
            if time.time() - os.stat(name).st_ctime > STALE_SECONDS and not _alive(int(parts[2])):
                os.unlink(name)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
