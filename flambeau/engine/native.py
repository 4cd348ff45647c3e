"""Fronts as machine code: one lookup, one allocation, one kernel call, one step recorded.

A native front does what the Python front in eager.py does for operands it has met before, and
calls that front for everything else: a new signature, an empty free list, keywords, a subclass's
protocol, unusual modes. It speaks CPython's calling convention. A function finds its context in
`self`; a method gets the tensor there, so each method is a small function with a context of its own.
"""

from __future__ import annotations

import ctypes
import hashlib
from array import array
from pathlib import Path

from ..devices.cpu import bridge
from ..devices.cpu.compile import addresses, cache
from .tensor import LEAF, Signature, Tensor

#: how many ops of each form can have native methods: pointwise of one operand, of two, views,
#: reductions (sums)
FORMS = {"1": 160, "2": 96, "v": 64, "s": 48}

_api = ctypes.pythonapi


def slot_offset(cls: type, name: str) -> int:
    """Where in an instance a slot's value lies."""
    member = ctypes.c_int64.from_address(id(cls.__dict__[name]) + 40).value
    return ctypes.c_int64.from_address(member + 16).value


_TUPLE = tuple.__basicsize__    # where a tuple's items start
_WORDS = 24                     # where an array keeps the address of its contents
_VERSION_AT = 56                # in a storage, see bridge

_EXTERNAL = {
    "PyDict_GetItemWithError": "ptr (ptr, ptr)", "PyType_GenericAlloc": "ptr (ptr, i64)",
    "PyType_IsSubtype": "i32 (ptr, ptr)", "PyLong_AsVoidPtr": "ptr (ptr)",
    "PyLong_AsSsize_t": "i64 (ptr)", "PyFloat_AsDouble": "double (ptr)",
    "PyTuple_New": "ptr (i64)", "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)",
    "PyErr_Occurred": "ptr ()", "PyErr_Clear": "void ()", "PyLong_FromSsize_t": "ptr (i64)",
    "Py_IncRef": "void (ptr)", "Py_DecRef": "void (ptr)", "PyThread_get_thread_ident": "i64 ()",
    "PyLong_FromVoidPtr": "ptr (ptr)", "PyWeakref_NewRef": "ptr (ptr, ptr)",
    "PyList_Append": "i32 (ptr, ptr)", "PyList_New": "ptr (i64)",
    "PyObject_RichCompareBool": "i32 (ptr, ptr, i32)",
}
_GLOBALS = ("tensor", "node", "none", "leaf", "float", "int", "zeros2", "zeros3", "nones2",
            "nones3", "false", "off_count", "off_ident", "special", "sequence")


def _at(register: str, base: str, offset: int, type_: str = "ptr") -> str:
    return (f"  {register}.p = getelementptr i8, ptr {base}, i64 {offset}\n"
            f"  {register} = load {type_}, ptr {register}.p\n")


def _put(base: str, offset: int, value: str, tag: str) -> str:
    return (f"  %put{tag} = getelementptr i8, ptr {base}, i64 {offset}\n"
            f"  store ptr {value}, ptr %put{tag}\n")


