"""The register tile and the cache blocks of the machine that code is generated for."""

from __future__ import annotations

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


def _cache_bytes(level: str, default: int) -> int:
    try:
        return os.sysconf(f"SC_{level}_CACHE_SIZE") or default
    except (AttributeError, ValueError, OSError):
        return default


@functools.cache
def caches() -> tuple[int, int]:
    """Bytes of a core's first and second level of cache for data."""
    return (max(1 << 14, _cache_bytes("LEVEL1_DCACHE", 1 << 15)),
            max(1 << 17, _cache_bytes("LEVEL2", 1 << 19)))
