"""Machine code by key: from the cache on disk, or compiled now."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

from .bridge import building, jit
from .cache import Cache

#: where code is -> its name, what writes its text, and whether LLVM's passes go over that
SOURCES: dict[int, tuple[str, Callable[[], str], bool | str]] = {}


def stamp(*sources: str) -> str:
    """What tells whether source files have changed: as for Python's own caches, size and time.

    To read them all would take longer than to load the code that was made from them.
    """
    found = [(os.path.basename(source), os.stat(source)) for source in sources]
    return str(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in found))


@functools.cache
def cache() -> Cache:
    """The cache of this process, stamped with all that decides what code is generated."""
    j = jit()
    sources = [os.path.join(folder, name)
               for folder, _, names in os.walk(os.path.dirname(os.path.dirname(__file__)))
               for name in names if name.endswith(".py")]
    return Cache(f"{sys.implementation.cache_tag} {j.cpu} {j.features} "
                 f"llvm {j.linker.processor.version} {stamp(*sources)}")


def addresses(key: str, names, build_ir, optimise: bool | str = False) -> list[int]:
    """Where functions are, of machine code by key, compiled from `build_ir()` if not on disk."""
    found = loaded(key, names, build_ir, optimise)
    SOURCES.update(zip(found, [(name, build_ir, optimise) for name in names], strict=True))
    return found


def loaded(key: str, names, build_ir, optimise: bool | str = False) -> list[int]:
    """The same of code that nobody asks for the text of later."""
    store, j = cache(), jit()
    code = store.get(key)
    if code is None:
        code = j.compile(build_ir(), optimise)
        store.put(key, code)
    return j.load(code, *names)


def once(load: Callable[[], None]) -> Callable[[], None]:
    """What loads something, made to do so once: the first thread loads, and others wait."""
    done: list[bool] = []

    @functools.wraps(load)
    def loaded() -> None:
        if not done:
            with building:
                if not done:
                    load()
                    done.append(True)

    return loaded
