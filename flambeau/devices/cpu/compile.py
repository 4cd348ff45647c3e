"""kernel -> a Python callable over machine code: from memory, from disk, or compiled now."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from ...core.kernel import Kernel, listing, verify
from ..switches import switch
from .bridge import function_at, jit, wrapper_ir
from .cache import Cache

#: where the kernel behind a callable is, for native code that calls it directly
ADDRESSES: dict = {}

ATTRIBUTES = '\nattributes #0 = { nounwind "no-trapping-math"="true" }\n'


@functools.cache
def cache() -> Cache:
    """The cache of this process, stamped with all that decides what code is generated."""
    j = jit()
    here = Path(__file__).parent
    sources = [here / "bridge.py", here / "gemm.py", *sorted(here.parent.glob("*.py")),
               *sorted((here.parent / "elementary").glob("*.py"))]
    generator = hashlib.sha256()
    for source in sources:
        generator.update(source.read_bytes())
    version = ".".join(map(str, j.llvm.llvm_version_info))
    return Cache(f"{j.cpu} {j.features} llvm {version} {generator.hexdigest()}")


@functools.cache
def compile_kernel(kernel: Kernel):
    """The callable that runs a kernel: pointers, params, and a count or a layout's address."""
    verify(kernel)
    if switch("FLAMBEAU_DEVICE") == "reference":
        from .. import interpreter

        return interpreter.compile_kernel(kernel)
    text = listing(kernel)
    store = cache()
    key = store.key(text)
    name = f"k_{key[:24]}"
    return load_or_build(key, name, lambda: _kernel_ir(kernel, name))


def _kernel_ir(kernel: Kernel, name: str) -> str:
    from ..llvm import param_kinds, to_ir  # not needed where all code is on disk already

    return (to_ir(kernel, name, jit().bits) + ATTRIBUTES
            + wrapper_ir(name, param_kinds(kernel), not kernel.dense))


def addresses(key: str, names, build_ir, optimise: bool = False) -> list[int]:
    """Where functions are, of machine code by key, compiled from `build_ir()` if not on disk."""
    store, j = cache(), jit()
    code = store.get(key)
    if code is None:
        code = j.compile(build_ir(), optimise)
        store.put(key, code)
    return j.load(code, *names)


def load_or_build(key: str, name: str, build_ir):
    """A callable over machine code that has a kernel of this name and its wrapper."""
    wrapper, address = addresses(key, (f"{name}_py", name), build_ir)
    function = function_at(wrapper, name)
    ADDRESSES[function] = address
    return function
