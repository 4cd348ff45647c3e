"""The front of two operands, either of which may be a number (never both).

Plans are found by both signatures, or by a signature and a number's type; where a number is part
of the kernel, by type and value. A plan may serve all shapes of a kind ("kin"), if both operands
have the same shape.
"""

from __future__ import annotations

from ..front_parts import TUPLE, WORDS
from .fragments import (
    ATTACH,
    LAUNCH,
    NUMBER,
    PACKED_AT,
    READY,
    RESULT,
    WANTED,
    decided,
    edges,
    find,
    keep,
    of_plan_or_kin,
    pointer,
    released,
)
from .words import at, phis, put


def binary(t: dict, g: dict) -> str:
    return f"""
define internal ptr @binary(ptr %ctx, ptr %x, ptr %y) noinline {{
entry:
  %none = load ptr, ptr @g_none
  %plans = load ptr, ptr %ctx
{at("%kins", "%ctx", 24)}
{at("%ytype", "%y", 8)}
  %xok = call i1 @is_tensor(ptr %x)
  br i1 %xok, label %x_tensor, label %x_other
{_tensor_first(t, g)}
{_two_tensors(t, g)}
{_number_second()}
{_number_first(t, g)}
{_kin_sized(g)}
{_found()}
{_graph()}
{_number()}
{of_plan_or_kin("%kin_sig", g)}
{_run(t, g)}
{_step()}
slow:
  %answer = call ptr @python2(ptr %ctx, ptr %x, ptr %y)
  ret ptr %answer
}}
"""


# -- lookups ---------------------------------------------------------------------------------------


def _tensor_first(t: dict, g: dict) -> str:
    """x is a tensor: what plans are found by, and what y is."""
    return f"""
x_tensor:
{at("%xsig", "%x", t["sig"])}
{at("%xnode", "%x", t["node"])}
{at("%xkin", "%xsig", g["kin"])}
  %xk = icmp eq ptr %xkin, %none
  %kinless = select i1 %xk, ptr %plans, ptr %kins
  %xkey = select i1 %xk, ptr %xsig, ptr %xkin
  %ynumber = call i1 @is_number(ptr %ytype)
  br i1 %ynumber, label %y_number, label %second_tensor
second_tensor:
  %yok = call i1 @is_tensor(ptr %y)
  br i1 %yok, label %both, label %slow
"""


def _two_tensors(t: dict, g: dict) -> str:
    """By kinds if the shapes are equal, else by signatures."""
    return f"""
both:
{at("%ysig", "%y", t["sig"])}
{at("%ynode", "%y", t["node"])}
{at("%ykin", "%ysig", g["kin"])}
  %yk = icmp eq ptr %ykin, %none
  %notkin = or i1 %xk, %yk
  br i1 %notkin, label %both_shape, label %both_kin
both_kin:
{find("%inner1", "%kins", "%xkin", "both_kin2", "both_shape")}
both_kin2:
{find("%plan1", "%inner1", "%ykin", "same_shape", "both_shape")}
same_shape:
  %same = icmp eq ptr %xsig, %ysig
  br i1 %same, label %kin_sized, label %compare
compare:
{at("%xshape", "%xsig", g["shape"])}{at("%yshape", "%ysig", g["shape"])}
  %equal = call i32 @PyObject_RichCompareBool(ptr %xshape, ptr %yshape, i32 2)
  %is_equal = icmp eq i32 %equal, 1
  br i1 %is_equal, label %kin_sized, label %both_shape
both_shape:
{find("%inner0", "%plans", "%xsig", "both_shape2", "slow")}
both_shape2:
  %plan0 = call ptr @find(ptr %inner0, ptr %ysig)
  br label %found
"""


def _number_second() -> str:
    """y is a number: its type is the key, or where it is part of the kernel (type, y)."""
    return f"""
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
{find("%innern", "%kinless", "%xkey", "number_plan", "number_shape")}
number_plan:
{find("%plan2", "%innern", "%nkey", "number_found", "number_shape")}
number_found:
  call void @Py_DecRef(ptr %nkey)
  br i1 %xk, label %found, label %kin_sized
number_shape:
{find("%innerm", "%plans", "%xsig", "number_shape2", "number_none")}
number_none:
  call void @Py_DecRef(ptr %nkey)
  br label %slow
number_shape2:
  %plan4 = call ptr @find(ptr %innerm, ptr %nkey)
  call void @Py_DecRef(ptr %nkey)
  br label %found
"""


