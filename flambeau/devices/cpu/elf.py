"""Object code into the process, without LLVM's linker.

LLVM is asked for code that may lie anywhere, so that sections are copied, addresses are written as
relocations.py says, and that is all. LLVM's linker would keep the object and all it knows of it for
good, which is more than twice the code. An object of another form is left to that linker.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from .relocations import ENTRY, Machine, Unfit, entry_aarch64, forgetting, this_machine

_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION, _SYMBOL, _RELOCATION = Struct("<IIQQQQIIQQ"), Struct("<IBBHQQ"), Struct("<QQq")
_OURS = b"\x7fELF\x02\x01\x01", 1, _SECTION.size    # 64 bits; to be linked
_PROGRAM, _SYMBOLS, _ADDENDS, _ZEROS = 1, 2, 4, 8       # kinds of sections
#: the section that says how frames are unwound, which nobody does here
_UNWINDING = b".eh_frame\0"
_WRITTEN, _THERE, _OF_THREADS = 1, 2, 0x400             # flags of sections
_RESERVED = 0xff00              # from here on, what stands for a symbol's section is none
_READ_AND_RUN = 1 | 4
#: bytes that are asked of the system at once; it gives pages as they are used
_ROOM = 1 << 20


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
        if not self.flags & _THERE:
            return False
        if self.kind not in (_PROGRAM, _ZEROS) or self.flags & _OF_THREADS:
            raise Unfit
        return self.flags & _WRITTEN == written


def sections_of(code: bytes, machine: Machine) -> list[Section]:
    """The sections of an object; Unfit if it is none for this machine."""
    if len(code) < _HEADER.size:
        raise Unfit
    identity, kind, number, _, _, _, start, _, _, _, _, size, count, names = _HEADER.unpack_from(
        code)
    if (identity[:7], kind, size) != _OURS or number != machine.number:
        raise Unfit
    table = memoryview(code)[start:start + count * size]
    found = [Section(*row) for row in _SECTION.iter_unpack(table)]
    first = found[names].offset
    return [s._replace(flags=0) if s.flags & _THERE and code.startswith(_UNWINDING, first + s.name)
            else s for s in found]


class Loader:
    """Puts objects into memory."""

    def __init__(self, find: Callable[[str], int | None], machine: Machine | None = None):
        self._find = find           # where something is that an object does not define
        self._machine = machine or this_machine()
        self._forget = forgetting(self._machine)
        self._next = self._end = 0

    def is_possible(self) -> bool:
        return (self._machine is not None and self._forget is not None
                and hasattr(mmap, "MAP_PRIVATE") and hasattr(ctypes.pythonapi, "mprotect"))

    def load(self, code: bytes) -> dict[str, int]:
        """Where what an object defines for others is, by name."""
        machine = self._machine
        if machine is None or self._forget is None:
            raise Unfit
        sections = sections_of(code, machine)
        places: dict[int, tuple[int, int]] = {}     # of a section: its piece, and where in that
        images = [_side_by_side(code, sections, written, places) for written in (0, _WRITTEN)]
        symbols = self._symbols(code, sections, places)
        told = [s for s in sections if s.kind == _ADDENDS and s.about in places]
        entries = _entries(machine, [s.rows(code, _RELOCATION) for s in told], symbols, images[0])
        starts = [self._take(len(image)) for image in images]
        at = {k: starts[piece] + offset for k, (piece, offset) in places.items()}
        addresses = [at[where] + value if where else value for _, where, value in symbols]
        for symbol, offset in entries.items():
            images[0][offset:offset + ENTRY.size] = entry_aarch64(addresses[symbol])
        entries = {symbol: starts[0] + offset for symbol, offset in entries.items()}
        for section in told:
            piece, offset = places[section.about]
            machine.write(images[piece], offset, at[section.about],
                          section.rows(code, _RELOCATION), addresses, entries)
        for start, image in zip(starts, images, strict=True):
            ctypes.memmove(start, bytes(image), len(image))
        if images[0]:
            _protect(starts[0], len(images[0]))
            self._forget(starts[0], len(images[0]))
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


def _entries(machine: Machine, told, symbols, image: bytearray) -> dict[int, int]:
    """Room behind the code for the entries that relocations need: where each is, by symbol."""
    if not machine.outside and not machine.always:
        return {}
    needed = dict.fromkeys(symbol for rows in told
                           for symbol in machine.entries(rows, lambda k: not symbols[k][1]))
    image += bytes(-len(image) % ENTRY.size)
    first = len(image)
    image += bytes(len(needed) * ENTRY.size)
    return {symbol: first + ENTRY.size * k for k, symbol in enumerate(needed)}


def _protect(start: int, size: int) -> None:
    """Let pages be run, and written no more."""
    if ctypes.pythonapi.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), _READ_AND_RUN):
        raise RuntimeError("the system does not let machine code run that was just made")
