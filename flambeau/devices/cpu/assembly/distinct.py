"""Distinct values: of everything, in order, and of neighbours; with where each is, and how often.

Functions return how many there are. Results are given room for as many as there are elements;
pointers to results that are not wanted are null.
"""

from __future__ import annotations

from .keys import Keys
from .ordering import LANES, Sorter, same
from .writer import Function, Value, wide


def _wanted(f: Function, place: Value) -> Value:
    return f.new("i1", f"icmp ne ptr {place.name}, null")


def distinct(keys: Keys) -> list[Function]:
    """Distinct values in order. The scratch memory is that of sorting a row of n elements."""
    sorter = Sorter(keys)
    f = Function(f"distinct_{keys.dtype}", "ptr x, ptr values, ptr inverse, ptr counts, "
                                           "ptr scratch, i64 n", "i64")
    made = [*sorter.functions]
    one, zero = f.const("i64", 1), f.const("i64", 0)
    if keys.kind != "f":
        tallied = _tallied(keys)
        made.append(tallied)
        known = f.room("i64", 2)
        low = f.run(sorter.lowest, f.x, one, known, f.n, zero)
        span = known.load("i64", 1)
        with f.when(span.below(f.n * 4)):
            f.give(f.run(tallied, f.x, f.values, f.inverse, f.counts, f.scratch, f.n, low, span))
    known = f.room("i64", 2)
    a, b, tables = f.scratch, f.scratch.at("i64", f.n), f.scratch.at("i64", f.n * 2)
    found = f.run(sorter.row, f.x, one, a, b, tables, known, f.n, zero)
    exact, low = known.load("i64") == 0, known.load("i64", 1).to(keys.type)
    equal = same(f, keys, f.x, one, found, exact, zero)
    last = f.var("i64", -1)
    with f.each(0, f.n) as i:
        fresh = f.var("i1", True)
        with f.when(i > 0):
            fresh.set(~equal(i))
        packed = found.load("i64", i)
        at = packed & 0xFFFFFFFF
        with f.when(fresh()):
            last.add(1)
            with f.when(exact) as told:
                f.values.store(keys.back((packed >> 32).to(keys.type) + low), last())
            with told.otherwise():
                f.values.store(keys.load(f.x, at), last())
            with f.when(_wanted(f, f.counts)):
                f.counts.store(i, last())
        with f.when(_wanted(f, f.inverse)):
            f.inverse.store(last(), at)
    with f.when(_wanted(f, f.counts)):
        _differences(f, f.counts, last() + 1, f.n)
    f.give(last() + 1)
    return [*made, f]


def _differences(f: Function, starts: Value, count: Value, end: Value) -> None:
    """Starts of runs to their lengths."""
    with f.each(0, count - 1) as i:
        starts.store(starts.load("i64", i + 1) - starts.load("i64", i), i)
    with f.when(count > 0):
        starts.store(end - starts.load("i64", count - 1), count - 1)


def _tallied(keys: Keys) -> Function:
    """Integers of a small span: each has a place in a table of counts."""
    f = Function("tallied", "ptr x, ptr values, ptr inverse, ptr counts, ptr table, i64 n, "
                            "i64 low, i64 span", "i64", local=True)
    low = f.low.to(keys.type)

    def place(i: Value) -> Value:
        return (keys.of(keys.load(f.x, i)) - low).to("i64")

    with f.each(0, f.span + 1, LANES) as i:
        f.table.store(f.const(wide("i32", LANES), 0), i)
    with f.each(0, f.n) as i:
        at = place(i)
        f.table.store(f.table.load("i32", at) + 1, at)
    count = f.var("i64", 0)
    with f.each(0, f.span + 1) as v:
        have = f.table.load("i32", v)
        with f.when(have != 0):
            f.values.store(keys.back(v.to(keys.type) + low), count())
            with f.when(_wanted(f, f.counts)):
                f.counts.store(have.to("i64"), count())
            f.table.store(count().to("i32"), v)
            count.add(1)
    with f.when(_wanted(f, f.inverse)), f.each(0, f.n) as i:
        f.inverse.store(f.table.load("i32", place(i)).to("i64"), i)
    f.give(count())
    return f


def _runs(keys: Keys, told: bool) -> Function:
    """Runs of equal neighbours; with where each element is, and how many there are, or without."""
    f = Function("told_runs" if told else "plain_runs",
                 "ptr x, ptr values, ptr inverse, ptr counts, i64 n", "i64", local=True)
    last, before = f.var("i64", 0), f.var(keys.memory, keys.load(f.x, f.const("i64", 0)))
    f.values.store(before())
    if told:
        counted, placed = _wanted(f, f.counts), _wanted(f, f.inverse)
        with f.when(counted):
            f.counts.store(f.const("i64", 0))
        with f.when(placed):
            f.inverse.store(f.const("i64", 0))
    with f.each(1, f.n) as i:
        value = keys.load(f.x, i)
        if keys.kind == "f":
            key = keys.of(value)
            fresh = (key != keys.of(before())) | keys.is_nan(key)
        else:
            fresh = value != before()
        before.set(value)
        # Written where the next run belongs, whether or not this begins one: nothing to guess.
        f.values.store(value, last() + 1)
        if told:
            with f.when(counted):
                f.counts.store(i, last() + 1)
        last.add(fresh.to("i64"))
        if told:
            with f.when(placed):
                f.inverse.store(last(), i)
    if told:
        with f.when(counted):
            _differences(f, f.counts, last() + 1, f.n)
    f.give(last() + 1)
    return f


def runs(keys: Keys) -> list[Function]:
    told, bare = _runs(keys, True), _runs(keys, False)
    f = Function(f"runs_{keys.dtype}", "ptr x, ptr values, ptr inverse, ptr counts, i64 n", "i64")
    given = list(f.parameters_by_name().values())
    with f.when(_wanted(f, f.counts) | _wanted(f, f.inverse)):
        f.give(f.run(told, *given))
    f.give(f.run(bare, *given))
    return [told, bare, f]


def build(name: str, dtype: str) -> list[Function]:
    return (distinct if name == "distinct" else runs)(Keys(dtype))
