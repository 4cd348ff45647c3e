"""Arguments given by name, put where they would stand without: x.flatten(start_dim=1).

Fronts know calls by what stands where, so this is done before they are asked, where the names leave
no gap and nobody else is to see them: no trace, no mode, no argument that may answer by itself. The
seventh word of a context is a tuple of the names of all parameters that have a place, interned, the
first being the tensor's.
"""

from __future__ import annotations

from ..front_parts import TUPLE
from .words import at, either, item, loop, phis

#: more arguments than this are left to Python
_MOST = 8


def named(fronts: dict[str, str]) -> str:
    """For each form and the front it leads to, the way there; it is called @placed_<form>."""
    return _ORDERED + "".join(_placed(form, front) for form, front in fronts.items())


def _placed(form: str, front: str) -> str:
    return f"""
define internal ptr @placed_{form}(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names) noinline {{
  %plain = icmp eq ptr %names, null
  br i1 %plain, label %unchanged, label %named
unchanged:
  %out = tail call ptr @{front}(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names)
  ret ptr %out
named:
  %room = alloca [{_MOST} x ptr]
  %all = call i64 @ordered(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names, ptr %room)
  %done = icmp sge i64 %all, 0
  br i1 %done, label %in_order, label %unchanged
in_order:
  %answer = call ptr @{front}(ptr %ctx, ptr %x, ptr %room, i64 %all, ptr null)
  ret ptr %answer
}}
"""


_ORDERED = f"""
; whether nobody is told of calls: no trace, no mode
define internal i1 @unwatched() {{
begin:
  %follow = load ptr, ptr @g_follow
  %untraced = icmp eq ptr %follow, null
  br i1 %untraced, label %modes, label %no
modes:
  %types = load ptr, ptr @g_plain
  %known = icmp ne ptr %types, null
  br i1 %known, label %asked, label %no
asked:
  %tensor = load ptr, ptr @g_tensor
  %in = call i32 @PySet_Contains(ptr %types, ptr %tensor)
  %yes = icmp eq i32 %in, 1
  ret i1 %yes
no:
  ret i1 false
}}

; whether a value lets every call be: see PLAIN in interception.py. Most are tensors and integers.
define internal i1 @lets_be(ptr %value) {{
begin:
{at("%type", "%value", 8)}
{either("%usual", "%type", "tensor", "int")}
  br i1 %usual, label %yes, label %unusual
unusual:
  %types = load ptr, ptr @g_plain
  %in = call i32 @PySet_Contains(ptr %types, ptr %type)
  %failed = icmp slt i32 %in, 0
  br i1 %failed, label %clear, label %answer
clear:
  call void @PyErr_Clear()
  ret i1 false
answer:
  %plain = icmp eq i32 %in, 1
  ret i1 %plain
yes:
  ret i1 true
}}

; whether a value does, or all of a list or tuple do
define internal i1 @all_let_be(ptr %value) {{
begin:
  %alone = call i1 @lets_be(ptr %value)
  br i1 %alone, label %yes, label %typed
typed:
{at("%type", "%value", 8)}
{either("%several", "%type", "list", "tuple")}
  br i1 %several, label %counted, label %no
counted:
{at("%size", "%value", 16, "i64")}
  %inside = getelementptr i8, ptr %value, i64 {TUPLE}
  br i1 %several.is_a, label %elsewhere, label %ready
elsewhere:
{at("%apart", "%value", 24)}
  br label %ready
ready:
{phis("ptr %items", "counted %inside", "elsewhere %apart")}
  br label %head
{loop("head", "i64 %k", "ready 0", "next %k1", "%size", "one", "yes")}
{item("%each", "%items", "%k")}
  %fine = call i1 @lets_be(ptr %each)
  br i1 %fine, label %next, label %no
next:
  %k1 = add i64 %k, 1
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}}

; how many arguments follow the tensor once all have their place in the room; -1 if they have none
define internal i64 @ordered(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names, ptr %room) {{
begin:
{at("%known", "%ctx", 48)}
  %listed = icmp ne ptr %known, null
  br i1 %listed, label %watched, label %no
watched:
  %free = call i1 @unwatched()
  br i1 %free, label %first, label %no
first:
  %first_is = call i1 @all_let_be(ptr %x)
  br i1 %first_is, label %counted, label %no
counted:
  %given = call i64 @given(i64 %n, ptr %names)
{at("%size", "%known", 16, "i64")}
  %few = icmp ule i64 %given, {_MOST}
  %fits = icmp ult i64 %given, %size
  %room_for = and i1 %few, %fits
  br i1 %room_for, label %begun, label %no
begun:
  %said = getelementptr i8, ptr %names, i64 {TUPLE}
  %wanted = getelementptr i8, ptr %known, i64 {TUPLE + 8}
  br label %head
{loop("head", "i64 %j", "begun 0", "placed %j1", "%given", "one", "done")}
{item("%a", "%args", "%j")}
  %is = call i1 @all_let_be(ptr %a)
  br i1 %is, label %which, label %no
which:
  %by_place = icmp ult i64 %j, %n
  br i1 %by_place, label %placed, label %by_name
by_name:
  %nth = sub i64 %j, %n
{item("%name", "%said", "%nth")}
  br label %search
{loop("search", "i64 %k", "by_name %n", "further %k1", "%given", "compare", "no")}
{item("%candidate", "%wanted", "%k")}
  %same = icmp eq ptr %candidate, %name
  br i1 %same, label %placed, label %further
further:
  %k1 = add i64 %k, 1
  br label %search
placed:
{phis("i64 %to", "which %j", "compare %k")}
  %rp = getelementptr ptr, ptr %room, i64 %to
  store ptr %a, ptr %rp
  %j1 = add i64 %j, 1
  br label %head
done:
  ret i64 %given
no:
  ret i64 -1
}}
"""
