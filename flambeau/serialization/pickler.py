"""Writes pickles that torch reads: tensors by torch's functions, names as torch spells them."""

from __future__ import annotations

import ctypes
import importlib
import pickle
from collections import OrderedDict
from types import BuiltinFunctionType, FunctionType
from typing import Any

import flambeau
from flambeau import Tensor, TypedStorage, UntypedStorage, nn
from flambeau.nn.modules.handles import HookTable

from . import names, rebuild


class Storages:
    """The storages met while pickling, each with the key it is written under."""

    def __init__(self):
        self._keys: dict[tuple[int, int], tuple[str, object]] = {}
        self.found: dict[str, UntypedStorage] = {}

    def dtype_of(self, storage: UntypedStorage):
        """The dtype under which a storage was met, None for bytes."""
        return self._keys[storage.data_ptr(), storage.nbytes()][1]

    def identity(self, storage):
        """What stands in the pickle for a storage."""
        dtype = getattr(storage, "dtype", None)
        bytes_ = storage.untyped()
        where = bytes_.data_ptr(), bytes_.nbytes()
        key, known = self._keys.get(where, (None, dtype))
        if key is None:
            key = str(len(self.found))
            self.found[key] = bytes_
            self._keys[where] = key, dtype
        elif known is not dtype:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data "
                               f"as different types: {known or 'bytes'} and {dtype or 'bytes'}; "
                               "clone() one of them first")
        kind = names.StorageClass(dtype)
        size = bytes_.nbytes() // (1 if dtype is None else dtype.itemsize)
        return "storage", kind, key, "cpu", size


def memory_of(storage: UntypedStorage) -> memoryview:
    """The bytes of a storage, to read or to fill; the storage must outlive them."""
    buffer: Any = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    buffer._keep = storage
    return memoryview(buffer).cast("B")


def reduced(x: Tensor):
    """(function, arguments) that make a tensor again."""
    state = _attributes(x)
    made: tuple[Any, tuple]
    if x.is_meta:
        made = rebuild.meta_tensor, (x.dtype, tuple(x.shape), x.stride(), x.requires_grad)
    else:
        place = x.storage_offset(), tuple(x.shape), tuple(x.stride()), x.requires_grad
        made = (rebuild.tensor_v3, (x.untyped_storage(), *place, OrderedDict(), x.dtype)
                ) if x.dtype in names.BARE else (
            rebuild.tensor_v2, (x.storage(), *place, OrderedDict()))
    if type(x) is Tensor and not state:
        return made
    return rebuild.of_type, (made[0], type(x), made[1], state)


class _Layout:
    """A layout, which files call by its name."""

    def __init__(self, name: str):
        self.name = name

    def __reduce__(self):
        return rebuild.layout, (self.name,)


def reduced_sparse(x: Any):
    """(function, arguments) that make a sparse tensor again."""
    kind = _Layout(str(x.layout))
    if x.layout in (flambeau.sparse_csr, flambeau.sparse_bsr):
        return rebuild.sparse_tensor, (kind, (
            x.crow_indices(), x.col_indices(), x.values(), x.size()))
    if not x.is_sparse:
        return rebuild.sparse_tensor, (kind, (
            x.ccol_indices(), x.row_indices(), x.values(), x.size()))
    return rebuild.sparse_tensor, (kind, (
        x._indices(), x._values(), x.size(), x.is_coalesced()))


def _attributes(x: Tensor) -> dict:
    """What the user has put on a tensor; Tensor itself knows which those are."""
    if not x.__dict__ or not x.is_leaf:
        return {}
    made: Any = Tensor.__reduce_ex__(x, 2)
    return made[1][-1]


def reduced_parameter(x):
    """(function, arguments) that make a parameter again."""
    data = x.detach()
    state = _attributes(x)
    if not state:
        return rebuild.parameter, (data, x.requires_grad, OrderedDict())
    return rebuild.parameter_with_state, (data, x.requires_grad, OrderedDict(), state)


