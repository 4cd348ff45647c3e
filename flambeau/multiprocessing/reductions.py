"""Tensors and storages pickled for another process: by what they lie in, not by their elements."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import flambeau
from flambeau import Tensor, TypedStorage, UntypedStorage, nn

from . import parcels


class Handle:
    """A tensor on its way: small, picklable by any pickler, opened once."""

    def __init__(self, parcel, dtype, offset: int, size: tuple, stride: tuple, wants_grad: bool,
                 make=None):
        self.parcel, self.dtype, self.offset = parcel, dtype, offset
        self.size, self.stride = size, stride
        self.wants_grad, self.make = wants_grad, make

    def open(self) -> Tensor:
        """The tensor, over the very bytes of the sender."""
        storage = parcels.unpack(self.parcel)
        x = flambeau.empty(0, dtype=self.dtype).set_(storage, self.offset, self.size, self.stride)
        if self.make is not None:
            return self.make(x, self.wants_grad)
        return x.requires_grad_() if self.wants_grad else x


def _parameter(data, wants_grad: bool):
    return nn.Parameter(data, wants_grad)


def _buffer(data, wants_grad: bool):
    return nn.Buffer(data).requires_grad_(wants_grad)


def _transient_buffer(data, wants_grad: bool):
    return nn.Buffer(data, persistent=False).requires_grad_(wants_grad)


def share(tensor: Tensor, make=None) -> Handle:
    """A handle by which one other process gets at this tensor's memory, which becomes shared."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue).")
    # Moved before there is a second name for the memory: then nobody has to be looked for.
    data = tensor.share_memory_().detach()
    parcel = parcels.pack(data.untyped_storage())
    return Handle(parcel, data.dtype, data.storage_offset(), tuple(data.shape),
                  tuple(data.stride()), tensor.requires_grad, make)


def opened(handle: Handle) -> Tensor:
    return handle.open()


def reduce_tensor(tensor: Tensor):
    """How a tensor goes through a queue or a pipe."""
    if tensor.is_meta:
        return tensor.__reduce_ex__(2)
    return opened, (share(tensor),)


def reduce_parameter(tensor):
    """How a parameter goes through a queue or a pipe."""
    return opened, (share(tensor, _parameter),)


def reduce_buffer(tensor):
    """How a buffer of a module goes through a queue or a pipe."""
    return opened, (share(tensor, _buffer if tensor.persistent else _transient_buffer),)


def reduce_storage(storage: UntypedStorage):
    """How a storage goes through a queue or a pipe."""
    return parcels.unpack, (parcels.pack(storage),)


def _typed(storage, dtype) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=dtype)


def reduce_typed_storage(storage):
    """How a storage with a dtype goes through a queue or a pipe."""
    return _typed, (storage.untyped(), storage.dtype)


def _typed_storages() -> Iterator[type]:
    yield TypedStorage
    yield from TypedStorage.__subclasses__()


def init_reductions() -> None:
    """Let multiprocessing's own pickler send tensors this way."""
    register: Any = ForkingPickler.register
    register(Tensor, reduce_tensor)
    register(nn.Parameter, reduce_parameter)
    register(nn.Buffer, reduce_buffer)
    register(UntypedStorage, reduce_storage)
    for kind in _typed_storages():
        register(kind, reduce_typed_storage)
