"""The native front of three tensors: x @ w.T + bias, run and recorded in machine code.

It is to three operands what the fronts in native.py are to two, and shares their parts. Plans are
found by nested tables: signature of x, of w, of the bias.
"""

from __future__ import annotations

from array import array

from ..devices.cpu.objects import addresses, cache, stamp
from . import front_parts
from .front_parts import EXTERNAL, GLOBALS, INFERRING, WORDS, at, common, offsets, put
from .node import Node, fronts

_TUPLE = tuple.__basicsize__


def _front(t: dict) -> str:
    return f"""
define internal ptr @ternary(ptr %ctx, ptr %x, ptr %y, ptr %z, ptr %args) noinline {{
  %none = load ptr, ptr @g_none
  %xok = call i1 @is_tensor(ptr %x)
  %yok = call i1 @is_tensor(ptr %y)
  %zok = call i1 @is_tensor(ptr %z)
  %xy = and i1 %xok, %yok
  %ok = and i1 %xy, %zok
  br i1 %ok, label %lookup, label %slow
lookup:
  %plans = load ptr, ptr %ctx
{at("%xsig", "%x", t["sig"])}{at("%ysig", "%y", t["sig"])}{at("%zsig", "%z", t["sig"])}
{at("%xn", "%x", t["node"])}{at("%yn", "%y", t["node"])}{at("%zn", "%z", t["node"])}
  %second = call ptr @find(ptr %plans, ptr %xsig)
  %has2 = icmp ne ptr %second, null
  br i1 %has2, label %by_y, label %slow
by_y:
  %third = call ptr @find(ptr %second, ptr %ysig)
  %has3 = icmp ne ptr %third, null
  br i1 %has3, label %by_z, label %slow
by_z:
  %plan = call ptr @find(ptr %third, ptr %zsig)
  %known = icmp ne ptr %plan, null
  br i1 %known, label %packed_, label %slow
packed_:
{at("%packed", "%plan", _TUPLE + 8 * 5)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %graph
graph:
{at("%words", "%packed", WORDS)}
  %xloose = icmp eq ptr %xn, %none
  %yloose = icmp eq ptr %yn, %none
  %zloose = icmp eq ptr %zn, %none
  %two = and i1 %xloose, %yloose
  %loose = and i1 %two, %zloose
  br i1 %loose, label %go, label %wanted
wanted:
  %record = call i64 @recording()
  %python = icmp slt i64 %record, 0
  br i1 %python, label %slow, label %decided
decided:
  %on = icmp eq i64 %record, 1
  %xr = call i1 @inferred(ptr %x)
  %yr = call i1 @inferred(ptr %y)
  %refused = or i1 %xr, %yr
  br i1 %refused, label %slow, label %go
go:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
{at("%free", "%plan", _TUPLE + 8 * 6)}
  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %run
run:
{at("%osig", "%plan", _TUPLE)}{at("%address", "%mem", 16)}
  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  %raw = call ptr @PyLong_AsVoidPtr(ptr %address)
{at("%xbox", "%x", t["ptr"])}{at("%ybox", "%y", t["ptr"])}{at("%zbox", "%z", t["ptr"])}
  %xraw = call ptr @PyLong_AsVoidPtr(ptr %xbox)
  %yraw = call ptr @PyLong_AsVoidPtr(ptr %ybox)
  %zraw = call ptr @PyLong_AsVoidPtr(ptr %zbox)
{at("%kernel", "%words", 0)}{at("%last", "%words", 8, "i64")}
  call void %kernel(ptr %raw, ptr %xraw, ptr %yraw, ptr %zraw, i64 %last)
  br i1 %recorded, label %step, label %done
step:
  %parents = call ptr @PyTuple_New(i64 3)
  %xend = select i1 %xloose, ptr %none, ptr %x
  %yend = select i1 %yloose, ptr %none, ptr %y
  %zend = select i1 %zloose, ptr %none, ptr %z
  %xedge = call ptr @edge(ptr %xend, ptr %xn)
  %yedge = call ptr @edge(ptr %yend, ptr %yn)
  %zedge = call ptr @edge(ptr %zend, ptr %zn)
{put("%parents", _TUPLE, "%xedge", "p0")}{put("%parents", _TUPLE + 8, "%yedge", "p1")}
{put("%parents", _TUPLE + 16, "%zedge", "p2")}
  %keepx = xor i1 %yloose, true
  %keepy = xor i1 %xloose, true
  %kept = call ptr @PyTuple_New(i64 3)
  call void @keep_one(ptr %x, i1 %keepx, ptr %kept, i64 0)
  call void @keep_one(ptr %y, i1 %keepy, ptr %kept, i64 1)
  call void @keep_one(ptr %z, i1 false, ptr %kept, i64 2)
  %v0 = call i64 @version_of(ptr %x, i1 %keepx, i1 true)
  %v1 = call i64 @version_of(ptr %y, i1 %keepy, i1 true)
  %versions = call ptr @versions(i64 %v0, i64 %v1, i64 3)
  call void @attach(ptr %out, ptr %plan, ptr %parents, ptr %kept, ptr %versions)
  br label %done
done:
  ret ptr %out
slow:
{at("%front", "%ctx", 8)}
  %answer = call ptr @PyObject_Vectorcall(ptr %front, ptr %args, i64 3, ptr null)
  ret ptr %answer
}}

define ptr @affine_front(ptr %self, ptr %args, i64 %n, ptr %names) {{
{at("%ctx", "%self", WORDS)}
  %three = icmp eq i64 %n, 3
  %plain = icmp eq ptr %names, null
  %ok = and i1 %three, %plain
  br i1 %ok, label %fast, label %other
fast:
  %x = load ptr, ptr %args
  %py = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %py
  %pz = getelementptr ptr, ptr %args, i64 2
  %z = load ptr, ptr %pz
  %out = call ptr @ternary(ptr %ctx, ptr %x, ptr %y, ptr %z, ptr %args)
  ret ptr %out
other:
{at("%front", "%ctx", 8)}
  %answer = call ptr @PyObject_Vectorcall(ptr %front, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}}
"""


def _module() -> str:
    t, n, *_ = offsets(Node)
    declared = "".join(f"declare {kind.split(' ')[0]} @{name}{kind[kind.index('('):]}\n"
                       for name, kind in EXTERNAL.items())
    shared = "".join(f"@g_{name} = external global i64\n" for name in GLOBALS)
    shared += f"@g_inferring = external global [{INFERRING} x i64]\n"
    return declared + shared + common(t, n) + _front(t)


def adopt(front, plans: dict, name: str, doc: str):
    """A function of three tensors that runs natively what it can, and `front` otherwise."""
    sources = stamp(__file__, front_parts.__file__)
    key = cache().key(f"affine {sources} {offsets(Node)}")
    (address,) = addresses(key, ("affine_front",), _module, True)
    context = array("q", [id(plans), id(front)])
    fronts.keep.extend((plans, front, context))
    return fronts._function(address, name, doc, context)
