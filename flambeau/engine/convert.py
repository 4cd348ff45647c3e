"""Tensors from and to Python numbers, lists, numpy arrays and other libraries."""

from __future__ import annotations

import ctypes
import itertools
import sys
from array import array
from typing import Any

from ..core import dtype as dt
from ..core import shape as sh
from ..core.device import CPU, META
from ..core.lazily import np
from ..devices.cpu.routines import copier, data_reader
from .eager import engine, new_table
from .fresh import empty
from .storage import Storage, adopt, readers
from .tensor import Signature, Tensor, make, new, signature


class _Bytes(ctypes.c_char * sys.maxsize):  # type: ignore[misc]
    """Memory from some address on, as numpy asks for it; how much of it there is, the shape of an
    array over it says. The array keeps this, and so the storage."""

    __slots__ = ("mem",)

    mem: Any


_shown = new_table()  # signature -> (class of arrays, shape, numpy's dtype, strides or None)


def raw_array(x: Tensor) -> np.ndarray:
    """The tensor's own memory as an array, in numpy's carrier of its dtype."""
    try:
        array, shape, carrier, strides = _shown[x.sig]
    except KeyError:
        array, shape, carrier, strides = _shown[x.sig] = _showing(x.sig)
    if readers:
        readers[-1]()
    if 0 in shape:
        return array(shape, carrier)
    memory = _Bytes.from_address(x.ptr)
    memory.mem = x.mem
    return array(shape, carrier, memory, 0, strides)


def _showing(sig: Signature) -> tuple:
    if sig.device is META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    carrier = np.dtype(np.uint16 if sig.dtype is dt.bfloat16 else sig.dtype.numpy)
    strides = None if sig.contiguous else tuple([s * sig.dtype.itemsize for s in sig.strides])
    return np.ndarray, tuple(sig.shape), carrier, strides


def to_array(x: Tensor) -> np.ndarray:
    """The elements for numpy to compute with: bfloat16 widened to float32, others shared."""
    if x.sig.dtype is dt.bfloat16:
        return raw_array(engine.cast(x.detach(), dt.float32))
    return raw_array(x)


_arrays = new_table()  # (numpy's dtype, shape, strides) -> (signature, what tells the address)


def from_numpy(array: np.ndarray, /) -> Tensor:
    """A tensor that shares an array's memory."""
    try:
        sig, data_of = _arrays[array.dtype, array.shape, array.strides]
    except (KeyError, AttributeError, TypeError):
        sig = None
    if sig is None or type(array) is not np.ndarray:
        sig, data_of = _adoption(array)
    # as `adopt` and `make` do it, without frames of their own
    mem, x = Storage(), new(Tensor)
    x.mem, x.sig, x.node = mem, sig, None
    mem.address = x.ptr = data_of(array)
    mem.nbytes, mem.owner = sig.nbytes, array
    return x


