"""Tensors in safetensors files: a table in JSON, then the elements; there is nothing to run.

The names are those of the safetensors package: save_file, load_file, save, load, safe_open.
What a table says is compared with the file before anything is allocated.
"""

from __future__ import annotations

import io
import json
import os
from math import prod
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor, nn
from flambeau.serialization.atomic import replacing
from flambeau.serialization.pickler import memory_of
from flambeau.serialization.sources import Source, opened

__all__ = ["SafetensorError", "load", "load_file", "load_model", "safe_open", "save", "save_file",
           "save_model"]

MOST_HEADER_BYTES = 100_000_000
_ALIGNMENT = 8
_METADATA = "__metadata__"
#: names of dtypes in files; the file has the widest first
DTYPES = {
    "C64": flambeau.complex64, "F64": flambeau.float64, "I64": flambeau.int64,
    "U64": flambeau.uint64, "F32": flambeau.float32, "I32": flambeau.int32,
    "U32": flambeau.uint32, "F16": flambeau.float16, "BF16": flambeau.bfloat16,
    "I16": flambeau.int16, "U16": flambeau.uint16, "I8": flambeau.int8, "U8": flambeau.uint8,
    "BOOL": flambeau.bool,
}  # fmt: skip
_CODES = {dtype: code for code, dtype in DTYPES.items()}


class SafetensorError(Exception):
    """The file is no safetensors file, or is damaged."""


class Entry(NamedTuple):
    """A tensor of a file: what it is, and where its bytes are after the table."""

    dtype: flambeau.dtype
    shape: tuple[int, ...]
    start: int
    end: int


# -- writing -------------------------------------------------------------------------------------


