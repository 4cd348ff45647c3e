"""Where Python's own objects keep what native code reads of them, by releases of Python.

Object code is kept on disk for one release, see objects.py, so it may have these numbers in it.
"""

from __future__ import annotations

import ctypes
import sys
from sys import getrefcount

#: fields of every object
REFERENCES, TYPE = 0, 8
#: of a list and of a tuple: how many items; of a list, where the address of its items is
SIZE, LIST_ITEMS = 16, 24
#: where a tuple's items start: from 3.14 on after a hash
TUPLE_ITEMS = tuple.__basicsize__

if sys.byteorder != "little" or sys.maxsize < 1 << 62:
    raise ImportError("flambeau makes code for processors of 64 bits that keep a number's lowest "
                      f"byte first; here numbers are {sys.byteorder}-endian, and sizes of "
                      f"{sys.maxsize.bit_length() + 1} bits.")
if object.__basicsize__ != SIZE:
    raise ImportError(
        f"flambeau knows objects of CPython with the usual head of {SIZE} bytes; those of this "
        f"Python have {object.__basicsize__} ({sys.version}). Builds without the GIL, or with "
        "debugging of references, are such: use the usual build of the same version.")


def _named() -> int:
    thing = object()
    return getrefcount(thing)


#: what getrefcount counts of an object that one local name has: the name and the argument, or, from
#: 3.14 on, the name alone, from which the argument is borrowed
NAMED = _named()


def _word(thing, at: int) -> int:
    return ctypes.c_int64.from_address(id(thing) + at).value


#: an integer: where its digits are, of so many bits in a half word each, after a word that says how
#: many they are; what that word is for zero, and for positive integers of one digit and of two
DIGITS, DIGIT = SIZE + 8, sys.int_info.bits_per_digit
NO_DIGIT, ONE_DIGIT, TWO_DIGITS = (_word(n, SIZE) for n in (0, 1, 1 << DIGIT))
if sys.int_info.sizeof_digit != 4 or _word((3 << DIGIT) + 5, DIGITS) != (3 << 32) + 5:
    raise ImportError("flambeau knows integers of CPython whose digits have 30 bits each; those of "
                      f"this Python are others: {sys.int_info}.")
