"""A whole step of an optimizer that differs from the one before by its count only.

take_step(plan, 0) compares groups, options, tensors, gradients and state with what the caller knows
of them, finds the numbers of the step, and runs all updates; -1, and no change, if one differs.
"""

from __future__ import annotations

from ..anatomy import LIST_ITEMS, SIZE
from .gather import Layout, updating
from .gather_words import GROUP, OTHERWISE, ROW, UPDATE, WHOLE
from .writer import Function, Value


def _same_items() -> Function:
    """Whether the keys and values of a dict are these, in this order."""
    f = Function("same_items", "ptr dict, ptr items, i64 count", "i1", local=True)
    position, key, value = f.room("i64", 1), f.room("ptr", 1), f.room("ptr", 1)
    position.store(f.const("i64", 0))
    i = f.var("i64", 0)
    with f.repeat() as loop:
        some = f.calls("PyDict_Next", "i32", f.dict, position, key, value)
        loop.leave_if(some == 0)
        with f.when(i() >= f.count):
            f.give(f.const("i1", False))
        known = f.items.at("ptr", i() * 2)
        with f.when((key.load("ptr") != known.load("ptr")) | (
                value.load("ptr") != known.load("ptr", 1))):
            f.give(f.const("i1", False))
        i.add(1)
    f.give(i() == f.count)
    return f


def _take_step(same: Function, unchanged: Function, rows: Function) -> Function:
    f = Function("take_step", "ptr plan, i64 zero", "i64")
    w = {n: f.plan.load("i64" if n.endswith("count") else "ptr", k)
         for k, n in enumerate(WHOLE)}

    def demand(condition: Value) -> None:
        with f.when(condition ^ True):
            f.give(f.const("i64", OTHERWISE))

    demand(w["list"].at("i8", SIZE).load("i64") == w["group_count"])
    members = w["list"].at("i8", LIST_ITEMS).load("ptr")
    with f.each(0, w["group_count"]) as i:
        row = w["groups"].at("i64", i * GROUP)
        group, items = row.load("ptr"), row.load("ptr", 1)
        demand(members.load("ptr", i) == group)
        demand(f.run(same, group, items, row.load("i64", 2)))

    def update_at(i: Value) -> dict[str, Value]:
        row = w["updates"].at("i64", i * len(ROW))
        return {n: row.load("i64" if n in ("count", "elements") else "ptr", k)
                for k, n in enumerate(ROW)}

    with f.each(0, w["update_count"]) as i:
        step = update_at(i)
        demand(f.run(unchanged, step["plan"]))
        old, new = (step["plan"].load("ptr", UPDATE.index(n)) for n in ("old", "new"))
        new.store(old.load("double") + 1.0)
        f.do(f"call void {step['numbers'].name}(double {new.load('double').name}, "
             f"ptr {step['constants'].name}, ptr {step['given'].name})")
        with f.each(0, step["count"]) as k:
            # Where Python would raise an error, it does so.
            value = step["given"].load("double", k)
            demand(value - value == 0.0)
    with f.each(0, w["update_count"]) as i:
        step = update_at(i)
        count = f.run(rows, step["plan"])
        table = step["plan"].load("ptr", UPDATE.index("table"))
        f.do(f"call void {step['code'].name}(ptr {table.name}, i64 {count.name}, "
             f"ptr {step['given'].name}, i64 {step['elements'].name})")
    f.give(f.const("i64", 0))
    return f


def build(offsets) -> list[Function]:
    compared = updating(Layout(offsets))
    same = _same_items()
    return [*compared, same, _take_step(same, *compared[-2:])]
