"""The fronts themselves, as LLVM IR: one lookup, one allocation, one kernel call, one step recorded.

`unary`, `binary`, `view` and `reduce` are the fronts of the four forms; around them stand the
entries that speak CPython's calling convention.
"""

from __future__ import annotations

from ..devices.cpu import bridge
from .front_parts import EXTERNAL, GLOBALS, INFERRING, TUPLE, WORDS, at, common, offsets, put

#: how many ops of each form can have native methods: pointwise of one operand, of two, views,
#: reductions (sums)
FORMS = {"1": 160, "2": 96, "v": 64, "s": 48}


def _unary(t: dict, g: dict) -> str:
    """One operand: a plan for all shapes of its kind if there is one, else one of its shape's own."""
    return f"""
define internal ptr @unary(ptr %ctx, ptr %x) noinline {{
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %lookup, label %slow
lookup:
{at("%sig", "%x", t["sig"])}
  %none = load ptr, ptr @g_none
{at("%kins", "%ctx", 24)}{at("%kin", "%sig", g["kin"])}
  %alone = icmp eq ptr %kin, %none
  br i1 %alone, label %by_shape, label %by_kin
by_kin:
  %plan1 = call ptr @find(ptr %kins, ptr %kin)
  %served = icmp ne ptr %plan1, null
  br i1 %served, label %sized, label %by_shape
sized:
{at("%numel", "%sig", g["numel"])}
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
{at("%packed", "%plan", TUPLE + 8 * 5)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %graph
graph:
{at("%node", "%x", t["node"])}{at("%words", "%packed", WORDS)}{at("%keep", "%words", 24, "i64")}
  %loose = icmp eq ptr %node, %none
  br i1 %loose, label %go, label %wanted
wanted:
  %record = call i64 @recording()
  %python = icmp slt i64 %record, 0
  br i1 %python, label %slow, label %decided
decided:
{at("%way", "%plan", TUPLE + 8 * 4)}
  %flows = icmp ne ptr %way, %none
  %may = icmp eq i64 %record, 1
  %on = and i1 %may, %flows
  %unprepared = icmp slt i64 %keep, 0
  %first_time = and i1 %on, %unprepared
  %refused = call i1 @inferred(ptr %x)
  %asks = or i1 %first_time, %refused
  br i1 %asks, label %slow, label %go
go:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
{at("%psig", "%plan", TUPLE)}{at("%plast", "%words", 8, "i64")}
  %osig = select i1 %many, ptr %sig, ptr %psig
  %last = select i1 %many, i64 %count, i64 %plast
{at("%free", "%osig", g["free"])}
  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %run
run:
{at("%address", "%mem", 16)}
  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  %raw = call ptr @PyLong_AsVoidPtr(ptr %address)
{at("%xbox", "%x", t["ptr"])}
  %xraw = call ptr @PyLong_AsVoidPtr(ptr %xbox)
{at("%kernel", "%words", 0)}
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
{at("%kins", "%ctx", 24)}
{at("%ytype", "%y", 8)}
  %xok = call i1 @is_tensor(ptr %x)
  br i1 %xok, label %x_tensor, label %x_other
x_tensor:
{at("%xsig", "%x", t["sig"])}
{at("%xnode", "%x", t["node"])}
{at("%xkin", "%xsig", g["kin"])}
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
{at("%ysig", "%y", t["sig"])}
{at("%ynode", "%y", t["node"])}
{at("%ykin", "%ysig", g["kin"])}
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
{at("%xshape", "%xsig", g["shape"])}{at("%yshape", "%ysig", g["shape"])}
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
{at("%baked", "%ctx", 16, "i64")}
  %is_baked = icmp ne i64 %baked, 0
  br i1 %is_baked, label %by_value, label %by_type
by_type:
  call void @Py_IncRef(ptr %ytype)
  br label %number_key
by_value:
  %pair = call ptr @PyTuple_New(i64 2)
  call void @Py_IncRef(ptr %ytype)
  call void @Py_IncRef(ptr %y)
{put("%pair", TUPLE, "%ytype", "k0")}{put("%pair", TUPLE + 8, "%y", "k1")}
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
{at("%xtype", "%x", 8)}
  %float_ = load ptr, ptr @g_float
  %int_ = load ptr, ptr @g_int
  %xf = icmp eq ptr %xtype, %float_
  %xi = icmp eq ptr %xtype, %int_
  %xnumber = or i1 %xf, %xi
{at("%baked_", "%ctx", 16, "i64")}
  %plain = icmp eq i64 %baked_, 0
  %usable = and i1 %xnumber, %plain
  br i1 %usable, label %x_number, label %slow
x_number:
  %yok_ = call i1 @is_tensor(ptr %y)
  br i1 %yok_, label %reflected, label %slow
reflected:
{at("%ysig_", "%y", t["sig"])}
{at("%ynode_", "%y", t["node"])}
{at("%ykin_", "%ysig_", g["kin"])}
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
{at("%kpacked", "%kplan", TUPLE + 8 * 5)}{at("%kwords", "%kpacked", WORDS)}
{at("%which", "%kwords", 32, "i64")}
  %from_first = icmp eq i64 %which, 0
  %ksig = select i1 %from_first, ptr %ks0, ptr %ks1
{at("%numel", "%ksig", g["numel"])}
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
{at("%packed", "%plan", TUPLE + 8 * 5)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %graph
graph:
{at("%words", "%packed", WORDS)}{at("%keep", "%words", 24, "i64")}{at("%kind", "%words", 16, "i64")}
  %xloose = icmp eq ptr %xn, %none
  %yloose = icmp eq ptr %yn, %none
  %loose = and i1 %xloose, %yloose
  br i1 %loose, label %number, label %wanted
wanted:
  %record = call i64 @recording()
  %python = icmp slt i64 %record, 0
  br i1 %python, label %slow, label %decided
decided:
{at("%way", "%plan", TUPLE + 8 * 4)}
  %flows = icmp ne ptr %way, %none
  %may = icmp eq i64 %record, 1
  %on = and i1 %may, %flows
  %unprepared = icmp slt i64 %keep, 0
  %first_time = and i1 %on, %unprepared
  %some1 = select i1 %xt, ptr %x, ptr %y
  %some2 = select i1 %yt, ptr %y, ptr %x
  %refused1 = call i1 @inferred(ptr %some1)
  %refused2 = call i1 @inferred(ptr %some2)
  %refused = or i1 %refused1, %refused2
  %asks = or i1 %first_time, %refused
  br i1 %asks, label %slow, label %number
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
{at("%psig", "%plan", TUPLE)}{at("%plast", "%words", 8, "i64")}
  %osig = select i1 %many, ptr %kin_sig, ptr %psig
  %last = select i1 %many, i64 %count, i64 %plast
{at("%free", "%osig", g["free"])}
  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %run
run:
{at("%address", "%mem", 16)}
  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  %raw = call ptr @PyLong_AsVoidPtr(ptr %address)
  %first = select i1 %xt, ptr %x, ptr %y
{at("%fbox", "%first", t["ptr"])}
  %fraw = call ptr @PyLong_AsVoidPtr(ptr %fbox)
{at("%kernel", "%words", 0)}
  switch i64 %kind, label %call0 [ i64 1, label %call1
                                   i64 2, label %call2
                                   i64 3, label %call3 ]
call0:
{at("%ybox", "%y", t["ptr"])}
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
{put("%parents", TUPLE, "%xedge", "p0")}{put("%parents", TUPLE + 8, "%yedge", "p1")}
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
{at("%sig", "%x", t["sig"])}{at("%node", "%x", t["node"])}
{at("%strict", "%ctx", 16, "i64")}
  %any = icmp eq i64 %strict, 0
  %int = load ptr, ptr @g_int
  %inner = call ptr @PyTuple_New(i64 %n)
  %items = getelementptr i8, ptr %inner, i64 {TUPLE}
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
{at("%atype", "%arg", 8)}
  %whole = icmp eq ptr %atype, %int
  %fits = or i1 %whole, %any
  br i1 %fits, label %copy, label %odd
odd:
  call void @Py_DecRef(ptr %inner)
  br label %slow
keyed:
  %key = call ptr @PyTuple_New(i64 2)
  call void @Py_IncRef(ptr %sig)
{put("%key", TUPLE, "%sig", "k0")}{put("%key", TUPLE + 8, "%inner", "k1")}
  %plans = load ptr, ptr %ctx
  %plan = call ptr @find(ptr %plans, ptr %key)
  call void @Py_DecRef(ptr %key)
  %known = icmp ne ptr %plan, null
  br i1 %known, label %planned, label %slow
planned:
  %none = load ptr, ptr @g_none
{at("%osig", "%plan", TUPLE)}{at("%move", "%plan", TUPLE + 8)}{at("%back", "%plan", TUPLE + 16)}
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
{at("%views", "%x", t["views"])}
  %has = icmp ne ptr %views, null
  %looks = and i1 %remembers, %has
  br i1 %looks, label %count, label %build
count:
{at("%size", "%views", 16, "i64")}
  %many = icmp sgt i64 %size, 62
  br i1 %many, label %slow, label %build
build:
{at("%mem", "%x", t["mem"])}{at("%xptr", "%x", t["ptr"])}
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
{put("%out", t["base"], "%x", "b")}
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
{put("%sigs", TUPLE, "%osig", "s")}
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
{at("%sig", "%x", t["sig"])}{at("%node", "%x", t["node"])}
  %none = load ptr, ptr @g_none
  %false = load ptr, ptr @g_false
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %first, label %whole
whole:
{at("%kins", "%ctx", 24)}{at("%kin", "%sig", g["kin"])}
  %kplan = call ptr @find(ptr %kins, ptr %kin)
  %served = icmp ne ptr %kplan, null
  br i1 %served, label %sized, label %all
sized:
{at("%kpacked", "%kplan", TUPLE + 8 * 5)}{at("%kwords", "%kpacked", WORDS)}
{at("%most", "%kwords", 40, "i64")}{at("%numel", "%sig", g["numel"])}
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
{put("%key", TUPLE, "%sig", "k0")}{put("%key", TUPLE + 8, "%dim", "k1")}
{put("%key", TUPLE + 16, "%keepdim", "k2")}{put("%key", TUPLE + 24, "%none", "k3")}
  %plans = load ptr, ptr %ctx
  %plan_ = call ptr @find(ptr %plans, ptr %key)
  call void @Py_DecRef(ptr %key)
  %known = icmp ne ptr %plan_, null
  br i1 %known, label %packed_, label %slow
packed_:
  %plan = phi ptr [ %kplan, %sized ], [ %plan_, %all ]
  %many = phi i1 [ true, %sized ], [ false, %all ]
  %whole_count = phi i64 [ %size, %sized ], [ 0, %all ]
{at("%packed", "%plan", TUPLE + 8 * 5)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %graph
graph:
{at("%words", "%packed", WORDS)}{at("%simple_back", "%words", 24, "i64")}
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
{at("%free", "%plan", TUPLE + 8 * 6)}
  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %run
run:
{at("%sigs", "%plan", TUPLE + 8 * 7)}{at("%osig", "%sigs", TUPLE)}{at("%address", "%mem", 16)}
  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  %raw = call ptr @PyLong_AsVoidPtr(ptr %address)
{at("%xbox", "%x", t["ptr"])}
  %xraw = call ptr @PyLong_AsVoidPtr(ptr %xbox)
{at("%kernel", "%words", 0)}{at("%plast", "%words", 8, "i64")}{at("%kind", "%words", 16, "i64")}
  %last = select i1 %many, i64 %whole_count, i64 %plast
  %counted = icmp eq i64 %kind, 1
  br i1 %counted, label %with_count, label %without
with_count:
{at("%pcount", "%words", 32, "double")}
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
{at("%back", "%plan", TUPLE + 8 * 8)}{at("%model", "%plan", TUPLE + 8 * 9)}
{at("%versions", "%plan", TUPLE + 8 * 10)}{at("%where", "%words", 48, "i64")}
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
        text.append(f"define ptr @f{arity}(ptr %self, {passed}) {{\n{at('%ctx', '%self', WORDS)}"
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


def module_text(node: type) -> str:
    """The whole module."""
    t, n, g = offsets(node)
    declared = "".join(f"declare {kind.split(' ')[0]} @{name}{kind[kind.index('('):]}\n"
                       for name, kind in EXTERNAL.items())
    variables = "".join(f"@g_{name} = global i64 0\n" for name in GLOBALS)
    variables += f"@g_inferring = global [{INFERRING} x i64] zeroinitializer\n"
    tables = "".join(f"@contexts{form} = global [{count} x ptr] zeroinitializer\n"
                     for form, count in FORMS.items())
    return (declared + variables + tables + common(t, n) + _unary(t, g) + _binary(t, g) + _view(t)
            + _reduce(t, g) + _SHARED + _entries())