def _adoption(array: np.ndarray) -> tuple:
    """What an array becomes as a tensor over its memory, or an error if it cannot be one."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    if not array.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. "
                         "Conversion between byte orders is currently not supported.")
    dtype = dt.of_numpy(array.dtype) or dt.from_numpy(array.dtype)
    if array.flags.c_contiguous:
        sig = signature(dtype, array.shape)
    else:
        sig = signature(dtype, array.shape, _strides_of(array))
    found = _arrays[array.dtype, array.shape, array.strides] = sig, data_reader()
    return found


def _strides_of(array: np.ndarray) -> tuple[int, ...]:
    strides = []
    for stride in array.strides:
        if stride < 0:
            raise ValueError("At least one stride in the given numpy array is negative, and "
                             "tensors with negative strides are not currently supported. (You can "
                             "probably work around this by making a copy of your array with "
                             "array.copy().)")
        if stride % array.itemsize:
            raise ValueError("given numpy array strides not a multiple of the element byte size. "
                             "Copy array to workaround.")
        strides.append(stride // array.itemsize)
    return tuple(strides)


def owned(array: np.ndarray, dtype: dt.dtype) -> Tensor:
    """A tensor that takes over an array nobody else has; small ones go to pooled memory."""
    if dtype is dt.bfloat16 or array.nbytes < 1 << 16 or array.dtype != dtype.numpy or (
            not array.flags.c_contiguous):
        return copied(array, dtype)
    return make(signature(dtype, array.shape),
                adopt(data_reader()(array), array.nbytes, array))


def copied(array: np.ndarray, dtype: dt.dtype | None = None) -> Tensor:
    """A tensor with its own copy of an array."""
    array = np.asarray(array)
    wanted = dtype or dt.of_numpy(array.dtype) or dt.from_numpy(array.dtype)
    if wanted is dt.bfloat16:
        return engine.cast(copied(array.astype(np.float32)), dt.bfloat16)
    out = empty(signature(wanted, array.shape))
    if not out.sig.numel:
        return out
    if array.dtype == wanted.numpy and array.flags.c_contiguous:
        copier()(out.ptr, data_reader()(array), array.nbytes)
        return out
    with np.errstate(all="ignore"):
        raw_array(out)[...] = array
    return out


_copies = new_table()  # (numpy's dtype, shape, strides, dtype wanted) -> signature of same bytes


def copied_again(array: np.ndarray, dtype: dt.dtype | None):
    """A tensor with the bytes of an array, if `from_data` has made one of its kind before."""
    sig = _copies.get((array.dtype, array.shape, array.strides, dtype))
    if sig is None:
        return None
    out = empty(sig)
    copier()(out.ptr, data_reader()(array), sig.nbytes)
    return out


def _numbers(data, shape: tuple, depth: int, out: list) -> None:
    if depth == len(shape):
        if isinstance(data, (list, tuple)):
            raise TypeError(f"'{type(data).__name__}' object at dim {depth} where a number was "
                            "expected: the sequences do not have equal depths")
        out.append(data)
        return
    if not isinstance(data, (list, tuple, range)):
        raise TypeError(f"not a sequence: {data!r} at dim {depth}, where one of length "
                        f"{shape[depth]} was expected")
    if len(data) != shape[depth]:
        raise ValueError(f"expected sequence of length {shape[depth]} at dim {depth} (got "
                         f"{len(data)})")
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
        return ValueError(f"too many dimensions '{type(value).__name__}'")
    return RuntimeError(f"Could not infer dtype of {type(value).__name__}")


def from_data(data, dtype: dt.dtype | None = None, where=CPU) -> Tensor:
    """A new tensor holding numbers, nested sequences, an array or another tensor's elements."""
    if isinstance(data, Tensor):
        out = engine.clone(data.detach())
        return engine.cast(out, dtype) if dtype is not None else out
    if isinstance(data, np.ndarray):
        if data.dtype == object:
            raise TypeError("can't convert np.ndarray of type numpy.object_. The only supported "
                            "types are: float64, float32, float16, complex64, complex128, int64, "
                            "int32, int16, int8, uint8, and bool.")
        out = copied(data, dtype)
        if out.sig.numel and data.dtype == out.sig.dtype.numpy and data.flags.c_contiguous:
            _copies[data.dtype, data.shape, data.strides, dtype] = out.sig
        return out
    if isinstance(data, np.generic):
        return copied(np.asarray(data), dtype)
    if not isinstance(data, (list, tuple, range)) and hasattr(data, "__array__"):
        return copied(np.asarray(data), dtype)
    if isinstance(data, str):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if not isinstance(data, (bool, int, float, complex, list, tuple, range)):
        if isinstance(data, (dict, set)) or not hasattr(data, "__len__") or not hasattr(
                data, "__getitem__"):
            raise _bad_element(data)
        data = list(data)
    return _from_sequence(data, dtype, where)


#: dtype -> the code of Python's arrays of such elements
_CODES = {dt.float32: "f", dt.float64: "d", dt.int64: "q", dt.int32: "i", dt.int16: "h",
          dt.int8: "b", dt.uint8: "B", dt.uint16: "H", dt.uint32: "I", dt.uint64: "Q"}
_REAL, _SEQUENCES, _DEEPEST = {float, int, bool}, (list, tuple), 128


def from_lists(data, dtype: dt.dtype | None):
    """A tensor of nested lists or tuples of Python numbers; None if they are anything else."""
    first, deep = data, 0
    shape: tuple[int, ...] = (len(data),)
    while type(first) in _SEQUENCES and first:  # of arrays, truth is not to be asked
        first, deep = first[0], deep + 1
        if deep > _DEEPEST:  # perhaps a list that is its own element
            raise ValueError(f"too many dimensions '{type(data).__name__}'")
    for _ in range(deep - 1):
        width = len(data[0])
        if any([type(row) not in _SEQUENCES or len(row) != width for row in data]):
            return None
        shape, data = (*shape, width), [*itertools.chain.from_iterable(data)]
    kinds = {*map(type, data)}
    if not kinds or not kinds <= _REAL:
        return None
    if kinds == {bool} and (dtype is None or dtype is dt.bool_):
        dtype, code = dt.bool_, "b"
    else:
        dtype = dtype or (dt.default_float() if float in kinds else dt.int64)
        if dtype not in _CODES:
            return None
        code = _CODES[dtype]
    try:
        numbers = array(code, data)
    except (OverflowError, TypeError):
        return None
    out = empty(signature(dtype, shape))
    copier()(out.ptr, numbers.buffer_info()[0], out.sig.nbytes)
    return out


def _from_sequence(data, dtype, where) -> Tensor:
    plain = _plain_numbers(data)
    if plain is not None:
        array, found = plain
        wanted = dtype or found
        if array.dtype.kind == "u" and wanted.kind not in "fc" and wanted is not dt.uint64:
            raise ValueError("Overflow when unpacking long long")
        if where is META:
            return empty(signature(wanted, array.shape, None, META))
        return copied(_fitting(array, wanted), wanted)
    if isinstance(_first_of(data), np.ndarray):
        return copied(np.array(data), dtype)
    return _from_mixture(data, dtype, where)


