"""Storages out of a file, and the two readers of pickles: one trusts nothing, one everything."""

from __future__ import annotations

import io
import pickle
import pickletools
import sys
from abc import ABC, abstractmethod
from typing import Any

import flambeau
from flambeau import TypedStorage, UntypedStorage

from . import names, restricted
from .pickler import memory_of
from .rebuild import FURTHEST, MetaStorage


class StorageReader(ABC):
    """Storages by the identities that stand in pickles, each made once."""

    def __init__(self, mover, source_name: str, swapped: bool = False):
        self._name_of_place, self._put = mover
        self._made: dict[str, tuple] = {}
        self._source_name, self.swapped = source_name, swapped

    @abstractmethod
    def fetch(self, key: str, nbytes: int) -> UntypedStorage:
        """The bytes under a key."""

    def __call__(self, identity):
        kind, key, place, count = self.checked(identity)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = (kind.dtype, count, self._make(kind.dtype, key, place, count))
        if made[:2] != (kind.dtype, count):
            raise RuntimeError(f"load: {self._source_name}: storage {key!r:.50} is said to be both "
                               f"{made[:2]} and {(kind.dtype, count)}: the file is damaged")
        return made[2]

    def checked(self, identity):
        """(kind, key, place, number of elements) out of a pickle, if that is what they are."""
        if (not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage"
                or not isinstance(identity[1], names.StorageKind)
                or not all(isinstance(each, str) for each in identity[2:4])
                or type(identity[4]) is not int or not 0 <= identity[4] < FURTHEST):
            if isinstance(identity, tuple) and len(identity) > 1 and isinstance(
                    identity[1], names.Missing):
                identity[1]()
            raise RuntimeError(f"load: {self._source_name}: {identity!r:.200} names no storage: "
                               "the file is damaged")
        return identity[1:5]

    def _make(self, dtype, key: str, place: str, count: int):
        nbytes = count * (1 if dtype is None else dtype.itemsize)
        target = self._name_of_place(place)
        if target == "meta":
            return MetaStorage(dtype, nbytes)
        storage = self.fetch(key, nbytes)
        if self.swapped and dtype is not None:
            swap_bytes(storage, dtype)
        storage = self._put(storage, target)
        if dtype is None or isinstance(storage, TypedStorage):
            return storage
        return TypedStorage(wrap_storage=storage, dtype=dtype)


def swap_bytes(storage: UntypedStorage, dtype) -> None:
    """Turn elements of the other byte order into ours, in place."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    if width > 1:
        memory = memory_of(storage)
        given = bytes(memory)
        for k in range(width):
            memory[k::width] = given[width - 1 - k::width]


def foreign_order(order: str) -> bool:
    return order != sys.byteorder


# -- the two readers -----------------------------------------------------------------------------


def trusted(stream, storages, module=pickle, options=None):
    """What a pickle describes, running whatever it asks to run."""
    class Unpickler(module.Unpickler):
        def find_class(self, home, name):
            return names.resolve(home, name)

        def persistent_load(self, identity):
            if isinstance(identity, tuple) and identity[:1] == ("module",):
                return identity[1]
            return storages(identity)

    return Unpickler(stream, **(options or {})).load()


def careful(data, storages, at: int = 0):
    """(what a pickle describes, where it ends), running nothing of it."""
    reader = restricted.Reader(data, storages, at)
    try:
        return reader.load(), reader.at
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(refusal(str(error))) from error


def refusal(reason: str) -> str:
    """What to do when a file was refused."""
    damaged = "damaged" in reason or "do not trust" in reason
    options = "" if damaged else (
        "This file can still be loaded, to do so you have two options, do those steps only if you "
        "trust the source of the checkpoint. \n\t(1) Re-running `torch.load` with `weights_only` "
        "set to `False` will likely succeed, but it can result in arbitrary code execution. Do it "
        "only if you got the file from a trusted source.\n\t(2) Alternatively, to load with "
        "`weights_only=True` please check the recommended steps in the following error message.")
    return f"Weights only load failed. {options}\n\tWeightsUnpickler error: {reason}"


def unpickled(data: bytes, storages, weights_only: bool, module, options):
    """The object in a record of an archive."""
    if weights_only:
        return careful(data, storages)[0]
    return trusted(io.BytesIO(data), storages, module or pickle, options)


def unsafe_names(data: bytes) -> list[str]:
    """The names in a pickle that a careful reader would refuse, without reading further."""
    found: list[str] = []
    texts: list[str] = []
    argument: Any
    for op, argument, _ in pickletools.genops(data):
        if op.name == "GLOBAL":
            module, _, name = argument.partition(" ")
        elif op.name == "STACK_GLOBAL" and len(texts) > 1:
            module, name = texts[-2:]
        else:
            if isinstance(argument, str):
                texts.append(argument)
            continue
        known = names.safe_object(module, name) or names.added_object(module, name)
        if known is None and f"{module}.{name}" not in found:
            found.append(f"{module}.{name}")
    return found


def empty_storage(nbytes: int) -> UntypedStorage:
    """Room for so many bytes."""
    return flambeau.empty(nbytes, dtype=flambeau.uint8).untyped_storage()
