"""The register tile and the cache blocks of the machine that code is generated for."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys

from ....core.record import Record
from ..bridge import jit
from ..registers import tile_shape

#: accumulator dtype -> LLVM type, bytes
ELEMENT = {"float32": ("float", 4), "float64": ("double", 8)}


class Tile(Record):
    """The largest tile of a dtype: rows, vectors, lanes of a vector and columns in all."""

    dtype: str
    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def pitch(self) -> int:
        """Elements from one k to the next in a panel of as many rows."""
        whole = -(-self.rows // self.lanes) * self.lanes
        return self.rows if self.rows <= self.lanes else whole

    @property
    def element(self) -> str:
        return ELEMENT[self.dtype][0]

    @property
    def size(self) -> int:
        return ELEMENT[self.dtype][1]

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.element}>"


#: the sums of four tiles of AMX: see amx.py. Panels of B are as wide as those of AVX-512.
AMX = Tile("float32", 32, 2, 16)
#: arch_prctl of x86-64, which is to let the process use the data of tiles
SYSTEM_CALL = (158, 0x1023, 18)


@functools.cache
def adds_pairs() -> bool:
    """Whether an instruction adds products of pairs of bfloat16 to sums: see pairs.py."""
    return jit().bits == 512 and "avx512bf16" in jit().linker.has


@functools.cache
def multiplies_tiles() -> bool:
    """Whether there are tiles of bfloat16, see amx.py, and the system lets us use them."""
    if not (jit().bits == 512 and {"amx-tile", "amx-bf16"} <= jit().linker.has
            and sys.platform == "linux"):
        return False
    return ctypes.CDLL(None).syscall(*map(ctypes.c_long, SYSTEM_CALL)) == 0


@functools.cache
def host_tile(dtype: str) -> Tile:
    """The tile that suits this machine's registers."""
    shape = tile_shape()
    return Tile(dtype, shape.rows, shape.vectors, jit().bits // 8 // ELEMENT[dtype][1])


#: where Linux tells of the caches of a core
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
#: and what macOS calls them, by level
_SYSCTL = {"1": b"hw.l1dcachesize", "2": b"hw.l2cachesize"}


def _cache_bytes(level: str, default: int) -> int:
    """The size of a core's cache for data, by what the system says of it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if sys.platform == "darwin":
            size, room = ctypes.c_int64(), ctypes.c_size_t(8)
            found = ctypes.CDLL(None).sysctlbyname(
                _SYSCTL[level], ctypes.byref(size), ctypes.byref(room), None, ctypes.c_size_t(0))
            return default if found else size.value or default
        for name in os.listdir(_CACHES):
            if name.startswith("index"):
                told = [_told(f"{_CACHES}/{name}/{fact}") for fact in ("level", "type", "size")]
                if told[0] == level and told[1] in ("Data", "Unified"):
                    return int(told[2].removesuffix("K")) << 10
    return default


def _told(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()


@functools.cache
def caches() -> tuple[int, int]:
    """Bytes of a core's first and second level of cache for data."""
    return max(1 << 14, _cache_bytes("1", 1 << 15)), max(1 << 17, _cache_bytes("2", 1 << 19))
