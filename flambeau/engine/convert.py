"""Tensors from and to Python numbers, lists, numpy arrays and other libraries."""

from __future__ import annotations

import ctypes

import numpy as np

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU, META
from .eager import engine
from .storage import adopt
from .tensor import Signature, Tensor, empty, make, signature


def raw_array(x: Tensor) -> np.ndarray:
    """The tensor's own memory as an array, in numpy's carrier of its dtype."""
    sig = x.sig
    if sig.device is META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if sig.numel == 0:
        return np.empty(sig.shape, sig.dtype.numpy)
    itemsize = sig.dtype.itemsize
    reach = 1 + sum((n - 1) * s for n, s in zip(sig.shape, sig.strides, strict=True))
    buffer = (ctypes.c_char * (reach * itemsize)).from_address(x.ptr)
    buffer._keep = x.mem  # the array's base holds the storage
    return np.ndarray(sig.shape, sig.dtype.numpy, buffer, 0,
                      tuple(s * itemsize for s in sig.strides))


def to_array(x: Tensor) -> np.ndarray:
    """The elements for numpy to compute with: bfloat16 widened to float32, others shared."""
    if x.sig.dtype is dt.bfloat16:
        return raw_array(engine.cast(x.detach(), dt.float32))
    return raw_array(x)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares an array's memory."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    if not array.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. "
                         "Conversion between byte orders is currently not supported.")
    dtype = dt.from_numpy(array.dtype)
    strides = []
    for stride in array.strides:
        if stride < 0:
            raise ValueError("At least one stride in the given numpy array is negative, and tensors "
                             "with negative strides are not currently supported. (You can probably "
                             "work around this by making a copy of your array with array.copy().)")
        if stride % array.itemsize:
            raise ValueError("given numpy array strides not a multiple of the element byte size. "
                             "Copy array to workaround.")
        strides.append(stride // array.itemsize)
    sig = signature(dtype, array.shape, tuple(strides))
    address = array.__array_interface__["data"][0]
    return make(sig, adopt(address, array.nbytes, array))


def copied(array: np.ndarray, dtype: dt.dtype | None = None) -> Tensor:
    """A tensor with its own copy of an array."""
    array = np.asarray(array)
    source = dt.from_numpy(array.dtype) if array.dtype != object else None
    wanted = dtype or source
    if wanted is dt.bfloat16:
        return engine.cast(copied(array.astype(np.float32)), dt.bfloat16)
    out = empty(signature(wanted, array.shape))
    if out.sig.numel:
        with np.errstate(all="ignore"):
            raw_array(out)[...] = array
    return out


_KINDS = {"b": dt.bool_, "i": dt.int64, "u": dt.int64}


def shape_of(data, seen=()) -> tuple[int, ...]:
    """The shape of nested sequences, taken from the first element at each depth."""
    if isinstance(data, Tensor):
        return tuple(data.sig.shape)
    if isinstance(data, (list, tuple, range)):
        return (len(data), *(shape_of(data[0]) if len(data) else ()))
    return ()


def _numbers(data, shape: tuple, depth: int, out: list) -> None:
    if depth == len(shape):
        if isinstance(data, (list, tuple)):
            raise TypeError("not a sequence of equal lengths")
        out.append(data)
        return
    if not isinstance(data, (list, tuple, range)) or len(data) != shape[depth]:
        length = len(data) if isinstance(data, (list, tuple, range)) else "a number"
        raise ValueError(f"expected sequence of length {shape[depth]} at dim {depth} (got {length})")
    for item in data:
        _numbers(item, shape, depth + 1, out)


def infer_dtype(flat: list) -> dt.dtype:
    """torch's dtype for a list of Python numbers."""
    found = None
    for value in flat:
        if isinstance(value, Tensor):
            kind = value.sig.dtype
        elif isinstance(value, np.generic):
            kind = dt.from_numpy(value.dtype)
        else:
            try:
                kind = dt.of_scalar(value)
            except TypeError:
                raise _bad_element(value) from None
        found = kind if found is None else dt.promote(found, kind)
    return found or dt.default_float()


def _bad_element(value) -> Exception:
    if isinstance(value, str):
        return TypeError(f"new(): invalid data type '{type(value).__name__}'")
    return RuntimeError(f"Could not infer dtype of {type(value).__name__}")


def from_data(data, dtype: dt.dtype | None = None, where=CPU) -> Tensor:
    """A new tensor holding numbers, nested sequences, an array or another tensor's elements."""
    if isinstance(data, Tensor):
        out = engine.clone(data.detach())
        return engine.cast(out, dtype) if dtype is not None else out
    if isinstance(data, np.ndarray):
        if data.dtype == object:
            raise TypeError("can't convert np.ndarray of type numpy.object_. The only supported types "
                            "are: float64, float32, float16, complex64, complex128, int64, int32, "
                            "int16, int8, uint8, and bool.")
        if data.dtype.kind == "u" and data.dtype.itemsize > 1:
            return copied(data.astype(np.int64), dtype or dt.int64)
        return copied(data, dtype)
    if isinstance(data, np.generic):
        return copied(np.asarray(data), dtype)
    if not isinstance(data, (list, tuple, range)) and hasattr(data, "__array__"):
        return copied(np.asarray(data), dtype)
    if not isinstance(data, (bool, int, float, complex, list, tuple, range)):
        if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, str):
            data = list(data)
        else:
            raise _bad_element(data)
    return _from_sequence(data, dtype, where)


