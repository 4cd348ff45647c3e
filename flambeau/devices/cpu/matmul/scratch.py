"""Buffers that native code takes and gives back: aligned, reused, on huge pages where there are.

    ptr flambeau_scratch_take(i64 bytes)        void flambeau_scratch_give(ptr)

A few buffers wait in slots, which threads empty and fill in one atomic step each, so nothing is
mapped and faulted in anew by every product. A buffer may be given back by another thread.
"""

from __future__ import annotations

import ctypes
import sys

from ..bridge import jit
from ..objects import addresses, cache, once

DECLARATIONS = {
    "flambeau_scratch_take": "declare ptr @flambeau_scratch_take(i64)",
    "flambeau_scratch_give": "declare void @flambeau_scratch_give(ptr)",
}

_SLOTS = 16
_HUGE = 1 << 21
_LEAST = 1 << 16  # smaller buffers are not worth telling apart
_MADV_HUGEPAGE = 14

# A buffer's size and the block it was cut from lie in the two words before it.
_IR = f"""
@slots = internal global [{_SLOTS} x ptr] zeroinitializer, align 64
declare ptr @flambeau_malloc(i64)
declare void @flambeau_free(ptr)
%ADVISE%

define internal i64 @size_of(ptr %buffer) {{
  %at = getelementptr i8, ptr %buffer, i64 -16
  %size = load i64, ptr %at
  ret i64 %size
}}

define internal void @end(ptr %buffer) {{
  %at = getelementptr i8, ptr %buffer, i64 -8
  %block = load ptr, ptr %at
  call void @flambeau_free(ptr %block)
  ret void
}}

define internal ptr @make(i64 %bytes) {{
entry:
  %huge = icmp sge i64 %bytes, {_HUGE}
  %grain = select i1 %huge, i64 {_HUGE}, i64 {_LEAST}
  %mask = sub i64 %grain, 1
  %up = add i64 %bytes, %mask
  %down = sub i64 0, %grain
  %size = and i64 %up, %down
  %align = select i1 %huge, i64 {_HUGE}, i64 4096
  %slack = add i64 %align, 64
  %total = add i64 %size, %slack
  %block = call ptr @flambeau_malloc(i64 %total)
  %none = icmp eq ptr %block, null
  br i1 %none, label %fail, label %ok
fail:
  call void @llvm.trap()
  unreachable
ok:
  %raw = ptrtoint ptr %block to i64
  %past = add i64 %raw, %slack
  %back = sub i64 0, %align
  %even = and i64 %past, %back
  %buffer = inttoptr i64 %even to ptr
  %p0 = getelementptr i8, ptr %buffer, i64 -16
  %p1 = getelementptr i8, ptr %buffer, i64 -8
  store i64 %size, ptr %p0
  store ptr %block, ptr %p1
  br i1 %huge, label %advise, label %done
advise:
  %CALL%
  br label %done
done:
  ret ptr %buffer
}}
declare void @llvm.trap()

define ptr @flambeau_scratch_take(i64 %bytes) {{
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr ptr, ptr @slots, i64 %i
  %seen = load atomic ptr, ptr %slot monotonic, align 8
  %some = icmp ne ptr %seen, null
  br i1 %some, label %try, label %next
try:
  %old = atomicrmw xchg ptr %slot, ptr null seq_cst
  %got = icmp ne ptr %old, null
  br i1 %got, label %measure, label %next
measure:
  %size = call i64 @size_of(ptr %old)
  %fits = icmp sge i64 %size, %bytes
  br i1 %fits, label %found, label %small
found:
  ret ptr %old
small:
  %put = cmpxchg ptr %slot, ptr null, ptr %old seq_cst seq_cst
  %there = extractvalue {{ ptr, i1 }} %put, 1
  br i1 %there, label %next, label %drop
drop:
  call void @end(ptr %old)
  br label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {_SLOTS}
  br i1 %more, label %look, label %fresh
fresh:
  %new = call ptr @make(i64 %bytes)
  ret ptr %new
}}

define void @flambeau_scratch_give(ptr %buffer) {{
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr ptr, ptr @slots, i64 %i
  %seen = load atomic ptr, ptr %slot monotonic, align 8
  %free = icmp eq ptr %seen, null
  br i1 %free, label %try, label %next
try:
  %put = cmpxchg ptr %slot, ptr null, ptr %buffer seq_cst seq_cst
  %there = extractvalue {{ ptr, i1 }} %put, 1
  br i1 %there, label %done, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {_SLOTS}
  br i1 %more, label %look, label %full
full:
  call void @end(ptr %buffer)
  br label %done
done:
  ret void
}}
"""

@once
def publish() -> None:
    """Make the two functions known to generated code."""
    j = jit()
    library = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    advised = sys.platform == "linux" and hasattr(library, "madvise")
    for name in ("malloc", "free", *(["madvise"] if advised else [])):
        pointer = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        j.publish(f"flambeau_{name}", pointer)
    declared = "declare i32 @flambeau_madvise(ptr, i64, i32)" if advised else ""
    called = (f"call i32 @flambeau_madvise(ptr %buffer, i64 %size, i32 {_MADV_HUGEPAGE})"
              if advised else "")
    text = _IR.replace("%ADVISE%", declared).replace("%CALL%", called)
    found = addresses(cache().key(f"scratch {advised}"), tuple(DECLARATIONS), lambda: text)
    for name, address in zip(DECLARATIONS, found, strict=True):
        j.publish(name, address)
