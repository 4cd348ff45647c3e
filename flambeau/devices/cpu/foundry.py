"""Routines of the assembly folder as Python callables: from disk, or written and compiled now."""

from __future__ import annotations

import functools
import importlib

from . import threads
from .bridge import building, function_at, jit
from .compile import ADDRESSES
from .objects import SOURCES, cache

#: files whose code LLVM's usual passes make no faster: they take a fifth of the time to compile
LIGHT = frozenset(("choices", "fills", "tries", "twister"))
_LIGHT_PASSES = ("sroa", "instruction_combine", "simplify_cfg", "new_gvn", "loop_rotate",
                 "instruction_combine", "simplify_cfg", "global_dead_code_eliminate")


def _lightly(text: str) -> bytes:
    """Object code of a module whose variables become registers, and little more is done."""
    j = jit()
    with building:
        module = j.llvm.parse_assembly(text)
        module.triple, module.data_layout = j.machine.triple, str(j.machine.target_data)
        builder = j.llvm.create_pass_builder(
            j.machine, j.llvm.create_pipeline_tuning_options(speed_level=1))
        passes = j.llvm.create_new_module_pass_manager()
        for name in _LIGHT_PASSES:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, builder)
        return j.machine.emit_object(module)


def _loaded(key: str, names: list[str], file: str, written) -> list[int]:
    """Where functions are, of code from disk or compiled now."""
    store = cache()
    code = store.get(key)
    if code is None:
        code = _lightly(written()) if file in LIGHT else jit().compile(written(), True)
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