def save_file(tensors: dict[str, Tensor], filename, metadata: dict[str, str] | None = None) -> None:
    """Write tensors to a file, which is replaced as a whole."""
    header, data = _prepared(tensors, metadata)
    with replacing(filename) as output:
        output.write(header)
        for x in data:
            output.write(_bytes_of(x))


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a file with these tensors."""
    header, data = _prepared(tensors, metadata)
    return b"".join([header, *map(_bytes_of, data)])


def _prepared(tensors, metadata) -> tuple[bytes, list[Tensor]]:
    """(the table with its length, the tensors in the order of the file)"""
    _check_tensors(tensors)
    order = list(DTYPES)
    names = sorted(tensors, key=lambda name: (order.index(_CODES[tensors[name].dtype]), name))
    table: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise TypeError("save_file: metadata is a dictionary of texts to texts")
        table[_METADATA] = metadata
    at = 0
    for name in names:
        x = tensors[name]
        table[name] = {"dtype": _CODES[x.dtype], "shape": list(x.shape),
                       "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, [tensors[name].detach() for name in names]


def _check_tensors(tensors) -> None:
    if not isinstance(tensors, dict):
        raise ValueError(f"save_file: expected a dictionary of tensors, got {type(tensors)}")
    places: dict[int, str] = {}
    for name, x in tensors.items():
        if not isinstance(name, str) or name == _METADATA:
            raise ValueError(f"save_file: {name!r} cannot be the name of a tensor")
        if not isinstance(x, Tensor):
            raise ValueError(f"save_file: {name!r} is no tensor but {type(x).__name__}")
        if x.dtype not in _CODES:
            raise ValueError(f"save_file: {name!r} has dtype {x.dtype}, which the format does not "
                             f"have; it has {', '.join(map(str, _CODES))}")
        if not x.is_contiguous():
            raise ValueError(f"save_file: {name!r} is not contiguous, and the format has no "
                             "strides: call .contiguous() first")
        other = places.setdefault(x.untyped_storage().data_ptr(), name) if x.nbytes else name
        if other != name:
            raise RuntimeError(f"save_file: {other!r} and {name!r} share memory, and the format "
                               "cannot say so: clone() one of them, or use save_model")


def _bytes_of(x: Tensor):
    start = x.storage_offset() * x.element_size()
    return memory_of(x.untyped_storage())[start:start + x.nbytes]


# -- reading -------------------------------------------------------------------------------------


def _once(pairs) -> dict:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise SafetensorError("Error while deserializing header: a key stands twice")
    return found


def _read_table(source: Source) -> tuple[dict[str, Entry], dict[str, str] | None, int]:
    """(tensors, metadata, where the elements begin)"""
    if source.size < 8:
        raise SafetensorError(f"{source.name}: Error while deserializing header: HeaderTooSmall: "
                              f"the file has {source.size} bytes")
    length = int.from_bytes(source.read_at(0, 8), "little")
    if length > MOST_HEADER_BYTES:
        raise SafetensorError(f"{source.name}: Error while deserializing header: HeaderTooLarge: "
                              f"{length} bytes")
    if 8 + length > source.size:
        raise SafetensorError(f"{source.name}: Error while deserializing header: "
                              f"InvalidHeaderLength: {length} bytes in a file of {source.size}")
    try:
        table = json.loads(source.read_at(8, length).decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise SafetensorError(f"{source.name}: Error while deserializing header: InvalidHeader: "
                              f"{error!s:.200}") from error
    if not isinstance(table, dict):
        raise SafetensorError(f"{source.name}: InvalidHeader: the table is no dictionary")
    metadata = table.pop(_METADATA, None)
    if metadata is not None and not (isinstance(metadata, dict) and all(
            isinstance(text, str) for text in metadata.values())):
        raise SafetensorError(f"{source.name}: InvalidHeader: metadata is not texts by names")
    entries = {name: _entry(source, name, given) for name, given in table.items()}
    _check_cover(source, entries, source.size - 8 - length)
    return entries, metadata, 8 + length


def _entry(source: Source, name: str, given) -> Entry:
    try:
        code, shape, (start, end) = given["dtype"], given["shape"], given["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise SafetensorError(f"{source.name}: InvalidHeader: {name!r:.100} lacks {error}") from (
            error)
    if code not in DTYPES:
        raise SafetensorError(f"{source.name}: {name!r:.100} has dtype {code!r:.50}, which is not "
                              f"known here; known are {', '.join(DTYPES)}")
    if not isinstance(shape, list) or len(shape) > 64 or any(
            type(n) is not int or not 0 <= n < 1 << 62 for n in (*shape, start, end)):
        raise SafetensorError(f"{source.name}: InvalidHeader: {name!r:.100} cannot have the shape "
                              f"{shape!r:.100} at {start!r:.30}..{end!r:.30}")
    if end - start != prod(shape) * DTYPES[code].itemsize:
        raise SafetensorError(f"{source.name}: TensorInvalidInfo: {name!r:.100} of shape {shape} "
                              f"and dtype {code} has {end - start} bytes")
    return Entry(DTYPES[code], tuple(shape), start, end)


def _check_cover(source: Source, entries: dict[str, Entry], room: int) -> None:
    """Refuse tensors that overlap, leave holes, or do not end where the file does."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.start != at:
            raise SafetensorError(f"{source.name}: InvalidOffset: {name!r:.100} begins at "
                                  f"{entry.start}, not at {at}: tensors overlap or leave a hole")
        at = entry.end
    if at != room:
        raise SafetensorError(f"{source.name}: MetadataIncompleteBuffer: the tensors take {at} "
                              f"bytes, the file has {room}: it is cut or has more than it says")


