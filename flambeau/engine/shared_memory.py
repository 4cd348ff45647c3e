"""Memory that processes share: the mapping of a file that has no name, or not yet one.

Forked processes have the mapping; others are given the file and map it themselves. The bytes are
gone when the last of them is, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import weakref
from typing import Any

from ..core.lazily import Lazily
from .storage import adopt

tempfile: Any = Lazily("tempfile")

#: where files are memory; the second is for systems that have no such place, or a small one
MEMORY_FOLDER = "/dev/shm"
PREFIX = "flambeau-"


class Strategy:
    """How blocks are made: files that can be named, or descriptors only."""

    named = True


class _Descriptor:
    """An open file, closed with its last reference."""

    def __init__(self, number: int):
        self.number = number

    def __del__(self):
        with contextlib.suppress(OSError):
            os.close(self.number)


class Block(mmap.mmap):
    """The memory of a file, shared with every process that maps it."""

    descriptor: _Descriptor
    identity: tuple[int, int]  # of the file, the same in all processes
    name: str | None           # under which others can open it

    @staticmethod
    def over(number: int, length: int, name: str | None = None) -> Block:
        """Map an open file, which then belongs to the block."""
        descriptor = _Descriptor(number)
        status = os.fstat(number)
        if status.st_size < length:
            raise RuntimeError(f"shared memory of {status.st_size} bytes was announced as {length}")
        block = Block(number, length)
        block.descriptor, block.name = descriptor, name
        block.identity = status.st_dev, status.st_ino
        return block

    @property
    def address(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self))

    def storage(self):
        """A storage over all of the block."""
        return adopt(self.address, len(self), self)


def folders() -> list[str]:
    """Where blocks are made, the best first."""
    return [folder for folder in (MEMORY_FOLDER, tempfile.gettempdir()) if os.path.isdir(folder)]


def create(nbytes: int) -> Block:
    """A block of at least one byte; its room is there, not only promised."""
    length = max(nbytes, 1)
    if not Strategy.named and hasattr(os, "memfd_create"):
        number = os.memfd_create("flambeau")
        os.ftruncate(number, length)
        return Block.over(number, length)
    failures = []
    for folder in folders():
        try:
            return _created(folder, length)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise RuntimeError(
                    "share_memory_: too many open files: each shared block takes two; raise the "
                    "limit (ulimit -n), or share fewer and larger tensors") from error
            failures.append(f"{folder}: {error.strerror}")
    raise RuntimeError(f"share_memory_: no room for {length} bytes in {'; '.join(failures)}")


def _created(folder: str, length: int) -> Block:
    number, name = _opened(folder)
    try:
        # Memory that is only promised ends the process when it is touched and there is none.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(number, 0, length)
        else:
            os.ftruncate(number, length)
    except BaseException:
        os.close(number)
        if name is not None:
            os.unlink(name)
        raise
    block = Block.over(number, length, name)
    if name is not None:
        weakref.finalize(block, forget, name, os.getpid())
    return block


def forget(name: str, pid: int) -> None:
    """Take a name away, in the process that gave it."""
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _opened(folder: str) -> tuple[int, str | None]:
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), None
    return tempfile.mkstemp(prefix=PREFIX, dir=folder)


def is_shared(mem) -> bool:
    """Whether a storage lies in a block."""
    return isinstance(getattr(mem, "owner", None), Block)
