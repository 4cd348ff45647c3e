"""save and load: objects with tensors in torch's own files."""

from __future__ import annotations

import contextlib
import io
import mmap as mapping
import os
import pickle
import threading

import flambeau

from . import archive, contents, legacy, locations, options
from .atomic import replacing
from .pickler import Pickler, Storages, foreign, memory_of
from .sources import opened

DEFAULT_PROTOCOL = 2


class _Skipping(threading.local):
    """Whether the bytes of storages are left out, in this thread."""

    now = False


_skipping = _Skipping()


@contextlib.contextmanager
def skip_data(materialize_fake_tensors: bool = False):
    """Inside, save writes zeros for elements and load leaves them as memory has them."""
    before, _skipping.now = _skipping.now, True
    try:
        yield
    finally:
        _skipping.now = before


# -- saving --------------------------------------------------------------------------------------


def save(obj, f, pickle_module=pickle, pickle_protocol=DEFAULT_PROTOCOL,
         _use_new_zipfile_serialization=True, _disable_byteorder_record=False) -> None:
    """Write an object to a file that torch can read.

    A path is replaced as a whole and only when all is on the disk: a crash or a full disk leaves
    the old file as it was.
    """
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a "
                             f"'write' attribute, got {type(f).__name__}")
    storages, body = Storages(), io.BytesIO()
    if _use_new_zipfile_serialization:
        make = Pickler if pickle_module is pickle else (
            lambda *given: foreign(pickle_module, *given))
        make(body, pickle_protocol, storages).dump(obj)  # before the file is touched
    with _output(f) as write:
        if not _use_new_zipfile_serialization:
            legacy.save(obj, write, pickle_protocol)
            return
        writer = archive.Writer(write, _archive_name(f))
        _write_archive(writer, body.getvalue(), storages, not _disable_byteorder_record)


@contextlib.contextmanager
def _output(f):
    if isinstance(f, (str, os.PathLike)):
        with replacing(f) as output:
            yield output.write
    else:
        yield f.write
        getattr(f, "flush", lambda: None)()


def _archive_name(f) -> str:
    """Inside the archive everything lies under the file's own name, as torch has it."""
    if not isinstance(f, (str, os.PathLike)):
        return "archive"
    return os.path.splitext(os.path.basename(os.fspath(f)))[0] or "archive"


def _write_archive(writer: archive.Writer, body: bytes, storages: Storages, order: bool) -> None:
    with_sums = options.get_crc32_options()
    writer.record("data.pkl", body)
    writer.record(".format_version", b"1")
    writer.record(".storage_alignment", str(archive.ALIGNMENT).encode())
    if order:
        writer.record("byteorder", archive.native_order().encode())
    writer.records({f"data/{key}": bytes(storage.nbytes()) if _skipping.now else memory_of(storage)
                    for key, storage in storages.found.items()}, with_sums)
    writer.close()


# -- loading -------------------------------------------------------------------------------------


class ArchiveStorages(contents.StorageReader):
    """Storages that are records of an archive: read into memory, or seen through a mapping."""

    def __init__(self, mover, source, reader: archive.Reader, swapped: bool, mapped, later):
        super().__init__(mover, source.name, swapped)
        self._reader, self._mapped, self._later = reader, mapped, later

    def fetch(self, key: str, nbytes: int):
        name = f"data/{key}"
        record = self._reader.find(name)
        if record.size < nbytes:
            raise self._reader.broken(f"record {name!r:.50} has {record.size} bytes where a "
                                      f"storage of {nbytes} is announced")
        if _skipping.now or not nbytes:
            return contents.empty_storage(nbytes)
        if self._mapped is not None and not record.method:
            at = self._reader.data_at(name, record)
            if at % archive.ALIGNMENT == 0:
                view = self._mapped[at:at + nbytes]
                return flambeau.frombuffer(view, dtype=flambeau.uint8).untyped_storage()
        storage = contents.empty_storage(nbytes)
        self._reader.read_into(name, memory_of(storage), self._later)
        return storage


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None,
         **pickle_load_args):
    """Read what save wrote, here or in torch.

    With weights_only, the default, nothing in the file is run: tensors, numbers, texts and
    containers are made, and what has been named in add_safe_globals.
    """
    if weights_only is None:
        weights_only = pickle_module is None
    elif weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("f must be a file path in order to use the mmap argument")
    mover = locations.mover(map_location)
    with opened(f) as source:
        if source.size < 4 or source.read_at(0, 4) != b"PK\x03\x04":
            return _load_legacy(source, mover, weights_only, mmap, pickle_module, pickle_load_args)
        reader = archive.Reader(source, source.name)
        if "constants.pkl" in reader and "data.pkl" in reader:
            raise RuntimeError(f"load: {source.name} is a TorchScript archive: a program, not a "
                               "checkpoint; save the module's state_dict() with torch instead")
        order = reader.byte_order() if "byteorder" in reader else options.assumed_order()
        mapped = memoryview(_mapped(source)) if mmap else None
        swapped = contents.foreign_order(order)
        # Where nothing looks into tensors while they are made, their contents may come later.
        untouched = (weights_only and not swapped and map_location is None and source.together
                     and source.size > archive.LARGE)
        with archive.Later() as later:
            storages = ArchiveStorages(mover, source, reader, swapped, mapped,
                                       later if untouched else None)
            return contents.unpickled(reader.read("data.pkl"), storages, weights_only,
                                      pickle_module, pickle_load_args)


def _mapped(source) -> mapping.mmap:
    """The whole file as memory; changes to it stay in this process unless asked otherwise."""
    if os.name == "posix":
        flags = options.get_default_mmap_options()
        shared = bool(flags & mapping.MAP_SHARED)
        if not shared:
            return mapping.mmap(source.file.fileno(), 0, flags=flags,
                                prot=mapping.PROT_READ | mapping.PROT_WRITE)
        with open(source.file.name, "r+b") as writable:
            return mapping.mmap(writable.fileno(), 0, flags=flags,
                                prot=mapping.PROT_READ | mapping.PROT_WRITE)
    return mapping.mmap(source.file.fileno(), 0, access=mapping.ACCESS_COPY)


def _load_legacy(source, mover, weights_only, mmap, pickle_module, pickle_load_args):
    if mmap:
        raise RuntimeError("mmap can only be used with files saved with "
                           "`torch.save(_use_new_zipfile_serialization=True), please torch.save "
                           "your checkpoint with this option in order to use mmap.")
    if source.size > 512 and source.read_at(257, 5) == b"ustar":
        raise RuntimeError(f"load: {source.name} is in the tar format of torch before 0.1.10: load "
                           "and save it with torch first")
    if source.size and source.read_at(0, 1) != b"\x80":
        raise pickle.UnpicklingError(
            f"load: {source.name} is no checkpoint: it begins with "
            f"{source.read_at(0, min(8, source.size))!r}, neither a zip file's nor a pickle's mark")
    source.file.seek(source.start)
    return legacy.load(source, mover, weights_only, pickle_module, pickle_load_args)


def get_unsafe_globals_in_checkpoint(f) -> list[str]:
    """Names in a checkpoint that loading with weights_only would refuse."""
    with opened(f) as source:
        if source.size < 4 or source.read_at(0, 4) != b"PK\x03\x04":
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        body = archive.Reader(source, source.name).read("data.pkl")
    return contents.unsafe_names(body)
