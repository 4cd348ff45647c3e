"""Tensors from data: numbers, sequences, arrays, buffers, and whatever else holds numbers."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ..core import dtype as dt
from ..core.device import CPU, is_here, resolve
from ..core.lazily import np
from ..devices.cpu.routines import data_reader
from . import convert, inplace
from .create import filled, moved
from .eager import engine
from .fresh import empty as raw_empty
from .interception import same_every_time, tracers
from .modes import modes
from .options import as_dtype, finish
from .storage import adopt
from .tensor import Tensor, make, signature


def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A new tensor holding a copy of numbers, nested sequences or an array."""
    if isinstance(data, Tensor):
        warnings.warn("To copy construct from a tensor, it is recommended to use "
                      "sourceTensor.detach().clone() or "
                      "sourceTensor.detach().clone().requires_grad_(True), rather than "
                      "torch.tensor(sourceTensor).", UserWarning, stacklevel=2)
        if type(data) is not Tensor:
            data = data.as_subclass(Tensor)  # what is made is a plain tensor, whatever it is of
    kind = None if dtype is None else as_dtype("tensor", dtype)
    if not (requires_grad or pin_memory or modes.inference) and is_here(device):
        x = _simple(data, kind)
        if x is not None:
            return x if not tracers else same_every_time(x)
    where = data.sig.device if device is None and isinstance(data, Tensor) else resolve(device)
    x = moved(convert.from_data(data, kind, where), where)
    if pin_memory or requires_grad or modes.inference:
        x = finish("tensor", x, None, pin_memory, requires_grad)
    return same_every_time(x) if tracers and _of_numbers(data) else x


def _of_numbers(data) -> bool:
    """Whether data is made of Python's own numbers, which nobody can change."""
    if isinstance(data, (list, tuple)):
        return all(map(_of_numbers, data))
    return isinstance(data, (bool, int, float, complex))


_FLOATING = frozenset((dt.float32, dt.float64))


def _simple(data, dtype):
    """Tensors of a number, of lists of them or of an array of a known kind, without a detour; None
    for anything else."""
    kind = type(data)
    if kind is list or kind is tuple:
        return convert.from_lists(data, dtype)
    if dtype is None and (kind is float or kind is bool or (
            kind is int and -2**63 <= data < 2**63)):
        return filled(raw_empty(signature(dt.of_scalar(data), ())), data)
    if (kind is float and dtype in _FLOATING and abs(data) < 3e38) or (
            kind is int and dtype is dt.int64 and -2**63 <= data < 2**63):
        return filled(raw_empty(signature(dtype, ())), data)
    return convert.copied_again(data, dtype) if kind is np.ndarray else None


def as_tensor(data, dtype=None, device=None):
    """Data as a tensor; a tensor or an array that fits is shared, not copied."""
    kind = None if dtype is None else as_dtype("as_tensor", dtype)
    if isinstance(data, Tensor):
        x = data if device is None else engine.moved(data, resolve(device))
        return x if kind is None else engine.cast(x, kind)
    where = resolve(device)
    if isinstance(data, np.ndarray) and where is CPU and _shareable(data):
        x = convert.from_numpy(data)
        return x if kind is None else engine.cast(x, kind)
    found = _simple(data, kind) if where is CPU else None
    return moved(convert.from_data(data, kind, where), where) if found is None else found


def _shareable(array: np.ndarray) -> bool:
    return (dt.of_numpy(array.dtype) is not None and array.dtype != object
            and not any(s < 0 or s % array.itemsize for s in array.strides))


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """Any object that holds numbers as a tensor; `copy=False` refuses to copy."""
    kind = None if dtype is None else as_dtype("asarray", dtype)
    x = _shared(obj, kind)
    copied = x is None
    if x is None:
        x = convert.from_data(obj, kind)
    if device is not None and resolve(device) is not x.sig.device:
        x, copied = engine.moved(x, resolve(device)), True
    if kind is not None and x.sig.dtype is not kind:
        x, copied = engine.cast(x, kind), True
    if copy is False and copied:
        raise ValueError("can't alias arbitrary sequence into a tensor." if _shared(obj, None) is
                         None else f"can't alias tensor with dtype '{kind}' or device '{device}'.")
    if copy and not copied:
        x = engine.clone(x)
    if isinstance(obj, Tensor) and x.node is not None and not requires_grad:
        x = x.detach()
    if requires_grad and x.node is None:
        x = inplace.detached(x) if x is obj else x
        return finish("asarray", x, None, False, True)
    return x


def _shared(obj, kind):
    """The object as a tensor over its own memory, or None if it has none to share."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray) and _shareable(obj):
        return convert.from_numpy(obj)
    if hasattr(obj, "__dlpack__"):
        return engine.from_dlpack(obj)
    if hasattr(obj, "untyped"):  # a storage
        kind = getattr(obj, "dtype", kind) or dt.default_float()
        return make(signature(kind, (obj.nbytes() // kind.itemsize,)), obj.untyped().mem)
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return frombuffer(obj, dtype=kind or dt.default_float())
    return None


from_numpy = convert.from_numpy


def frombuffer(buffer, *, dtype=None, count=-1, offset=0, requires_grad=False):
    """A 1-d tensor over the memory of an object that has Python's buffer protocol."""
    if dtype is None:
        raise TypeError('frombuffer() missing 1 required positional arguments: "dtype"')
    kind = as_dtype("frombuffer", dtype)
    view = memoryview(buffer).cast("B")
    length, itemsize = view.nbytes, kind.itemsize
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer "
                         f"length ({length} bytes) minus 1")
    if count > 0 and offset + count * itemsize > length:
        raise ValueError(f"requested buffer length ({count} * {itemsize} bytes) after offset "
                         f"({offset} bytes) must not be greater than actual buffer length "
                         f"({length} bytes)")
    if count < 0:
        if (length - offset) % itemsize:
            raise ValueError(f"buffer length ({length - offset} bytes) after offset ({offset} "
                             f"bytes) must be a multiple of element size ({itemsize})")
        count = (length - offset) // itemsize
    if view.readonly:
        warnings.warn("The given buffer is not writable, and PyTorch does not support non-writable "
                      "tensors. This means you can write to the underlying (supposedly "
                      "non-writable) buffer using the tensor.", UserWarning, stacklevel=2)
    array = np.frombuffer(view, np.uint8)
    address = data_reader()(array)
    x = make(signature(kind, (count,)), adopt(address, length, array), address + offset)
    return finish("frombuffer", x, None, False, requires_grad)


def from_file(filename, shared=None, size=0, *, dtype=None, layout=None, device=None,
              pin_memory=False):
    """A 1-d tensor over a file; shared, changes go to the file, which is made if need be."""
    kind = dt.default_float() if dtype is None else as_dtype("from_file", dtype)
    if resolve(device) is not CPU:
        raise RuntimeError("from_file: a file can be mapped to the CPU's memory only")
    if not size:
        return raw_empty(signature(kind, (0,)))
    return make(signature(kind, (size,)), mapped(filename, shared, size * kind.itemsize))


def mapped(filename, shared: bool | None, nbytes: int):
    """A storage over the first bytes of a file; unless shared, changes stay in memory."""
    mode: Any = "c"
    if shared:
        mode = "r+" if os.path.exists(filename) else "w+"
    array = np.memmap(filename, np.uint8, mode, shape=(nbytes,))
    return adopt(data_reader()(array), nbytes, array)
