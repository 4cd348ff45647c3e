"""Systems, factors and spectra of small matrices, a batch by one native call: see
assembly/systems.py. Here is what LAPACK needs: which of its routines, and how much room."""

from __future__ import annotations

import functools

from ...core.lazily import np
from .blas import address
from .bridge import jit
from .foundry import machine_code
from .lapack import call

#: the routines of LAPACK that are behind each function
_ROUTINES = {"solve": "gesv", "lu": "getrf", "exchanges": "", "least": "gelsy",
             "eigh": "syevd", "eig": "geev", "svd": "gesdd", "geqrf": "geqrf", "orgqr": "orgqr",
             "trsm": "trsm"}
_LETTERS = {"float32": "s", "float64": "d"}


@functools.cache
def system(name: str, dtype: str):
    """The callable of a name, see assembly/systems.py."""
    if _ROUTINES[name]:
        routine = f"{_LETTERS[dtype]}{_ROUTINES[name]}"
        jit().publish(f"flambeau_{routine}", address(f"{routine}_"))
    function = f"{name}_{dtype}"
    return machine_code("systems", (function,), name, dtype)[function]


@functools.cache
def qr(dtype: str):
    """The callable that finds Q and R, see assembly/reflections.py, and the lanes of its rows."""
    name = f"qr_{dtype}"
    return machine_code("reflections", (name,), dtype)[name], 8 if dtype == "float32" else 4


def _asked(routine: str, dtype: str, *args) -> int:
    """How many words LAPACK says that it wants; its arguments, up to its own memory, are given."""
    words = np.zeros(1, dtype)
    for_numbers = () if routine == "gelsy" else (np.zeros(1, np.int32),)
    asks = (-1,) if routine == "syevd" else ()
    call(routine, np.dtype(dtype), *args, words, -1, *for_numbers, *asks)
    return int(words[0])


@functools.cache
def words_for_svd(dtype: str, job: str, m: int, n: int) -> int:
    some = np.zeros(1, dtype)
    return _asked("gesdd", dtype, job, m, n, some, m, some, some, m, some,
                  n if job == "A" else min(m, n))


@functools.cache
def words_for_least(dtype: str, m: int, n: int, sides: int) -> int:
    some, order = np.zeros(1, dtype), np.zeros(1, np.int32)
    return _asked("gelsy", dtype, m, n, sides, some, m, some, max(m, n), order, some, order)


def words_for_eigh(n: int) -> tuple[int, int]:
    """(elements, numbers)"""
    return 1 + 6 * n + 2 * n * n + 32 * n, 3 + 5 * n


def words_for_eig(n: int) -> int:
    return 68 * n


def words_for_reflections(n: int) -> int:
    """Enough for blocks of 64."""
    return 64 * n
