"""Counting a change of a tensor's bytes, and remembering the place in the code that made it.

The place is that of the innermost frame whose file is not the library's: see `changed` in writing.py,
which is called for files that were not met before.
"""

from __future__ import annotations

from ..front_parts import CHANGED_AT, FILE_AT, TUPLE, VERSION_AT
from .words import at, put


def change(t: dict) -> str:
    return f"""
; whether a change was counted; if not, an error is set
define internal i1 @changed(ptr %x) {{
entry:
  %innermost = call ptr @PyEval_GetFrame()
  %nowhere = icmp eq ptr %innermost, null
  br i1 %nowhere, label %ask, label %begin
begin:
  call void @Py_IncRef(ptr %innermost)
  %ours = load ptr, ptr @g_ours
  %true = load ptr, ptr @g_true
  br label %look
look:
  %frame = phi ptr [ %innermost, %begin ], [ %back, %outward ]
  %code = call ptr @PyFrame_GetCode(ptr %frame)
{at("%file", "%code", FILE_AT)}
  %whose = call ptr @find(ptr %ours, ptr %file)
  %unknown = icmp eq ptr %whose, null
  br i1 %unknown, label %new_file, label %known
new_file:
  call void @Py_DecRef(ptr %code)
  call void @Py_DecRef(ptr %frame)
  br label %ask
known:
  %library = icmp eq ptr %whose, %true
  br i1 %library, label %inside, label %here
inside:
  %back = call ptr @PyFrame_GetBack(ptr %frame)
  %outermost = icmp eq ptr %back, null
  br i1 %outermost, label %here, label %outward
outward:
  call void @Py_DecRef(ptr %code)
  call void @Py_DecRef(ptr %frame)
  br label %look
here:
  %at = call i32 @PyFrame_GetLasti(ptr %frame)
  call void @Py_DecRef(ptr %frame)
  %wide = sext i32 %at to i64
  %boxed = call ptr @PyLong_FromSsize_t(i64 %wide)
  %pair = call ptr @PyTuple_New(i64 2)
{put("%pair", TUPLE, "%code", "k0")}{put("%pair", TUPLE + 8, "%boxed", "k1")}
{at("%mem", "%x", t["mem"])}{at("%version", "%mem", VERSION_AT, "i64")}
  %next = add i64 %version, 1
  store i64 %next, ptr %version.p
{at("%before", "%mem", CHANGED_AT)}
  store ptr %pair, ptr %before.p
  %had = icmp ne ptr %before, null
  br i1 %had, label %forget, label %done
forget:
  call void @Py_DecRef(ptr %before)
  br label %done
done:
  ret i1 true
ask:
  %python = load ptr, ptr @g_changed
  %args = alloca ptr
  store ptr %x, ptr %args
  %answer = call ptr @PyObject_Vectorcall(ptr %python, ptr %args, i64 1, ptr null)
  %fine = icmp ne ptr %answer, null
  br i1 %fine, label %answered, label %failed
answered:
  call void @Py_DecRef(ptr %answer)
  ret i1 true
failed:
  ret i1 false
}}

define ptr @count_change(ptr %self, ptr %args, i64 %n, ptr %names) {{
  %x = load ptr, ptr %args
  %noted = call i1 @changed(ptr %x)
  br i1 %noted, label %done, label %failed
done:
  %none = load ptr, ptr @g_none
  call void @Py_IncRef(ptr %none)
  ret ptr %none
failed:
  ret ptr null
}}
"""
