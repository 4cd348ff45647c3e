"""Calls in place that were met before, whatever their arguments: x.add_(y, alpha=2), x.lerp_(y, t).

Plans are found by one key: the tensor's signature, the names of what is given by name, and for each
argument its signature or its type, and its value where that is part of the kernel or no number.
What is found says how the kernel is called: see `remember` in engine/again.py.
"""

from __future__ import annotations

from ..front_parts import TUPLE, VERSION_AT, WORDS
from .fragments import find, operand, pointer, unrecorded
from .words import at, item, loop, phis, put

#: more arguments than this are left to Python
_MOST = 8


def again(t: dict) -> str:
    return f"""
; the tensor, changed; null where Python is to be asked, or where an error is set
define internal ptr @again(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names, i1 %valued) noinline {{
begin:
  %given = call i64 @given(i64 %n, ptr %names)
  %few = icmp ule i64 %given, {_MOST}
  br i1 %few, label %first, label %unknown
{_key(t)}
{_found(t)}
{_called(t)}
forget:
  call void @Py_DecRef(ptr %key)
  br label %unknown
unknown:
  ret ptr null
}}
"""


def _key(t: dict) -> str:
    """%key; what lies elsewhere in the tensor's own memory may overlap it, and has none."""
    return f"""
first:
  %none = load ptr, ptr @g_none
{at("%sig", "%x", t["sig"])}{at("%node", "%x", t["node"])}{at("%mem", "%x", t["mem"])}
{pointer("x", "%x", t)}
  %xloose = icmp eq ptr %node, %none
  %unnamed = icmp eq ptr %names, null
  %named = select i1 %unnamed, ptr %none, ptr %names
  %twice = shl i64 %given, 1
  %size = add i64 %twice, 2
  %key = call ptr @PyTuple_New(i64 %size)
  call void @Py_IncRef(ptr %sig)
  call void @Py_IncRef(ptr %named)
{put("%key", TUPLE, "%sig", "s")}{put("%key", TUPLE + 8, "%named", "n")}
  br label %head
{loop("head", "i64 %k, i1 %loose", "first 0 %xloose", "stored %next %still", "%given", "one",
      "looked")}
{item("%a", "%args", "%k")}
{at("%type", "%a", 8)}
  %numeric = call i1 @is_number(ptr %type)
  br i1 %numeric, label %number, label %other
number:
  %part = select i1 %valued, ptr %a, ptr %none
  br label %stored
other:
  %tensor = call i1 @is_tensor(ptr %a)
  br i1 %tensor, label %operand, label %stored
operand:
{operand("a", t, "stored", "forget")}
stored:
{phis("ptr %kind, ptr %value, i1 %free", "number %type %part true", "other %type %a true",
      "operand %asig %none %aloose")}
  %still = and i1 %loose, %free
  call void @Py_IncRef(ptr %kind)
  call void @Py_IncRef(ptr %value)
  %pair = shl i64 %k, 4
  %offset = add i64 %pair, {TUPLE + 16}
  %kp = getelementptr i8, ptr %key, i64 %offset
  store ptr %kind, ptr %kp
  %vp = getelementptr i8, ptr %kp, i64 8
  store ptr %value, ptr %vp
  %next = add i64 %k, 1
  br label %head
"""


def _found(t: dict) -> str:
    """%plan, where no step is recorded and the tensor was not made while inferring."""
    return f"""
looked:
  %plans = load ptr, ptr %ctx
{find("%plan", "%plans", "%key", "met", "forget")}
met:
  call void @Py_IncRef(ptr %plan)
  call void @Py_DecRef(ptr %key)
{at("%version", "%mem", VERSION_AT, "i64")}
  %inferred = icmp slt i64 %version, 0
  br i1 %inferred, label %leave, label %graph
graph:
{unrecorded("graph", t, "leave")}
leave:
  call void @Py_DecRef(ptr %plan)
  ret ptr null
"""


def _called(t: dict) -> str:
    """A word for each argument of the kernel's callable says where it comes from: -1 what the plan
    has there, 2k the place of operand k, 2k + 1 that operand itself; the tensor is operand 0."""
    return f"""
ready:
{at("%run", "%plan", TUPLE)}{at("%model", "%plan", TUPLE + 8)}{at("%array", "%plan", TUPLE + 16)}
{at("%words", "%array", WORDS)}{at("%count", "%model", 16, "i64")}
  %room = alloca ptr, i64 %count
  br label %fill
{loop("fill", "i64 %j", "ready 0", "filled %j1", "%count", "which", "call")}
  %wp = getelementptr i64, ptr %words, i64 %j
  %w = load i64, ptr %wp
  %constant = icmp slt i64 %w, 0
  br i1 %constant, label %as_planned, label %as_given
as_planned:
  %items = getelementptr i8, ptr %model, i64 {TUPLE}
{item("%planned", "%items", "%j")}
  br label %filled
as_given:
  %place = lshr i64 %w, 1
  %before = sub i64 %place, 1
  %itself = icmp eq i64 %place, 0
  br i1 %itself, label %chosen, label %beside
beside:
{item("%o", "%args", "%before")}
  br label %chosen
chosen:
{phis("ptr %object", "as_given %x", "beside %o")}
  %bit = and i64 %w, 1
  %whole = icmp ne i64 %bit, 0
  br i1 %whole, label %filled, label %placed
placed:
{at("%box", "%object", t["ptr"])}
  br label %filled
filled:
{phis("ptr %argument", "as_planned %planned", "chosen %object", "placed %box")}
  %rp = getelementptr ptr, ptr %room, i64 %j
  store ptr %argument, ptr %rp
  %j1 = add i64 %j, 1
  br label %fill
call:
  %answer = call ptr @PyObject_Vectorcall(ptr %run, ptr %room, i64 %count, ptr null)
  call void @Py_DecRef(ptr %plan)
  %fine = icmp ne ptr %answer, null
  br i1 %fine, label %answered, label %unknown
answered:
  call void @Py_DecRef(ptr %answer)
  %noted = call i1 @changed(ptr %x)
  br i1 %noted, label %done, label %unknown
done:
  call void @Py_IncRef(ptr %x)
  ret ptr %x
"""
