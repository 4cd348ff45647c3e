"""Arguments handed on, and calls of modules: `forward` at once, unless an instance has hooks."""

from __future__ import annotations

CALLS = """
; how many arguments there are, with those by name
define internal i64 @given(i64 %n, ptr %names) {
  %named = icmp ne ptr %names, null
  br i1 %named, label %count, label %done
count:
  %sizep = getelementptr i8, ptr %names, i64 16
  %size = load i64, ptr %sizep
  br label %done
done:
  %more = phi i64 [ 0, %0 ], [ %size, %count ]
  %all = add i64 %n, %more
  ret i64 %all
}

; an object and all arguments after it, in room for them
define internal void @prepend(ptr %room, ptr %self, ptr %args, i64 %given) {
  store ptr %self, ptr %room
  %rest = getelementptr ptr, ptr %room, i64 1
  %bytes = mul i64 %given, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %bytes, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @call_module(ptr %self, ptr %args, i64 %n, ptr %names) {
  %attribute = load ptr, ptr @g_hooked
  %hooked = call ptr @PyObject_GetAttr(ptr %self, ptr %attribute)
  %failed = icmp eq ptr %hooked, null
  br i1 %failed, label %fail, label %look
fail:
  ret ptr null
look:
  call void @Py_DecRef(ptr %hooked)
  %given = call i64 @given(i64 %n, ptr %names)
  %all = add i64 %given, 1
  %room = alloca ptr, i64 %all
  call void @prepend(ptr %room, ptr %self, ptr %args, i64 %given)
  %m = add i64 %n, 1
  %false = load ptr, ptr @g_false
  %plain = icmp eq ptr %hooked, %false
  br i1 %plain, label %forward, label %hooks
forward:
  %method = load ptr, ptr @g_forward
  %out = call ptr @PyObject_VectorcallMethod(ptr %method, ptr %room, i64 %m, ptr %names)
  ret ptr %out
hooks:
  %python = load ptr, ptr @g_with_hooks
  %answer = call ptr @PyObject_Vectorcall(ptr %python, ptr %room, i64 %m, ptr %names)
  ret ptr %answer
}
"""
