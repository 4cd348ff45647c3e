"""What several fronts do in the same words.

A front goes from block to block and leaves for `slow`, where Python answers, as soon as something
is unusual:

    packed_   the plan is found; is its machine code ready?
    graph     does any operand want a gradient?
    wanted    it does: are steps recorded here?
    decided   they are, or not: is it known what to keep?
    run       there is memory for the result
    step      the kernel has run, and the step is recorded
    done      the result is handed out

Registers have the same names in all fronts, so a fragment finds what another has left.
"""

from __future__ import annotations

from ..front_parts import TUPLE
from .words import at, phis, put

#: of a plan
BACK_AT, PACKED_AT = TUPLE + 8 * 4, TUPLE + 8 * 5

#: the plan's machine code, and what else a front reads of it; `%graph` goes on
READY = f"""{at("%packed", "%plan", PACKED_AT)}
  %unready = icmp eq ptr %packed, %none
  br i1 %unready, label %slow, label %graph
"""

#: whether steps are recorded; `%decided` goes on
WANTED = """wanted:
  %record = call i64 @recording()
  %python = icmp slt i64 %record, 0
  br i1 %python, label %slow, label %decided
"""

#: memory for the result from the list %free; the block `%run` is begun
TAKE = """  %mem = call ptr @take(ptr %free)
  %dry = icmp eq ptr %mem, null
  br i1 %dry, label %slow, label %run
run:
"""

#: the result, and where its elements are
RESULT = """  %out = call ptr @tensor_over(ptr %osig, ptr %mem, ptr %address)
  %raw = call ptr @flambeau_address(ptr %address)
"""

#: the end of a front that has recorded a step of a plan
ATTACH = """  call void @attach(ptr %out, ptr %plan, ptr %parents, ptr %kept, ptr %versions)
  br label %done
done:
  call void @let_go(ptr %plan, ptr %state)
  ret ptr %out
"""


def released(sig: str, g: dict) -> str:
    """Before a kernel runs: others may meanwhile, if a signature has many elements."""
    return f"""{at("%onumel", sig, g["numel"])}
  %work = call i64 @flambeau_integer(ptr %onumel)
  %state = call ptr @release(i64 %work, ptr %plan)
"""


def find(found: str, table: str, key: str, onward: str, otherwise: str) -> str:
    """What a table has under a key: it goes on where there is something, and elsewhere if not."""
    return (f"  {found} = call ptr @find(ptr {table}, ptr {key})\n"
            f"  {found}.is = icmp ne ptr {found}, null\n"
            f"  br i1 {found}.is, label %{onward}, label %{otherwise}\n")


def pointer(name: str, tensor: str, t: dict) -> str:
    """%<name>raw: where the elements of a tensor are."""
    return (f'{at(f"%{name}box", tensor, t["ptr"])}'
            f"  %{name}raw = call ptr @flambeau_address(ptr %{name}box)\n")


def operand(name: str, t: dict, onward: str, otherwise: str) -> str:
    """A tensor beside the one that is changed: its signature, memory and place, and whether it is loose.

    It goes elsewhere where it may overlap what is changed: in the same memory, and not the same.
    """
    return f"""{at(f"%{name}sig", f"%{name}", t["sig"])}{at(f"%{name}node", f"%{name}", t["node"])}
{at(f"%{name}mem", f"%{name}", t["mem"])}{pointer(name, f"%{name}", t)}
  %{name}loose = icmp eq ptr %{name}node, %none
  %other_memory = icmp ne ptr %{name}mem, %mem
  %same_place = icmp eq ptr %{name}raw, %xraw
  %same_sig = icmp eq ptr %{name}sig, %sig
  %same = and i1 %same_place, %same_sig
  %safe = or i1 %other_memory, %same
  br i1 %safe, label %{onward}, label %{otherwise}
"""


def unrecorded(block: str, t: dict, otherwise: str) -> str:
    """Whether no step is to be recorded of a change of x: `%ready` goes on.

    No operand is part of a graph (they are %loose), nor is what x is a view of; or steps are not
    recorded here. It stands at the end of a block.
    """
    return f"""  br i1 %loose, label %root, label %recorded
root:
{phis("ptr %of", f"{block} %x", "further %base")}
{at("%base", "%of", t["base"])}{at("%bnode", "%of", t["node"])}
  %is_root = icmp eq ptr %base, null
  br i1 %is_root, label %rooted, label %further
further:
  br label %root
rooted:
  %bloose = icmp eq ptr %bnode, %none
  br i1 %bloose, label %ready, label %recorded
recorded:
  %record = call i64 @recording()
  %off = icmp eq i64 %record, 0
  br i1 %off, label %ready, label %{otherwise}
"""


