"""Numbers in even steps, written by one native call: what short arange and linspace are made of."""

from __future__ import annotations

import functools

from .bridge import wrapper_ir
from .compile import cache, load_or_build

_LOOP = """  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
"""
_NEXT = """  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""

_WHOLE = f"""define void @whole_ramp(ptr %to, i64 %start, i64 %step, i64 %count) {{
entry:
{_LOOP}  %far = mul i64 %i, %step
  %value = add i64 %start, %far
  %at = getelementptr i64, ptr %to, i64 %i
  store i64 %value, ptr %at
{_NEXT}"""

# The first half is counted from the start and the second from the end, each rounded once: the
# product of a float32 and an integer is exact in float64.
_EVEN = f"""define void @even_ramp(ptr %to, double %start, double %end, i64 %count) {{
entry:
  %first = fptrunc double %start to float
  %last = fptrunc double %end to float
  %apart = fsub float %last, %first
  %most = sub i64 %count, 1
  %steps = sitofp i64 %most to float
  %step = fdiv float %apart, %steps
  %wide = fpext float %step to double
  %back = fneg double %wide
  %a = fpext float %first to double
  %b = fpext float %last to double
  %half = lshr i64 %count, 1
{_LOOP}  %low = icmp slt i64 %i, %half
  %left = sub i64 %most, %i
  %n = select i1 %low, i64 %i, i64 %left
  %by = select i1 %low, double %wide, double %back
  %from = select i1 %low, double %a, double %b
  %m = sitofp i64 %n to double
  %far = fmul double %m, %by
  %sum = fadd double %from, %far
  %value = fptrunc double %sum to float
  %at = getelementptr float, ptr %to, i64 %i
  store float %value, ptr %at
{_NEXT}"""


@functools.cache
def whole():
    """ramp(to, start, step, count): start, start + step, ... as int64."""
    return _built("whole_ramp", _WHOLE, "pqqq")


@functools.cache
def even():
    """ramp(to, start, end, count): two or more float32 numbers from start to end, both included."""
    return _built("even_ramp", _EVEN, "pddq")


def _built(name: str, text: str, letters: str):
    return load_or_build(cache().key(text), name, lambda: text + wrapper_ir(name, letters, False))
