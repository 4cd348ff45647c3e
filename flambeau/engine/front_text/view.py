"""The front of a view: plans are found by (signature, arguments).

A plan is (signature, bytes to move, back). With the context's third word set, only integers are
looked up: True and 1.0 equal 1, but do not index as it does.
"""

from __future__ import annotations

from ..front_parts import TUPLE
from .words import answered, at, put

#: a tensor with more views than this is left to Python, which forgets those that are gone
_MOST_VIEWS = 62


def view(t: dict) -> str:
    return f"""
; the view of a tensor that a plan describes; null where Python has to make it
define internal ptr @view_planned(ptr %x, ptr %plan) {{
{_plan(t)}
{_modes(t)}
{_build(t)}
{_remember()}
{_step()}
done:
  ret ptr %out
slow:
  ret ptr null
}}

define internal ptr @view(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names) noinline {{
  %plain = icmp eq ptr %names, null
  br i1 %plain, label %typed, label %slow
typed:
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %lookup, label %slow
{_lookup(t)}
{_PLANNED}slow:
  %answer = call ptr @otherwise_of(ptr %ctx, ptr %x, ptr %args, i64 %n, ptr %names)
  ret ptr %answer
}}

; take(x, plan), for lookups in Python
define ptr @take_view(ptr %self, ptr %args, i64 %n, ptr %names) {{
  %x = load ptr, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  %plan = load ptr, ptr %second
  %ok = call i1 @is_tensor(ptr %x)
  br i1 %ok, label %planned, label %slow
{_PLANNED}slow:
{answered("take")}
}}
"""


#: what a plan that was found makes
_PLANNED = """planned:
  %out = call ptr @view_planned(ptr %x, ptr %plan)
  %made = icmp ne ptr %out, null
  br i1 %made, label %done, label %slow
done:
  ret ptr %out
"""


def _lookup(t: dict) -> str:
    """The arguments as a tuple, and the plan."""
    return f"""
lookup:
{at("%sig", "%x", t["sig"])}
{at("%strict", "%ctx", 16, "i64")}
  %any = icmp eq i64 %strict, 0
  %int = load ptr, ptr @g_int
  br label %each
each:
  %i = phi i64 [ 0, %lookup ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %keyed
one:
  %from = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %from
  %i.next = add i64 %i, 1
{at("%atype", "%arg", 8)}
  %whole = icmp eq ptr %atype, %int
  %fits = or i1 %whole, %any
  br i1 %fits, label %each, label %slow
keyed:
  %inner = call ptr @tuple_of(ptr %args, i64 %n)
  %key = call ptr @PyTuple_New(i64 2)
  call void @Py_IncRef(ptr %sig)
{put("%key", TUPLE, "%sig", "k0")}{put("%key", TUPLE + 8, "%inner", "k1")}
  %plans = load ptr, ptr %ctx
  %plan = call ptr @find(ptr %plans, ptr %key)
  call void @Py_DecRef(ptr %key)
  %known = icmp ne ptr %plan, null
  br i1 %known, label %planned, label %slow
"""


def _plan(t: dict) -> str:
    """What a plan says; one without a signature has to copy."""
    return f"""
{at("%node", "%x", t["node"])}
  %none = load ptr, ptr @g_none
{at("%osig", "%plan", TUPLE)}{at("%move", "%plan", TUPLE + 8)}{at("%back", "%plan", TUPLE + 16)}
  %copies = icmp eq ptr %osig, %none
  br i1 %copies, label %slow, label %mode
"""


def _modes(t: dict) -> str:
    """Whether steps are recorded, and whether x has to remember its views."""
    return f"""
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
  %many = icmp sgt i64 %size, {_MOST_VIEWS}
  br i1 %many, label %slow, label %build
"""


def _build(t: dict) -> str:
    """The view, whose base is x, over the same storage."""
    return f"""
build:
{at("%mem", "%x", t["mem"])}{at("%xptr", "%x", t["ptr"])}
  %by = call i64 @flambeau_integer(ptr %move)
  %stays = icmp eq i64 %by, 0
  br i1 %stays, label %same, label %moved
same:
  call void @Py_IncRef(ptr %xptr)
  br label %make
moved:
  %raw = call ptr @flambeau_address(ptr %xptr)
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
"""


def _remember() -> str:
    """A weak reference among the views of x."""
    return """
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
"""


def _step() -> str:
    return f"""
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
"""
