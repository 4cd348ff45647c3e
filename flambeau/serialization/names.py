"""Names as they stand in checkpoints, which are torch's, and the objects of this library they mean.

A file says `torch._utils _rebuild_tensor_v2` and `torch FloatStorage` whoever wrote it; `resolve`
finds what is meant without ever importing torch, and `name_of` says what to write.
"""

from __future__ import annotations

import _codecs
import collections
import contextlib
import importlib
import pickle
import sys
from _compat_pickle import NAME_MAPPING

import flambeau
from flambeau import nn

from . import rebuild

#: the dtype that each storage class of a file holds
STORAGE_DTYPES = {name: getattr(flambeau, name).dtype for name in (
    "FloatStorage", "DoubleStorage", "HalfStorage", "BFloat16Storage", "ByteStorage",
    "CharStorage", "ShortStorage", "IntStorage", "LongStorage", "BoolStorage",
    "ComplexFloatStorage", "ComplexDoubleStorage")}
STORAGE_NAMES = {dtype: name for name, dtype in STORAGE_DTYPES.items()}
#: dtypes that have no storage class: their tensors lie in bytes
BARE = frozenset(getattr(flambeau, d.name) for d in flambeau.assemble.converters
                 if d not in STORAGE_NAMES)
DTYPES = {dtype.name: dtype for dtype in (*STORAGE_NAMES, *BARE)}


class StorageKind:
    """What a storage class of a file stands for: a dtype, or bytes if it is None."""

    def __init__(self, dtype):
        self.dtype = dtype


class StorageClass:
    """The storage class to write for a dtype; one object each, as pickles remember by identity."""

    _made: dict = {}
    name: tuple[str, str]

    def __new__(cls, dtype):
        found = cls._made.get(dtype)
        if found is None:
            found = cls._made[dtype] = object.__new__(cls)
            found.name = ("torch.storage", "UntypedStorage") if dtype is None else (
                "torch", STORAGE_NAMES[dtype])
        return found


