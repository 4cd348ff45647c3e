"""The format before zip files: five pickles, and then the storages, each after its length."""

from __future__ import annotations

import io
import pickle
import struct
import sys

from . import contents
from .pickler import Pickler, Storages, memory_of

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001


class LegacyStorages(contents.StorageReader):
    """Makes room while the pickle is read; bytes come later in the file."""

    def __init__(self, mover, source):
        super().__init__(mover, source.name)
        self._source, self._claimed = source, 0
        self.places: dict[str, tuple] = {}

    def __call__(self, identity):
        view = identity[5] if isinstance(identity, tuple) and len(identity) > 5 else None
        if view is not None:
            raise RuntimeError(f"load: {self._source.name}: storages that are views of storages "
                               "were written before torch 0.4 only: save the file again with a "
                               "newer torch")
        made = super().__call__(identity)
        dtype, key = identity[1].dtype, identity[2]
        self.places.setdefault(key, (dtype, identity[4], made))
        return made

    def fetch(self, key: str, nbytes: int):
        self._claimed += nbytes
        if self._claimed > self._source.size:
            raise self._source.cut(self._claimed)
        return contents.empty_storage(nbytes)


def load(source, mover, weights_only: bool, module, options):
    """The object in a file of the old format."""
    storages = LegacyStorages(mover, source)
    reader = _Careful(source) if weights_only else _Trusting(source, module, options)
    magic = reader.next(storages)
    if magic != MAGIC:
        raise RuntimeError("Invalid magic number; corrupt file?")
    protocol = reader.next(storages)
    if protocol != PROTOCOL:
        raise RuntimeError(f"Invalid protocol version: {protocol!r:.50}")
    system = reader.next(storages)
    found = reader.next(storages)
    keys = reader.next(storages)
    little = system.get("little_endian", True) if isinstance(system, dict) else True
    _fill(source, storages, keys, reader.at, little != (sys.byteorder == "little"))
    return found


def _fill(source, storages: LegacyStorages, keys, at: int, swapped: bool) -> None:
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise RuntimeError(f"load: {source.name}: the list of storages is damaged")
    for key in keys:
        count, = struct.unpack("<q", source.read_at(at, 8))
        dtype, expected, storage = storages.places.get(key, (None, None, None))
        if count != expected:
            raise RuntimeError(f"load: {source.name}: storage {key!r:.50} has {count} elements "
                               f"where {expected} were announced: the file is damaged")
        at += 8
        nbytes = count * (1 if dtype is None else dtype.itemsize)
        if at + nbytes > source.size:
            raise source.cut(at + nbytes)
        if not isinstance(storage, contents.MetaStorage):
            source.read_into(at, memory_of(storage.untyped()))
            if swapped and dtype is not None:
                contents.swap_bytes(storage.untyped(), dtype)
        at += nbytes


class _Careful:
    def __init__(self, source):
        if not source.size:
            raise EOFError(f"Ran out of input: {source.name} is empty, or was read to its end "
                           "(then seek(0) first)")
        self._data, self.at = source.whole(), 0
        self._base = source.start if len(self._data) != source.size else 0
        self.at = 0

    def next(self, storages):
        found, end = contents.careful(self._data, storages, self._base + self.at)
        self.at = end - self._base
        return found


class _Trusting:
    def __init__(self, source, module, options):
        if not source.size:
            raise EOFError(f"Ran out of input: {source.name} is empty, or was read to its end "
                           "(then seek(0) first)")
        raw = isinstance(source.file, io.RawIOBase)
        self._stream = io.BufferedReader(source.file) if raw else source.file
        self._source, self._module, self._options = source, module or pickle, options

    @property
    def at(self) -> int:
        return self._stream.tell() - self._source.start

    def next(self, storages):
        return contents.trusted(self._stream, storages, self._module, self._options)


class _LegacyKeys(Storages):
    def identity(self, storage):
        return (*super().identity(storage), None)


def save(obj, write, protocol: int) -> None:
    """Write the old format, which torch of any version reads."""
    system = {"protocol_version": PROTOCOL, "little_endian": sys.byteorder == "little",
              "type_sizes": {"short": 2, "int": 4, "long": 4}}
    for part in (MAGIC, PROTOCOL, system):
        write(pickle.dumps(part, protocol))
    storages, body = _LegacyKeys(), io.BytesIO()
    Pickler(body, protocol, storages).dump(obj)
    write(body.getvalue())
    keys = sorted(storages.found)
    write(pickle.dumps(keys, protocol))
    for key in keys:
        storage = storages.found[key]
        dtype = storages.dtype_of(storage)
        write(struct.pack("<q", storage.nbytes() // (1 if dtype is None else dtype.itemsize)))
        write(memory_of(storage))
