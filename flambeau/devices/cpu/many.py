"""A kernel over many tensors in one native call.

The caller writes a table: for each part of a tensor one row, its count of elements and where its
operands start. The rows are shared out among threads; a row is short enough for that, and always
the same, so that what is folded per row does not depend on who folds it.
"""

from __future__ import annotations

import functools

from ...core.kernel import Kernel, listing, param_kinds, verify
from . import threads
from .bridge import function_at, jit, wrapper_ir
from .compile import ATTRIBUTES
from .objects import addresses, cache

#: elements of a tensor that make a row, at most
PART = 1 << 15
#: how many elements are worth a thread's while
GRAIN = 1 << 14

#: where the code behind a callable is that finds its numbers in memory:
#: (table, rows, numbers, elements in all)
LISTED: dict = {}


@functools.cache
def many(kernel: Kernel, columns: tuple[int, ...], width: int):
    """A callable (table, rows, numbers ..., elements in all) that runs a kernel on every row.

    A row is `width` words: a count, and pointers. `columns` says for each operand of the kernel
    which of the pointers is its own.
    """
    verify(kernel)
    threads.publish()
    key = cache().key(f"many {columns} {width}\n{listing(kernel)}")
    name = f"m_{key[:24]}"
    wrapper, listed = addresses(key, (f"{name}_py", f"{name}_listed"),
                                lambda: _text(kernel, name, columns, width), True)
    function = function_at(wrapper, name)
    LISTED[function] = listed
    return function


def _text(kernel: Kernel, name: str, columns: tuple[int, ...], width: int) -> str:
    from ..llvm import to_ir  # not needed where all code is on disk already

    numbers = param_kinds(kernel).count("d")
    one = to_ir(kernel, f"{name}_one", jit().bits)
    declared = "" if threads.DECLARATION.strip() in one else threads.DECLARATION
    passed = "".join(f", double %n{i}" for i in range(numbers))
    context = "{ ptr, ptr }"
    fill, read = "", ""
    for i in range(numbers):
        fill += (f"  %put{i} = getelementptr double, ptr %numbers, i64 {i}\n"
                 f"  store double %n{i}, ptr %put{i}\n")
        read += (f"  %get{i} = getelementptr double, ptr %numbers, i64 {i}\n"
                 f"  %n{i} = load double, ptr %get{i}\n")
    operands, pointers = "", ""
    for i, column in enumerate(columns):
        operands += (f"  %at{i} = getelementptr i64, ptr %row, i64 {column + 1}\n"
                     f"  %p{i} = load ptr, ptr %at{i}\n")
        pointers += f"ptr %p{i}, "
    return f"""{one}{ATTRIBUTES}
define internal void @{name}_rows(ptr %context, i64 %begin, i64 %end) {{
  %table = load ptr, ptr %context
  %second = getelementptr {context}, ptr %context, i32 0, i32 1
  %numbers = load ptr, ptr %second
{read}  br label %head
head:
  %i = phi i64 [ %begin, %0 ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %words = mul i64 %i, {width}
  %row = getelementptr i64, ptr %table, i64 %words
  %count = load i64, ptr %row
{operands}  call void @{name}_one({pointers}{passed[2:] + ", " if passed else ""}i64 %count)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}}

define void @{name}_listed(ptr %table, i64 %rows, ptr %numbers, i64 %elements) {{
  %context = alloca {context}
  store ptr %table, ptr %context
  %second = getelementptr {context}, ptr %context, i32 0, i32 1
  store ptr %numbers, ptr %second
  %scaled = mul i64 %rows, {GRAIN}
  %some = add i64 %elements, 1
  %less = sdiv i64 %scaled, %some
  %grain = add i64 %less, 1
  call void @flambeau_parallel(ptr @{name}_rows, ptr %context, i64 %rows, i64 %grain)
  ret void
}}

define void @{name}(ptr %table, i64 %rows{passed}, i64 %elements) {{
  %numbers = alloca [{max(1, numbers)} x double]
{fill}  call void @{name}_listed(ptr %table, i64 %rows, ptr %numbers, i64 %elements)
  ret void
}}
{declared}{wrapper_ir(name, "pq" + "d" * numbers + "q", False)}"""

