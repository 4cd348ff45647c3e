"""The C library's functions that code calls by name, and where systems keep them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

from ..libm import LIBM

#: Windows: what LLVM and generated code call without a word, which nothing there resolves for them,
#: and where it is; some functions have an underscore before their names
_WINDOWS = {
    "ucrtbase": tuple(name + end for name in LIBM for end in ("", "f")),
    "msvcrt":   ("memcpy", "memmove", "memset", "malloc", "free"),
    "ntdll":    ("__chkstk",),
}  # fmt: skip


def c_functions() -> Iterator[tuple[str, int]]:
    """Names, and where the code of each is."""
    if sys.platform == "win32":
        for source, names in _WINDOWS.items():
            library = ctypes.CDLL(source)
            for name in names:
                found = getattr(library, name, None) or getattr(library, f"_{name}", None)
                if found is not None:
                    yield name, ctypes.cast(found, ctypes.c_void_p).value or 0
        return
    library = ctypes.CDLL(None)
    for name in LIBM:
        for spelled in (name, name + "f"):
            yield spelled, ctypes.cast(getattr(library, spelled), ctypes.c_void_p).value or 0