class Missing:
    """A known name of torch for which there is nothing here; reading goes on until it is used."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, *_args):
        raise RuntimeError(f"load: the checkpoint holds a {self.name}, which flambeau does not "
                           "have: convert it with torch first (to a dense tensor of a dtype that "
                           f"is known here: {', '.join(DTYPES)})")


#: torch's rebuilding functions, by their names in files
REBUILDS = {
    "torch._utils._rebuild_tensor":                 rebuild.tensor_v1,
    "torch._utils._rebuild_tensor_v2":              rebuild.tensor_v2,
    "torch._utils._rebuild_tensor_v3":              rebuild.tensor_v3,
    "torch._utils._rebuild_meta_tensor_no_storage": rebuild.meta_tensor,
    "torch._utils._rebuild_parameter":              rebuild.parameter,
    "torch._utils._rebuild_parameter_with_state":   rebuild.parameter_with_state,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": rebuild.tensor_of_device,
    "torch._tensor._rebuild_from_type_v2":          rebuild.of_type,
    "torch.nn.parameter._rebuild_buffer":           rebuild.buffer,
    "torch._utils._rebuild_sparse_tensor":          rebuild.sparse_tensor,
    "torch.serialization._get_layout":              rebuild.layout,
    **{name: Missing(name) for name in (
        "torch._utils._rebuild_qtensor",
        "torch._utils._rebuild_nested_tensor", "torch._utils._rebuild_wrapper_subclass",
        "torch._utils._rebuild_device_tensor_from_numpy")},
}  # fmt: skip

#: what any file may name: none of it does more than make the value it is named for
SAFE = {
    "collections.OrderedDict":        collections.OrderedDict,
    "collections.Counter":            collections.Counter,
    "builtins.set":                   set,
    "builtins.complex":               complex,
    "builtins.bytearray":             rebuild.bytes_copied,
    "_codecs.encode":                 rebuild.encoded,
    "torch.Size":                     flambeau.Size,
    "torch.device":                   flambeau.device,
    "torch.Tensor":                   flambeau.Tensor,
    "torch.nn.parameter.Parameter":   nn.Parameter,
    "torch.storage.UntypedStorage":   StorageKind(None),
    "torch.storage.TypedStorage":     StorageKind(None),
    **{f"torch.{name}": dtype for name, dtype in DTYPES.items()},
    **{f"torch.{home}{name}": StorageKind(dtype) for name, dtype in STORAGE_DTYPES.items()
       for home in ("", "cuda.")},
    **{f"torch.{name}": getattr(flambeau, name) for name in ("qint8", "quint8", "qint32")},
    **REBUILDS,
}  # fmt: skip

#: what is written by another name than that of its class or module
_SPELLED = {
    **{function: name for name, function in REBUILDS.items() if not isinstance(function, Missing)},
    flambeau.Tensor: "torch.Tensor", flambeau.Size: "torch.Size", flambeau.device: "torch.device",
    flambeau.UntypedStorage: "torch.storage.UntypedStorage",
    nn.MultiheadAttention: "torch.nn.modules.activation.MultiheadAttention",
}
_SOURCES = {"_codecs.encode": _codecs.encode, "builtins.bytearray": bytearray}


def spelled(module: str, name: str) -> str:
    """A full name as files spell it: this library's modules are torch's there."""
    if module == "flambeau" or module.startswith("flambeau."):
        module = "torch" + module.removeprefix("flambeau")
    if module == "__builtin__":  # as Python 2, and protocol 2, say
        module = "builtins"
    return f"{module}.{name}"


def name_of(obj, module: str, name: str) -> tuple[str, str]:
    """(module, name) to write for a class or function of this library."""
    found = _SPELLED.get(obj) if obj.__hash__ else None
    if found is None:
        found = spelled(module if isinstance(obj, type) else _public(obj, module, name), name)
        return found[:len(found) - len(name) - 1], name
    home, _, last = found.rpartition(".")
    return home, last


def _public(function, module: str, name: str) -> str:
    """The shortest module that has a function: where torch has it too."""
    parts = module.split(".")
    for count in range(1, len(parts)):
        package = sys.modules.get(".".join(parts[:count]))
        if package is not None and vars(package).get(name) is function:
            return ".".join(parts[:count])
    return module


def resolve(module: str, name: str):
    """What a name in a trusted file means; torch's names mean this library's objects."""
    module, name = NAME_MAPPING.get((module, name), (module, name))  # int is long in protocol 2
    full = spelled(module, name)
    found = SAFE.get(full)
    if found is not None:
        return _SOURCES.get(full, found)
    home, _, _ = full.rpartition("." + name)
    if home == "torch" or home.startswith("torch."):
        home = "flambeau" + home.removeprefix("torch")
    try:
        target = importlib.import_module(home)
    except ImportError as error:
        raise pickle.UnpicklingError(
            f"load: the file needs {module}.{name}, and {error}; a pickled object can be read only "
            "where its class can be imported: save a state_dict() instead") from error
    for part in name.split("."):
        if not hasattr(target, part):
            raise AttributeError(f"Can't get attribute {name!r} on {target!r}; the checkpoint was "
                                 "written where it existed")
        target = getattr(target, part)
    return target


# -- what the user declares safe -----------------------------------------------------------------

_added: dict[str, object] = {}


def _entries(safe_globals) -> dict[str, object]:
    found = {}
    for each in safe_globals:
        if isinstance(each, tuple):
            obj, path = each
            if not isinstance(path, str):
                raise TypeError(f"add_safe_globals: expected (object, 'module.name'), got {each!r}")
            found[path] = obj
        elif not hasattr(each, "__module__"):
            raise TypeError(f"add_safe_globals: expected a class or a function, got {each!r}")
        else:
            found[spelled(each.__module__, each.__qualname__)] = each
    return found


def add_safe_globals(safe_globals) -> None:
    """Let files read with weights_only=True name these classes and functions."""
    _added.update(_entries(safe_globals))


def get_safe_globals() -> list:
    """What has been declared safe."""
    return list(_added.values())


def declared_safe(kind: type) -> bool:
    """Whether the user said so of a class."""
    return any(each is kind for each in _added.values())


def clear_safe_globals() -> None:
    """Forget what was declared safe."""
    _added.clear()


class safe_globals(contextlib.AbstractContextManager):
    """Inside, files read with weights_only=True may name these classes and functions."""

    def __init__(self, safe_globals):
        self._given = _entries(safe_globals)
        self._before: list[dict] = []

    def __enter__(self):
        self._before.append(dict(_added))
        _added.update(self._given)
        return self

    def __exit__(self, *_):
        _added.clear()
        _added.update(self._before.pop())


def safe_object(module: str, name: str):
    """The object that any file may name so, or None."""
    return SAFE.get(spelled(module, name))


def added_object(module: str, name: str):
    """The object of this name that the user declared safe, or None."""
    return _added.get(spelled(module, name))
