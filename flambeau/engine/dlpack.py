"""Tensors given to and taken from other libraries without a copy: the DLPack protocol."""

from __future__ import annotations

import ctypes
import enum

from ..core import dtype as dt
from ..core.device import CPU, META, resolve
from .eager import engine
from .fresh import empty
from .storage import adopt
from .tensor import Tensor, make, signature


class DLDeviceType(enum.IntEnum):
    """Kinds of device, as DLPack counts them."""

    kDLCPU, kDLCUDA, kDLCUDAHost = 1, 2, 3


class _Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("array", _Array), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("array", _Array)]


#: name of a capsule -> (its structure, its name once taken)
CAPSULES = {b"dltensor": (_Managed, b"used_dltensor"),
            b"dltensor_versioned": (_Versioned, b"used_dltensor_versioned")}
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
_CODES = {**{(_KINDS[d.kind], d.itemsize * 8): d for d in dt.ALL if not d.foreign},
          (_BFLOAT, 16): dt.bfloat16}

_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
_set_name = _api.PyCapsule_SetName
_set_name.restype, _set_name.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)

_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_given: dict[int, tuple] = {}  # address of a structure -> what must live as long as it


@_Deleter
def _release(address):
    _given.pop(address, None)


@_Destructor
def _forget(capsule):
    """A capsule that nobody took gives back what it holds."""
    if _is_valid(capsule, b"dltensor"):
        _given.pop(_pointer(capsule, b"dltensor"), None)


def to_dlpack(x: Tensor, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A capsule over this tensor's memory."""
    if x.node is not None:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if x.sig.device is not CPU:
        raise BufferError(f"Unsupported device type: {x.sig.device}")
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise BufferError(f"__dlpack__: cannot export to device {tuple(dl_device)}, only to a CPU")
    if copy:
        x = engine.clone(x)
    sig = x.sig
    ints = ctypes.c_int64 * max(sig.rank, 1)
    shape, strides = ints(*sig.shape), ints(*sig.strides)
    managed = _Managed()
    array = managed.array
    array.data, array.device_type, array.device_id = x.ptr, DLDeviceType.kDLCPU, 0
    array.ndim, array.byte_offset, array.lanes = sig.rank, 0, 1
    array.code = _BFLOAT if sig.dtype is dt.bfloat16 else _KINDS[sig.dtype.kind]
    array.bits = sig.dtype.itemsize * 8
    array.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    array.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_release, ctypes.c_void_p).value
    address = ctypes.addressof(managed)
    _given[address] = (managed, shape, strides, x.mem)
    return _new(address, b"dltensor", ctypes.cast(_forget, ctypes.c_void_p))


def dlpack_device(x: Tensor):
    """Where the memory is, as DLPack counts it."""
    if x.sig.device is META:
        raise ValueError("Unknown device type meta for Dlpack")
    return (DLDeviceType.kDLCPU, 0)


class _Taken:
    """Memory of another library, returned to it when the last tensor over it goes."""

    def __init__(self, address: int, deleter: int | None):
        self.address = address
        self.deleter = _Deleter(deleter) if deleter else None

    def __del__(self):
        if self.deleter is not None:
            self.deleter(self.address)


def from_dlpack(ext_tensor, *, device=None, copy=None) -> Tensor:
    """A tensor over the memory of another library's array, or of a capsule."""
    capsule = ext_tensor
    if hasattr(ext_tensor, "__dlpack__"):
        where = ext_tensor.__dlpack_device__()
        if int(where[0]) != DLDeviceType.kDLCPU:
            raise BufferError(f"from_dlpack: the array is on device {tuple(where)}, not on the CPU")
        capsule = ext_tensor.__dlpack__()
    x = _taken(capsule)
    if copy:
        x = engine.clone(x)
    if device is not None and resolve(device) is not x.sig.device:
        x = empty(signature(x.sig.dtype, x.sig.shape, x.sig.strides, resolve(device)))
    return x


def _taken(capsule) -> Tensor:
    name = next((n for n in CAPSULES if _is_valid(id(capsule), n)), None)
    if name is None:
        raise RuntimeError("from_dlpack received an invalid capsule. Note that DLTensor capsules "
                           "can be consumed only once, so you might have already constructed a "
                           "tensor from it once.")
    structure, used = CAPSULES[name]
    address = _pointer(id(capsule), name)
    managed = structure.from_address(address)
    array = managed.array
    dtype = _CODES.get((array.code, array.bits))
    if array.device_type != DLDeviceType.kDLCPU or dtype is None or array.lanes != 1:
        raise BufferError(f"from_dlpack: cannot take an array of code {array.code}, {array.bits} "
                          f"bits, {array.lanes} lanes on device {array.device_type}")
    shape = tuple(array.shape[:array.ndim]) if array.ndim else ()
    strides = tuple(array.strides[:array.ndim]) if array.ndim and array.strides else None
    if strides is not None and any(s < 0 for s in strides):
        raise BufferError("from_dlpack: negative strides are not supported")
    sig = signature(dtype, shape, strides)
    _set_name(capsule, used)
    start = (array.data or 0) + array.byte_offset
    return make(sig, adopt(start, sig.nbytes, _Taken(address, managed.deleter)))


def install() -> None:
    Tensor.__dlpack__ = to_dlpack
    Tensor.__dlpack_device__ = dlpack_device
    engine.from_dlpack = from_dlpack
