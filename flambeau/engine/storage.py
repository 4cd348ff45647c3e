"""Bytes on a device: where tensors take their memory from."""

from __future__ import annotations

from ..devices.cpu import memory

ALIGNMENT = memory.ALIGNMENT
Storage = memory.Storage
adopt = memory.adopt
grow = memory.grow
pool_of = memory.pool_of


#: told, while a trace records: of memory that is taken and how many bytes were asked for, that
#: values are read by Python, and of indices whose bounds are checked
takers: list = []
readers: list = []
checkers: list = []


def allocate(nbytes: int):
    """A storage of at least nbytes, uninitialised."""
    mem = memory.allocate(nbytes)
    if takers:
        takers[-1](mem, nbytes)
    return mem


def nowhere():
    """The storage of a meta tensor: no bytes, but a version of its own."""
    return adopt(0, 0, None)
