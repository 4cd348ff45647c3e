"""The front of a reduction of one result.

Plans are found by (signature, dim, keepdim, None), or for a whole tensor by what it has in common
with those of other shapes.
"""

from __future__ import annotations

from ..front_parts import TUPLE, WORDS
from .fragments import PACKED_AT, READY, RESULT, TAKE, WANTED, find, pointer, released
from .words import at, phis, put


def reduce(t: dict, g: dict) -> str:
    return f"""
define internal ptr @reduce(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names) noinline {{
  %plain = icmp eq ptr %names, null
  %few = icmp slt i64 %n, 3
  %simple = and i1 %plain, %few
  br i1 %simple, label %typed, label %slow
typed:
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %lookup, label %slow
{_of_kin(t, g)}
{_by_arguments()}
{_graph()}
{_run(t, g)}
{_step()}
done:
  call void @let_go(ptr %plan, ptr %state)
  ret ptr %out
slow:
  %answer = call ptr @otherwise_of(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}}
"""


def _of_kin(t: dict, g: dict) -> str:
    """Of a whole tensor, a plan for many shapes, unless there are more elements than it takes."""
    return f"""
lookup:
{at("%sig", "%x", t["sig"])}{at("%node", "%x", t["node"])}
  %none = load ptr, ptr @g_none
  %false = load ptr, ptr @g_false
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %first, label %whole
whole:
{at("%kins", "%ctx", 24)}{at("%kin", "%sig", g["kin"])}
{find("%kplan", "%kins", "%kin", "sized", "all")}
sized:
{at("%kpacked", "%kplan", PACKED_AT)}{at("%kwords", "%kpacked", WORDS)}
{at("%most", "%kwords", 40, "i64")}{at("%numel", "%sig", g["numel"])}
  %size = call i64 @flambeau_integer(ptr %numel)
  %fits = icmp sle i64 %size, %most
  br i1 %fits, label %packed_, label %all
"""


def _by_arguments() -> str:
    """By signature and arguments, those that are not given as they are by default."""
    arguments = phis("ptr %dim, ptr %keepdim", "whole %none %false", "sized %none %false",
                     "first %dim_ %false", "second %dim_ %keep_")
    plan = phis("ptr %plan, i1 %many, i64 %whole_count", "sized %kplan true %size",
                "all %plan_ false 0")
    return f"""
first:
  %dim_ = load ptr, ptr %args
  %two = icmp sgt i64 %n, 1
  br i1 %two, label %second, label %all
second:
  %keepp = getelementptr ptr, ptr %args, i64 1
  %keep_ = load ptr, ptr %keepp
  %true = load ptr, ptr @g_true
  %keep = icmp eq ptr %keep_, %true
  %leave = icmp eq ptr %keep_, %false
  %boolean = or i1 %keep, %leave
  br i1 %boolean, label %all, label %slow
all:
{arguments}
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
{plan}
{READY}"""


def _graph() -> str:
    """Whether the step is recorded; one that is not simple is left to Python."""
    return f"""
graph:
{at("%words", "%packed", WORDS)}{at("%simple_back", "%words", 24, "i64")}
  %loose = icmp eq ptr %node, %none
  br i1 %loose, label %go, label %wanted
{WANTED}
decided:
  %on = icmp eq i64 %record, 1
  %hard = icmp slt i64 %simple_back, 0
  %both = and i1 %on, %hard
  br i1 %both, label %slow, label %go
"""


def _run(t: dict, g: dict) -> str:
    """The kernel, which may want to know how many elements there are."""
    return f"""
go:
  %recorded = phi i1 [ false, %graph ], [ %on, %decided ]
{at("%free", "%plan", TUPLE + 8 * 6)}{TAKE}
{at("%sigs", "%plan", TUPLE + 8 * 7)}{at("%osig", "%sigs", TUPLE)}{at("%address", "%mem", 16)}
{RESULT}{pointer("x", "%x", t)}
{at("%kernel", "%words", 0)}{at("%plast", "%words", 8, "i64")}{at("%kind", "%words", 16, "i64")}
  %last = select i1 %many, i64 %whole_count, i64 %plast
  %counted = icmp eq i64 %kind, 1
{released("%sig", g)}  br i1 %counted, label %with_count, label %without
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
  call void @resume(ptr %state)
  br i1 %recorded, label %step, label %done
"""


def _step() -> str:
    """What is kept is what the plan's model keeps, but for the signature of x."""
    return f"""
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
"""
