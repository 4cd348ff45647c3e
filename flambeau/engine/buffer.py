"""The buffer protocol: `memoryview(tensor)`, and whatever takes bytes-like objects, see its memory.

From Python 3.12 on a class says so by `__buffer__`; before, the slot of the type is filled by hand.
"""

from __future__ import annotations

import ctypes
import sys

from ..devices.cpu.bridge import BUFFER_OF
from ..devices.cpu.memory import getbuffer
from .tensor import Tensor

_AS_BUFFER = 160  # where a type has its table of buffer functions, of which the first gets one


def _array_of(x: Tensor):
    """The array over a tensor's memory that is shown; BufferError where there is none."""
    try:
        return x.numpy()
    except (RuntimeError, TypeError) as error:
        raise BufferError(f"memoryview: {error}") from None


def install() -> None:
    if sys.version_info >= (3, 12):
        Tensor.__buffer__ = lambda self, flags: memoryview(_array_of(self))
        return
    BUFFER_OF.value = id(_array_of)
    table = ctypes.c_void_p.from_address(id(Tensor) + _AS_BUFFER).value or 0
    ctypes.c_void_p.from_address(table).value = getbuffer
