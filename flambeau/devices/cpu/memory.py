"""Pooled memory: size-class free lists of 64-byte aligned blocks.

A block is taken by `list.pop` and comes back by itself when its storage dies, so large tensors do
not fault their pages in again on every op. Small blocks are cut from slabs; a large one has a
mapping of its own, which is returned to the system when too much lies idle.
"""

from __future__ import annotations

import ctypes
import mmap

from .bridge import BUFFER_IR, STORAGE_IR, THUNK_IR, Watch, jit, make_storage_type
from .integers import INTEGERS_IR
from .objects import addresses, cache

ALIGNMENT = 64
SLAB = 1 << 20
LARGE = 1 << 20
#: so many small blocks of a size are made at once, in at most so many bytes
BATCH, BATCH_BYTES = 64, 1 << 17
#: so many pages are returned to the system, not fewer
FEW_PAGES = 8
#: idle bytes in large blocks beyond which they are returned to the system
IDLE_LIMIT = 1 << 30

_IR = STORAGE_IR + THUNK_IR + BUFFER_IR + INTEGERS_IR
_dealloc, Watch.thunk, getbuffer, _address, _integer = addresses(cache().key(_IR), (
    "storage_dealloc", "native_thunk", "tensor_getbuffer", "flambeau_address", "flambeau_integer",
), lambda: _IR)
jit().publish("flambeau_address", _address)
jit().publish("flambeau_integer", _integer)
Storage: type = make_storage_type(_dealloc)

_pools: dict[int, list] = {}


def size_class(nbytes: int) -> int:
    """The size of block that serves a request: at most a quarter is wasted."""
    if nbytes <= 1024:
        return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


def pool_of(nbytes: int) -> list:
    """The free list that serves requests of this size."""
    size = size_class(nbytes)
    pool = _pools.get(size)
    if pool is None:
        pool = _pools[size] = []
    return pool


# A forked process must get a copy of the memory, not share the free lists' blocks with its parent.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def _map(nbytes: int) -> tuple[mmap.mmap, int]:
    mapping = mmap.mmap(-1, nbytes, **_PRIVATE)
    if nbytes >= 2 * LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping, ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _large(size: int, nbytes: int) -> tuple[mmap.mmap, int]:
    """A mapping of this size, for so many bytes that were asked for."""
    try:
        return _map(size)
    except (OSError, ValueError, OverflowError) as error:
        raise RuntimeError(
            f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {nbytes} "
            f"bytes. {error}") from error


_slabs: list[mmap.mmap] = []


def grow(nbytes: int):
    """A storage of the class that serves nbytes, when its free list is empty."""
    size = size_class(nbytes)
    pool = pool_of(size)
    if size >= LARGE:
        _trim(size)
        mapping, address = _large(size, nbytes)
        return _block(address, size, pool, mapping)
    count = max(1, min(BATCH, BATCH_BYTES // size))
    address = _cut(count * size)
    blocks = [_block(address + i * size, size, pool, None) for i in range(count)]
    taken = blocks.pop()
    del blocks  # each goes to the free list as it dies
    return taken


class _Slab:
    """The mapping that small blocks are being cut from."""

    address = left = 0


def _cut(nbytes: int) -> int:
    """The address of nbytes of a slab, a new one if there is not enough left."""
    if _Slab.left < nbytes:
        mapping, _Slab.address = _map(SLAB)
        _Slab.left = SLAB
        _slabs.append(mapping)
    _Slab.left -= nbytes
    return _Slab.address + _Slab.left


def _block(address: int, size: int, pool: list, owner):
    storage = Storage()
    storage.address, storage.nbytes, storage.free = address, size, pool
    if owner is not None:
        storage.owner = owner
    return storage


def allocate(nbytes: int):
    """A storage of at least nbytes, uninitialised."""
    try:
        return pool_of(nbytes).pop()
    except IndexError:
        return grow(nbytes)


def reserve(nbytes: int):
    """A storage that is held for long, so nothing is made besides: if it is large, it is no larger
    than that, and no part of the free lists. (In a larger one the system may give whole huge pages
    for a few bytes at its end.)"""
    if nbytes < LARGE:
        size, pool = size_class(nbytes), pool_of(nbytes)
        return pool.pop() if pool else _block(_cut(size), size, pool, None)
    mapping, address = _large(nbytes, nbytes)
    return adopt(address, nbytes, mapping)


def adopt(address: int, nbytes: int, owner):
    """A storage over memory that somebody else owns and that stays while `owner` does."""
    storage = Storage()
    storage.address, storage.nbytes, storage.owner = address, nbytes, owner
    return storage


def return_pages(storage) -> None:
    """Return the whole pages of a storage of ours to the system: its contents are lost, not its
    place. Few are not worth a call."""
    _return(storage.address, storage.address + storage.nbytes)


def _return(start: int, end: int) -> None:
    """Return the whole pages between two addresses."""
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    room = (end - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if room >= FEW_PAGES * mmap.PAGESIZE and hasattr(mmap, "MADV_DONTNEED"):
        # The process is one library to Python, its own interface a part of it.
        ctypes.pythonapi.madvise(ctypes.c_void_p(first), ctypes.c_size_t(room), mmap.MADV_DONTNEED)


def return_idle_pages() -> None:
    """Return to the system what lies in free lists, for it will not be needed soon.

    Small blocks that lie side by side are returned together.
    """
    release()
    return_heap()
    idle = []  # nobody else may take what is being emptied
    for pool in list(_pools.values()):
        while pool:
            idle.append(pool.pop())
    start = end = 0
    for low, high in sorted((block.address, block.address + block.nbytes) for block in idle):
        if low != end:
            _return(start, end)
            start = low
        end = high
    _return(start, end)


def return_heap() -> None:
    """Return to the system what imports and earlier work left idle between what is in use.

    The C library keeps such pages for whoever asks it for memory next: a megabyte, when Python has
    read the code of many modules. It takes a quarter of a millisecond.
    """
    trim = getattr(ctypes.pythonapi, "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(ctypes.c_size_t(0))


def idle_bytes() -> int:
    """Bytes that lie in free lists of large blocks."""
    return sum(size * len(pool) for size, pool in _pools.items() if size >= LARGE)


def _trim(wanted: int) -> None:
    if idle_bytes() + wanted > IDLE_LIMIT:
        release()


def release() -> None:
    """Return idle large blocks to the system."""
    for size, pool in _pools.items():
        while size >= LARGE and pool:
            storage = pool.pop()
            del storage.free  # not pooled any more: it ends here, and its mapping with it
