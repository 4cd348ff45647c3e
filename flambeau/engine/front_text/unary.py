"""The front of one operand: a plan for all shapes of its kind if there is one, else its shape's."""

from __future__ import annotations

from ..front_parts import WORDS
from .fragments import (
    ATTACH,
    READY,
    RESULT,
    WANTED,
    decided,
    find,
    keep,
    of_plan_or_kin,
    phis,
    pointer,
    released,
)
from .words import at

_REFUSED = """  %refused = call i1 @inferred(ptr %x)
"""


def unary(t: dict, g: dict) -> str:
    return f"""
define internal ptr @unary(ptr %ctx, ptr %x) noinline {{
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %lookup, label %slow
{_lookup(t, g)}
graph:
{at("%node", "%x", t["node"])}{at("%words", "%packed", WORDS)}{at("%keep", "%words", 24, "i64")}
  %loose = icmp eq ptr %node, %none
  br i1 %loose, label %go, label %wanted
{WANTED}{decided(_REFUSED, "go")}
go:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
{of_plan_or_kin("%sig", g)}
{at("%address", "%mem", 16)}{RESULT}{pointer("x", "%x", t)}
{at("%kernel", "%words", 0)}{released("%osig", g)}
  call void %kernel(ptr %raw, ptr %xraw, i64 %last)
  call void @resume(ptr %state)
  br i1 %recorded, label %step, label %done
step:
  %reach = lshr i64 %keep, 8
  %bits = and i64 %reach, 255
  %parents = call ptr @one_parent(ptr %x, ptr %node)
{keep("x")}
  %v0 = call i64 @version_of(ptr %x, i1 %k0, i1 true)
  %versions = call ptr @versions(i64 %v0, i64 0, i64 2)
{ATTACH}
slow:
  %answer = call ptr @python1(ptr %ctx, ptr %x)
  ret ptr %answer
}}
"""


def _lookup(t: dict, g: dict) -> str:
    """The plan, whether it serves %many shapes, and then the %count of elements."""
    return f"""
lookup:
{at("%sig", "%x", t["sig"])}
  %none = load ptr, ptr @g_none
{at("%kins", "%ctx", 24)}{at("%kin", "%sig", g["kin"])}
  %alone = icmp eq ptr %kin, %none
  br i1 %alone, label %by_shape, label %by_kin
by_kin:
{find("%plan1", "%kins", "%kin", "sized", "by_shape")}
sized:
{at("%numel", "%sig", g["numel"])}
  %n = call i64 @flambeau_integer(ptr %numel)
  br label %packed_
by_shape:
  %plans = load ptr, ptr %ctx
{find("%plan0", "%plans", "%sig", "packed_", "slow")}
packed_:
{phis("ptr %plan, i1 %many, i64 %count", "sized %plan1 true %n", "by_shape %plan0 false 0")}
{READY}"""