def _from_sequence(data, dtype, where) -> Tensor:
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], np.ndarray):
        return copied(np.array(data), dtype)
    shape = shape_of(data)
    flat: list = []
    outer = _outer_shape(data)
    _numbers(data, outer, 0, flat)
    found = dtype or infer_dtype(flat)
    if any(isinstance(v, Tensor) for v in flat):
        parts = [v.tolist() if isinstance(v, Tensor) else v for v in flat]
        array = np.array(parts, dtype=np.float32 if found is dt.bfloat16 else found.numpy)
        return copied(array.reshape(shape), found)
    if where is META:
        return empty(signature(found, shape, None, META))
    carrier = np.dtype(np.float32) if found is dt.bfloat16 else found.numpy
    _check_range(flat, found)
    array = np.array([_plain(v, carrier) for v in flat], dtype=carrier).reshape(shape)
    return copied(array, found)


def _plain(value, carrier: np.dtype):
    if carrier.kind in "iu" and isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise RuntimeError(f"value cannot be converted to type {carrier} without overflow")
        return int(value)
    if carrier.kind != "c" and isinstance(value, complex):
        raise RuntimeError(f"value cannot be converted to type {carrier} without overflow")
    return value


def _outer_shape(data) -> tuple[int, ...]:
    """The shape of the nested sequences, not counting tensors inside."""
    if isinstance(data, (list, tuple, range)):
        return (len(data), *(_outer_shape(data[0]) if len(data) else ()))
    return ()


def _check_range(flat, dtype: dt.dtype) -> None:
    if dtype.kind not in "iu":
        return
    low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    for value in flat:
        if isinstance(value, int) and not low <= value <= high:
            if dtype is dt.int64:
                raise RuntimeError("Overflow when unpacking long long")
            raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: "
                               f"{value}")


def item(x: Tensor):
    """The only element as a Python number."""
    if x.sig.numel != 1:
        raise RuntimeError(f"a Tensor with {x.sig.numel} elements cannot be converted to Scalar")
    if x.sig.device is META:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    return to_array(x).item()


def tolist(x: Tensor):
    """The elements as nested lists."""
    return to_array(x).tolist()


def meta_like(sig: Signature) -> Signature:
    return signature(sig.dtype, sig.shape, sig.strides, META)


def dense_signature(sig: Signature, dtype: dt.dtype | None = None) -> Signature:
    """Where a copy of a tensor goes: the same order of dimensions if it is dense, else row-major."""
    strides = sig.strides if sh.is_dense(sig.shape, sig.strides) else None
    if strides is None:
        strides = sh.result_strides(sig.shape, [(sig.shape, sig.strides)])
    return signature(dtype or sig.dtype, sig.shape, strides, sig.device)