def _common(t: dict, n: dict) -> str:
    """Functions all fronts share."""
    return f"""
; what a dict has under a key, or null; a key that cannot be one is found nowhere
define internal ptr @find(ptr %dict, ptr %key) {{
  %found = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %key)
  %is = icmp ne ptr %found, null
  br i1 %is, label %yes, label %no
yes:
  ret ptr %found
no:
  %error = call ptr @PyErr_Occurred()
  %plain = icmp eq ptr %error, null
  br i1 %plain, label %done, label %clear
clear:
  call void @PyErr_Clear()
  br label %done
done:
  ret ptr null
}}

; 1: record, 0: do not, -1: let Python decide
define internal i64 @recording() {{
  %special = load i64, ptr @g_special
  %odd = icmp ne i64 %special, 0
  br i1 %odd, label %python, label %usual
usual:
  %off = load i64, ptr @g_off_count
  %all_on = icmp eq i64 %off, 0
  br i1 %all_on, label %on, label %some
some:
  %one = icmp eq i64 %off, 1
  br i1 %one, label %which, label %python
which:
  %me = call i64 @PyThread_get_thread_ident()
  %who = load i64, ptr @g_off_ident
  %mine = icmp eq i64 %me, %who
  br i1 %mine, label %no, label %on
on:
  ret i64 1
no:
  ret i64 0
python:
  ret i64 -1
}}

define internal i1 @is_tensor(ptr %x) alwaysinline {{
{_at("%type", "%x", 8)}
  %tensor = load ptr, ptr @g_tensor
  %exact = icmp eq ptr %type, %tensor
  br i1 %exact, label %yes, label %maybe
maybe:
  %sub = call i32 @PyType_IsSubtype(ptr %type, ptr %tensor)
  %is = icmp ne i32 %sub, 0
  ret i1 %is
yes:
  ret i1 true
}}

; a tensor over a storage; takes over the reference to the storage
define internal ptr @tensor_over(ptr %sig, ptr %mem, ptr %address) {{
  %type = load ptr, ptr @g_tensor
  %t = call ptr @PyType_GenericAlloc(ptr %type, i64 0)
  %bad = icmp eq ptr %t, null
  br i1 %bad, label %fail, label %good
fail:
  ret ptr null
good:
  %none = load ptr, ptr @g_none
  call void @Py_IncRef(ptr %sig)
  call void @Py_IncRef(ptr %address)
  call void @Py_IncRef(ptr %none)
{_put("%t", t["sig"], "%sig", "a")}{_put("%t", t["mem"], "%mem", "b")}
{_put("%t", t["ptr"], "%address", "c")}{_put("%t", t["node"], "%none", "d")}
  ret ptr %t
}}

; take a storage from a free list; null if it is empty
define internal ptr @take(ptr %free) {{
{_at("%size", "%free", 16, "i64")}
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %none, label %some
none:
  ret ptr null
some:
  %less = sub i64 %size, 1
  store i64 %less, ptr %size.p
{_at("%items", "%free", 24)}
  %slot = getelementptr ptr, ptr %items, i64 %less
  %item = load ptr, ptr %slot
  ret ptr %item
}}

; the edge that leads to a tensor: itself if it is a leaf, else its node; a new reference
define internal ptr @edge(ptr %x, ptr %node) {{
  %leaf = load ptr, ptr @g_leaf
  %is = icmp eq ptr %node, %leaf
  %edge = select i1 %is, ptr %x, ptr %node
  call void @Py_IncRef(ptr %edge)
  ret ptr %edge
}}

; the version of a kept tensor's storage, 0 of anything else
define internal i64 @version_of(ptr %x, i1 %kept, i1 %tensor) {{
  %both = and i1 %kept, %tensor
  br i1 %both, label %look, label %zero
look:
{_at("%mem", "%x", t["mem"])}
{_at("%version", "%mem", _VERSION_AT, "i64")}
  ret i64 %version
zero:
  ret i64 0
}}

define internal ptr @alias(ptr %out) {{
{_at("%sig", "%out", t["sig"])}{_at("%mem", "%out", t["mem"])}{_at("%ptr", "%out", t["ptr"])}
  call void @Py_IncRef(ptr %mem)
  %t = call ptr @tensor_over(ptr %sig, ptr %mem, ptr %ptr)
  ret ptr %t
}}

; a step of a pointwise plan
define internal void @attach(ptr %out, ptr %plan, ptr %parents, ptr %kept, ptr %versions) {{
{_at("%back", "%plan", _TUPLE + 8 * 4)}{_at("%osig", "%out", t["sig"])}
  %sigs = call ptr @PyTuple_New(i64 1)
  call void @Py_IncRef(ptr %osig)
{_put("%sigs", _TUPLE, "%osig", "s")}
  call void @attach_step(ptr %out, ptr %back, ptr %sigs, ptr %parents, ptr %kept, ptr %versions)
  ret void
}}

; a step; takes over the references to sigs, parents, kept and versions
define internal void @attach_step(ptr %out, ptr %back, ptr %sigs, ptr %parents, ptr %kept, ptr %versions) {{
  %type = load ptr, ptr @g_node
  %n = call ptr @PyType_GenericAlloc(ptr %type, i64 0)
  %none = load ptr, ptr @g_none
  call void @Py_IncRef(ptr %back)
  call void @Py_IncRef(ptr %none)
  %last = load i64, ptr @g_sequence
  %seq = add i64 %last, 1
  store i64 %seq, ptr @g_sequence
  %boxed = call ptr @PyLong_FromSsize_t(i64 %seq)
{_put("%n", n["back"], "%back", "a")}{_put("%n", n["parents"], "%parents", "b")}
{_put("%n", n["kept"], "%kept", "c")}{_put("%n", n["versions"], "%versions", "d")}
{_put("%n", n["sigs"], "%sigs", "e")}{_put("%n", n["extra"], "%none", "f")}
{_put("%n", n["seq"], "%boxed", "g")}
{_at("%before", "%out", t["node"])}
  store ptr %n, ptr %before.p
  call void @Py_DecRef(ptr %before)
  ret void
}}

; a tuple like another, with one item replaced; a new reference
define internal ptr @kept_like(ptr %model, i64 %where, ptr %item) {{
{_at("%n", "%model", 16, "i64")}
  %out = call ptr @PyTuple_New(i64 %n)
  %from = getelementptr i8, ptr %model, i64 {_TUPLE}
  %to = getelementptr i8, ptr %out, i64 {_TUPLE}
  br label %head
head:
  %i = phi i64 [ 0, %0 ], [ %i.next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %fp = getelementptr ptr, ptr %from, i64 %i
  %old = load ptr, ptr %fp
  %this = icmp eq i64 %i, %where
  %value = select i1 %this, ptr %item, ptr %old
  call void @Py_IncRef(ptr %value)
  %tp = getelementptr ptr, ptr %to, i64 %i
  store ptr %value, ptr %tp
  %i.next = add i64 %i, 1
  br label %head
done:
  ret ptr %out
}}

define internal ptr @one_parent(ptr %x, ptr %node) {{
  %parents = call ptr @PyTuple_New(i64 1)
  %edge = call ptr @edge(ptr %x, ptr %node)
{_put("%parents", _TUPLE, "%edge", "p")}
  ret ptr %parents
}}

define internal void @keep_one(ptr %x, i1 %keep, ptr %kept, i64 %i) {{
  %none = load ptr, ptr @g_none
  %value = select i1 %keep, ptr %x, ptr %none
  call void @Py_IncRef(ptr %value)
  %items = getelementptr i8, ptr %kept, i64 {_TUPLE}
  %at = getelementptr ptr, ptr %items, i64 %i
  store ptr %value, ptr %at
  ret void
}}

define internal void @keep_result(ptr %out, i1 %keep, ptr %kept, i64 %i) {{
  %items = getelementptr i8, ptr %kept, i64 {_TUPLE}
  %at = getelementptr ptr, ptr %items, i64 %i
  br i1 %keep, label %yes, label %no
yes:
  %alias = call ptr @alias(ptr %out)
  store ptr %alias, ptr %at
  ret void
no:
  %none = load ptr, ptr @g_none
  call void @Py_IncRef(ptr %none)
  store ptr %none, ptr %at
  ret void
}}

; a tuple of versions: the shared one of zeros, or (v0, v1, 0) of the given length
define internal ptr @versions(i64 %v0, i64 %v1, i64 %n) {{
  %any = or i64 %v0, %v1
  %some = icmp ne i64 %any, 0
  br i1 %some, label %fresh, label %shared
shared:
  %two = icmp eq i64 %n, 2
  %where = select i1 %two, ptr @g_zeros2, ptr @g_zeros3
  %zeros = load ptr, ptr %where
  call void @Py_IncRef(ptr %zeros)
  ret ptr %zeros
fresh:
  %tuple = call ptr @PyTuple_New(i64 %n)
  %items = getelementptr i8, ptr %tuple, i64 {_TUPLE}
  %b0 = call ptr @PyLong_FromSsize_t(i64 %v0)
  store ptr %b0, ptr %items
  %p1 = getelementptr ptr, ptr %items, i64 1
  %b1 = call ptr @PyLong_FromSsize_t(i64 %v1)
  store ptr %b1, ptr %p1
  %three = icmp eq i64 %n, 3
  br i1 %three, label %third, label %done
third:
  %p2 = getelementptr ptr, ptr %items, i64 2
  %b2 = call ptr @PyLong_FromSsize_t(i64 0)
  store ptr %b2, ptr %p2
  br label %done
done:
  ret ptr %tuple
}}

define internal ptr @python1(ptr %ctx, ptr %x) {{
{_at("%front", "%ctx", 8)}
  %args = alloca ptr, i64 2
  store ptr %x, ptr %args
  %out = call ptr @PyObject_Vectorcall(ptr %front, ptr %args, i64 1, ptr null)
  ret ptr %out
}}

define internal ptr @python2(ptr %ctx, ptr %x, ptr %y) {{
{_at("%front", "%ctx", 8)}
  %args = alloca ptr, i64 2
  store ptr %x, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  store ptr %y, ptr %second
  %out = call ptr @PyObject_Vectorcall(ptr %front, ptr %args, i64 2, ptr null)
  ret ptr %out
}}
"""


