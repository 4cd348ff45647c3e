"""Products as Python callables: (out, a, b[, d], words), and their kernels' addresses."""

from __future__ import annotations

import functools

from ..bridge import jit, wrapper_ir
from ..compile import load_or_build
from ..objects import cache
from .kernels import SUMS, driver


def _text(name: str, code: str, added: bool) -> str:
    d = "%d" if added else "null"
    return f"""
declare void @{code}(ptr, ptr, ptr, ptr, i64)

define void @{name}(ptr %c, ptr %a, ptr %b, {"ptr %d, " if added else ""}i64 %words) {{
  call void @{code}(ptr %c, ptr %a, ptr %b, ptr {d}, i64 %words)
  ret void
}}
""" + wrapper_ir(name, "ppppq" if added else "pppq", True)


@functools.cache
def product_function(dtype: str, added: bool, finishing: bool = False):
    """The callable of a dtype, with something added to the product or not.

    One that finishes what it makes calls the function in its words: see block.py.
    """
    sums, end = SUMS[dtype], "_finishing" if finishing else ""
    code = f"flambeau_matmul_{sums}{end}"
    jit().publish(code, driver(sums, finishing))
    name = f"product_{sums}{'_added' if added else ''}{end}"
    return load_or_build(cache().key(name), name, lambda: _text(name, code, added))
