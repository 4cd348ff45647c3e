"""The front of three tensors: x @ w.T + bias.

Plans are found by nested tables: signature of x, of w, of the bias.
"""

from __future__ import annotations

from ..front_parts import TUPLE, WORDS
from .fragments import ATTACH, READY, RESULT, TAKE, WANTED, edges, find
from .words import at


def ternary(t: dict) -> str:
    return f"""
define internal ptr @ternary(ptr %ctx, ptr %x, ptr %y, ptr %z, ptr %args) noinline {{
  %none = load ptr, ptr @g_none
  %xok = call i1 @is_tensor(ptr %x)
  %yok = call i1 @is_tensor(ptr %y)
  %zok = call i1 @is_tensor(ptr %z)
  %xy = and i1 %xok, %yok
  %ok = and i1 %xy, %zok
  br i1 %ok, label %lookup, label %slow
{_lookup(t)}
{_graph()}
{_run(t)}
{_step()}
slow:
  %answer = call ptr @python(ptr %ctx, ptr %args, i64 3)
  ret ptr %answer
}}
{_ENTRY}"""


def _lookup(t: dict) -> str:
    return f"""
lookup:
  %plans = load ptr, ptr %ctx
{at("%xsig", "%x", t["sig"])}{at("%ysig", "%y", t["sig"])}{at("%zsig", "%z", t["sig"])}
{at("%xn", "%x", t["node"])}{at("%yn", "%y", t["node"])}{at("%zn", "%z", t["node"])}
{find("%second", "%plans", "%xsig", "by_y", "slow")}
by_y:
{find("%third", "%second", "%ysig", "by_z", "slow")}
by_z:
{find("%plan", "%third", "%zsig", "packed_", "slow")}
packed_:
{READY}"""


def _graph() -> str:
    """Whether the step is recorded; what was made while inferring is left to Python."""
    return f"""
graph:
{at("%words", "%packed", WORDS)}
  %xloose = icmp eq ptr %xn, %none
  %yloose = icmp eq ptr %yn, %none
  %zloose = icmp eq ptr %zn, %none
  %two = and i1 %xloose, %yloose
  %loose = and i1 %two, %zloose
  br i1 %loose, label %go, label %wanted
{WANTED}
decided:
  %on = icmp eq i64 %record, 1
  %xr = call i1 @inferred(ptr %x)
  %yr = call i1 @inferred(ptr %y)
  %refused = or i1 %xr, %yr
  %cannot = and i1 %on, %refused
  br i1 %cannot, label %slow, label %go
"""


def _run(t: dict) -> str:
    """Plans of products that take long have no packed words: Python runs those."""
    return f"""
go:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
{at("%free", "%plan", TUPLE + 8 * 6)}{TAKE}
{at("%osig", "%plan", TUPLE)}{at("%address", "%mem", 16)}{RESULT}
{at("%xbox", "%x", t["ptr"])}{at("%ybox", "%y", t["ptr"])}{at("%zbox", "%z", t["ptr"])}
  %xraw = call ptr @flambeau_address(ptr %xbox)
  %yraw = call ptr @flambeau_address(ptr %ybox)
  %zraw = call ptr @flambeau_address(ptr %zbox)
{at("%kernel", "%words", 0)}{at("%last", "%words", 8, "i64")}
  %state = inttoptr i64 0 to ptr
  call void %kernel(ptr %raw, ptr %xraw, ptr %yraw, ptr %zraw, i64 %last)
  br i1 %recorded, label %step, label %done
"""


def _step() -> str:
    """x is kept for the slope of w, and w for that of x."""
    return f"""
step:
{edges("xyz")}
  %keepx = xor i1 %yloose, true
  %keepy = xor i1 %xloose, true
  %kept = call ptr @PyTuple_New(i64 3)
  call void @keep_one(ptr %x, i1 %keepx, ptr %kept, i64 0)
  call void @keep_one(ptr %y, i1 %keepy, ptr %kept, i64 1)
  call void @keep_one(ptr %z, i1 false, ptr %kept, i64 2)
  %v0 = call i64 @version_of(ptr %x, i1 %keepx, i1 true)
  %v1 = call i64 @version_of(ptr %y, i1 %keepy, i1 true)
  %versions = call ptr @versions(i64 %v0, i64 %v1, i64 3)
{ATTACH}"""


_ENTRY = f"""
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