def _unary(t: dict, g: dict) -> str:
    """One operand: a plan for all shapes of its kind if there is one, else one of its shape's own."""
    return f"""
define internal ptr @unary(ptr %ctx, ptr %x) noinline {{
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %lookup, label %slow
lookup:
{_at("%sig", "%x", t["sig"])}
  %none = load ptr, ptr @g_none
{_at("%kins", "%ctx", 24)}{_at("%kin", "%sig", g["kin"])}
  %alone = icmp eq ptr %kin, %none
  br i1 %alone, label %by_shape, label %by_kin
by_kin:
  %plan1 = call ptr @find(ptr %kins, ptr %kin)
  %served = icmp ne ptr %plan1, null
  br i1 %served, label %sized, label %by_shape
sized:
{_at("%numel", "%sig", g["numel"])}
  %n = call i64 @PyLong_AsSsize_t(ptr %numel)
  %small = icmp sle i64 %n, {bridge.GIL_THRESHOLD}
  br i1 %small, label %packed_, label %by_shape
by_shape:
  %plans = load ptr, ptr %ctx
  %plan0 = call ptr @find(ptr %plans, ptr %sig)
  %known = icmp ne ptr %plan0, null
  br i1 %known, label %packed_, label %slow
packed_:
  %plan = phi ptr [ %plan1, %sized ], [ %plan0, %by_shape ]
  %many = phi i1 [ true, %sized ], [ false, %by_shape ]
  %count = phi i64 [ %n, %sized ], [ 0, %by_shape ]
{_at("%packed", "%plan", _TUPLE + 8 * 5)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %graph
graph:
{_at("%node", "%x", t["node"])}{_at("%words", "%packed", _WORDS)}{_at("%keep", "%words", 24, "i64")}
  %loose = icmp eq ptr %node, %none
  br i1 %loose, label %go, label %wanted
wanted:
  %record = call i64 @recording()
  %python = icmp slt i64 %record, 0
  br i1 %python, label %slow, label %decided
decided:
{_at("%way", "%plan", _TUPLE + 8 * 4)}
  %flows = icmp ne ptr %way, %none
  %may = icmp eq i64 %record, 1
  %on = and i1 %may, %flows
  %unprepared = icmp slt i64 %keep, 0
  %first_time = and i1 %on, %unprepared
  br i1 %first_time, label %slow, label %go
go:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
{_at("%psig", "%plan", _TUPLE)}{_at("%plast", "%words", 8, "i64")}
  %osig = select i1 %many, ptr %sig, ptr %psig
  %last = select i1 %many, i64 %count, i64 %plast
{_at("%free", "%osig", g["free"])}
  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %run
run:
{_at("%address", "%mem", 16)}
  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  %raw = call ptr @PyLong_AsVoidPtr(ptr %address)
{_at("%xbox", "%x", t["ptr"])}
  %xraw = call ptr @PyLong_AsVoidPtr(ptr %xbox)
{_at("%kernel", "%words", 0)}
  call void %kernel(ptr %raw, ptr %xraw, i64 %last)
  br i1 %recorded, label %step, label %done
step:
  %reach = lshr i64 %keep, 8
  %bits = and i64 %reach, 255
  %parents = call ptr @one_parent(ptr %x, ptr %node)
  %k0b = and i64 %bits, 1
  %k0 = icmp ne i64 %k0b, 0
  %k1b = and i64 %bits, 2
  %k1 = icmp ne i64 %k1b, 0
  %some = icmp ne i64 %bits, 0
  br i1 %some, label %keeping, label %letting
letting:
  %nones = load ptr, ptr @g_nones2
  call void @Py_IncRef(ptr %nones)
  br label %keep_done
keeping:
  %fresh = call ptr @PyTuple_New(i64 2)
  call void @keep_one(ptr %x, i1 %k0, ptr %fresh, i64 0)
  call void @keep_result(ptr %out, i1 %k1, ptr %fresh, i64 1)
  br label %keep_done
keep_done:
  %kept = phi ptr [ %nones, %letting ], [ %fresh, %keeping ]
  %v0 = call i64 @version_of(ptr %x, i1 %k0, i1 true)
  %versions = call ptr @versions(i64 %v0, i64 0, i64 2)
  call void @attach(ptr %out, ptr %plan, ptr %parents, ptr %kept, ptr %versions)
  br label %done
done:
  ret ptr %out
slow:
  %answer = call ptr @python1(ptr %ctx, ptr %x)
  ret ptr %answer
}}
"""


