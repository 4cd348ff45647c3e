"""One hop on a known path: compares a call with the one that was made here last time.

hop(state, op, args, kwargs, grad) -> what the call returns, or None if it is another call; then
nothing has changed. Lists that are written to belong to the trace, see compiler/hop.py.
"""

from __future__ import annotations

from .gather import Layout, none
from .hop_words import ARGUMENT, KINDS, MOST, RECORD, STATE
from .writer import Function, Value

_TYPE, _SIZE, _ITEMS = 8, 16, 24
_EQUAL = 2  # Py_EQ


def _is(f: Function, kind: Value, name: str) -> Value:
    return kind == KINDS.index(name)


def _item(sequence: Value, i, is_list: bool) -> Value:
    """An element of a list, or of a tuple."""
    start = sequence.at("i8", _ITEMS)
    return (start.load("ptr") if is_list else start).load("ptr", i)


def _size(sequence: Value) -> Value:
    return sequence.at("i8", _SIZE).load("i64")


def _put(f: Function, place: Value, value: Value) -> None:
    """Let a field hold another object."""
    old = place.load("ptr")
    f.do(f"call void @Py_IncRef(ptr {value.name})")
    place.store(value)
    f.calls("Py_DecRef", "void", old)


class _Words:
    def __init__(self, f: Function, base: Value, names: tuple[str, ...], numbers=()):
        self.found = {n: base.load("i64" if n in numbers else "ptr", i)
                      for i, n in enumerate(names)}

    def __getitem__(self, name: str) -> Value:
        return self.found[name]


