"""Storages as objects, tensors set over them, and tensors copied and pickled with them."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from typing import Any

from ..core import dtype as dt
from ..core import formats as fm
from ..core import shape as sh
from ..core.device import CPU, META
from ..core.lazily import np
from . import convert, create, from_data, legacy, options, shared_memory
from .eager import engine
from .storage import adopt, allocate
from .tensor import Tensor, base_of, make, offset_of, room_of, signature
from .views import check_room
from .writing import changed

_wrappers: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


class UntypedStorage:
    """The bytes that one or more tensors look at."""

    __module__ = "torch"

    def __init__(self, size=0, *, device="cpu"):
        if isinstance(size, (list, tuple, bytes, bytearray)):
            data = bytes(size)
            self.mem, self.length = allocate(len(data)), len(data)
            ctypes.memmove(self.mem.address, data, len(data))
        else:
            self.mem, self.length = allocate(int(size)), int(size)

    @classmethod
    def over(cls, mem, length: int) -> UntypedStorage:
        """The object for some bytes; the same one as long as somebody holds it."""
        found = _wrappers.get((id(mem), length))
        if found is None:
            found = object.__new__(cls)
            found.mem, found.length = mem, length
            _wrappers[id(mem), length] = found
        return found

    @staticmethod
    def from_buffer(buffer, byte_order="native", dtype=dt.uint8, count=-1, offset=0):
        """A storage with a copy of a buffer's bytes."""
        return UntypedStorage(bytes(memoryview(buffer).cast("B")[offset:]))

    @staticmethod
    def from_file(filename, shared=False, nbytes=0) -> UntypedStorage:
        """A storage over a file, read when it is looked at; shared, changes go to the file."""
        if not nbytes:
            return UntypedStorage(0)
        return UntypedStorage.over(from_data.mapped(filename, shared, nbytes), nbytes)

    def bytes_array(self) -> np.ndarray:
        buffer = (ctypes.c_char * self.length).from_address(self.mem.address)
        buffer._keep = self.mem
        return np.frombuffer(buffer, np.uint8)

    def nbytes(self) -> int:
        return self.length

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        return self.mem.address

    def element_size(self) -> int:
        return 1

    def untyped(self) -> UntypedStorage:
        return self

    @property
    def device(self):
        return CPU

    is_cuda = False

    def tolist(self) -> list[int]:
        return self.bytes_array().tolist()

    def __getitem__(self, key):
        if not isinstance(key, slice):
            return int(self.bytes_array()[key])
        start, stop, step = key.indices(self.length)
        if step != 1:
            raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is "
                               "supported")
        length = max(stop - start, 0)  # of the same memory, which it keeps
        return UntypedStorage.over(adopt(self.mem.address + start, length, self.mem), length)

    def __setitem__(self, key, value) -> None:
        self.bytes_array()[key] = value

    def __iter__(self):
        return iter(self.tolist())

    def fill_(self, value) -> UntypedStorage:
        self.bytes_array()[:] = value
        return self

    def copy_(self, source, non_blocking=None) -> UntypedStorage:
        self.bytes_array()[:] = source.untyped().bytes_array()
        return self

    def clone(self) -> UntypedStorage:
        return UntypedStorage(self.bytes_array().tobytes())

    def cpu(self) -> UntypedStorage:
        return self

    def resizable(self) -> bool:
        return False

    def resize_(self, size) -> UntypedStorage:
        if size != self.length:
            raise RuntimeError("Trying to resize storage that is not resizable")
        return self

    def is_shared(self) -> bool:
        return shared_memory.is_shared(self.mem)

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes, for all that look at them, to memory that other processes can share."""
        mem = self.mem
        if not shared_memory.is_shared(mem):
            fresh = move_to_shared(mem, self.length)
            self.mem = fresh
        return self

    def shared_block(self):
        """The block of shared memory that the bytes lie in."""
        return self.share_memory_().mem.owner

    @staticmethod
    def over_block(block, length: int) -> UntypedStorage:
        """A storage over a block of shared memory."""
        return UntypedStorage.over(block.storage(), length)

    def is_pinned(self, device=None) -> bool:
        return False

    def __eq__(self, other) -> bool:
        return isinstance(other, UntypedStorage) and other.mem is self.mem

    def __hash__(self) -> int:
        return id(self.mem)

    def __repr__(self) -> str:
        lines = "".join(f" {b}\n" for b in self.tolist())
        return f"{lines}[torch.storage.UntypedStorage(device=cpu) of size {self.length}]"

    def __reduce__(self):
        return (_from_bytes, (self.bytes_array().tobytes(),))

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = self.clone()
        return memo[id(self)]


class TypedStorage:
    """Bytes seen as elements of one dtype."""

    __module__ = "torch"

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        kind = dtype or getattr(type(self), "dtype", None) or dt.default_float()
        if wrap_storage is None:
            values = args[0] if args else 0
            if isinstance(values, int):
                wrap_storage = UntypedStorage(values * kind.itemsize)
            else:
                wrap_storage = convert.from_data(list(values), kind).untyped_storage()
        self._storage, self.dtype = wrap_storage, kind

    def untyped(self) -> UntypedStorage:
        return self._storage

    def size(self) -> int:
        return self._storage.nbytes() // self.dtype.itemsize

    __len__ = size

    def nbytes(self) -> int:
        return self._storage.nbytes()

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self._storage

    def data_ptr(self) -> int:
        return self._storage.data_ptr()

    @property
    def device(self):
        return CPU

    is_cuda = False

    def _tensor(self) -> Tensor:
        return make(signature(self.dtype, (self.size(),)), self._storage.mem)

    def tolist(self) -> list:
        return self._tensor().tolist()

    def __iter__(self):
        return iter(self.tolist())

    def __getitem__(self, key):
        return self._tensor()[key].tolist()

    def __setitem__(self, key, value) -> None:
        self._tensor()[key] = value

    def fill_(self, value) -> TypedStorage:
        create.filled(self._tensor(), value)
        return self

    def copy_(self, source, non_blocking=None) -> TypedStorage:
        self._tensor().copy_(source._tensor())
        return self

    def clone(self) -> TypedStorage:
        return TypedStorage(wrap_storage=self._storage.clone(), dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        return self

    def is_shared(self) -> bool:
        return self._storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        self._storage.share_memory_()
        return self

    def is_pinned(self, device=None) -> bool:
        return False

    def __eq__(self, other) -> bool:
        return isinstance(other, TypedStorage) and other._storage == self._storage

    def __hash__(self) -> int:
        return hash(self._storage)

    def __repr__(self) -> str:
        lines = "".join(f" {v}\n" for v in self.tolist())
        return (f"{lines}[torch.storage.TypedStorage(dtype={self.dtype}, device=cpu) of size "
                f"{self.size()}]")

    def __reduce__(self):
        return (_typed, (self._storage, self.dtype))


def _from_bytes(data: bytes) -> UntypedStorage:
    return UntypedStorage(data)


def _typed(storage, dtype) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=dtype)


#: legacy storages: name -> class of one dtype
legacy_storages: dict[str, Any] = {
    name.replace("Tensor", "Storage"): type(name.replace("Tensor", "Storage"), (TypedStorage,),
                                            {"__module__": "torch", "dtype": dtype})
    for name, dtype in legacy.LEGACY.items()}
_STORAGE_OF = {cls.dtype: cls for cls in legacy_storages.values()}


def is_storage(obj) -> bool:
    """Whether this is a storage."""
    return isinstance(obj, (UntypedStorage, TypedStorage))


# -- methods of Tensor ---------------------------------------------------------------------------


def untyped_storage(self) -> UntypedStorage:
    """The bytes under this tensor."""
    if self.sig.device is META:
        raise NotImplementedError("Cannot access the data of a meta tensor: it has none")
    return UntypedStorage.over(self.mem, room_of(self))


def storage(self) -> TypedStorage:
    """The bytes under this tensor, as elements of its dtype."""
    return TypedStorage(wrap_storage=untyped_storage(self), dtype=self.sig.dtype)


def storage_type(self) -> type:
    """The legacy storage class of this tensor's dtype."""
    return _STORAGE_OF[self.sig.dtype]


