"""What the CPU answers by name: library ops, as functions of arrays.

ROUTINES take an op's parameters by name, tensors as numpy arrays, and return arrays.
NATIVE ones take the result's signature and the bound tensors, and return a tensor, or None to
leave the call to the routine. Families of routines live in files of their own and add themselves.
"""

from __future__ import annotations

import ctypes
import functools
import importlib

from ...core.lazily import np
from .bridge import wrapper_ir
from .compile import cache, load_or_build


class _Routines(dict):
    """Families are loaded when a routine is first asked for."""

    def __missing__(self, name: str):
        importlib.import_module(".library", __package__)
        if name not in self:
            raise KeyError(f"no routine answers {name}")
        return self[name]


ROUTINES: dict = _Routines()
NATIVE: dict = {}


def routine(function):
    """Decorator: answer a library op of this name."""
    ROUTINES[function.__name__.rstrip("_")] = function
    return function


def copy_bytes(address: int, array: np.ndarray) -> None:
    ctypes.memmove(address, array.ctypes.data, array.nbytes)


@functools.cache
def copier():
    """copy(to, from, bytes): memmove at a fraction of what a call through ctypes costs."""
    text = """declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
define void @copy(ptr %to, ptr %from, i64 %bytes) {
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret void
}
"""
    return load_or_build(cache().key(text), "copy", lambda: text + wrapper_ir("copy", "ppq", False))