def build(offsets) -> list[Function]:
    layout = Layout(offsets)
    f = Function("hop", "ptr self, ptr args, i64 n", "ptr", raw=True)
    place, op, given, named, grad = (f.args.load("ptr", k) for k in range(5))
    state_at = f.new("ptr", f"call ptr @PyLong_AsVoidPtr(ptr {place.name})")
    state = _Words(f, state_at, STATE, ("thread", "wrote"))
    null = f.const("ptr", 0)

    def demand(condition: Value) -> None:
        with f.when(condition ^ True):
            f.do("call void @Py_IncRef(ptr @_Py_NoneStruct)")
            f.give(none(f))

    demand(state["record"] != null)
    # Whoever calls from another thread is not on this path.
    demand(f.calls("PyThread_get_thread_ident", "i64") == state["thread"])
    record = _Words(f, state["record"], RECORD, ("count", "named", "rows", "writes"))
    demand(record["op"] == op)
    demand(record["grad"] == grad)
    demand(given.at("i8", _TYPE).load("ptr") == state["tuple"])
    size = _size(given)
    demand(size + record["named"] == record["count"])
    more = f.calls("PyDict_Size", "i64", named)
    demand(more == record["named"])

    # Values of keyword arguments, which come after the others.
    values = f.room("ptr", MOST)
    position, key, value = f.room("i64", 1), f.room("ptr", 1), f.room("ptr", 1)
    position.store(f.const("i64", 0))
    with f.each(0, record["named"]) as i:
        f.calls("PyDict_Next", "i32", named, position, key, value)
        demand(key.load("ptr") == _item(record["names"], i, False))
        values.store(value.load("ptr"), i)

    rows = state["record"].at("i64", len(RECORD))

    # All arguments in a row, and where there is a list or a tuple, its elements after it.
    flat, at = f.room("ptr", MOST), f.var("i64", 0)
    with f.each(0, record["count"]) as i:
        chosen = f.var("ptr", null)
        with f.when(i >= size) as late:
            chosen.set(values.load("ptr", i - size))
        with late.otherwise():
            chosen.set(_item(given, i, False))
        a, row = chosen(), rows.at("i64", at() * ARGUMENT)
        flat.store(a, at())
        at.add(1)
        with f.when(_is(f, row.load("i64"), "list") | _is(f, row.load("i64"), "tuple")):
            demand(a.at("i8", _TYPE).load("ptr") == row.load("ptr", 2))
            demand(_size(a) == row.load("i64", 1))
            first = a.at("i8", _ITEMS)
            items = f.var("ptr", first)
            with f.when(_is(f, row.load("i64"), "list")):
                items.set(first.load("ptr"))
            with f.each(0, row.load("i64", 1)) as k:
                flat.store(items().load("ptr", k), at())
                at.add(1)

    # First everything is compared, then everything is written down.
    fresh, room = f.var("i64", 0), f.room("ptr", MOST)
    before = _size(state["outside"])
    with f.each(0, record["rows"]) as i:
        a, row = flat.load("ptr", i), rows.at("i64", i * ARGUMENT)
        kind = row.load("i64")
        with f.when(_is(f, kind, "value")):
            demand(_item(state["values"], row.load("i64", 1), True) == a)
        with f.when(_is(f, kind, "outside")):
            number = row.load("i64", 1)
            with f.when(number < before):
                demand(_item(state["outside"], number, True) == a)
            with f.when(number >= before):
                with f.when(number < before + fresh()) as known:
                    demand(room.load("ptr", number - before) == a)
                with known.otherwise():
                    with f.when(a != row.load("ptr", 2)) as another:
                        # Another tensor may stand here if none of its memory has been met.
                        demand(a.at("i8", _TYPE).load("ptr") == state["tensor"])
                        memory = layout.get(f, a, "mem")
                        with f.each(0, before) as k:
                            other = _item(state["outside"], k, True)
                            demand(layout.get(f, other, "mem") != memory)
                        with f.each(0, fresh()) as k:
                            demand(layout.get(f, room.load("ptr", k), "mem") != memory)
                    with another.otherwise():
                        # The same one must not be met under two numbers.
                        with f.each(0, before) as k:
                            demand(_item(state["outside"], k, True) != a)
                        with f.each(0, fresh()) as k:
                            demand(room.load("ptr", k) != a)
                    demand(layout.get(f, a, "node") == row.load("ptr", 5))
                    sig = layout.get(f, a, "sig")
                    demand((sig == row.load("ptr", 3)) | (sig == row.load("ptr", 4)))
                    room.store(a, fresh())
                    fresh.add(1)
        with f.when(_is(f, kind, "float")):
            demand(a.at("i8", _TYPE).load("ptr") == state["float"])
        with f.when(_is(f, kind, "constant") | _is(f, kind, "number")):
            known_as = row.load("ptr", 1)
            with f.when(a != known_as):
                demand(a.at("i8", _TYPE).load("ptr") == known_as.at("i8", _TYPE).load("ptr"))
                same = f.calls("PyObject_RichCompareBool", "i32", a, known_as,
                               f.const("i32", _EQUAL))
                demand(same == 1)
    with f.each(0, record["writes"]) as i:
        # Memory that somebody else can see must not change too late: Python sees to that.
        number, tensor = record["written"].load("i64", i), f.var("ptr", null)
        with f.when(number < before) as known:
            tensor.set(_item(state["outside"], number, True))
        with known.otherwise():
            tensor.set(room.load("ptr", number - before))
        # References are counted in 32 bits by some versions of Python, and above is something else.
        demand(layout.get(f, tensor(), "mem").load("i32") == 1)
        state_at.store(f.const("i64", 1), STATE.index("wrote"))
    with f.each(0, record["rows"]) as i:
        a, row = flat.load("ptr", i), rows.at("i64", i * ARGUMENT)
        kind = row.load("i64")
        with f.when(_is(f, kind, "float") | _is(f, kind, "number")):
            f.calls("PyList_Append", "i32", state["numbers"], a)
        with f.when(_is(f, kind, "outside")), \
                f.when(row.load("i64", 1) == _size(state["outside"])):
            with f.when(layout.get(f, a, "sig") == row.load("ptr", 4)):
                _put(f, a.at("i8", layout.offsets["sig"]), row.load("ptr", 3))
                f.calls("PyList_Append", "i32", state["tagged"], a)
            f.calls("PyList_Append", "i32", state["outside"], a)
    made = f.calls("PyType_GenericAlloc", "ptr", state["type"], f.const("i64", 0))
    demand(made != null)
    for name in ("sig", "node"):
        f.do(f"call void @Py_IncRef(ptr {record[name].name})")
        made.at("i8", layout.offsets[name]).store(record[name])
    f.calls("PyList_Append", "i32", state["values"], made)
    _put(f, state["at"].at("i8", _ITEMS).load("ptr"), record["step"])
    state_at.store(record["next"], STATE.index("record"))
    f.give(made)
    return [f]
