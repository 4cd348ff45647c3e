"""What the CPU answers by name: library ops, as functions of arrays.

ROUTINES take an op's parameters by name, tensors as numpy arrays, and return arrays.
NATIVE ones take the result's signature and the bound tensors, and return a tensor, or None to
leave the call to the routine. Families of routines live in files of their own and add themselves.
"""

from __future__ import annotations

import functools
import importlib

from ...core.lazily import np
from .bridge import fast_function, unwatched, wrapper_ir
from .compile import load_or_build
from .objects import addresses, cache


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
    """An array's elements, which lie one after the other, to an address; nobody is told of it."""
    _quiet_copier()(address, data_reader()(array), array.nbytes)


@functools.cache
def _quiet_copier():
    return unwatched(copier())


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


@functools.cache
def data_reader():
    """data_of(array): the address of an array's elements, a word of numpy's object after its head.

    numpy itself tells it in twenty times the time.
    """
    text = f"""declare ptr @PyLong_FromSsize_t(i64)
define ptr @data_of(ptr %self, ptr %args, i64 %count) {{
  %array = load ptr, ptr %args
  %at = getelementptr i8, ptr %array, i64 {object.__basicsize__}
  %data = load i64, ptr %at
  %answer = call ptr @PyLong_FromSsize_t(i64 %data)
  ret ptr %answer
}}
"""
    return fast_function(*addresses(cache().key(text), ("data_of",), lambda: text), "data_of")
