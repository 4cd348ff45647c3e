"""Functions that all fronts call: lookups, tensors over storages, steps, and what they keep.

`t` and `n` say where tensors and nodes keep their slots.
"""

from __future__ import annotations

from ...devices.cpu.bridge import GIL_THRESHOLD
from ..front_parts import TUPLE, VERSION_AT
from ..modes import INFERENCE
from .asking import ASKING
from .words import answered, at, either, item, loop, put


def common(t: dict, n: dict) -> str:
    """All of them."""
    return "\n".join(("", _ASKED, _tensors(t), _storages(t), _steps(t, n), _KEPT, _LONG, ASKING))


def fresh(g: dict) -> str:
    """empty(signature): a tensor over memory from its free list, unless somebody is told of it."""
    return f"""
define ptr @empty_tensor(ptr %self, ptr %args, i64 %n, ptr %names) {{
  %sig = load ptr, ptr %args
  %takers = load ptr, ptr @g_takers
{at("%told", "%takers", 16, "i64")}
  %unseen = icmp eq i64 %told, 0
  br i1 %unseen, label %pooled, label %slow
pooled:
{at("%free", "%sig", g["free"])}
  %none = load ptr, ptr @g_none
  %elsewhere = icmp eq ptr %free, %none
  br i1 %elsewhere, label %slow, label %take
take:
  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %made
made:
{at("%address", "%mem", 16)}
  %out = call ptr @tensor_over(ptr %sig, ptr %mem, ptr %address)
  ret ptr %out
slow:
{answered("empty")}
}}
"""


#: plans by keys, and modes
_ASKED = """; what a dict has under a key, or null; a key that cannot be one is found nowhere
define internal ptr @find(ptr %dict, ptr %key) {
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
}

; whether this thread is one of those that infer
define internal i1 @infers() noinline {
entry:
  %count = load i64, ptr @g_inferring
  %me = call i64 @PyThread_get_thread_ident()
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %no
one:
  %next = add i64 %i, 1
  %at = getelementptr i64, ptr @g_inferring, i64 %next
  %who = load i64, ptr %at
  %mine = icmp eq i64 %who, %me
  br i1 %mine, label %yes, label %look
yes:
  ret i1 true
no:
  ret i1 false
}

; 1: record, 0: do not, -1: let Python decide
define internal i64 @recording() {
  %special = load i64, ptr @g_special
  %odd = icmp ne i64 %special, 0
  br i1 %odd, label %unusual, label %usual
unusual:
  %inferring = load i64, ptr @g_inferring
  %only = icmp eq i64 %special, %inferring
  br i1 %only, label %inference, label %python
inference:
  %infers = call i1 @infers()
  br i1 %infers, label %no, label %usual
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
}
"""


def _tensors(t: dict) -> str:
    """What is a tensor, and how one is made over a storage."""
    return f"""; whether a type is that of Python's floats or integers
define internal i1 @is_number(ptr %type) alwaysinline {{
{either("%is", "%type", "float", "int")}
  ret i1 %is
}}

define internal i1 @is_tensor(ptr %x) alwaysinline {{
{at("%type", "%x", 8)}
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
{put("%t", t["sig"], "%sig", "a")}{put("%t", t["mem"], "%mem", "b")}
{put("%t", t["ptr"], "%address", "c")}{put("%t", t["node"], "%none", "d")}
  ret ptr %t
}}

"""


def _storages(t: dict) -> str:
    """Free lists, and what a storage says of the thread that took it."""
    return f"""; take a storage from a free list; null if it is empty
define internal ptr @take(ptr %free) {{
{at("%size", "%free", 16, "i64")}
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %none, label %some
none:
  ret ptr null
some:
  %less = sub i64 %size, 1
  store i64 %less, ptr %size.p
{at("%items", "%free", 24)}
  %slot = getelementptr ptr, ptr %items, i64 %less
  %item = load ptr, ptr %slot
  %special = load i64, ptr @g_special
  %odd = icmp ne i64 %special, 0
  br i1 %odd, label %marked, label %plain
marked:
  call void @mark(ptr %item)
  br label %plain
plain:
  ret ptr %item
}}

; a storage taken by a thread that infers says so in its version
define internal void @mark(ptr %mem) noinline {{
  %infers = call i1 @infers()
  br i1 %infers, label %yes, label %no
yes:
  %version = getelementptr i8, ptr %mem, i64 {VERSION_AT}
  store i64 {INFERENCE}, ptr %version
  ret void
no:
  ret void
}}

; whether a tensor was made while inferring: Python then says what may be done with it
define internal i1 @inferred(ptr %x) {{
{at("%mem", "%x", t["mem"])}{at("%version", "%mem", VERSION_AT, "i64")}
  %is = icmp slt i64 %version, 0
  ret i1 %is
}}
"""


