"""Products as Python callables: (out, a, b[, d], words), and their kernels' addresses."""

from __future__ import annotations

import functools

from ..bridge import jit, wrapper_ir
from ..compile import load_or_build
from ..objects import cache
from .kernels import SUMS, driver


def _text(name: str, sums: str, added: bool) -> str:
    d = "%d" if added else "null"
    return f"""
declare void @flambeau_matmul_{sums}(ptr, ptr, ptr, ptr, i64)

define void @{name}(ptr %c, ptr %a, ptr %b, {"ptr %d, " if added else ""}i64 %words) {{
  call void @flambeau_matmul_{sums}(ptr %c, ptr %a, ptr %b, ptr {d}, i64 %words)
  ret void
}}
""" + wrapper_ir(name, "ppppq" if added else "pppq", True)


@functools.cache
def product_function(dtype: str, added: bool):
    """The callable of a dtype, with something added to the product or not."""
    sums = SUMS[dtype]
    jit().publish(f"flambeau_matmul_{sums}", driver(sums))
    name = f"product_{sums}{'_added' if added else ''}"
    return load_or_build(cache().key(name), name, lambda: _text(name, sums, added))