# The module has both, and documents neither; what builds on pickle has always used them.
_PurePickler: Any = vars(pickle)["_Pickler"]
_whichmodule: Any = vars(pickle)["whichmodule"]


class Pickler(_PurePickler):
    """Python's own, in which names can be chosen; the native one looks them up in modules."""

    dispatch = dict(_PurePickler.dispatch)

    def __init__(self, file, protocol: int, storages: Storages):
        super().__init__(file, protocol)
        self._storages = storages

    def save_global(self, obj, name=None):
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        # From Python 3.14 on whichmodule would import it, and who says torch may mean us.
        module = getattr(obj, "__module__", None) or _whichmodule(obj, name)
        if module.partition(".")[0] not in ("flambeau", "torch"):
            super().save_global(obj, name)
            return
        home, spelled = names.name_of(obj, module, name)
        meant = names.resolve(home, spelled)
        if meant is not obj and not isinstance(meant, names.StorageKind):
            raise pickle.PicklingError(f"Can't pickle {obj!r}: it's not the same object as "
                                       f"{module}.{name}")
        self._write_name(home, spelled)
        self.memoize(obj)

    def _write_name(self, module: str, name: str) -> None:
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())

    def save_reduce(self, func, args, *rest, obj=None, **more):
        if isinstance(obj, Tensor) and type(obj).__reduce_ex__ is Tensor.__reduce_ex__:
            func, args = reduced(obj)
            rest, more = (), {}
        elif isinstance(obj, Tensor) and obj.layout in rebuild.SPARSE:
            func, args = reduced_sparse(obj)
        super().save_reduce(func, args, *rest, obj=obj, **more)

    def _save_tensor(self, x):
        super().save_reduce(*reduced(x), obj=x)

    def _save_parameter(self, x):
        super().save_reduce(*reduced_parameter(x), obj=x)

    def _save_buffer(self, x):
        super().save_reduce(rebuild.buffer, (x.detach(), x.requires_grad, x.persistent), obj=x)

    def _save_storage(self, storage):
        identity = self._storages.identity(storage)
        self.save(identity, save_persistent_id=False)
        self.write(pickle.BINPERSID)

    def _save_storage_class(self, kind):
        self._write_name(*kind.name)
        self.memoize(kind)

    def _save_dtype(self, dtype):
        self._write_name("torch", dtype.name)
        self.memoize(dtype)

    def _save_size(self, size):
        super().save_reduce(flambeau.Size, (tuple(size),), obj=size)

    def _save_device(self, device):
        super().save_reduce(flambeau.device, (str(device),), obj=device)

    def _save_hooks(self, table):
        super().save_reduce(OrderedDict, (), None, None, iter(table.items()), obj=table)

    dispatch.update({
        FunctionType: save_global, BuiltinFunctionType: save_global,
        Tensor: _save_tensor, nn.Parameter: _save_parameter, nn.Buffer: _save_buffer,
        flambeau.dtype: _save_dtype, flambeau.Size: _save_size, flambeau.device: _save_device,
        HookTable: _save_hooks,
        names.StorageClass: _save_storage_class,
        **dict.fromkeys((UntypedStorage, TypedStorage, *(
            getattr(flambeau, name) for name in names.STORAGE_DTYPES)), _save_storage),
    })


def foreign(module, file, protocol: int, storages: Storages):
    """A pickler of another module than pickle; its files name this library's own modules."""
    base: Any = module.Pickler

    class Foreign(base):
        def persistent_id(self, obj):
            if not isinstance(obj, (UntypedStorage, TypedStorage)):
                return None
            tag, kind, *others = storages.identity(obj)
            return (tag, getattr(importlib.import_module("flambeau"), kind.name[1]), *others)

        def reducer_override(self, obj):
            if isinstance(obj, nn.Parameter):
                return reduced_parameter(obj)
            return reduced(obj) if isinstance(obj, Tensor) else NotImplemented

    return Foreign(file, protocol)
