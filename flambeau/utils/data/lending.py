"""Batches in shared memory: a worker fills a block and lends it; it comes back when all that looks
at it in the other process has died, and is filled again.

The worker's side is an Arena, the reader's a Library. A block is a file in memory, mapped by both.
What is no tensor and no large buffer travels as a pickle beside the block.
"""

import contextlib
import io
import mmap
import os
import pickle
import sys
import tempfile
import threading
import weakref
from multiprocessing import reduction
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor

ALIGNMENT = 64
SMALLEST_BLOCK = 1 << 16
SMALLEST_BUFFER = 1 << 12  # bytes from which a buffer of another object goes through a block
LENT_LIMIT = 64  # blocks that a reader may keep; beyond, batches are copied out at once
POSSIBLE = bool(getattr(reduction, "HAVE_SEND_HANDLE", False)) and sys.platform != "win32"


def memory_file(nbytes: int) -> int:
    """The descriptor of a file that lies in memory and ends with its last user."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("flambeau-batch", os.MFD_CLOEXEC)
    else:
        handle, path = tempfile.mkstemp()
        os.unlink(path)
    if nbytes:
        os.ftruncate(handle, nbytes)
    return handle


class Block:
    """Shared memory under one number, and a watch on what looks at it in this process."""

    def __init__(self, number, handle, nbytes):
        self.number, self.nbytes = number, nbytes
        self.mapping = mmap.mmap(handle, nbytes)
        self.address = np.frombuffer(self.mapping, np.uint8).ctypes.data
        self.watch: Any = None

    def lease(self, ended=None):
        """A buffer over the block; `ended` is called when it, and all views of it, are gone."""
        array = np.frombuffer(self.mapping, np.uint8)
        self.watch = weakref.ref(array, ended)
        return memoryview(array)

    def in_use(self):
        return self.watch is not None and self.watch() is not None


def tensor_over(buffer, dtype, shape, strides=None):
    """A tensor, no view of another, over the bytes of a buffer."""
    if not len(buffer):
        return flambeau.empty(shape, dtype=dtype)
    flat = flambeau.frombuffer(buffer, dtype=dtype)
    return flat.set_(flat.untyped_storage(), 0, shape, strides)


# -- the worker's side ------------------------------------------------------------------------


class Arena:
    """The blocks of a worker. While a batch is made, memory is taken from a free one."""

    def __init__(self, generation=0):
        self.generation = generation  # of processes that have served as this worker
        self.free: list[Block] = []
        self.lent: dict[Any, Block] = {}
        self.typical = SMALLEST_BLOCK
        self.made = 0
        self.used: list[Any] = []  # [block, lease, bytes taken] of the batch that is being made
        self.new: list[tuple[Block, int]] = []  # blocks that the reader has not seen, with handles
        self.gone: list[Any] = []  # blocks that will not be lent again
        self.open = False

    def take(self, nbytes):
        """A buffer of shared memory, and where it lies: (number of the block, offset)."""
        start = 0
        if self.used:
            _, _, taken = self.used[-1]
            start = -(-taken // ALIGNMENT) * ALIGNMENT
        if not self.used or start + nbytes > self.used[-1][0].nbytes:
            block = self._free_block(nbytes)
            self.used.append([block, block.lease(), 0])
            start = 0
        current = self.used[-1]
        current[2] = start + nbytes
        return current[1][start : start + nbytes], (current[0].number, start)

    def _free_block(self, nbytes):
        for block in self.free:
            if block.nbytes >= max(nbytes, self.typical) and not block.in_use():
                self.free.remove(block)
                return block
        size = max(nbytes, self.typical)
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        handle = memory_file(size)
        block = Block((self.generation, self.made), handle, size)
        self.made += 1
        self.new.append((block, handle))
        return block

    def locate(self, address, nbytes):
        """Where in the batch's blocks some memory lies, or None."""
        for block, _, _ in self.used:
            start = address - block.address
            if start >= 0 and start + nbytes <= block.nbytes:
                return block.number, start
        return None

    def close(self):
        """End the batch: its blocks are lent. Returns them, and the handles of those new."""
        if len(self.used) > 1:  # the next batch is to fit into one block
            total = sum(taken + ALIGNMENT for _, _, taken in self.used)
            self.typical = max(self.typical, total + total // 8)
            self.gone += [block.number for block in self.free if block.nbytes < self.typical]
            self.free = [block for block in self.free if block.nbytes >= self.typical]
        blocks = [block for block, _, _ in self.used]
        self.lent.update((block.number, block) for block in blocks)
        new, self.new, self.used, self.open = self.new, [], [], False
        return [(block.number, block.nbytes) for block in blocks], new

    def abandon(self):
        """Forget the batch that is being made; nothing of it was sent."""
        fresh = {block.number for block, _ in self.new}
        self.free += [block for block, _, _ in self.used if block.number not in fresh]
        for _, handle in self.new:
            os.close(handle)
        self.new, self.used, self.open = [], [], False

    def give_back(self, numbers):
        """Blocks that the reader has no more use for; those too small are dropped."""
        for number in numbers:
            block = self.lent.pop(number, None)
            if block is not None and block.nbytes >= self.typical:
                self.free.append(block)
            else:
                self.gone.append(number)

    def told_gone(self):
        gone, self.gone = self.gone, []
        return gone


_arena: Arena | None = None


def set_arena(arena):
    """Let batches of this process be made in an arena; only in a worker."""
    global _arena
    _arena = arena


@contextlib.contextmanager
def in_shared_memory():
    """Inside, new batches are put where another process can see them, if there is such a place."""
    if _arena is None:
        yield
        return
    before, _arena.open = _arena.open, True
    try:
        yield
    finally:
        _arena.open = before


def place(shape, dtype):
    """An empty tensor for a batch: in shared memory while a worker makes one."""
    if _arena is None or not _arena.open:
        return flambeau.empty(shape, dtype=dtype)
    count = dtype.itemsize
    for n in shape:
        count *= n
    if count == 0:
        return flambeau.empty(shape, dtype=dtype)
    buffer, _ = _arena.take(count)
    return tensor_over(buffer, dtype, shape)


def is_shared_place():
    return _arena is not None and _arena.open


class _BatchPickler(pickle.Pickler):
    """Pickles a batch; its tensors stay in, or go to, the arena's blocks."""

    def __init__(self, file, arena, take_buffer):
        self.arena = arena
        super().__init__(file, protocol=5, buffer_callback=take_buffer)

    def reducer_override(self, value):
        if type(value) is not Tensor or not _is_plain(value):
            return NotImplemented
        shape, strides = tuple(value.shape), value.stride()
        nbytes = value.numel() * value.element_size()
        where = None
        if value.is_contiguous():
            where = self.arena.locate(value.data_ptr(), nbytes)
        if where is None and nbytes:
            strides = flambeau.empty_like(value, device="meta").stride()
            buffer, where = self.arena.take(nbytes)
            with flambeau.no_grad():
                tensor_over(buffer, value.dtype, shape, strides).copy_(value)
        name = str(value.dtype).rpartition(".")[2]
        return borrowed, (where, nbytes, name, shape, strides, value.requires_grad)


def _is_plain(value):
    """Whether a tensor is its elements and no more: no graph behind it, no other device."""
    return value.device.type == "cpu" and value.grad_fn is None and not value.is_conj() and not (
        value.is_neg() or value.__dict__.keys() - {"_room"})


def packed(arena, batch):
    """A batch as (bytes, buffers outside of them); its tensors are in the arena's blocks."""
    file, buffers = io.BytesIO(), []

    def take_buffer(buffer):
        raw = buffer.raw()
        if raw.nbytes < SMALLEST_BUFFER:
            return True  # stays in the pickle
        target, where = arena.take(raw.nbytes)
        target[:] = raw
        buffers.append((*where, raw.nbytes))
        return False

    _BatchPickler(file, arena, take_buffer).dump(batch)
    return file.getvalue(), buffers


# -- the reader's side ------------------------------------------------------------------------


class _Opening(threading.local):
    """The blocks of the batch that this thread is unpickling."""

    leases: Any = None
    copy = False


_opening = _Opening()


def borrowed(where, nbytes, dtype, shape, strides, requires_grad):
    """A tensor of a batch, over the worker's memory."""
    kind = getattr(flambeau, dtype)
    if where is None:
        made = flambeau.empty_strided(shape, strides, dtype=kind)
    else:
        number, start = where
        made = tensor_over(_opening.leases[number][start : start + nbytes], kind, shape, strides)
        if _opening.copy:
            made = made.clone()
    return made.requires_grad_() if requires_grad else made


class Library:
    """The blocks that one worker has shown, and those it may have back."""

    def __init__(self, count):
        self.blocks: dict[Any, Block] = {}
        self.returned: list[Any] = []
        self.count = count  # leases alive, of all workers of a loader: a list of one number

    def learn(self, number, handle, nbytes):
        """Map a block that a worker has made."""
        try:
            self.blocks[number] = Block(number, handle, nbytes)
        finally:
            os.close(handle)

    def unpacked(self, data, buffers, blocks):
        """The batch, its tensors over the worker's blocks; they go back when it has died."""
        previous = _opening.leases, _opening.copy
        copy = self.count[0] >= LENT_LIMIT
        leases = {block.number: self._lease(block) for block in blocks}
        _opening.leases, _opening.copy = leases, copy
        try:
            outside = [leases[n][start : start + nbytes] for n, start, nbytes in buffers]
            return pickle.loads(data, buffers=[bytearray(b) if copy else b for b in outside])
        finally:
            _opening.leases, _opening.copy = previous

    def _lease(self, block):
        self.count[0] += 1

        def ended(_, number=block.number, returned=self.returned, count=self.count):
            count[0] -= 1
            returned.append(number)

        return block.lease(ended)

    def to_return(self):
        """The blocks to give back with the next message."""
        numbers = []
        while self.returned:
            numbers.append(self.returned.pop())
        return numbers

    def forget(self, numbers):
        for number in numbers:
            self.blocks.pop(number, None)

    def forget_before(self, generation):
        """A new process serves as the worker: the blocks of the old one will not come again."""
        self.forget([number for number in self.blocks if number[0] < generation])