_PYTHON_NUMBERS = (bool, int, float, complex)


def _first_of(data):
    """The first element of nested lists or tuples that is neither, or an empty one of them."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return data


def _plain_numbers(data):
    """Python numbers as an array and the dtype they have in torch; None if there is more."""
    first = _first_of(data)
    if type(first) not in _PYTHON_NUMBERS and not isinstance(first, range):
        return None
    try:
        array = np.array(data)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        return None
    float_dtype = dt.default_float()
    found = {"b": dt.bool_, "i": dt.int64, "u": dt.int64, "f": float_dtype,
             "c": float_dtype.to_complex()}.get(array.dtype.kind)
    return None if found is None else (array, found)


def _fitting(array: np.ndarray, dtype: dt.dtype) -> np.ndarray:
    """Numbers, refused if the dtype cannot hold them; negative ones wrap into unsigned dtypes."""
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError("must be real number, not complex")
    if dtype.kind not in "iu" or array.dtype.kind == "b" or not array.size:
        return array
    info = dt.iinfo(dtype)
    low, high = array.min(), array.max()
    if not (-info.max if dtype.kind == "u" else info.min) <= low <= high <= info.max:
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: "
                           f"{low if high <= info.max else high}")
    return array if dtype is dt.uint64 and array.dtype.kind == "u" else array.astype(np.int64)


def _from_mixture(data, dtype, where) -> Tensor:
    """Sequences in which there are tensors, numpy scalars or things that are not numbers."""
    shape = _shape_of(data)
    flat: list = []
    _numbers(data, shape, 0, flat)
    found = dtype or infer_dtype(flat)
    if where is META:
        return empty(signature(found, shape, None, META))
    for value in flat:
        if not isinstance(value, (Tensor, np.generic, *_PYTHON_NUMBERS)):
            raise _bad_element(value)
        if isinstance(value, Tensor) and value.sig.numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars: a list "
                             f"has one of shape {tuple(value.sig.shape)}; stack() puts tensors "
                             "together")
        if isinstance(value, int) and not -2**63 <= value < 2**63 and found.kind in "iu":
            raise ValueError("Overflow when unpacking long long")
    parts = [v.item() if isinstance(v, (Tensor, np.generic)) else v for v in flat]
    array = np.array(parts).reshape(shape) if parts else np.empty(shape, np.float32)
    return copied(_fitting(array, found), found)


def _shape_of(data) -> tuple[int, ...]:
    """The shape of nested sequences, in which a tensor is one number."""
    if isinstance(data, (list, tuple, range)):
        return (len(data), *(_shape_of(data[0]) if len(data) else ()))
    return ()


#: dtype -> what reads elements of it at an address
_READERS: dict[dt.dtype, Any] = {
    dt.float32: ctypes.c_float, dt.float64: ctypes.c_double, dt.int64: ctypes.c_int64,
    dt.int32: ctypes.c_int32, dt.int16: ctypes.c_int16, dt.int8: ctypes.c_int8,
    dt.uint8: ctypes.c_uint8, dt.uint16: ctypes.c_uint16, dt.uint32: ctypes.c_uint32,
    dt.uint64: ctypes.c_uint64, dt.bool_: ctypes.c_bool}


def item(x: Tensor):
    """The only element as a Python number."""
    sig = x.sig
    if sig.numel != 1:
        raise RuntimeError(f"a Tensor with {sig.numel} elements cannot be converted to Scalar")
    if sig.device is META:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    if readers:
        readers[-1]()
    reader = _READERS.get(sig.dtype)
    if reader is not None:
        return reader.from_address(x.ptr).value
    return to_array(x).item()


def tolist(x: Tensor):
    """The elements as nested lists."""
    sig = x.sig
    if readers:
        readers[-1]()
    reader = _READERS.get(sig.dtype)
    if reader is None or not sig.contiguous or not sig.numel or sig.device is META:
        return to_array(x).tolist()
    if not sig.rank:
        return reader.from_address(x.ptr).value
    found = memoryview(_Bytes.from_address(x.ptr)).cast("B")[:sig.nbytes]
    code: Any = _CODES.get(sig.dtype, "?")
    return found.cast(code, tuple(sig.shape)).tolist()


def meta_like(sig: Signature) -> Signature:
    return signature(sig.dtype, sig.shape, sig.strides, META)


def dense_signature(sig: Signature, dtype: dt.dtype | None = None) -> Signature:
    """Where a copy of a tensor goes: in the same order of dimensions if it is dense."""
    strides = sig.strides if sh.is_dense(sig.shape, sig.strides) else None
    if strides is None:
        strides = sh.result_strides(sig.shape, [(sig.shape, sig.strides)])
    return signature(dtype or sig.dtype, sig.shape, strides, sig.device)