def _number_first(t: dict, g: dict) -> str:
    """x is a number, and y has to be a tensor; what is part of a kernel is left to Python."""
    return f"""
x_other:
{at("%xtype", "%x", 8)}
  %xnumber = call i1 @is_number(ptr %xtype)
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
{find("%inner5", "%kins", "%xtype", "reflected_kin2", "reflected_shape")}
reflected_kin2:
{find("%plan5", "%inner5", "%ykin_", "kin_sized", "reflected_shape")}
reflected_shape:
{find("%inner3", "%plans", "%xtype", "reflected_plan", "slow")}
reflected_plan:
  %plan3 = call ptr @find(ptr %inner3, ptr %ysig_)
  br label %found
"""


def _kin_sized(g: dict) -> str:
    """A plan of many shapes: the result has the signature of one of the operands."""
    known = phis("ptr %kplan, ptr %kxn, ptr %kyn, i1 %kxt, i1 %kyt, ptr %ks0, ptr %ks1",
                 "same_shape     %plan1 %xnode %ynode  true  true  %xsig  %ysig",
                 "compare        %plan1 %xnode %ynode  true  true  %xsig  %ysig",
                 "number_found   %plan2 %xnode %none   true  false %xsig  %xsig",
                 "reflected_kin2 %plan5 %none  %ynode_ false true  %ysig_ %ysig_")
    return f"""
kin_sized:
{known}
{at("%kpacked", "%kplan", PACKED_AT)}{at("%kwords", "%kpacked", WORDS)}
{at("%which", "%kwords", 32, "i64")}
  %from_first = icmp eq i64 %which, 0
  %ksig = select i1 %from_first, ptr %ks0, ptr %ks1
{at("%numel", "%ksig", g["numel"])}
  %count0 = call i64 @flambeau_integer(ptr %numel)
  br label %found
"""


def _found() -> str:
    """Where all lookups meet: nodes of x and y, which of them are tensors, and of plans for many
    shapes the result's signature and count."""
    known = phis("ptr %plan, ptr %xn, ptr %yn, i1 %xt, i1 %yt, i1 %many, ptr %kin_sig, i64 %count",
                 "both_shape2    %plan0 %xnode %ynode  true  true  false null  0",
                 "number_found   %plan2 %xnode %none   true  false false null  0",
                 "number_shape2  %plan4 %xnode %none   true  false false null  0",
                 "reflected_plan %plan3 %none  %ynode_ false true  false null  0",
                 "kin_sized      %kplan %kxn   %kyn    %kxt  %kyt  true  %ksig %count0")
    return f"""
found:
{known}
  %known = icmp ne ptr %plan, null
  br i1 %known, label %packed_, label %slow
packed_:
{READY}"""


# -- what follows ----------------------------------------------------------------------------------


def _graph() -> str:
    """Whether the step is recorded."""
    refused = """  %some1 = select i1 %xt, ptr %x, ptr %y
  %some2 = select i1 %yt, ptr %y, ptr %x
  %refused1 = call i1 @inferred(ptr %some1)
  %refused2 = call i1 @inferred(ptr %some2)
  %refused = or i1 %refused1, %refused2
"""
    return f"""
graph:
{at("%words", "%packed", WORDS)}{at("%keep", "%words", 24, "i64")}{at("%kind", "%words", 16, "i64")}
  %xloose = icmp eq ptr %xn, %none
  %yloose = icmp eq ptr %yn, %none
  %loose = and i1 %xloose, %yloose
  br i1 %loose, label %number, label %wanted
{WANTED}{decided(refused, "number")}"""


def _number() -> str:
    """The number beside a tensor, if there is one."""
    return f"""
number:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
  %value = select i1 %xt, ptr %y, ptr %x
{NUMBER}"""


def _run(t: dict, g: dict) -> str:
    """The kernel's four forms: two tensors, a double, an integer, nothing beside a tensor."""
    return f"""
{at("%address", "%mem", 16)}{RESULT}
  %first = select i1 %xt, ptr %x, ptr %y
  %second = select i1 %yt, ptr %y, ptr %x
{pointer("f", "%first", t)}
{pointer("s", "%second", t)}
{at("%kernel", "%words", 0)}{released("%osig", g)}
{LAUNCH}  call void @resume(ptr %state)
  br i1 %recorded, label %step, label %done
"""


def _step() -> str:
    return f"""
step:
  %xwants = select i1 %xloose, i64 0, i64 8
  %ywants = select i1 %yloose, i64 0, i64 16
  %shift = add i64 %xwants, %ywants
  %reach = lshr i64 %keep, %shift
  %bits = and i64 %reach, 255
{edges("xy")}
{keep("xy")}
  %v0 = call i64 @version_of(ptr %x, i1 %k0, i1 %xt)
  %v1 = call i64 @version_of(ptr %y, i1 %k1, i1 %yt)
  %versions = call ptr @versions(i64 %v0, i64 %v1, i64 3)
{ATTACH}"""
