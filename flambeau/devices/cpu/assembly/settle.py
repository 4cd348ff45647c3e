"""The end of a segment on a known path: runs its program, and makes real what others hold.

promise(state, rows, count, 0) -> 0, or why nothing was done: gives phantoms to leaves as gradients.
A row is a leaf among the tensors from outside, and a signature and a node, or nothing for it.

swap(tensors, offset, 0) -> how many of a list of tensors were given the signature that theirs has
at an offset: up to the first one that has none.

enter(pairs, count, tensors, offset, 0) -> the same, or -1 and nothing done if anywhere in memory
there is another word than a pair (address, word) says.

settle(state, plan, memory, 0) -> 0, or why the program has not run. `memory` is a list of storages
for the results; those it lacks are taken from their free lists, until one is EMPTY. A long program
gives up the GIL. Lists belong to the trace, see compiler/hop.py.
"""

from __future__ import annotations

from ..anatomy import REFERENCES, SIZE
from .gather import Layout, none
from .hop import _item, _put, _size
from .hop_words import STATE
from .settle_words import ANOTHER, EMPTY, FAILED, PLAN, PROMISE, ROW
from .writer import Function, Value

_ADDRESS = 16
_NUMBERS = ("count", "outside", "results", "work", "threshold", "row_count", "last")


def _swap(layout: Layout) -> Function:
    f = Function("swap", "ptr tensors, i64 offset, i64 zero", "i64")
    with f.each(0, _size(f.tensors)) as i:
        place = _item(f.tensors, i, True).at("i8", layout.offsets["sig"])
        other = place.load("ptr").at("i8", f.offset).load("ptr")
        with f.when(other == f.const("ptr", 0)):
            f.give(i)
        _put(f, place, other)
    f.give(_size(f.tensors))
    return f


def _enter(swap: Function) -> Function:
    f = Function("enter", "ptr pairs, i64 count, ptr tensors, i64 offset, i64 zero", "i64")
    with f.each(0, f.count) as i:
        pair = f.pairs.at("i64", i * 2)
        with f.when(pair.load("ptr").load("i64") != pair.load("i64", 1)):
            f.give(f.const("i64", -1))
    found = f.run(swap, f.tensors, f.offset, f.zero)
    assert found is not None
    f.give(found)
    return f


def _promise(layout: Layout) -> Function:
    f = Function("promise", "ptr state, ptr rows, i64 count, i64 zero", "i64")
    values, outside, kind = (f.state.load("ptr", STATE.index(name))
                             for name in ("values", "outside", "type"))

    def leaf_of(row) -> Value:
        return _item(outside, row.load("i64"), True).at("i8", layout.offsets["_grad"])

    with f.each(0, f.count) as i:
        gradient = leaf_of(f.rows.at("i64", i * PROMISE)).load("ptr")
        with f.when((gradient != f.const("ptr", 0)) & (gradient != none(f))):
            f.give(f.const("i64", ANOTHER))
    with f.each(0, f.count) as i:
        row = f.rows.at("i64", i * PROMISE)
        with f.when(row.load("i64", 1) != 0):
            made = f.calls("PyType_GenericAlloc", "ptr", kind, f.const("i64", 0))
            for at, name in enumerate(("sig", "node"), 1):
                f.do(f"call void @Py_IncRef(ptr {row.load('ptr', at).name})")
                made.at("i8", layout.offsets[name]).store(row.load("ptr", at))
            f.calls("PyList_Append", "i32", values, made)
            place = leaf_of(row)
            old = place.load("ptr")
            place.store(made)
            with f.when(old != f.const("ptr", 0)):
                f.calls("Py_DecRef", "void", old)
    f.give(f.const("i64", 0))
    return f


def take(f: Function, pools: Value, results: Value) -> None:
    """Storages for the results that have none yet, each the last of its free list."""
    with f.each(_size(f.memory), results) as i:
        pool = pools.load("ptr", i)
        left = _size(pool) - 1
        with f.when(left < 0):
            f.give(f.const("i64", EMPTY))
        storage = _item(pool, left, True)
        pool.at("i8", SIZE).store(left)
        f.calls("PyList_Append", "i32", f.memory, storage)
        f.calls("Py_DecRef", "void", storage)


