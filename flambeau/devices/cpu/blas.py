"""OpenBLAS in the process: found beside scipy_openblas32, loaded once, one thread.

One thread, because products are split into tiles by callers: two pools would fight for the cores.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os

PREFIX = "scipy_"


@functools.cache
def openblas() -> ctypes.CDLL:
    """The shared library, BLAS and LAPACK, with symbols that start with PREFIX."""
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("matrix products need the package scipy-openblas32: "
                          "pip install scipy-openblas32")
    folder = os.path.join(next(iter(spec.submodule_search_locations)), "lib")
    found = sorted(name for name in os.listdir(folder) if "scipy_openblas" in name
                   and name.endswith((".so", ".dylib", ".dll")))
    if not found:
        raise ImportError(f"scipy-openblas32 is installed without its library in {folder}")
    library = ctypes.CDLL(os.path.join(folder, found[0]))
    getattr(library, f"{PREFIX}openblas_set_num_threads")(1)
    return library


def symbol(name: str):
    """A function of OpenBLAS by its plain name."""
    return getattr(openblas(), PREFIX + name)


def address(name: str) -> int:
    return ctypes.cast(symbol(name), ctypes.c_void_p).value or 0
