"""Order, places and counts as machine code (assembly/): which routine, and the memory it needs."""

from __future__ import annotations

import functools

from ...core.lazily import np
from .assembly.limits import SLOTS, room_for_best, room_for_rank, room_for_sort
from .foundry import machine_code


@functools.cache
def _routine(file: str, name: str, dtype: str):
    symbol = f"{name}_{dtype}"
    return machine_code(file, (symbol,), name, dtype)[symbol]


def sorting(dtype: str, n: int, total: int, name: str = "sort"):
    """(routine, bytes it needs beside) for rows of n elements."""
    return _routine("ordering", name, dtype), room_for_sort(n) * min(total // n, SLOTS)


def best(dtype: str, n: int, k: int, total: int):
    """(routine, bytes it needs beside, bytes for one part) for the k best of rows."""
    slot = room_for_best(k, WIDE[dtype])
    symbol = f"topk_{dtype}"
    return machine_code("selection", (symbol,), dtype)[symbol], slot * min(total // n, SLOTS), slot


def ranked(name: str, dtype: str, n: int, total: int):
    """The same for one element by its rank."""
    slot = room_for_rank(n, WIDE[dtype])
    return _routine("ranks", name, dtype), slot * min(total // n, SLOTS), slot


#: dtype -> whether its elements are as wide as their places
WIDE = {"bool": False, "uint8": False, "int8": False, "int16": False, "int32": False,
        "int64": True, "float16": False, "bfloat16": False, "float32": False, "float64": True}


def distinct(name: str, dtype: str, n: int):
    """(routine, bytes it needs beside) for distinct values, or for runs of equal neighbours."""
    bytes_ = room_for_sort(n, short=0) if name == "distinct" else 0
    return _routine("distinct", name, dtype), bytes_


@functools.cache
def places(dtype: str):
    symbol = f"places_{dtype}"
    return machine_code("search", (symbol,), dtype)[symbol]


@functools.cache
def counting(dtype: str):
    """The largest of integers, -1 if one is negative; how often each occurs."""
    names = (f"largest_{dtype}", f"bincount_{dtype}")
    found = machine_code("tallies", names, dtype)
    return tuple(found[name] for name in names)


@functools.cache
def histogram(dtype: str):
    symbol = f"histogram_{dtype}"
    return machine_code("tallies", (symbol,), dtype)[symbol]


@functools.cache
def masks() -> dict:
    """How many a mask holds of, which elements, which places."""
    names = ("mask_count", *(f"mask_take_{size}" for size in (1, 2, 4, 8, 16)), "mask_take_rows",
             "mask_places", *(f"mask_put_{size}" for size in (1, 2, 4, 8, 16)))
    return machine_code("masks", names)


# -- of arrays -----------------------------------------------------------------------------------


def sorted_rows(x, falling: bool = False):
    """Each row (of the last dimension) in stable order, and where its elements came from."""
    x = np.ascontiguousarray(x)
    values, order, n = np.empty_like(x), np.empty(x.shape, np.int64), x.shape[-1]
    run, bytes_ = sorting(x.dtype.name, n, x.size)
    scratch = np.empty(bytes_, np.uint8)
    run(x.ctypes.data, values.ctypes.data, order.ctypes.data, scratch.ctypes.data, n, 1,
        -int(falling), x.size)
    return values, order
