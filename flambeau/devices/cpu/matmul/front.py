"""Products as Python callables: (out, a, b[, d][, size], words), and their kernels' addresses."""

from __future__ import annotations

import functools

from ..bridge import jit, wrapper_ir
from ..compile import load_or_build
from ..objects import cache
from .block import WORDS, W
from .kernels import SUMS, driver


def _text(name: str, code: str, added: bool, sized: str) -> str:
    given = ["ptr %c", "ptr %a", "ptr %b", *["ptr %d"] * added, *["ptr %size"] * bool(sized)]
    return f"""
declare void @{code}(ptr, ptr, ptr, ptr, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @{name}({", ".join(given)}, i64 %where) {{
  %words = inttoptr i64 %where to ptr
{_SIZED.format(bytes=8 * len(WORDS), word=W[sized]) if sized else ""}
  call void @{code}(ptr %c, ptr %a, ptr %b, ptr {"%d" if added else "null"}, ptr {
    "%own" if sized else "%words"})
  ret void
}}
""" + wrapper_ir(name, "p" * len(given) + "q", True)


#: words of its own, one of which is what is found when it runs
_SIZED = """
  %own = alloca [{bytes} x i8], align 16
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %words, i64 {bytes}, i1 false)
  %place = getelementptr i64, ptr %own, i64 {word}
  %found = load i64, ptr %size
  store i64 %found, ptr %place
"""


@functools.cache
def product_function(dtype: str, added: bool, finishing: bool = False, sized: str = ""):
    """The callable of a dtype, with something added to the product or not.

    One that finishes what it makes calls the function in its words: see block.py. Of one that is
    sized, "m" or "k" is at most what its words say: an address more tells where it stands.
    """
    sums, end = SUMS[dtype], "_finishing" if finishing else f"_by_{sized}" if sized else ""
    code = f"flambeau_matmul_{sums}{'_finishing' if finishing else ''}"
    jit().publish(code, driver(sums, finishing))
    name = f"product_{sums}{'_added' if added else ''}{end}"
    return load_or_build(cache().key(name), name, lambda: _text(name, code, added, sized))
