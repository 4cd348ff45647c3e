"""Arguments given by name, put where they would stand without: x.flatten(start_dim=1).

Fronts know calls by what stands where, so this is done before they are asked, where the names leave
no gap and nobody else is to see them: no trace, no mode, no subclass. The seventh word of a context
is a tuple of the names of all parameters that have a place, interned, the first being the tensor's.
"""

from __future__ import annotations

from ..front_parts import TUPLE
from .fragments import phis
from .words import at

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
; whether calls on this are nobody else's: a tensor, or a list or tuple that begins with one
define internal i1 @unseen(ptr %x) {{
begin:
  %follow = load ptr, ptr @g_follow
  %untraced = icmp eq ptr %follow, null
  br i1 %untraced, label %typed, label %no
typed:
  %tensor = load ptr, ptr @g_tensor
{at("%type", "%x", 8)}
  %exact = icmp eq ptr %type, %tensor
  br i1 %exact, label %modes, label %several
several:
  %lists = load ptr, ptr @g_list
  %listed = icmp eq ptr %type, %lists
  %tuples = load ptr, ptr @g_tuple
  %paired = icmp eq ptr %type, %tuples
  %either = or i1 %listed, %paired
  br i1 %either, label %counted, label %no
counted:
{at("%size", "%x", 16, "i64")}
  %some = icmp sgt i64 %size, 0
  br i1 %some, label %first, label %no
first:
{at("%apart", "%x", 24)}
  %inside = getelementptr i8, ptr %x, i64 {TUPLE}
  %items = select i1 %listed, ptr %apart, ptr %inside
  %item = load ptr, ptr %items
{at("%kind", "%item", 8)}
  %of_tensors = icmp eq ptr %kind, %tensor
  br i1 %of_tensors, label %modes, label %no
modes:
  %types = load ptr, ptr @g_plain
  %known = icmp ne ptr %types, null
  br i1 %known, label %asked, label %no
asked:
  %in = call i32 @PySet_Contains(ptr %types, ptr %tensor)
  %yes = icmp eq i32 %in, 1
  ret i1 %yes
no:
  ret i1 false
}}

; how many arguments follow the tensor once all have their place in the room; -1 if they have none
define internal i64 @ordered(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names, ptr %room) {{
begin:
{at("%known", "%ctx", 48)}
  %listed = icmp ne ptr %known, null
  %free = call i1 @unseen(ptr %x)
  %may = and i1 %listed, %free
  br i1 %may, label %counted, label %no
counted:
  %given = call i64 @given(i64 %n, ptr %names)
{at("%size", "%known", 16, "i64")}
  %few = icmp ule i64 %given, {_MOST}
  %fits = icmp ult i64 %given, %size
  %room_for = and i1 %few, %fits
  br i1 %room_for, label %copy, label %no
copy:
  %bytes = mul i64 %n, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %room, ptr %args, i64 %bytes, i1 false)
  br label %head
head:
{phis("i64 %j", "copy %n", "next %j1")}
  %left = icmp ult i64 %j, %given
  br i1 %left, label %one, label %done
one:
  %ap = getelementptr ptr, ptr %args, i64 %j
  %a = load ptr, ptr %ap
  %nth = sub i64 %j, %n
  %ns = getelementptr i8, ptr %names, i64 {TUPLE}
  %np = getelementptr ptr, ptr %ns, i64 %nth
  %name = load ptr, ptr %np
  br label %search
search:
{phis("i64 %k", "one %n", "further %k1")}
  %within = icmp ult i64 %k, %given
  br i1 %within, label %compare, label %no
compare:
  %ks = getelementptr i8, ptr %known, i64 {TUPLE + 8}
  %kp = getelementptr ptr, ptr %ks, i64 %k
  %candidate = load ptr, ptr %kp
  %same = icmp eq ptr %candidate, %name
  br i1 %same, label %next, label %further
further:
  %k1 = add i64 %k, 1
  br label %search
next:
  %rp = getelementptr ptr, ptr %room, i64 %k
  store ptr %a, ptr %rp
  %j1 = add i64 %j, 1
  br label %head
done:
  ret i64 %given
no:
  ret i64 -1
}}
"""
