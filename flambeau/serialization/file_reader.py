"""The records of a checkpoint one by one, for programs that read some of a file only."""

from __future__ import annotations

from typing import Any

import flambeau

from . import archive, sources

__all__ = ["PyTorchFileReader"]


class PyTorchFileReader:
    """A checkpoint, by its path or as a file, open for reading its records by name."""

    def __init__(self, name_or_buffer: Any):
        self._source = sources.opened(name_or_buffer)
        self._reader = archive.Reader(self._source, self._source.name)

    def has_record(self, name: str) -> bool:
        """Whether there is a record of this name."""
        return name in self._reader

    def get_all_records(self) -> list[str]:
        """The names of all records."""
        return [name.partition("/")[2] for name in self._reader.records]

    def get_record(self, name: str) -> bytes:
        """The bytes of a record."""
        return self._reader.read(name)

    def get_record_offset(self, name: str) -> int:
        """Where in the file the bytes of a record begin."""
        return self._reader.data_at(name, self._reader.find(name))

    def get_record_size(self, name: str) -> int:
        """How many bytes a record has."""
        return self._reader.find(name).size

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> flambeau.Tensor:
        """A tensor of no elements over a record; `dtype` may be a kind of storage."""
        kind = dtype if isinstance(dtype, flambeau.dtype) else flambeau.uint8
        storage = flambeau.UntypedStorage(numel * kind.itemsize)
        memory = flambeau.empty(0, dtype=flambeau.uint8).set_(storage)
        self._reader.read_into(name, memoryview(memory.numpy()))  # type: ignore[arg-type]
        return flambeau.empty(0, dtype=kind).set_(storage, 0, (0,))

    def serialization_id(self) -> str:
        """What the writer of a file calls it."""
        name = ".data/serialization_id"
        return self.get_record(name).decode() if self.has_record(name) else ""
