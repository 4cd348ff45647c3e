"""Object code into the process, without LLVM's linker.

For x86-64 LLVM is asked for code that may lie anywhere: every address in it is a whole word, so
that sections are copied, words are written, and that is all. LLVM's linker would keep the object
and all it knows of it for good, which is more than twice the code. An object of another form is
left to that linker.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

_HEADER, _WORD = Struct("<16sHHIQQQIHHHHHH"), Struct("<Q")
_SECTION, _SYMBOL, _RELOCATION = Struct("<IIQQQQIIQQ"), Struct("<IBBHQQ"), Struct("<QQq")
_OURS = b"\x7fELF\x02\x01\x01", 1, 62, _SECTION.size    # 64 bits; to be linked; x86-64
#: kinds of sections; the last says how frames are unwound, which nobody does here
_PROGRAM, _SYMBOLS, _ADDENDS, _ZEROS, _UNWINDING = 1, 2, 4, 8, 0x70000001
_WRITTEN, _THERE, _OF_THREADS = 1, 2, 0x400             # flags of sections
_ABSOLUTE, _RELATIVE = 1, 24    # a word is an address, or how far that is from the word
_RESERVED = 0xff00              # from here on, what stands for a symbol's section is none
_READ_AND_RUN = 1 | 4
#: bytes that are asked of the system at once; it gives pages as they are used
_ROOM = 1 << 20


class Unfit(Exception):
    """An object that LLVM's linker has to load."""


class Section(NamedTuple):
    """What an object says of a piece of itself."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    about: int
    align: int
    each: int

    def rows(self, code: bytes, row: Struct) -> Iterator[tuple]:
        return row.iter_unpack(memoryview(code)[self.offset:self.offset + self.size])

    def is_there(self, written: int) -> bool:
        """Whether it is part of what runs, and of what is written then, or of what is not."""
        if not self.flags & _THERE or self.kind == _UNWINDING:
            return False
        if self.kind not in (_PROGRAM, _ZEROS) or self.flags & _OF_THREADS:
            raise Unfit
        return self.flags & _WRITTEN == written


def sections_of(code: bytes) -> list[Section]:
    """The sections of an object; Unfit if it is none of ours."""
    if len(code) < _HEADER.size:
        raise Unfit
    identity, kind, machine, _, _, _, start, _, _, _, _, size, count, _ = _HEADER.unpack_from(code)
    if (identity[:7], kind, machine, size) != _OURS:
        raise Unfit
    table = memoryview(code)[start:start + count * size]
    return [Section(*row) for row in _SECTION.iter_unpack(table)]


class Loader:
    """Puts objects into memory."""

    def __init__(self, find: Callable[[str], int | None]):
        self._find = find           # where something is that an object does not define
        self._next = self._end = 0

    @staticmethod
    def is_possible() -> bool:
        return hasattr(mmap, "MAP_PRIVATE") and hasattr(ctypes.pythonapi, "mprotect")

    def load(self, code: bytes) -> dict[str, int]:
        """Where what an object defines for others is, by name."""
        sections = sections_of(code)
        places: dict[int, tuple[int, int]] = {}     # of a section: its piece, and where in that
        images = [_side_by_side(code, sections, written, places) for written in (0, _WRITTEN)]
        symbols = self._symbols(code, sections, places)
        starts = [self._take(len(image)) for image in images]
        at = {k: starts[piece] + offset for k, (piece, offset) in places.items()}
        addresses = [at[where] + value if where else value for _, where, value in symbols]
        for section in sections:
            if section.kind == _ADDENDS and section.about in at:
                piece, offset = places[section.about]
                _relocate(images[piece], offset, at[section.about],
                          section.rows(code, _RELOCATION), addresses)
        for start, image in zip(starts, images, strict=True):
            ctypes.memmove(start, bytes(image), len(image))
        _protect(starts[0], len(images[0]))
        return {name: address for (name, where, _), address in zip(symbols, addresses, strict=True)
                if name and where}

    def _symbols(self, code: bytes, sections, places) -> list[tuple[str, int, int]]:
        """Of each symbol its name if others may know it, its section, and where it is there; what
        the object does not define is found, and in no section."""
        table = next((s for s in sections if s.kind == _SYMBOLS), None)
        if table is None:
            raise Unfit
        names, found = sections[table.link].offset, []
        for number, (name, info, _, where, value, _) in enumerate(table.rows(code, _SYMBOL)):
            called = code[names + name:code.index(b"\0", names + name)].decode()
            if where in places:
                found.append((called if info >> 4 else "", where, value))
            elif where or not number or not info >> 4:  # a file, or a section that is left out
                if _RESERVED <= where < 0xfff1 or where > 0xfff1:
                    raise Unfit
                found.append(("", 0, value))
            else:
                address = self._find(called)
                if address is None:
                    raise Unfit
                found.append(("", 0, address))
        return found

    def _take(self, size: int) -> int:
        """The address of whole pages."""
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if self._end - self._next < size:
            room = mmap.mmap(-1, max(_ROOM, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # It is never returned: objects that end when Python does still run what is in it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(room))
            self._next = ctypes.addressof(ctypes.c_char.from_buffer(room))
            self._end = self._next + len(room)
        self._next += size
        return self._next - size


def _side_by_side(code: bytes, sections: list[Section], written: int, places) -> bytearray:
    """Sections as they will be in memory, before addresses are known."""
    image = bytearray()
    for k, section in enumerate(sections):
        if section.is_there(written):
            image += bytes(-len(image) % max(1, section.align))
            places[k] = int(bool(written)), len(image)
            image += bytes(section.size) if section.kind == _ZEROS else (
                code[section.offset:section.offset + section.size])
    return image


def _relocate(image: bytearray, offset: int, at: int, rows, addresses: list[int]) -> None:
    """Write addresses into a section."""
    put = _WORD.pack_into
    for where, info, more in rows:
        value = addresses[info >> 32] + more
        kind = info & 0xffffffff
        if kind == _RELATIVE:
            value -= at + where
        elif kind != _ABSOLUTE:
            raise Unfit
        put(image, offset + where, value & 0xffffffffffffffff)


def _protect(start: int, size: int) -> None:
    """Let pages be run, and written no more."""
    if size and ctypes.pythonapi.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size),
                                          _READ_AND_RUN):
        raise RuntimeError("the system does not let machine code run that was just made")