def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Look at other memory: that of a storage or of another tensor."""
    if source is None:
        _take(self, allocate(0), 0, (0,), (1,), 0)
        return self
    if isinstance(source, Tensor):
        if source.sig.dtype is not self.sig.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.sig.dtype} to a tensor of "
                               f"type {self.sig.dtype}")
        mem, room = source.mem, untyped_storage(source).nbytes()
        if size is None:
            size, stride, storage_offset = source.sig.shape, source.sig.strides, offset_of(source)
    else:
        mem, room = source.untyped().mem, source.nbytes()
        if size is None:
            size, stride = (room // self.sig.dtype.itemsize,), (1,)
    size = options.sizes("set_", (size,))
    stride = sh.contiguous_strides(size) if stride is None else tuple(stride)
    check_room("set_", self.sig.dtype, size, stride, storage_offset, room)
    _take(self, mem, storage_offset, size, stride, room)
    return self


def _take(x: Tensor, mem, offset: int, size, stride, room: int) -> None:
    x.sig = signature(x.sig.dtype, tuple(size), tuple(stride), x.sig.device, x.sig.tag)
    x.mem, x.ptr = mem, mem.address + offset * x.sig.dtype.itemsize
    if base_of(x) is not None:
        del x.base
    x.__dict__["_room"] = (mem.address, room)


def is_set_to(self, tensor) -> bool:
    """Whether both look at the same memory in the same way."""
    return self.mem is tensor.mem and self.ptr == tensor.ptr and self.sig is tensor.sig


def resize_(self, *sizes, memory_format=fm.contiguous_format):
    """Another shape in place; elements in memory stay, and memory grows if it must."""
    if self.node is not None:
        raise RuntimeError("cannot resize variables that require grad")
    shape = options.sizes("resize_", sizes)
    if shape == tuple(self.sig.shape):
        return self
    strides = None if memory_format is fm.contiguous_format else fm.strides_of(shape, memory_format)
    self.__dict__["_room"] = (self.mem.address, room_of(self))
    sig = signature(self.sig.dtype, shape, strides, self.sig.device, self.sig.tag)
    if sig.device is not META and sig.nbytes > self.mem.nbytes - (self.ptr - self.mem.address):
        fresh = allocate(sig.nbytes)
        ctypes.memmove(fresh.address, self.ptr, min(sig.nbytes, self.mem.nbytes - (
            self.ptr - self.mem.address)))
        self.mem, self.ptr = fresh, fresh.address
    self.sig = sig
    changed(self)
    return self


def resize_as_(self, other, memory_format=fm.contiguous_format):
    """The shape of another tensor, in place."""
    return resize_(self, tuple(other.sig.shape), memory_format=memory_format)


def apply_(self, callable):
    """Replace each element by what a Python function makes of it."""
    if self.node is not None:
        raise RuntimeError("Can't call apply_() on Variable that requires grad. Use "
                           "var.detach().apply_() instead.")
    return _mapped(self, callable, ())


def map_(self, tensor, callable):
    """Replace each element by what a function makes of it and of another tensor's element."""
    return _mapped(self, callable, (tensor,))


