"""How addresses are written into object code, by processor: see elf.py.

For x86-64 LLVM is asked for code in which every address is a whole word. For AArch64 it makes most
of an address's four quarters in as many instructions; but it calls others as if they were near, and
finds some through a table. So whatever is called or looked up so gets an entry behind the code,
which is both: a jump to an address, and that address.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple

_WORD, _INSTRUCTION, ENTRY = Struct("<Q"), Struct("<I"), Struct("<IIQ")
_ALL = 0xffffffffffffffff


class Unfit(Exception):
    """An object that LLVM's linker has to load."""


class Machine(NamedTuple):
    """A processor: its number in objects, the kinds of relocation that may need an entry, and what
    writes a section's relocations: (image, where that section begins in it and in memory, rows of
    place, kind and addend, addresses of symbols, addresses of entries by symbol)."""

    number: int
    outside: frozenset[int]     # if a symbol is defined elsewhere
    always: frozenset[int]
    write: Callable[[bytearray, int, int, Iterable, list[int], dict[int, int]], None]

    def entries(self, rows: Iterable, elsewhere: Callable[[int], bool]) -> Iterable[int]:
        """The symbols that need one."""
        for _, info, _ in rows:
            kind = info & 0xffffffff
            if kind in self.always or (kind in self.outside and elsewhere(info >> 32)):
                yield info >> 32


# -- x86-64: a word is an address, or how far that is from the word --------------------------------

_X86_ABSOLUTE, _X86_RELATIVE = 1, 24


def _write_x86(image, offset, at, rows, addresses, entries) -> None:
    put = _WORD.pack_into
    for where, info, more in rows:
        value = addresses[info >> 32] + more
        kind = info & 0xffffffff
        if kind == _X86_RELATIVE:
            value -= at + where
        elif kind != _X86_ABSOLUTE:
            raise Unfit
        put(image, offset + where, value & _ALL)


# -- AArch64 ---------------------------------------------------------------------------------------

_ABSOLUTE, _RELATIVE = 257, 260
_QUARTERS = {263: 0, 264: 0, 265: 16, 266: 16, 267: 32, 268: 32, 269: 48}   # kind -> bits below it
_CALLS = frozenset((282, 283))      # jumps and calls of 128 MB to each side
_REACH = 1 << 27
_PAGE, _IN_PAGE = 311, 312          # of an entry: its page of 4 KB, and where its word is in that
_JUMP = 0x58000050, 0xd61f0200      # ldr x16, the word after the next instruction; br x16
_TO_WORD = 8


def entry_aarch64(address: int) -> bytes:
    """A jump to an address, and that address."""
    return ENTRY.pack(*_JUMP, address & _ALL)


def _write_aarch64(image, offset, at, rows, addresses, entries) -> None:
    for where, info, more in rows:
        symbol, kind = info >> 32, info & 0xffffffff
        place, value = at + where, addresses[symbol] + more
        if kind in (_ABSOLUTE, _RELATIVE):
            word = value - place if kind == _RELATIVE else value
            _WORD.pack_into(image, offset + where, word & _ALL)
            continue
        if more and symbol in entries:
            raise Unfit
        told, = _INSTRUCTION.unpack_from(image, offset + where)
        told = _instruction(told, kind, place, value, entries.get(symbol, value))
        _INSTRUCTION.pack_into(image, offset + where, told)


def _instruction(told: int, kind: int, place: int, value: int, entry: int) -> int:
    """An instruction with an address, or a part of it."""
    if kind in _QUARTERS:
        return told & ~(0xffff << 5) | (value >> _QUARTERS[kind] & 0xffff) << 5
    if kind in _CALLS:
        far = value - place
        if not -_REACH <= far < _REACH:
            far = entry - place
        if not -_REACH <= far < _REACH:
            raise Unfit
        return told & 0xfc000000 | far >> 2 & 0x3ffffff
    if kind == _PAGE:
        pages = (entry + _TO_WORD >> 12) - (place >> 12)
        return told & 0x9f00001f | (pages & 3) << 29 | (pages >> 2 & 0x7ffff) << 5
    if kind == _IN_PAGE:
        return told & ~(0xfff << 10) | (entry + _TO_WORD & 0xff8) << 7
    raise Unfit


#: by what the system calls them
MACHINES = {
    "x86_64":  Machine(62, frozenset(), frozenset(), _write_x86),
    "aarch64": Machine(183, _CALLS, frozenset((_PAGE, _IN_PAGE)), _write_aarch64),
}  # fmt: skip


def this_machine() -> Machine | None:
    """The processor we run on, if objects for it can be loaded."""
    return MACHINES.get(os.uname().machine) if hasattr(os, "uname") else None


def _nothing(start: int, size: int) -> None:
    """Processors that see by themselves what is written where they run."""


def forgetting(machine: Machine | None) -> Callable[[int, int], None] | None:
    """What makes the processor forget what it knows of instructions at an address, where others
    have been written; None where that is needed and cannot be done."""
    if machine is None or machine is MACHINES["x86_64"]:
        return _nothing if machine else None
    for name in (None, "libgcc_s.so.1"):
        try:
            clear = getattr(ctypes.CDLL(name), "__clear_cache")
        except (OSError, AttributeError):
            continue
        clear.restype, clear.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
        return lambda start, size: clear(start, start + size)
    return None
