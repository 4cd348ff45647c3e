"""How files are written and read unless a call says otherwise."""

from __future__ import annotations

import enum
import mmap
import sys


class LoadEndianness(enum.Enum):
    """The byte order of files that do not say theirs."""

    NATIVE, LITTLE, BIG = 1, 2, 3


class _Options:
    sums = True
    order: LoadEndianness | None = None
    mapping = getattr(mmap, "MAP_PRIVATE", 2)


def get_crc32_options() -> bool:
    """Whether save computes the checksums of storages."""
    return _Options.sums


def set_crc32_options(compute_crc32: bool) -> None:
    """Set whether save computes the checksums of storages, by which load finds damage."""
    _Options.sums = bool(compute_crc32)


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order assumed of files that do not say theirs."""
    return _Options.order


def set_default_load_endianness(endianness) -> None:
    """Set the byte order assumed of files that do not say theirs."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _Options.order = endianness


def assumed_order() -> str:
    """"little" or "big", for a file that does not say."""
    return {LoadEndianness.NATIVE: sys.byteorder, LoadEndianness.BIG: "big"}.get(
        _Options.order, "little")  # type: ignore[arg-type]


def get_default_mmap_options() -> int:
    """The flags with which load(mmap=True) maps files."""
    return _Options.mapping


class set_default_mmap_options:
    """Set the flags with which load(mmap=True) maps files; as a context, for its block only."""

    def __init__(self, flags: int):
        known = getattr(mmap, "MAP_PRIVATE", 2), getattr(mmap, "MAP_SHARED", 1)
        if flags not in known:
            raise ValueError("Invalid argument in function set_default_mmap_options, expected "
                             f"mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got {flags}")
        self._before, _Options.mapping = _Options.mapping, flags

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _Options.mapping = self._before