def map2_(self, x, y, callable):
    """Replace each element by what a function makes of it and of two other tensors' elements."""
    return _mapped(self, callable, (x, y))


def _mapped(x: Tensor, function, others) -> Tensor:
    values = [engine.to_array(t.detach()).ravel().tolist() for t in (
        x, *(o.expand(x.sig.shape) for o in others))]
    found = [function(*row) for row in zip(*values, strict=True)]
    made = convert.from_data(found, x.sig.dtype)
    engine.without_grad(x.copy_, made.reshape(x.sig.shape))
    return x


# -- memory between processes --------------------------------------------------------------------


def move_to_shared(mem, length: int):
    """Move bytes to shared memory, and with them every tensor and storage object over them."""
    if shared_memory.is_shared(mem):
        return mem
    fresh = shared_memory.create(length).storage()
    ctypes.memmove(fresh.address, mem.address, length)
    fresh.version, fresh.kept = mem.version, mem.kept
    for holder in gc.get_referrers(mem):
        if isinstance(holder, Tensor) and holder.mem is mem:
            holder.ptr += fresh.address - mem.address
            holder.mem = fresh
            if "_room" in holder.__dict__:
                holder.__dict__["_room"] = (fresh.address, holder.__dict__["_room"][1])
    for key, storage in list(_wrappers.items()):
        if storage.mem is mem:
            del _wrappers[key]
            storage.mem = fresh
            _wrappers[id(fresh), key[1]] = storage
    return fresh


def share_memory_(self):
    """Move the elements, for all that look at them, to memory that other processes can share."""
    if self.sig.device is not META and not shared_memory.is_shared(self.mem):
        length = room_of(self)
        if sys.getrefcount(self.mem) > _ONE_HOLDER:
            move_to_shared(self.mem, length)
        else:
            fresh = shared_memory.create(length).storage()
            ctypes.memmove(fresh.address, self.mem.address, length)
            fresh.version = self.mem.version
            self.ptr += fresh.address - self.mem.address
            self.__dict__["_room"] = (fresh.address, length)
            self.mem = fresh
    return self


#: references to a storage that only one tensor looks at, as sys.getrefcount counts them
_ONE_HOLDER = 2


def is_shared(self) -> bool:
    """Whether the elements lie in memory that other processes can share."""
    return self.sig.device is META or shared_memory.is_shared(self.mem)


def pin_memory(self, device=None):
    """Page-locked memory is for accelerators, of which there are none."""
    raise RuntimeError("Cannot access accelerator device when none is available.")


METHODS = {f.__name__: f for f in (
    untyped_storage, storage, storage_type, set_, is_set_to, resize_, resize_as_, apply_, map_,
    map2_, share_memory_, is_shared, pin_memory)}
METHODS["is_same_size"] = lambda self, other: self.sig.shape == other.sig.shape
METHODS["_typed_storage"] = storage
METHODS["resize"] = lambda self, *sizes: self.clone().resize_(*sizes)
METHODS["resize_as"] = lambda self, other: self.clone().resize_as_(other)
METHODS["module_load"] = lambda self, other, assign=False: other.detach()


def install() -> None:
    for name, method in METHODS.items():
        setattr(Tensor, name, method)
