"""What checkpoints make tensors with. Every number comes from a file: all are checked first."""

from __future__ import annotations

import flambeau
from flambeau import Tensor, nn

#: no element can be further than this, so nothing below it overflows
FURTHEST = 1 << 62
MOST_DIMENSIONS = 64


class MetaStorage:
    """A storage of a file that was asked to be on meta: it has a size and no bytes."""

    def __init__(self, dtype, length: int):
        self.dtype, self.length = dtype, length

    def nbytes(self) -> int:
        return self.length


STORAGES = (flambeau.TypedStorage, flambeau.UntypedStorage, MetaStorage)


def tensor_v1(storage, offset, size, stride):
    """A tensor as the oldest files have it."""
    return _tensor(_checked(storage), getattr(storage, "dtype", None), offset, size, stride)


def tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks, metadata=None):
    """A tensor over a storage whose class says the dtype."""
    x = _tensor(_checked(storage), getattr(storage, "dtype", None), offset, size, stride)
    return _finished(x, requires_grad, metadata)


def tensor_v3(storage, offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None):
    """A tensor over untyped bytes."""
    if not isinstance(dtype, flambeau.dtype):
        dtype()
    x = _tensor(_checked(storage), dtype, offset, size, stride)
    return _finished(x, requires_grad, metadata)


def _checked(storage):
    if not isinstance(storage, STORAGES):
        raise RuntimeError(f"load: a tensor is said to lie in a {type(storage).__name__}, which is "
                           "no storage: the file is damaged")
    return storage


def _tensor(storage, dtype, offset, size, stride) -> Tensor:
    if dtype is None:
        raise RuntimeError("load: a tensor lies in untyped bytes without a dtype: the file is "
                           "damaged")
    size, stride = tuple(size), tuple(stride)
    check_layout(dtype, offset, size, stride, storage.nbytes())
    if isinstance(storage, MetaStorage):
        return flambeau.empty_strided(size, stride, dtype=dtype, device="meta")
    return flambeau.empty(0, dtype=dtype).set_(storage, offset, size, stride)


def check_layout(dtype, offset, size, stride, nbytes: int) -> None:
    """Refuse sizes and strides that are no numbers or reach outside their storage."""
    numbers = (offset, *size, *stride)
    if (len(size) != len(stride) or len(size) > MOST_DIMENSIONS
            or any(type(n) is not int or not 0 <= n < FURTHEST for n in numbers)):
        raise RuntimeError(f"load: a tensor of size {size!r:.200}, stride {stride!r:.200} and "
                           f"offset {offset!r:.50} cannot be: the file is damaged")
    reach = 0 if 0 in size else offset + 1 + sum((n - 1) * s for n, s in zip(size, stride))
    total = 1
    for n in size:
        total *= n
    if reach * dtype.itemsize > nbytes or total >= FURTHEST:
        raise RuntimeError(
            f"load: a tensor of size {list(size)}, stride {list(stride)} and offset {offset} needs "
            f"{reach * dtype.itemsize} bytes, out of bounds for its storage of {nbytes}: the file "
            "is damaged")


def _finished(x: Tensor, requires_grad, metadata) -> Tensor:
    if metadata and metadata.get("conj"):
        x = x.conj().clone()
    if metadata and metadata.get("neg"):
        x = x.neg()
    return x.requires_grad_() if requires_grad is True else x


def meta_tensor(dtype, size, stride, requires_grad):
    """A tensor that has a shape and no elements."""
    if not isinstance(dtype, flambeau.dtype):
        dtype()
    size, stride = tuple(size), tuple(stride)
    check_layout(dtype, 0, size, stride, FURTHEST * dtype.itemsize)
    x = flambeau.empty_strided(size, stride, dtype=dtype, device="meta")
    return x.requires_grad_() if requires_grad is True else x


def parameter(data, requires_grad, backward_hooks):
    """A parameter."""
    return nn.Parameter(_tensor_only(data), bool(requires_grad))


