"""The front of what changes a tensor in place: x.add_(y), x.relu_(), x.fill_(0), x.copy_(y).

Plans are found by the tensor's signature, and by that or the type of what is beside it. Of the
context, the third word says what the kernel reads (ALONE, BESIDE, INSTEAD, MANY), and the sixth
what is beside the tensor if nothing is given: the 0 of x.zero_(). Only what records no step is done
here. Calls of more arguments, or of such by name, are those of `again`.
"""

from __future__ import annotations

from ..front_parts import VERSION_AT, WORDS
from . import ALONE, INSTEAD, MANY, VALUED
from .fragments import (
    LAUNCH,
    NUMBER,
    PACKED_AT,
    find,
    operand,
    pointer,
    released,
    unrecorded,
)
from .words import at, phis


def place(t: dict, g: dict) -> str:
    return f"""
define internal ptr @place(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names) noinline {{
  %follow = load ptr, ptr @g_follow
  %untraced = icmp eq ptr %follow, null
  br i1 %untraced, label %typed, label %slow
typed:
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %counted, label %slow
counted:
{at("%context", "%ctx", 16, "i64")}
  %reads = and i64 %context, {VALUED - 1}
  %several = icmp eq i64 %reads, {MANY}
  %named = icmp ne ptr %names, null
  %further_on = icmp ugt i64 %n, 1
  %either = or i1 %several, %named
  %much = or i1 %either, %further_on
  br i1 %much, label %many, label %operands
many:
  %valued = icmp uge i64 %context, {VALUED}
  %again = call ptr @again(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names, i1 %valued)
  %known = icmp ne ptr %again, null
  br i1 %known, label %answered, label %unknown
answered:
  ret ptr %again
unknown:
  %wrong = call ptr @PyErr_Occurred()
  %right = icmp eq ptr %wrong, null
  br i1 %right, label %slow, label %failed
{_operands()}
{_lookup(t)}
{_loose(t)}
{_ready(t)}
{_run(t, g)}
slow:
  %answer = call ptr @otherwise_of(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}}
"""


def _operands() -> str:
    """%y: what is given beside the tensor, or implied; null if it stands alone."""
    return f"""
operands:
  %none = load ptr, ptr @g_none
{at("%implied", "%ctx", 40)}
  %alone = icmp eq i64 %reads, {ALONE}
  %unsaid = icmp eq ptr %implied, null
  switch i64 %n, label %slow [ i64 0, label %nothing
                               i64 1, label %given ]
nothing:
  %lacking = xor i1 %alone, %unsaid
  br i1 %lacking, label %slow, label %lookup
given:
  %first = load ptr, ptr %args
  %said = xor i1 %unsaid, true
  %surplus = or i1 %alone, %said
  br i1 %surplus, label %many, label %lookup
"""


def _lookup(t: dict) -> str:
    return f"""
lookup:
{phis("ptr %y", "nothing %implied", "given %first")}
{at("%sig", "%x", t["sig"])}{at("%node", "%x", t["node"])}{at("%mem", "%x", t["mem"])}
{pointer("x", "%x", t)}
  %plans = load ptr, ptr %ctx
{find("%found", "%plans", "%sig", "beside", "slow")}
beside:
  br i1 %alone, label %planned, label %kind_of
kind_of:
{at("%ytype", "%y", 8)}
  %ynumber = call i1 @is_number(ptr %ytype)
  br i1 %ynumber, label %by_type, label %second
by_type:
{find("%plan1", "%found", "%ytype", "planned", "slow")}
second:
  %yok = call i1 @is_tensor(ptr %y)
  br i1 %yok, label %by_sig, label %slow
by_sig:
{operand("y", t, "apart", "slow")}
apart:
{find("%plan2", "%found", "%ysig", "planned", "slow")}
planned:
{phis("ptr %plan, i1 %rest_loose, ptr %sraw",
      "beside %found true null", "by_type %plan1 true null", "apart %plan2 %yloose %yraw")}
"""


def _loose(t: dict) -> str:
    """Nothing is part of a graph, not even what x is a view of; or steps are not recorded."""
    return f"""
  %xloose = icmp eq ptr %node, %none
  %loose = and i1 %xloose, %rest_loose
{unrecorded("planned", t, "slow")}"""


def _ready(t: dict) -> str:
    """The plan's machine code; what was made while inferring is left to Python."""
    return f"""
ready:
{at("%version", "%mem", VERSION_AT, "i64")}
  %inferred = icmp slt i64 %version, 0
  br i1 %inferred, label %slow, label %packed_
packed_:
{at("%packed", "%plan", PACKED_AT)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %number
number:
{at("%words", "%packed", WORDS)}{at("%form", "%words", 16, "i64")}
{at("%kernel", "%words", 0)}{at("%last", "%words", 8, "i64")}
  %overwrites = icmp eq i64 %reads, {INSTEAD}
  %single = or i1 %overwrites, %alone
  %kind = select i1 %single, i64 3, i64 %form
  %fraw = select i1 %overwrites, ptr %sraw, ptr %xraw
  %raw = select i1 true, ptr %xraw, ptr null
  %value = select i1 true, ptr %y, ptr null
{NUMBER}"""


def _run(t: dict, g: dict) -> str:
    return f"""
{released("%sig", g)}
{LAUNCH}
  call void @resume(ptr %state)
  call void @let_go(ptr %plan, ptr %state)
  %noted = call i1 @changed(ptr %x)
  br i1 %noted, label %done, label %failed
done:
  call void @Py_IncRef(ptr %x)
  ret ptr %x
failed:
  ret ptr null
"""