class safe_open:
    """A file whose tensors are read one by one, when asked for."""

    def __init__(self, filename, framework: str = "pt", device: Any = "cpu"):
        if framework not in ("pt", "torch", "pytorch", "flambeau"):
            raise SafetensorError(f"framework {framework!r}: tensors here are flambeau's, as 'pt'")
        self._device = flambeau.device(device)
        self._source = opened(filename)
        try:
            self._entries, self._metadata, self._start = _read_table(self._source)
        except BaseException:
            self._source.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._source.__exit__()

    def keys(self) -> list[str]:
        """The names, in order of the alphabet."""
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        """The names, in the order of the file."""
        return sorted(self._entries, key=lambda name: self._entries[name][2:])

    def metadata(self) -> dict[str, str] | None:
        """Texts that were saved with the tensors."""
        return self._metadata

    def _find(self, name: str) -> Entry:
        if name not in self._entries:
            raise SafetensorError(f"File does not contain tensor {name}")
        return self._entries[name]

    def get_tensor(self, name: str) -> Tensor:
        """One tensor."""
        entry = self._find(name)
        if self._device.type == "meta":
            return flambeau.empty(entry.shape, dtype=entry.dtype, device="meta")
        x = flambeau.empty(entry.shape, dtype=entry.dtype, device="cpu")
        if x.nbytes:
            self._source.read_into(self._start + entry.start, _bytes_of(x))
        return x.to(self._device)

    def get_slice(self, name: str) -> Slice:
        """A tensor of which only the rows that are asked for are read."""
        return Slice(self, name)

    def rows(self, name: str, first: int, last: int) -> Tensor:
        """Rows first .. last - 1 of a tensor."""
        entry = self._find(name)
        row = (entry.end - entry.start) // max(entry.shape[0], 1)
        x = flambeau.empty((last - first, *entry.shape[1:]), dtype=entry.dtype)
        if x.nbytes:
            self._source.read_into(self._start + entry.start + first * row, _bytes_of(x))
        return x


class Slice:
    """A tensor in a file, to be indexed: x[2:5] reads three rows, and no more."""

    def __init__(self, file: safe_open, name: str):
        self._file, self._name, self._entry = file, name, file._find(name)

    def get_shape(self) -> list[int]:
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        return _CODES[self._entry.dtype]

    def __getitem__(self, key) -> Tensor:
        parts = key if isinstance(key, tuple) else (key,)
        first = parts[0] if parts else Ellipsis
        if not self._entry.shape or not isinstance(first, slice) or first.step not in (None, 1):
            return self._file.get_tensor(self._name)[key]
        start, stop, _ = first.indices(self._entry.shape[0])
        rows = self._file.rows(self._name, start, max(start, stop))
        return rows[(slice(None), *parts[1:])]


def load_file(filename, device: Any = "cpu") -> dict[str, Tensor]:
    """All tensors of a file."""
    with safe_open(filename, "pt", device) as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}


def load(data: bytes) -> dict[str, Tensor]:
    """All tensors of a file that is in memory."""
    return load_file(io.BytesIO(data))


# -- whole modules, whose parameters may share memory --------------------------------------------


def save_model(model: nn.Module, filename: str | os.PathLike,
               metadata: dict[str, str] | None = None, force_contiguous: bool = True) -> None:
    """Write a module's state; of tensors that share memory the first is written."""
    tensors: dict[str, Tensor] = {}
    notes = dict(metadata or {})
    seen: dict[tuple, str] = {}
    for name, x in model.state_dict().items():
        place = (x.data_ptr(), tuple(x.shape), x.stride()) if x.nbytes else (name,)
        if place in seen:
            notes[name] = seen[place]
            continue
        seen[place] = name
        tensors[name] = x.contiguous() if force_contiguous else x
    save_file(tensors, filename, notes or None)


def load_model(model: nn.Module, filename: str | os.PathLike, strict: bool = True,
               device: Any = "cpu") -> tuple[list[str], list[str]]:
    """Fill a module from a file; (missing, unexpected) names."""
    with safe_open(filename, "pt", device) as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        notes = file.metadata() or {}
    state.update({name: state[source] for name, source in notes.items() if source in state})
    result = model.load_state_dict(state, strict=strict)
    return list(result.missing_keys), list(result.unexpected_keys)
