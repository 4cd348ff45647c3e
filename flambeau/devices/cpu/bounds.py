"""Whether every element of an index lies in bounds: one native call that answers."""

from __future__ import annotations

import functools

from .bridge import ENTRY_CALLS, entry_ir, function_at, jit
from .objects import addresses, cache

_BITS = {"int64": 64, "int32": 32}


@functools.cache
def within(dtype_name: str):
    """The callable (address, count, low, high): 1 if all of them are in [low, high), else 0."""
    name = f"within_{dtype_name}"
    found, = addresses(cache().key(name), (f"{name}_py",), lambda: _text(name, _BITS[dtype_name]))
    return function_at(found, name)


def _text(name: str, bits: int) -> str:
    """An element is in bounds if it is, less the lower one, below their distance as unsigned."""
    width = jit().bits // 64
    wide = f"<{width} x i64>"
    element = f"<{width} x i{bits}>"
    raised = f"sext {element} %e to {wide}" if bits < 64 else f"add {wide} %e, zeroinitializer"
    one = "sext i32 %f to i64" if bits < 64 else "add i64 %f, 0"
    return f"""
declare i1 @llvm.vector.reduce.or.v{width}i1(<{width} x i1>)

define i64 @{name}(ptr %p, i64 %count, i64 %low, i64 %high) {{
start:
  %room = sub i64 %high, %low
  %r.one = insertelement {wide} poison, i64 %room, i32 0
  %r = shufflevector {wide} %r.one, {wide} poison, <{width} x i32> zeroinitializer
  %l.one = insertelement {wide} poison, i64 %low, i32 0
  %l = shufflevector {wide} %l.one, {wide} poison, <{width} x i32> zeroinitializer
  %whole = and i64 %count, {-width}
  br label %head
head:
  %i = phi i64 [ 0, %start ], [ %i1, %body ]
  %bad = phi <{width} x i1> [ zeroinitializer, %start ], [ %bad1, %body ]
  %more = icmp slt i64 %i, %whole
  br i1 %more, label %body, label %rest
body:
  %at = getelementptr i{bits}, ptr %p, i64 %i
  %e = load {element}, ptr %at, align {bits // 8}
  %w = {raised}
  %m = sub {wide} %w, %l
  %out = icmp uge {wide} %m, %r
  %bad1 = or <{width} x i1> %bad, %out
  %i1 = add i64 %i, {width}
  br label %head
rest:
  %some = call i1 @llvm.vector.reduce.or.v{width}i1(<{width} x i1> %bad)
  br label %tail
tail:
  %k = phi i64 [ %whole, %rest ], [ %k1, %single ]
  %wrong = phi i1 [ %some, %rest ], [ %wrong1, %single ]
  %left = icmp slt i64 %k, %count
  br i1 %left, label %single, label %done
single:
  %atk = getelementptr i{bits}, ptr %p, i64 %k
  %f = load i{bits}, ptr %atk
  %fw = {one}
  %fm = sub i64 %fw, %low
  %fo = icmp uge i64 %fm, %room
  %wrong1 = or i1 %wrong, %fo
  %k1 = add i64 %k, 1
  br label %tail
done:
  %right = xor i1 %wrong, true
  %answer = zext i1 %right to i64
  ret i64 %answer
}}
{entry_ir(name, "pqqq", "%x1", answers=True)}{ENTRY_CALLS}"""
