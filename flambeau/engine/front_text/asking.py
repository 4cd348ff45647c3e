"""Whom a front asks when it cannot answer by itself: a trace that is under way, then Python."""

from __future__ import annotations

from ..front_parts import TUPLE
from .words import at, item, loop, put

ASKING = f"""; a tuple of so many objects
define internal ptr @tuple_of(ptr %objects, i64 %n) {{
entry:
  %tuple = call ptr @PyTuple_New(i64 %n)
  %items = getelementptr i8, ptr %tuple, i64 {TUPLE}
  br label %head
{loop("head", "i64 %i", "entry 0", "body %i.next", "%n", "body", "done")}
{item("%item", "%objects", "%i")}
  call void @Py_IncRef(ptr %item)
  %to = getelementptr ptr, ptr %items, i64 %i
  store ptr %item, ptr %to
  %i.next = add i64 %i, 1
  br label %head
done:
  ret ptr %tuple
}}

; what a trace answers to a call on its path, or null: see compiler/hop.py
define internal ptr @followed(ptr %ctx, ptr %args, i64 %n) {{
entry:
  %follow = load ptr, ptr @g_follow
  %nobody = icmp eq ptr %follow, null
  br i1 %nobody, label %none, label %traced
traced:
{at("%op", "%ctx", 32)}
  %record = call i64 @recording()
  %odd = icmp slt i64 %record, 0
  %unnamed = icmp eq ptr %op, null
  %leave = or i1 %odd, %unnamed
  br i1 %leave, label %none, label %ask
ask:
  %given = call ptr @tuple_of(ptr %args, i64 %n)
  %true = load ptr, ptr @g_true
  %false = load ptr, ptr @g_false
  %nothing = load ptr, ptr @g_nothing
  %on = icmp eq i64 %record, 1
  %grad = select i1 %on, ptr %true, ptr %false
  %asked = alloca ptr, i64 4
  store ptr %op, ptr %asked
{put("%asked", 8, "%given", "a")}{put("%asked", 16, "%nothing", "b")}
{put("%asked", 24, "%grad", "c")}
  %out = call ptr @PyObject_Vectorcall(ptr %follow, ptr %asked, i64 4, ptr null)
  call void @Py_DecRef(ptr %given)
  %none_ = load ptr, ptr @g_none
  %is_none = icmp eq ptr %out, %none_
  br i1 %is_none, label %other, label %checked
other:
  call void @Py_DecRef(ptr %out)
  br label %none
checked:
  %failed = icmp eq ptr %out, null
  br i1 %failed, label %clear, label %done
clear:
  call void @PyErr_Clear()
  br label %none
done:
  ret ptr %out
none:
  ret ptr null
}}

define internal ptr @python(ptr %ctx, ptr %args, i64 %n) {{
  %out = call ptr @followed(ptr %ctx, ptr %args, i64 %n)
  %known = icmp ne ptr %out, null
  br i1 %known, label %done, label %ask
done:
  ret ptr %out
ask:
{at("%front", "%ctx", 8)}
  %answer = call ptr @PyObject_Vectorcall(ptr %front, ptr %args, i64 %n, ptr null)
  ret ptr %answer
}}

define internal ptr @python1(ptr %ctx, ptr %x) {{
  %args = alloca ptr, i64 2
  store ptr %x, ptr %args
  %out = call ptr @python(ptr %ctx, ptr %args, i64 1)
  ret ptr %out
}}

define internal ptr @python2(ptr %ctx, ptr %x, ptr %y) {{
  %args = alloca ptr, i64 2
  store ptr %x, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  store ptr %y, ptr %second
  %out = call ptr @python(ptr %ctx, ptr %args, i64 2)
  ret ptr %out
}}
"""