def taken(f: Function, i: Value) -> tuple[Value, Value]:
    """A storage that was taken, and the number, an object, that says where it is."""
    storage = _item(f.memory, i, True)
    return storage, storage.at("i8", _ADDRESS).load("ptr")


def further_on(f: Function, start: Value, further: Value) -> Value:
    """Where something is, an object of the caller's own, so many bytes after a start."""
    place = f.var("ptr", start)
    with f.when(further == 0) as whole:
        f.do(f"call void @Py_IncRef(ptr {start.name})")
    with whole.otherwise():
        begin = f.new("ptr", f"call ptr @flambeau_address(ptr {start.name})")
        place.set(f.calls("PyLong_FromVoidPtr", "ptr", begin.at("i8", further)))
    return place()


def run_program(f: Function, words: dict[str, Value]) -> None:
    """Call a program; others may go on in the meantime if that takes long."""
    run = (f"call void {words['code'].name}(ptr {words['table'].name}, "
           f"ptr {words['failed'].name}, i64 {words['work'].name})")
    with f.when(words["work"] > words["threshold"]) as long:
        thread = f.new("ptr", "call ptr @PyEval_SaveThread()")
        f.do(run)
        f.do(f"call void @PyEval_RestoreThread(ptr {thread.name})")
    with long.otherwise():
        f.do(run)


def build(offsets) -> list[Function]:
    layout = Layout(offsets)
    f = Function("settle", "ptr state, ptr plan, ptr memory, i64 zero", "i64")
    values, outside, tagged = (f.state.load("ptr", STATE.index(name))
                               for name in ("values", "outside", "tagged"))
    plan = {name: f.plan.load("i64" if name in _NUMBERS else "ptr", i)
            for i, name in enumerate(PLAN)}
    table = plan["table"]

    def demand(condition) -> None:
        with f.when(condition ^ True):
            f.give(f.const("i64", ANOTHER))

    demand(_size(values) == plan["count"])
    demand(_size(outside) >= plan["outside"])
    with f.each(0, plan["count"]) as i:
        # References are counted in 32 bits by some versions of Python; one is the list's own.
        held = _item(values, i, True).at("i8", REFERENCES).load("i32") > 1
        demand(held == (plan["live"].load("i64", i) != 0))
    take(f, plan["pools"], plan["results"])
    with f.each(0, plan["results"]) as i:
        boxed = taken(f, i)[1]
        table.store(f.new("ptr", f"call ptr @flambeau_address(ptr {boxed.name})"), i + 2)
    first = plan["results"] + 2
    with f.each(0, plan["outside"]) as i:
        table.store(layout.address(f, _item(outside, i, True)), first + i)
    run_program(f, plan)
    with f.when(plan["failed"].load("i64") != 0):
        f.give(f.const("i64", FAILED))
    with f.each(0, plan["row_count"]) as i:
        row = plan["rows"].at("i64", i * ROW)
        x, number, further = _item(values, row.load("i64"), True), row.load("i64", 1), (
            row.load("i64", 2))
        f.calls("PyObject_SetAttr", "i32", x, plan["class_name"], plan["type"])
        _put(f, x.at("i8", layout.offsets["node"]), row.load("ptr", 3))
        owner = f.var("ptr", f.const("ptr", 0))
        start = f.var("ptr", f.const("ptr", 0))
        with f.when(number >= 0) as own:
            for variable, value in zip((owner, start), taken(f, number), strict=True):
                variable.set(value)
        with own.otherwise():
            other = _item(outside, f.const("i64", -1) - number, True)
            owner.set(layout.get(f, other, "mem"))
            start.set(layout.get(f, other, "ptr"))
        place = further_on(f, start(), further)
        f.do(f"call void @Py_IncRef(ptr {owner().name})")
        x.at("i8", layout.offsets["mem"]).store(owner())
        x.at("i8", layout.offsets["ptr"]).store(place)
        f.calls("PyList_Append", "i32", tagged, x)
    with f.when(plan["last"] != 0):
        for found in (values, outside, f.state.load("ptr", STATE.index("numbers"))):
            f.calls("PyList_SetSlice", "i32", found, f.const("i64", 0), _size(found),
                    f.const("ptr", 0))
    f.give(f.const("i64", 0))
    swap = _swap(layout)
    return [f, swap, _enter(swap), _promise(layout)]