def _binary(t: dict, g: dict) -> str:
    """Two operands, either of which may be a number (never both)."""
    return f"""
define internal ptr @binary(ptr %ctx, ptr %x, ptr %y) noinline {{
entry:
  %none = load ptr, ptr @g_none
  %plans = load ptr, ptr %ctx
{_at("%kins", "%ctx", 24)}
{_at("%ytype", "%y", 8)}
  %xok = call i1 @is_tensor(ptr %x)
  br i1 %xok, label %x_tensor, label %x_other
x_tensor:
{_at("%xsig", "%x", t["sig"])}
{_at("%xnode", "%x", t["node"])}
{_at("%xkin", "%xsig", g["kin"])}
  %xk = icmp eq ptr %xkin, %none
  %kinless = select i1 %xk, ptr %plans, ptr %kins
  %xkey = select i1 %xk, ptr %xsig, ptr %xkin
  %float = load ptr, ptr @g_float
  %int = load ptr, ptr @g_int
  %isf = icmp eq ptr %ytype, %float
  %isi = icmp eq ptr %ytype, %int
  %ynumber = or i1 %isf, %isi
  br i1 %ynumber, label %y_number, label %second_tensor
second_tensor:
  %yok = call i1 @is_tensor(ptr %y)
  br i1 %yok, label %both, label %slow
both:
{_at("%ysig", "%y", t["sig"])}
{_at("%ynode", "%y", t["node"])}
{_at("%ykin", "%ysig", g["kin"])}
  %yk = icmp eq ptr %ykin, %none
  %notkin = or i1 %xk, %yk
  br i1 %notkin, label %both_shape, label %both_kin
both_kin:
  %inner1 = call ptr @find(ptr %kins, ptr %xkin)
  %has1 = icmp ne ptr %inner1, null
  br i1 %has1, label %both_kin2, label %both_shape
both_kin2:
  %plan1 = call ptr @find(ptr %inner1, ptr %ykin)
  %served1 = icmp ne ptr %plan1, null
  br i1 %served1, label %same_shape, label %both_shape
same_shape:
  %same = icmp eq ptr %xsig, %ysig
  br i1 %same, label %kin_sized, label %compare
compare:
{_at("%xshape", "%xsig", g["shape"])}{_at("%yshape", "%ysig", g["shape"])}
  %equal = call i32 @PyObject_RichCompareBool(ptr %xshape, ptr %yshape, i32 2)
  %is_equal = icmp eq i32 %equal, 1
  br i1 %is_equal, label %kin_sized, label %both_shape
both_shape:
  %inner0 = call ptr @find(ptr %plans, ptr %xsig)
  %has0 = icmp ne ptr %inner0, null
  br i1 %has0, label %both_shape2, label %slow
both_shape2:
  %plan0 = call ptr @find(ptr %inner0, ptr %ysig)
  br label %found
y_number:
{_at("%baked", "%ctx", 16, "i64")}
  %is_baked = icmp ne i64 %baked, 0
  br i1 %is_baked, label %by_value, label %by_type
by_type:
  call void @Py_IncRef(ptr %ytype)
  br label %number_key
by_value:
  %pair = call ptr @PyTuple_New(i64 2)
  call void @Py_IncRef(ptr %ytype)
  call void @Py_IncRef(ptr %y)
{_put("%pair", _TUPLE, "%ytype", "k0")}{_put("%pair", _TUPLE + 8, "%y", "k1")}
  br label %number_key
number_key:
  %nkey = phi ptr [ %ytype, %by_type ], [ %pair, %by_value ]
  %innern = call ptr @find(ptr %kinless, ptr %xkey)
  %hasn = icmp ne ptr %innern, null
  br i1 %hasn, label %number_plan, label %number_shape
number_plan:
  %plan2 = call ptr @find(ptr %innern, ptr %nkey)
  %served2 = icmp ne ptr %plan2, null
  br i1 %served2, label %number_found, label %number_shape
number_found:
  call void @Py_DecRef(ptr %nkey)
  br i1 %xk, label %found, label %kin_sized
number_shape:
  %innerm = call ptr @find(ptr %plans, ptr %xsig)
  %hasm = icmp ne ptr %innerm, null
  br i1 %hasm, label %number_shape2, label %number_none
number_none:
  call void @Py_DecRef(ptr %nkey)
  br label %slow
number_shape2:
  %plan4 = call ptr @find(ptr %innerm, ptr %nkey)
  call void @Py_DecRef(ptr %nkey)
  br label %found
x_other:
{_at("%xtype", "%x", 8)}
  %float_ = load ptr, ptr @g_float
  %int_ = load ptr, ptr @g_int
  %xf = icmp eq ptr %xtype, %float_
  %xi = icmp eq ptr %xtype, %int_
  %xnumber = or i1 %xf, %xi
{_at("%baked_", "%ctx", 16, "i64")}
  %plain = icmp eq i64 %baked_, 0
  %usable = and i1 %xnumber, %plain
  br i1 %usable, label %x_number, label %slow
x_number:
  %yok_ = call i1 @is_tensor(ptr %y)
  br i1 %yok_, label %reflected, label %slow
reflected:
{_at("%ysig_", "%y", t["sig"])}
{_at("%ynode_", "%y", t["node"])}
{_at("%ykin_", "%ysig_", g["kin"])}
  %yk_ = icmp eq ptr %ykin_, %none
  br i1 %yk_, label %reflected_shape, label %reflected_kin
reflected_kin:
  %inner5 = call ptr @find(ptr %kins, ptr %xtype)
  %has5 = icmp ne ptr %inner5, null
  br i1 %has5, label %reflected_kin2, label %reflected_shape
reflected_kin2:
  %plan5 = call ptr @find(ptr %inner5, ptr %ykin_)
  %served5 = icmp ne ptr %plan5, null
  br i1 %served5, label %kin_sized, label %reflected_shape
reflected_shape:
  %inner3 = call ptr @find(ptr %plans, ptr %xtype)
  %has3 = icmp ne ptr %inner3, null
  br i1 %has3, label %reflected_plan, label %slow
reflected_plan:
  %plan3 = call ptr @find(ptr %inner3, ptr %ysig_)
  br label %found
kin_sized:
  %kplan = phi ptr [ %plan1, %same_shape ], [ %plan1, %compare ], [ %plan2, %number_found ], [ %plan5, %reflected_kin2 ]
  %kxn = phi ptr [ %xnode, %same_shape ], [ %xnode, %compare ], [ %xnode, %number_found ], [ %none, %reflected_kin2 ]
  %kyn = phi ptr [ %ynode, %same_shape ], [ %ynode, %compare ], [ %none, %number_found ], [ %ynode_, %reflected_kin2 ]
  %kxt = phi i1 [ true, %same_shape ], [ true, %compare ], [ true, %number_found ], [ false, %reflected_kin2 ]
  %kyt = phi i1 [ true, %same_shape ], [ true, %compare ], [ false, %number_found ], [ true, %reflected_kin2 ]
  %ks0 = phi ptr [ %xsig, %same_shape ], [ %xsig, %compare ], [ %xsig, %number_found ], [ %ysig_, %reflected_kin2 ]
  %ks1 = phi ptr [ %ysig, %same_shape ], [ %ysig, %compare ], [ %xsig, %number_found ], [ %ysig_, %reflected_kin2 ]
{_at("%kpacked", "%kplan", _TUPLE + 8 * 5)}{_at("%kwords", "%kpacked", _WORDS)}
{_at("%which", "%kwords", 32, "i64")}
  %from_first = icmp eq i64 %which, 0
  %ksig = select i1 %from_first, ptr %ks0, ptr %ks1
{_at("%numel", "%ksig", g["numel"])}
  %count0 = call i64 @PyLong_AsSsize_t(ptr %numel)
  %small = icmp sle i64 %count0, {bridge.GIL_THRESHOLD}
  br i1 %small, label %found, label %slow
found:
  %plan = phi ptr [ %plan0, %both_shape2 ], [ %plan2, %number_found ], [ %plan4, %number_shape2 ], [ %plan3, %reflected_plan ], [ %kplan, %kin_sized ]
  %xn = phi ptr [ %xnode, %both_shape2 ], [ %xnode, %number_found ], [ %xnode, %number_shape2 ], [ %none, %reflected_plan ], [ %kxn, %kin_sized ]
  %yn = phi ptr [ %ynode, %both_shape2 ], [ %none, %number_found ], [ %none, %number_shape2 ], [ %ynode_, %reflected_plan ], [ %kyn, %kin_sized ]
  %xt = phi i1 [ true, %both_shape2 ], [ true, %number_found ], [ true, %number_shape2 ], [ false, %reflected_plan ], [ %kxt, %kin_sized ]
  %yt = phi i1 [ true, %both_shape2 ], [ false, %number_found ], [ false, %number_shape2 ], [ true, %reflected_plan ], [ %kyt, %kin_sized ]
  %many = phi i1 [ false, %both_shape2 ], [ false, %number_found ], [ false, %number_shape2 ], [ false, %reflected_plan ], [ true, %kin_sized ]
  %kin_sig = phi ptr [ null, %both_shape2 ], [ null, %number_found ], [ null, %number_shape2 ], [ null, %reflected_plan ], [ %ksig, %kin_sized ]
  %count = phi i64 [ 0, %both_shape2 ], [ 0, %number_found ], [ 0, %number_shape2 ], [ 0, %reflected_plan ], [ %count0, %kin_sized ]
  %known = icmp ne ptr %plan, null
  br i1 %known, label %packed_, label %slow
packed_:
{_at("%packed", "%plan", _TUPLE + 8 * 5)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %graph
graph:
{_at("%words", "%packed", _WORDS)}{_at("%keep", "%words", 24, "i64")}{_at("%kind", "%words", 16, "i64")}
  %xloose = icmp eq ptr %xn, %none
  %yloose = icmp eq ptr %yn, %none
  %loose = and i1 %xloose, %yloose
  br i1 %loose, label %number, label %wanted
wanted:
  %record = call i64 @recording()
  %python = icmp slt i64 %record, 0
  br i1 %python, label %slow, label %decided
decided:
{_at("%way", "%plan", _TUPLE + 8 * 4)}
  %flows = icmp ne ptr %way, %none
  %may = icmp eq i64 %record, 1
  %on = and i1 %may, %flows
  %unprepared = icmp slt i64 %keep, 0
  %first_time = and i1 %on, %unprepared
  br i1 %first_time, label %slow, label %number
number:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
  %value = select i1 %xt, ptr %y, ptr %x
  switch i64 %kind, label %tensors [ i64 1, label %as_double
                                     i64 2, label %as_int
                                     i64 3, label %tensors ]
as_double:
  %double = call double @PyFloat_AsDouble(ptr %value)
  br label %checked
as_int:
  %whole = call i64 @PyLong_AsSsize_t(ptr %value)
  br label %checked
checked:
  %d0 = phi double [ %double, %as_double ], [ 0.0, %as_int ]
  %i0 = phi i64 [ 0, %as_double ], [ %whole, %as_int ]
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %tensors, label %clear
clear:
  call void @PyErr_Clear()
  br label %slow
tensors:
  %d = phi double [ 0.0, %number ], [ 0.0, %number ], [ %d0, %checked ]
  %i = phi i64 [ 0, %number ], [ 0, %number ], [ %i0, %checked ]
{_at("%psig", "%plan", _TUPLE)}{_at("%plast", "%words", 8, "i64")}
  %osig = select i1 %many, ptr %kin_sig, ptr %psig
  %last = select i1 %many, i64 %count, i64 %plast
{_at("%free", "%osig", g["free"])}
  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %run
run:
{_at("%address", "%mem", 16)}
  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  %raw = call ptr @PyLong_AsVoidPtr(ptr %address)
  %first = select i1 %xt, ptr %x, ptr %y
{_at("%fbox", "%first", t["ptr"])}
  %fraw = call ptr @PyLong_AsVoidPtr(ptr %fbox)
{_at("%kernel", "%words", 0)}
  switch i64 %kind, label %call0 [ i64 1, label %call1
                                   i64 2, label %call2
                                   i64 3, label %call3 ]
call0:
{_at("%ybox", "%y", t["ptr"])}
  %yraw = call ptr @PyLong_AsVoidPtr(ptr %ybox)
  call void %kernel(ptr %raw, ptr %fraw, ptr %yraw, i64 %last)
  br label %ran
call1:
  call void %kernel(ptr %raw, ptr %fraw, double %d, i64 %last)
  br label %ran
call2:
  call void %kernel(ptr %raw, ptr %fraw, i64 %i, i64 %last)
  br label %ran
call3:
  call void %kernel(ptr %raw, ptr %fraw, i64 %last)
  br label %ran
ran:
  br i1 %recorded, label %step, label %done
step:
  %xwants = select i1 %xloose, i64 0, i64 8
  %ywants = select i1 %yloose, i64 0, i64 16
  %shift = add i64 %xwants, %ywants
  %reach = lshr i64 %keep, %shift
  %bits = and i64 %reach, 255
  %parents = call ptr @PyTuple_New(i64 2)
  %xend = select i1 %xloose, ptr %none, ptr %x
  %yend = select i1 %yloose, ptr %none, ptr %y
  %xedge = call ptr @edge(ptr %xend, ptr %xn)
  %yedge = call ptr @edge(ptr %yend, ptr %yn)
{_put("%parents", _TUPLE, "%xedge", "p0")}{_put("%parents", _TUPLE + 8, "%yedge", "p1")}
  %k0b = and i64 %bits, 1
  %k0 = icmp ne i64 %k0b, 0
  %k1b = and i64 %bits, 2
  %k1 = icmp ne i64 %k1b, 0
  %k2b = and i64 %bits, 4
  %k2 = icmp ne i64 %k2b, 0
  %some = icmp ne i64 %bits, 0
  br i1 %some, label %keeping, label %letting
letting:
  %nones = load ptr, ptr @g_nones3
  call void @Py_IncRef(ptr %nones)
  br label %keep_done
keeping:
  %fresh = call ptr @PyTuple_New(i64 3)
  call void @keep_one(ptr %x, i1 %k0, ptr %fresh, i64 0)
  call void @keep_one(ptr %y, i1 %k1, ptr %fresh, i64 1)
  call void @keep_result(ptr %out, i1 %k2, ptr %fresh, i64 2)
  br label %keep_done
keep_done:
  %kept = phi ptr [ %nones, %letting ], [ %fresh, %keeping ]
  %v0 = call i64 @version_of(ptr %x, i1 %k0, i1 %xt)
  %v1 = call i64 @version_of(ptr %y, i1 %k1, i1 %yt)
  %versions = call ptr @versions(i64 %v0, i64 %v1, i64 3)
  call void @attach(ptr %out, ptr %plan, ptr %parents, ptr %kept, ptr %versions)
  br label %done
done:
  ret ptr %out
slow:
  %answer = call ptr @python2(ptr %ctx, ptr %x, ptr %y)
  ret ptr %answer
}}
"""


