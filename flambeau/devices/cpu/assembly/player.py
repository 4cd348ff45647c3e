"""Runs a program again where nothing that it depends on has changed, in one call.

play(plan, memory, values, 0) compares tensors with what the caller knows of them, finds their
memory, gives gradients that nobody else holds their memory again, takes memory for other results
into a list, as `settle` does, calls the program, and appends tensors that are handed out to
another. While a long program runs, other threads do too: leaves have no gradients meanwhile.
"""

from __future__ import annotations

from ..anatomy import REFERENCES, TYPE
from .gather import Layout, none
from .player_words import CHANGED, HELD, KEPT, PAIR, PLAN, ROW
from .settle import further_on, run_program, take, taken
from .settle_words import FAILED
from .writer import Function, Value

_ADDRESS, _VERSION = 16, 56
_HAD = 3    # the word of a row that has room


def _field(owner: Value, offset: int, type_: str = "ptr") -> Value:
    return owner.at("i8", offset).load(type_)


def _hand_out(f: Function, layout: Layout, row: Value, kind: Value) -> None:
    """A tensor on memory that was taken."""
    made = f.calls("PyType_GenericAlloc", "ptr", kind, f.const("i64", 0))
    owner, start = taken(f, row.load("i64", 2))
    held = {"sig": row.load("ptr"), "node": row.load("ptr", 1), "mem": owner}
    for name, value in held.items():
        f.do(f"call void @Py_IncRef(ptr {value.name})")
        made.at("i8", layout.offsets[name]).store(value)
    made.at("i8", layout.offsets["ptr"]).store(further_on(f, start, row.load("i64", 3)))
    f.calls("PyList_Append", "i32", f.values, made)
    f.calls("Py_DecRef", "void", made)


def _again(f: Function, layout: Layout, old: Value, kind: Value) -> Value:
    """A new tensor on the memory of one that nobody else has, which ends here."""
    made = f.calls("PyType_GenericAlloc", "ptr", kind, f.const("i64", 0))
    for name in ("sig", "mem", "ptr", "node"):
        value = layout.get(f, old, name)
        f.do(f"call void @Py_IncRef(ptr {value.name})")
        made.at("i8", layout.offsets[name]).store(value)
    layout.get(f, made, "mem").at("i8", _VERSION).store(f.const("i64", 0))
    f.calls("Py_DecRef", "void", old)
    return made


def build(offsets) -> list[Function]:
    layout = Layout(offsets)
    f = Function("play", "ptr plan, ptr memory, ptr values, i64 zero", "i64")
    numbers = ("word_count", "guard_count", "grad_count", "pool_count", "kept_count", "work",
               "threshold")
    words = {name: f.plan.load("i64" if name in numbers else "ptr", i)
             for i, name in enumerate(PLAN)}
    table = words["table"]

    def demand(condition: Value, otherwise: int) -> None:
        with f.when(condition ^ True):
            f.give(f.const("i64", otherwise))

    with f.each(0, words["word_count"]) as i:
        pair = words["words"].at("i64", i * PAIR)
        demand(pair.load("ptr").load("i64") == pair.load("i64", 1), CHANGED)
    with f.each(0, words["guard_count"]) as i:
        row = words["guards"].at("i64", i * ROW)
        tensor, slot = row.load("ptr"), row.load("i64", 3)
        demand(layout.get(f, tensor, "sig") == row.load("ptr", 1), CHANGED)
        demand(layout.get(f, tensor, "node") == row.load("ptr", 2), CHANGED)
        with f.when(slot >= 0):
            table.store(layout.address(f, tensor), slot)
    with f.each(0, words["grad_count"]) as i:
        row = words["grads"].at("i64", i * ROW)
        gradient = layout.gradient(f, row.load("ptr"))
        demand(gradient != f.const("ptr", 0), HELD)
        memory = layout.get(f, gradient, "mem")
        # References are counted in 32 bits by some versions of Python, and above is something else.
        for owner in (gradient, memory):
            demand(_field(owner, REFERENCES, "i32") == 1, HELD)
        demand(_field(gradient, TYPE) == words["type"], HELD)
        demand(layout.get(f, gradient, "sig") == row.load("ptr", 1), HELD)
        demand(layout.get(f, gradient, "node") == none(f), HELD)
        boxed = _field(memory, _ADDRESS)
        table.store(f.new("ptr", f"call ptr @flambeau_address(ptr {boxed.name})"),
                    row.load("i64", 2))
    take(f, words["pools"], words["pool_count"])
    with f.each(0, words["pool_count"]) as i:
        boxed = taken(f, i)[1]
        table.store(f.new("ptr", f"call ptr @flambeau_address(ptr {boxed.name})"),
                    words["slots"].load("i64", i))
    with f.each(0, words["grad_count"]) as i:
        row = words["grads"].at("i64", i * ROW)
        slot = row.load("ptr").at("i8", layout.offsets["_grad"])
        row.store(slot.load("ptr"), _HAD)
        slot.store(f.const("ptr", 0))
    run_program(f, words)
    failed = words["failed"].load("i64") != 0
    with f.each(0, words["grad_count"]) as i:
        row = words["grads"].at("i64", i * ROW)
        given = f.var("ptr", row.load("ptr", _HAD))
        with f.when(failed ^ True):
            given.set(_again(f, layout, given(), words["type"]))
        slot = row.load("ptr").at("i8", layout.offsets["_grad"])
        other = slot.load("ptr")
        slot.store(given())
        with f.when(other != f.const("ptr", 0)):
            f.calls("Py_DecRef", "void", other)
    with f.when(failed):
        f.give(f.const("i64", FAILED))
    with f.each(0, words["kept_count"]) as i:
        _hand_out(f, layout, words["kept"].at("i64", i * KEPT), words["type"])
    f.give(f.const("i64", 0))
    return [f]
