"""Routines of the assembly folder as Python callables: from disk, or written and compiled now."""

from __future__ import annotations

import functools
import importlib

from . import threads
from .bridge import LIGHTLY, function_at, jit
from .compile import ADDRESSES
from .objects import SOURCES, cache

#: files whose code LLVM's usual passes make no faster: they take a fifth of the time to compile
LIGHT = frozenset(("choices", "conv", "fills", "fourier", "gather", "player", "pool", "settle",
                   "tries", "twister", "whole_step"))


def _loaded(key: str, names: list[str], file: str, written) -> list[int]:
    """Where functions are, of code from disk or compiled now."""
    store = cache()
    code = store.get(key)
    if code is None:
        code = jit().compile(written(), LIGHTLY if file in LIGHT else True)
        store.put(key, code)
    return jit().load(code, *names)


@functools.cache
def machine_code(file: str, names: tuple[str, ...], *details) -> dict:
    """Callables by name, of the functions that assembly/<file>.py builds from details."""
    threads.publish()

    def written() -> str:
        folder = f"{__package__}.assembly"
        build = importlib.import_module(f"{folder}.{file}").build
        return importlib.import_module(f"{folder}.writer").module_text(build(*details))

    key = cache().key(f"{file} {names} {details}")
    found = _loaded(key, [*(f"{name}_py" for name in names), *names], file, written)
    made = {name: function_at(at, name) for name, at in zip(names, found, strict=False)}
    ADDRESSES.update(zip(made.values(), found[len(names):], strict=True))
    SOURCES.update(zip(found[len(names):], [(name, written, True) for name in names], strict=True))
    return made