def _view(t: dict) -> str:
    """A view: plans are found by (signature, arguments) and are (signature, bytes to move, back).

    With the context's third word set, only integers are looked up: True and 1.0 equal 1, but do
    not index as it does.
    """
    return f"""
define internal ptr @view(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names) noinline {{
  %plain = icmp eq ptr %names, null
  br i1 %plain, label %typed, label %slow
typed:
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %lookup, label %slow
lookup:
{_at("%sig", "%x", t["sig"])}{_at("%node", "%x", t["node"])}
{_at("%strict", "%ctx", 16, "i64")}
  %any = icmp eq i64 %strict, 0
  %int = load ptr, ptr @g_int
  %inner = call ptr @PyTuple_New(i64 %n)
  %items = getelementptr i8, ptr %inner, i64 {_TUPLE}
  br label %copy
copy:
  %i = phi i64 [ 0, %lookup ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %keyed
one:
  %from = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %from
  call void @Py_IncRef(ptr %arg)
  %to = getelementptr ptr, ptr %items, i64 %i
  store ptr %arg, ptr %to
  %i.next = add i64 %i, 1
{_at("%atype", "%arg", 8)}
  %whole = icmp eq ptr %atype, %int
  %fits = or i1 %whole, %any
  br i1 %fits, label %copy, label %odd
odd:
  call void @Py_DecRef(ptr %inner)
  br label %slow
keyed:
  %key = call ptr @PyTuple_New(i64 2)
  call void @Py_IncRef(ptr %sig)
{_put("%key", _TUPLE, "%sig", "k0")}{_put("%key", _TUPLE + 8, "%inner", "k1")}
  %plans = load ptr, ptr %ctx
  %plan = call ptr @find(ptr %plans, ptr %key)
  call void @Py_DecRef(ptr %key)
  %known = icmp ne ptr %plan, null
  br i1 %known, label %planned, label %slow
planned:
  %none = load ptr, ptr @g_none
{_at("%osig", "%plan", _TUPLE)}{_at("%move", "%plan", _TUPLE + 8)}{_at("%back", "%plan", _TUPLE + 16)}
  %copies = icmp eq ptr %osig, %none
  br i1 %copies, label %slow, label %mode
mode:
  %record = call i64 @recording()
  %python = icmp slt i64 %record, 0
  br i1 %python, label %slow, label %views_
views_:
  %on = icmp eq i64 %record, 1
  %leaf = load ptr, ptr @g_leaf
  %is_leaf = icmp eq ptr %node, %leaf
  %not_leaf = xor i1 %is_leaf, true
  %remembers = and i1 %on, %not_leaf
{_at("%views", "%x", t["views"])}
  %has = icmp ne ptr %views, null
  %looks = and i1 %remembers, %has
  br i1 %looks, label %count, label %build
count:
{_at("%size", "%views", 16, "i64")}
  %many = icmp sgt i64 %size, 62
  br i1 %many, label %slow, label %build
build:
{_at("%mem", "%x", t["mem"])}{_at("%xptr", "%x", t["ptr"])}
  %by = call i64 @PyLong_AsSsize_t(ptr %move)
  %stays = icmp eq i64 %by, 0
  br i1 %stays, label %same, label %moved
same:
  call void @Py_IncRef(ptr %xptr)
  br label %make
moved:
  %raw = call ptr @PyLong_AsVoidPtr(ptr %xptr)
  %further = getelementptr i8, ptr %raw, i64 %by
  %boxed = call ptr @PyLong_FromVoidPtr(ptr %further)
  br label %make
make:
  %address = phi ptr [ %xptr, %same ], [ %boxed, %moved ]
  call void @Py_IncRef(ptr %mem)
  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  call void @Py_DecRef(ptr %address)
  call void @Py_IncRef(ptr %x)
{_put("%out", t["base"], "%x", "b")}
  br i1 %remembers, label %remember, label %graph
remember:
  %weak = call ptr @PyWeakref_NewRef(ptr %out, ptr null)
  br i1 %has, label %append, label %first
first:
  %list = call ptr @PyList_New(i64 0)
  store ptr %list, ptr %views.p
  br label %append
append:
  %into = phi ptr [ %views, %remember ], [ %list, %first ]
  %failed = call i32 @PyList_Append(ptr %into, ptr %weak)
  call void @Py_DecRef(ptr %weak)
  br label %graph
graph:
  %has_node = icmp ne ptr %node, %none
  %flows = icmp ne ptr %back, %none
  %both = and i1 %has_node, %flows
  %recorded = and i1 %both, %on
  br i1 %recorded, label %step, label %done
step:
  %parents = call ptr @one_parent(ptr %x, ptr %node)
  %sigs = call ptr @PyTuple_New(i64 1)
  call void @Py_IncRef(ptr %osig)
{_put("%sigs", _TUPLE, "%osig", "s")}
  %kept = call ptr @PyTuple_New(i64 0)
  %versions = call ptr @PyTuple_New(i64 0)
  call void @attach_step(ptr %out, ptr %back, ptr %sigs, ptr %parents, ptr %kept, ptr %versions)
  br label %done
done:
  ret ptr %out
slow:
  %answer = call ptr @otherwise_of(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}}
"""