def parameter_with_state(data, requires_grad, backward_hooks, state):
    """A parameter and the attributes somebody gave it."""
    return _with_state(parameter(data, requires_grad, backward_hooks), state)


def buffer(data, requires_grad, persistent):
    """A buffer of a module."""
    made = nn.Buffer(_tensor_only(data), persistent=bool(persistent))
    return made.requires_grad_() if requires_grad is True else made


def tensor_of_device(data, dtype, device, requires_grad):
    """A tensor of another device, which a file holds as one of the CPU."""
    x = _tensor_only(data).to(dtype)
    return x.requires_grad_() if requires_grad is True else x


def _tensor_only(data) -> Tensor:
    if not isinstance(data, Tensor):
        raise RuntimeError(f"load: a tensor was expected, found {type(data).__name__}: the file is "
                           "damaged")
    return data


def of_type(function, kind, arguments, state):
    """A tensor of a subclass, or one with attributes."""
    x = _tensor_only(function(*arguments))
    if not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise RuntimeError(f"load: {kind!r:.100} is no class of tensors: the file is damaged")
    if type(x) is not kind:
        x = x.as_subclass(kind)
    return _with_state(x, state)


def _with_state(x: Tensor, state):
    """Attributes go to the tensor's own dictionary: nothing of its class can be replaced."""
    if isinstance(state, tuple):
        state = state[0]
    if not state:
        return x
    setter = getattr(type(x), "__setstate__", None)
    if setter is not None:
        setter(x, state)
        return x
    for name, value in state.items():
        if not isinstance(name, str) or hasattr(type(x), name):
            raise RuntimeError(f"load: a tensor cannot be given an attribute {name!r:.100}")
        x.__dict__[name] = value
    return x


def sparse_tensor(kind, data):
    """A sparse tensor; its indices are checked against its size."""
    if kind not in SPARSE or not isinstance(data, tuple) or len(data) not in (3, 4):
        raise RuntimeError(f"load: a sparse tensor of layout {kind!r:.50} is not known here")
    *indices, values, size = data[:3] if kind is flambeau.sparse_coo else data
    numbers = tuple(size)
    if len(numbers) > MOST_DIMENSIONS or any(type(n) is not int or not 0 <= n < FURTHEST
                                             for n in numbers):
        raise RuntimeError(f"load: a sparse tensor of size {numbers!r:.200} cannot be: the file is "
                           "damaged")
    if kind is not flambeau.sparse_coo:
        return flambeau.sparse_compressed_tensor(*map(_tensor_only, (*indices, values)), numbers,
                                                 layout=kind)
    united = len(data) == 4 and data[3] is True
    return flambeau.sparse_coo_tensor(_tensor_only(indices[0]), _tensor_only(values), numbers,
                                      is_coalesced=united)


#: layouts by their names in files
SPARSE = (flambeau.sparse_coo, flambeau.sparse_csr, flambeau.sparse_csc, flambeau.sparse_bsr,
          flambeau.sparse_bsc)
LAYOUTS = {str(kind): kind for kind in (flambeau.strided, *SPARSE)}


def layout(name):
    """A layout that tensors of files may have."""
    if name not in LAYOUTS:
        raise RuntimeError(f"load: tensors of layout {name!r:.50} are not known here")
    return LAYOUTS[name]


def bytes_copied(source=b"", encoding="latin1"):
    """bytearray, but never of a size that the file merely names."""
    if isinstance(source, str):
        return bytearray(encoded(source, encoding))
    if not isinstance(source, (bytes, bytearray)):
        raise RuntimeError("load: a bytearray can be made of bytes only")
    return bytearray(source)


def encoded(text, encoding="latin1"):
    """How protocol 2 spells bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise RuntimeError("load: bytes are spelled as latin1 text, not otherwise")
    return text.encode("latin1")