def _steps(t: dict, n: dict) -> str:
    """Edges of the graph, and the step that a result is given."""
    return f"""; the edge that leads to a tensor: itself if it is a leaf, else its node; a new reference
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
{at("%mem", "%x", t["mem"])}
{at("%version", "%mem", VERSION_AT, "i64")}
  ret i64 %version
zero:
  ret i64 0
}}

define internal ptr @alias(ptr %out) {{
{at("%sig", "%out", t["sig"])}{at("%mem", "%out", t["mem"])}{at("%ptr", "%out", t["ptr"])}
  call void @Py_IncRef(ptr %mem)
  %t = call ptr @tensor_over(ptr %sig, ptr %mem, ptr %ptr)
  ret ptr %t
}}

; a step of a pointwise plan
define internal void @attach(ptr %out, ptr %plan, ptr %parents, ptr %kept, ptr %versions) {{
{at("%back", "%plan", TUPLE + 8 * 4)}{at("%osig", "%out", t["sig"])}
  %sigs = call ptr @PyTuple_New(i64 1)
  call void @Py_IncRef(ptr %osig)
{put("%sigs", TUPLE, "%osig", "s")}
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
{put("%n", n["back"], "%back", "a")}{put("%n", n["parents"], "%parents", "b")}
{put("%n", n["kept"], "%kept", "c")}{put("%n", n["versions"], "%versions", "d")}
{put("%n", n["sigs"], "%sigs", "e")}{put("%n", n["extra"], "%none", "f")}
{put("%n", n["seq"], "%boxed", "g")}
{at("%before", "%out", t["node"])}
  store ptr %n, ptr %before.p
  call void @Py_DecRef(ptr %before)
  ret void
}}
"""


#: tuples of what a step keeps, and of versions
_KEPT = f"""; a tuple like another, with one item replaced; a new reference
define internal ptr @kept_like(ptr %model, i64 %where, ptr %item) {{
entry:
{at("%n", "%model", 16, "i64")}
  %out = call ptr @PyTuple_New(i64 %n)
  %from = getelementptr i8, ptr %model, i64 {TUPLE}
  %to = getelementptr i8, ptr %out, i64 {TUPLE}
  br label %head
{loop("head", "i64 %i", "entry 0", "body %i.next", "%n", "body", "done")}
{item("%old", "%from", "%i")}
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
{put("%parents", TUPLE, "%edge", "p")}
  ret ptr %parents
}}

define internal void @keep_one(ptr %x, i1 %keep, ptr %kept, i64 %i) {{
  %none = load ptr, ptr @g_none
  %value = select i1 %keep, ptr %x, ptr %none
  call void @Py_IncRef(ptr %value)
  %items = getelementptr i8, ptr %kept, i64 {TUPLE}
  %at = getelementptr ptr, ptr %items, i64 %i
  store ptr %value, ptr %at
  ret void
}}

define internal void @keep_result(ptr %out, i1 %keep, ptr %kept, i64 %i) {{
  %items = getelementptr i8, ptr %kept, i64 {TUPLE}
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
  %items = getelementptr i8, ptr %tuple, i64 {TUPLE}
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
"""


def _unless_short(name: str, arguments: str, deed: str) -> str:
    """A function that calls another if there is a %state to resume with."""
    return f"""define internal void @{name}({arguments}) {{
  %short = icmp eq ptr %state, null
  br i1 %short, label %done, label %long
long:
  call void {deed}
  br label %done
done:
  ret void
}}
"""


#: long work, during which Python's other threads may run
_LONG = f"""; what to resume with; null if the work is short. The plan stays while others run.
define internal ptr @release(i64 %work, ptr %plan) {{
  %long = icmp sgt i64 %work, {GIL_THRESHOLD}
  br i1 %long, label %yes, label %no
yes:
  call void @Py_IncRef(ptr %plan)
  %state = call ptr @PyEval_SaveThread()
  ret ptr %state
no:
  ret ptr null
}}

{_unless_short("resume", "ptr %state", "@PyEval_RestoreThread(ptr %state)")}
{_unless_short("let_go", "ptr %plan, ptr %state", "@Py_DecRef(ptr %plan)")}"""