def _reduce(t: dict, g: dict) -> str:
    """A reduction of one result: found by (signature, dim, keepdim, None), or for a whole tensor by
    what it has in common with those of other shapes."""
    return f"""
define internal ptr @reduce(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names) noinline {{
  %plain = icmp eq ptr %names, null
  %few = icmp slt i64 %n, 3
  %simple = and i1 %plain, %few
  br i1 %simple, label %typed, label %slow
typed:
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %lookup, label %slow
lookup:
{_at("%sig", "%x", t["sig"])}{_at("%node", "%x", t["node"])}
  %none = load ptr, ptr @g_none
  %false = load ptr, ptr @g_false
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %first, label %whole
whole:
{_at("%kins", "%ctx", 24)}{_at("%kin", "%sig", g["kin"])}
  %kplan = call ptr @find(ptr %kins, ptr %kin)
  %served = icmp ne ptr %kplan, null
  br i1 %served, label %sized, label %all
sized:
{_at("%kpacked", "%kplan", _TUPLE + 8 * 5)}{_at("%kwords", "%kpacked", _WORDS)}
{_at("%most", "%kwords", 40, "i64")}{_at("%numel", "%sig", g["numel"])}
  %size = call i64 @PyLong_AsSsize_t(ptr %numel)
  %fits = icmp sle i64 %size, %most
  br i1 %fits, label %packed_, label %all
first:
  %dim_ = load ptr, ptr %args
  %two = icmp sgt i64 %n, 1
  br i1 %two, label %second, label %all
second:
  %keepp = getelementptr ptr, ptr %args, i64 1
  %keep_ = load ptr, ptr %keepp
  br label %all
all:
  %dim = phi ptr [ %none, %whole ], [ %none, %sized ], [ %dim_, %first ], [ %dim_, %second ]
  %keepdim = phi ptr [ %false, %whole ], [ %false, %sized ], [ %false, %first ], [ %keep_, %second ]
  %key = call ptr @PyTuple_New(i64 4)
  call void @Py_IncRef(ptr %sig)
  call void @Py_IncRef(ptr %dim)
  call void @Py_IncRef(ptr %keepdim)
  call void @Py_IncRef(ptr %none)
{_put("%key", _TUPLE, "%sig", "k0")}{_put("%key", _TUPLE + 8, "%dim", "k1")}
{_put("%key", _TUPLE + 16, "%keepdim", "k2")}{_put("%key", _TUPLE + 24, "%none", "k3")}
  %plans = load ptr, ptr %ctx
  %plan_ = call ptr @find(ptr %plans, ptr %key)
  call void @Py_DecRef(ptr %key)
  %known = icmp ne ptr %plan_, null
  br i1 %known, label %packed_, label %slow
packed_:
  %plan = phi ptr [ %kplan, %sized ], [ %plan_, %all ]
  %many = phi i1 [ true, %sized ], [ false, %all ]
  %whole_count = phi i64 [ %size, %sized ], [ 0, %all ]
{_at("%packed", "%plan", _TUPLE + 8 * 5)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %graph
graph:
{_at("%words", "%packed", _WORDS)}{_at("%simple_back", "%words", 24, "i64")}
  %loose = icmp eq ptr %node, %none
  br i1 %loose, label %go, label %wanted
wanted:
  %record = call i64 @recording()
  %python = icmp slt i64 %record, 0
  br i1 %python, label %slow, label %decided
decided:
  %on = icmp eq i64 %record, 1
  %hard = icmp slt i64 %simple_back, 0
  %both = and i1 %on, %hard
  br i1 %both, label %slow, label %go
go:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
{_at("%free", "%plan", _TUPLE + 8 * 6)}
  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %run
run:
{_at("%sigs", "%plan", _TUPLE + 8 * 7)}{_at("%osig", "%sigs", _TUPLE)}{_at("%address", "%mem", 16)}
  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  %raw = call ptr @PyLong_AsVoidPtr(ptr %address)
{_at("%xbox", "%x", t["ptr"])}
  %xraw = call ptr @PyLong_AsVoidPtr(ptr %xbox)
{_at("%kernel", "%words", 0)}{_at("%plast", "%words", 8, "i64")}{_at("%kind", "%words", 16, "i64")}
  %last = select i1 %many, i64 %whole_count, i64 %plast
  %counted = icmp eq i64 %kind, 1
  br i1 %counted, label %with_count, label %without
with_count:
{_at("%pcount", "%words", 32, "double")}
  %wcount = sitofp i64 %whole_count to double
  %count = select i1 %many, double %wcount, double %pcount
  call void %kernel(ptr %raw, ptr %xraw, double %count, i64 %last)
  br label %ran
without:
  call void %kernel(ptr %raw, ptr %xraw, i64 %last)
  br label %ran
ran:
  br i1 %recorded, label %step, label %done
step:
  %flows = icmp eq i64 %simple_back, 1
  br i1 %flows, label %attach, label %done
attach:
  %parents = call ptr @one_parent(ptr %x, ptr %node)
{_at("%back", "%plan", _TUPLE + 8 * 8)}{_at("%model", "%plan", _TUPLE + 8 * 9)}
{_at("%versions", "%plan", _TUPLE + 8 * 10)}{_at("%where", "%words", 48, "i64")}
  %kept = call ptr @kept_like(ptr %model, i64 %where, ptr %sig)
  call void @Py_IncRef(ptr %sigs)
  call void @Py_IncRef(ptr %versions)
  call void @attach_step(ptr %out, ptr %back, ptr %sigs, ptr %parents, ptr %kept, ptr %versions)
  br label %done
done:
  ret ptr %out
slow:
  %answer = call ptr @otherwise_of(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}}
"""


