"""kernel -> a Python callable over machine code: from memory, from disk, or compiled now."""

from __future__ import annotations

import functools

from ...core.kernel import Kernel, listing, param_kinds, verify
from ..switches import switch
from . import memory, threads
from .bridge import function_at, jit, wrapper_ir
from .objects import addresses, cache

__all__ = ["ADDRESSES", "KERNELS", "addresses", "cache", "compile_kernel", "load_or_build",
           "memory"]

#: the kernel behind a callable
KERNELS: dict = {}

#: where the kernel behind a callable is, for native code that calls it directly
ADDRESSES: dict = {}

ATTRIBUTES = '\nattributes #0 = { nounwind "no-trapping-math"="true" }\n'


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
    function = load_or_build(key, name, lambda: _kernel_ir(kernel, name))
    KERNELS[function] = kernel
    return function


def _kernel_ir(kernel: Kernel, name: str) -> str:
    from ..llvm import to_ir  # not needed where all code is on disk already

    return (to_ir(kernel, name, jit().bits) + ATTRIBUTES
            + wrapper_ir(name, param_kinds(kernel), not kernel.dense))


def load_or_build(key: str, name: str, build_ir):
    """A callable over machine code that has a kernel of this name and its wrapper."""
    threads.publish()
    wrapper, address = addresses(key, (f"{name}_py", name), build_ir)
    function = function_at(wrapper, name)
    ADDRESSES[function] = address
    return function
