"""Fisher-Yates as machine code: swaps that depend on each other, which numpy cannot do at once."""

from __future__ import annotations

import functools

from ...core.lazily import np
from .bridge import wrapper_ir
from .compile import cache, load_or_build

NAME = "fisher_yates"

IR = """
define void @{name}(ptr %order, ptr %words, i64 %n) nounwind {{
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %fill, label %done
fill:
  %i = phi i64 [0, %entry], [%next, %fill]
  %place = getelementptr i64, ptr %order, i64 %i
  store i64 %i, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %fill, label %begin
begin:
  %last = sub i64 %n, 1
  %two = icmp sgt i64 %last, 0
  br i1 %two, label %swap, label %done
swap:
  %k = phi i64 [0, %begin], [%later, %swap]
  %at = getelementptr i32, ptr %words, i64 %k
  %narrow = load i32, ptr %at
  %word = zext i32 %narrow to i64
  %left = sub i64 %n, %k
  %step = urem i64 %word, %left
  %j = add i64 %k, %step
  %here = getelementptr i64, ptr %order, i64 %k
  %there = getelementptr i64, ptr %order, i64 %j
  %a = load i64, ptr %here
  %b = load i64, ptr %there
  store i64 %b, ptr %here
  store i64 %a, ptr %there
  %later = add i64 %k, 1
  %again = icmp slt i64 %later, %last
  br i1 %again, label %swap, label %done
done:
  ret void
}}
"""


@functools.cache
def _native():
    def build():
        return IR.format(name=NAME) + wrapper_ir(NAME, "ppq", False)

    return load_or_build(cache().key(IR), NAME, build)


def shuffle(words: np.ndarray, n: int) -> np.ndarray:
    """0 to n - 1, each place swapped with itself or a later one as n - 1 words say."""
    order = np.empty(n, np.int64)
    words = np.ascontiguousarray(words)
    _native()(order.ctypes.data, words.ctypes.data, n)
    return order