_SHARED = """
; the function forms: the first argument is the tensor
define internal ptr @enterv(ptr %ctx, ptr %args, i64 %n, ptr %names) noinline {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %fast, label %other
fast:
  %x = load ptr, ptr %args
  %rest = getelementptr ptr, ptr %args, i64 1
  %less = sub i64 %n, 1
  %out = call ptr @view(ptr %ctx, ptr %x, ptr %rest, i64 %less, ptr %names)
  ret ptr %out
other:
  %answer = call ptr @otherwise(ptr %ctx, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}
define internal ptr @enters(ptr %ctx, ptr %args, i64 %n, ptr %names) noinline {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %fast, label %other
fast:
  %x = load ptr, ptr %args
  %rest = getelementptr ptr, ptr %args, i64 1
  %less = sub i64 %n, 1
  %out = call ptr @reduce(ptr %ctx, ptr %x, ptr %rest, i64 %less, ptr %names)
  ret ptr %out
other:
  %answer = call ptr @otherwise(ptr %ctx, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}
define internal ptr @enterv_of(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names) noinline {
  %out = tail call ptr @view(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names)
  ret ptr %out
}
define internal ptr @enters_of(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names) noinline {
  %out = tail call ptr @reduce(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names)
  ret ptr %out
}
; anything but the plain form: hand all arguments to the Python front
define internal ptr @otherwise(ptr %ctx, ptr %args, i64 %n, ptr %names) noinline {
  %frontp = getelementptr i8, ptr %ctx, i64 8
  %front = load ptr, ptr %frontp
  %out = call ptr @PyObject_Vectorcall(ptr %front, ptr %args, i64 %n, ptr %names)
  ret ptr %out
}
define internal ptr @otherwise_of(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names) noinline {
  %named = icmp ne ptr %names, null
  br i1 %named, label %count, label %copy
count:
  %sizep = getelementptr i8, ptr %names, i64 16
  %size = load i64, ptr %sizep
  br label %copy
copy:
  %extra = phi i64 [ 0, %0 ], [ %size, %count ]
  %given = add i64 %n, %extra
  %all = add i64 %given, 1
  %room = alloca ptr, i64 %all
  store ptr %self, ptr %room
  %rest = getelementptr ptr, ptr %room, i64 1
  %bytes = mul i64 %given, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %bytes, i1 false)
  %m = add i64 %n, 1
  %out = call ptr @otherwise(ptr %ctx, ptr %room, i64 %m, ptr %names)
  ret ptr %out
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal ptr @enter1(ptr %ctx, ptr %args, i64 %n, ptr %names) noinline {
  %one = icmp eq i64 %n, 1
  %plain = icmp eq ptr %names, null
  %ok = and i1 %one, %plain
  br i1 %ok, label %fast, label %other
fast:
  %x = load ptr, ptr %args
  %out = call ptr @unary(ptr %ctx, ptr %x)
  ret ptr %out
other:
  %answer = call ptr @otherwise(ptr %ctx, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}
define internal ptr @enter1_of(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names) noinline {
  %none = icmp eq i64 %n, 0
  %plain = icmp eq ptr %names, null
  %ok = and i1 %none, %plain
  br i1 %ok, label %fast, label %other
fast:
  %out = call ptr @unary(ptr %ctx, ptr %self)
  ret ptr %out
other:
  %answer = call ptr @otherwise_of(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}
define internal ptr @enter2(ptr %ctx, ptr %args, i64 %n, ptr %names) noinline {
  %two = icmp eq i64 %n, 2
  %plain = icmp eq ptr %names, null
  %ok = and i1 %two, %plain
  br i1 %ok, label %fast, label %other
fast:
  %x = load ptr, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %second
  %out = call ptr @binary(ptr %ctx, ptr %x, ptr %y)
  ret ptr %out
other:
  %answer = call ptr @otherwise(ptr %ctx, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}
define internal ptr @enter2_of(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names) noinline {
  %one = icmp eq i64 %n, 1
  %plain = icmp eq ptr %names, null
  %ok = and i1 %one, %plain
  br i1 %ok, label %fast, label %other
fast:
  %y = load ptr, ptr %args
  %out = call ptr @binary(ptr %ctx, ptr %self, ptr %y)
  ret ptr %out
other:
  %answer = call ptr @otherwise_of(ptr %ctx, ptr %self, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}
define ptr @next_sequence(ptr %self, ptr %args, i64 %n, ptr %names) {
  %last = load i64, ptr @g_sequence
  %seq = add i64 %last, 1
  store i64 %seq, ptr @g_sequence
  %boxed = call ptr @PyLong_FromSsize_t(i64 %seq)
  ret ptr %boxed
}
"""