def decided(refused: str, onward: str) -> str:
    """Whether a step of a pointwise plan is recorded: %on.

    Python is asked where it is not known yet what such a step keeps, or where an operand of a step
    is refused: `refused` is text that says so.
    """
    return f"""decided:
{at("%way", "%plan", BACK_AT)}
  %flows = icmp ne ptr %way, %none
  %may = icmp eq i64 %record, 1
  %on = and i1 %may, %flows
  %unprepared = icmp slt i64 %keep, 0
  %first_time = and i1 %on, %unprepared
{refused}  %cannot = and i1 %may, %refused
  %asks = or i1 %first_time, %cannot
  br i1 %asks, label %slow, label %{onward}
"""


def of_plan_or_kin(sig: str, g: dict) -> str:
    """The result's signature and the kernel's last argument; then memory.

    They are the plan's, or if it serves %many shapes, a signature at hand and its %count.
    """
    return f"""{at("%psig", "%plan", TUPLE)}{at("%plast", "%words", 8, "i64")}
  %osig = select i1 %many, ptr {sig}, ptr %psig
  %last = select i1 %many, i64 %count, i64 %plast
{at("%free", "%osig", g["free"])}
{TAKE}"""


def edges(operands: str) -> str:
    """%parents: the edges to operands, each named by a letter, None for those that are loose."""
    ends = "".join(f"  %{x}end = select i1 %{x}loose, ptr %none, ptr %{x}\n" for x in operands)
    found = "".join(f"  %{x}edge = call ptr @edge(ptr %{x}end, ptr %{x}n)\n" for x in operands)
    stored = "".join(put("%parents", TUPLE + 8 * k, f"%{x}edge", f"p{k}")
                     for k, x in enumerate(operands))
    return f"  %parents = call ptr @PyTuple_New(i64 {len(operands)})\n{ends}{found}{stored}"


def keep(operands: str) -> str:
    """%kept: of operands and the result what bits say, else a tuple of Nones that all share."""
    n = len(operands)
    bits = "".join(f"  %k{k}b = and i64 %bits, {1 << k}\n  %k{k} = icmp ne i64 %k{k}b, 0\n"
                   for k in range(n + 1))
    each = "".join(f"  call void @keep_one(ptr %{x}, i1 %k{k}, ptr %fresh, i64 {k})\n"
                   for k, x in enumerate(operands))
    return f"""{bits}  %some = icmp ne i64 %bits, 0
  br i1 %some, label %keeping, label %letting
letting:
  %nones = load ptr, ptr @g_nones{n + 1}
  call void @Py_IncRef(ptr %nones)
  br label %keep_done
keeping:
  %fresh = call ptr @PyTuple_New(i64 {n + 1})
{each}  call void @keep_result(ptr %out, i1 %k{n}, ptr %fresh, i64 {n})
  br label %keep_done
keep_done:
  %kept = phi ptr [ %nones, %letting ], [ %fresh, %keeping ]
"""


#: the number %value, as a kernel of this %kind takes it; one that does not fit is left to Python.
#: It stands in the block `number`.
NUMBER = f"""  switch i64 %kind, label %tensors [ i64 1, label %as_double
                                     i64 2, label %as_int
                                     i64 3, label %tensors ]
as_double:
  %double = call double @PyFloat_AsDouble(ptr %value)
  br label %checked
as_int:
  %whole = call i64 @flambeau_integer(ptr %value)
  br label %checked
checked:
{phis("double %d0, i64 %i0", "as_double %double 0", "as_int 0.0 %whole")}
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %tensors, label %clear
clear:
  call void @PyErr_Clear()
  br label %slow
tensors:
{phis("double %d, i64 %i", "number 0.0 0", "number 0.0 0", "checked %d0 %i0")}"""

#: the kernel's four forms: two tensors, a double, an integer, nothing beside a tensor
LAUNCH = """  switch i64 %kind, label %call0 [ i64 1, label %call1
                                   i64 2, label %call2
                                   i64 3, label %call3 ]
call0:
  call void %kernel(ptr %raw, ptr %fraw, ptr %sraw, i64 %last)
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
"""