def _entries() -> str:
    """Functions, which find their context in `self`, and one small method per context."""
    passed = "ptr %args, i64 %n, ptr %names"
    text = []
    for arity in FORMS:
        text.append(f"define ptr @f{arity}(ptr %self, {passed}) {{\n{_at('%ctx', '%self', _WORDS)}"
                    f"  %out = tail call ptr @enter{arity}(ptr %ctx, {passed})\n  ret ptr %out\n}}\n")
        for i in range(FORMS[arity]):
            text.append(f"define internal ptr @m{arity}_{i}(ptr %self, {passed}) {{\n"
                        f"{_context(arity, i)}"
                        f"  %out = tail call ptr @enter{arity}_of(ptr %ctx, ptr %self, {passed})\n"
                        "  ret ptr %out\n}\n")
    for i in range(FORMS["2"]):
        text.append(f"define internal ptr @r2_{i}(ptr %self, {passed}) {{\n{_context('2', i)}"
                    "  %x = load ptr, ptr %args\n"
                    "  %out = tail call ptr @binary(ptr %ctx, ptr %x, ptr %self)\n"
                    "  ret ptr %out\n}\n")
    for form in (*(f"m{form}" for form in FORMS), "r2"):
        count = FORMS[form[1]]
        entries = ", ".join(f"ptr @{form}_{i}" for i in range(count))
        text.append(f"@entries_{form} = global [{count} x ptr] [{entries}]\n")
    return "".join(text)


def _context(arity: str, i: int) -> str:
    return (f"  %at = getelementptr ptr, ptr @contexts{arity}, i64 {i}\n"
            "  %ctx = load ptr, ptr %at\n")


#: what the generated text depends on, besides the layout of objects
_SOURCE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _offsets(node: type) -> tuple[dict, dict, dict]:
    """Where tensors and nodes keep what fronts read and write."""
    t = {name: slot_offset(Tensor, name) for name in ("sig", "ptr", "mem", "node", "base", "views")}
    n = {name: slot_offset(node, name) for name in
         ("back", "parents", "kept", "versions", "seq", "sigs", "extra")}
    g = {name: slot_offset(Signature, name) for name in ("kin", "free", "numel", "shape")}
    return t, n, g


def module_text(node: type) -> str:
    """The whole module."""
    t, n, g = _offsets(node)
    declared = "".join(f"declare {kind.split(' ')[0]} @{name}{kind[kind.index('('):]}\n"
                       for name, kind in _EXTERNAL.items())
    variables = "".join(f"@g_{name} = global i64 0\n" for name in _GLOBALS)
    tables = "".join(f"@contexts{form} = global [{count} x ptr] zeroinitializer\n"
                     for form, count in FORMS.items())
    return (declared + variables + tables + _common(t, n) + _unary(t, g) + _binary(t, g) + _view(t)
            + _reduce(t, g) + _SHARED + _entries())


_METH_FASTCALL_KEYWORDS = 0x0080 | 0x0002


class Fronts:
    """The loaded module: hands out native functions and methods for Python fronts."""

    def __init__(self, node: type):
        j = bridge.jit()
        for name in _EXTERNAL:
            j.llvm.add_symbol(name, ctypes.cast(getattr(_api, name), ctypes.c_void_p).value)
        key = cache().key(f"fronts {_SOURCE} {_offsets(node)}")
        names = [*(f"f{form}" for form in FORMS), "next_sequence"]
        *functions, sequence = addresses(key, names, lambda: module_text(node), True)
        self._functions = dict(zip(FORMS, functions, strict=True))
        self._variable = j.engine.get_global_value_address
        self.used = dict.fromkeys(FORMS, 0)
        self.keep: list = []
        values = {"tensor": Tensor, "node": node, "none": None, "leaf": LEAF, "float": float,
                  "int": int, "zeros2": (0, 0), "zeros3": (0, 0, 0), "nones2": (None, None),
                  "nones3": (None, None, None), "false": False}
        self.keep.append(values)
        for name, value in values.items():
            self.word(name).value = id(value)
        self.contexts = {form: self._table(f"contexts{form}", form) for form in FORMS}
        self.entries = {form: self._table(f"entries_{form}", form[1])
                        for form in (*(f"m{form}" for form in FORMS), "r2")}
        self.next_sequence = self._function(sequence, "next_sequence", None, None)

    def _table(self, name: str, form: str):
        return (ctypes.c_int64 * FORMS[form]).from_address(self._variable(name))

    def word(self, name: str) -> ctypes.c_int64:
        """One of the module's variables."""
        return ctypes.c_int64.from_address(self._variable(f"g_{name}"))

    def _definition(self, address: int, name: str, doc):
        made = bridge.MethodDef(name.encode(), address, _METH_FASTCALL_KEYWORDS,
                                doc.encode() if doc else None)
        self.keep.append(made)
        return ctypes.addressof(made)

    def _function(self, address: int, name: str, doc, context):
        return _make_function(self._definition(address, name, doc), context, None)

    def _method(self, address: int, name: str, doc):
        return _new_method(Tensor, self._definition(address, name, doc))

    def adopt(self, front, plans: dict, form: str, name: str, doc: str, baked: bool = False,
              kin_plans: dict | None = None):
        """A function that runs natively what it can, and `front` otherwise; and its context."""
        kin_plans = {} if kin_plans is None else kin_plans
        context = array("q", [id(plans), id(front), int(baked), id(kin_plans)])
        self.keep.extend((plans, front, kin_plans))
        return self._function(self._functions[form], name, doc, context), context

    def method(self, context, form: str, name: str, doc: str):
        """The method of a context; None when there are too many."""
        i = self.used[form]
        if i >= FORMS[form]:
            return None
        self.used[form] += 1
        self.keep.append(context)
        self.contexts[form][i] = context.buffer_info()[0]
        return self._method(self.entries[f"m{form}"][i], name, doc)

    def reflected(self, context, name: str, doc: str):
        """The reflected operator of the context that was given a method last."""
        i = self.used["2"] - 1
        assert self.contexts["2"][i] == context.buffer_info()[0]
        return self._method(self.entries["r2"][i], f"__r{name}__", doc)


_make_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                                   ctypes.c_void_p)(("PyCFunction_NewEx", _api))
_new_method = _api.PyDescr_NewMethod
_new_method.restype, _new_method.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]


def pack(address: int, last: int, kind: int) -> array:
    """What a native front reads of a plan: kernel, last argument, form of the call, what to keep.

    The form says what the second operand is: 0 a tensor, 1 a double, 2 an integer, 3 part of the
    kernel. What to keep is -1 until it is known: see `set_keep`. The last word is the operand
    whose signature the result has, for a plan that serves many shapes.
    """
    return array("q", [address, last, kind, -1, 0])


def set_keep(packed: array, keep) -> None:
    """One byte, of what to keep, for each set of operands that want a gradient."""
    packed[3] = sum(bits << (8 * i) for i, bits in enumerate(keep[:4]))
