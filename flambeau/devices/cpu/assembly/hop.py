"""One hop on a known path: compares a call with those that were made here before.

hop(state, op, args, kwargs, grad) -> what the call returns, or None if it is another call; then
nothing has changed. Lists that are written to belong to the trace, see compiler/hop.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ..anatomy import LIST_ITEMS, SIZE, TUPLE_ITEMS, TYPE
from .gather import Layout, none
from .hop_words import ARGUMENT, KINDS, MOST, RECORD, STATE
from .writer import Function, Value

_EQUAL = 2  # Py_EQ


def _is(f: Function, kind: Value, name: str) -> Value:
    return kind == KINDS.index(name)


def _items(sequence: Value, is_list: bool) -> Value:
    """Where the elements of a list are, or of a tuple."""
    return sequence.at("i8", LIST_ITEMS).load("ptr") if is_list else sequence.at("i8", TUPLE_ITEMS)


def _item(sequence: Value, i, is_list: bool) -> Value:
    """An element of a list, or of a tuple."""
    return _items(sequence, is_list).load("ptr", i)


def _size(sequence: Value) -> Value:
    return sequence.at("i8", SIZE).load("i64")


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
    one = _one(layout)
    f = Function("hop", "ptr self, ptr args, i64 n", "ptr", raw=True)
    place, op, given, named, grad = (f.args.load("ptr", k) for k in range(5))
    state = f.new("ptr", f"call ptr @flambeau_address(ptr {place.name})")
    null = f.const("ptr", 0)
    record = f.var("ptr", state.load("ptr", STATE.index("record")))
    # Whoever calls from another thread is not on this path.
    here = f.calls("PyThread_get_thread_ident", "i64") == state.load("i64", STATE.index("thread"))
    plain = given.at("i8", TYPE).load("ptr") == state.load("ptr", STATE.index("tuple"))
    with f.when(here & plain), f.repeat() as loop:
        loop.leave_if(record() == null)
        found = f.run(one, state, record(), op, given, named, grad)
        with f.when(found != null):
            f.give(found)
        record.set(record().load("ptr", RECORD.index("other")))
    f.do("call void @Py_IncRef(ptr @_Py_NoneStruct)")
    f.give(none(f))
    return [one, f]


def _one(layout: Layout) -> Function:
    """What a call returns if it is the one of a record, or null."""
    f = Function("hop_one", "ptr state, ptr record, ptr op, ptr given, ptr named, ptr grad", "ptr",
                 local=True)
    hop = _Hop(f, layout)
    hop.is_called_alike()
    hop.lay_out()
    # First everything is compared, then everything is written down.
    with hop.each_argument() as (a, row, kind):
        hop.compare(a, row, kind)
    hop.may_write()
    with hop.each_argument() as (a, row, kind):
        hop.write_down(a, row, kind)
    hop.give()
    return f


class _Hop:
    """The parts of that function: a call is compared with a record, or null is given back."""

    def __init__(self, f: Function, layout: Layout):
        self.f, self.layout, self.null = f, layout, f.const("ptr", 0)
        self.state = _Words(f, f.state, STATE, ("thread", "wrote"))
        self.record = _Words(f, f.record, RECORD, ("count", "made", "named", "rows", "writes"))
        self.rows = f.record.at("i64", len(RECORD))
        self.flat = f.room("ptr", MOST)         # all arguments in a row
        self.before = _size(self.state["outside"])
        self.fresh, self.met = f.var("i64", 0), f.room("ptr", MOST)     # tensors from outside

    def demand(self, condition: Value) -> None:
        with self.f.when(condition ^ True):
            self.f.give(self.null)

    def is_called_alike(self) -> None:
        """The same op in the same mode, with as many arguments."""
        f, record = self.f, self.record
        self.demand(record["op"] == f.op)
        self.demand(record["grad"] == f.grad)
        self.demand(_size(f.given) + record["named"] == record["count"])
        self.demand(f.calls("PyDict_Size", "i64", f.named) == record["named"])

    def _by_name(self) -> Value:
        """Values of keyword arguments, which come after the others."""
        f, values = self.f, self.f.room("ptr", MOST)
        position, key, value = f.room("i64", 1), f.room("ptr", 1), f.room("ptr", 1)
        position.store(f.const("i64", 0))
        with f.each(0, self.record["named"]) as i:
            f.calls("PyDict_Next", "i32", f.named, position, key, value)
            self.demand(key.load("ptr") == _item(self.record["names"], i, False))
            values.store(value.load("ptr"), i)
        return values

    def lay_out(self) -> None:
        """All arguments in a row, and where there is a list or a tuple, its elements after it."""
        f, by_name, size, at = self.f, self._by_name(), _size(self.f.given), self.f.var("i64", 0)
        with f.each(0, self.record["count"]) as i:
            chosen = f.var("ptr", self.null)
            with f.when(i >= size) as late:
                chosen.set(by_name.load("ptr", i - size))
            with late.otherwise():
                chosen.set(_item(f.given, i, False))
            a, row = chosen(), self.rows.at("i64", at() * ARGUMENT)
            self.flat.store(a, at())
            at.add(1)
            is_list = _is(f, row.load("i64"), "list")
            with f.when(is_list | _is(f, row.load("i64"), "tuple")):
                self.demand(a.at("i8", TYPE).load("ptr") == row.load("ptr", 2))
                self.demand(_size(a) == row.load("i64", 1))
                items = f.var("ptr", _items(a, False))
                with f.when(is_list):
                    items.set(_items(a, True))
                with f.each(0, row.load("i64", 1)) as k:
                    self.flat.store(items().load("ptr", k), at())
                    at.add(1)

    @contextlib.contextmanager
    def each_argument(self) -> Iterator[tuple[Value, Value, Value]]:
        """Each argument, with the row that says what it should be, and of which kind that is."""
        with self.f.each(0, self.record["rows"]) as i:
            row = self.rows.at("i64", i * ARGUMENT)
            yield self.flat.load("ptr", i), row, row.load("i64")

    def compare(self, a: Value, row: Value, kind: Value) -> None:
        f, state = self.f, self.state
        with f.when(_is(f, kind, "value")):
            self.demand(_item(state["values"], row.load("i64", 1), True) == a)
        with f.when(_is(f, kind, "outside")):
            number = row.load("i64", 1)
            with f.when(number < self.before):
                self.demand(_item(state["outside"], number, True) == a)
            with f.when(number >= self.before):
                with f.when(number < self.before + self.fresh()) as known:
                    self.demand(self.met.load("ptr", number - self.before) == a)
                with known.otherwise():
                    self._meet(a, row)
        with f.when(_is(f, kind, "float")):
            self.demand(a.at("i8", TYPE).load("ptr") == state["float"])
        with f.when(_is(f, kind, "constant") | _is(f, kind, "number")):
            known_as = row.load("ptr", 1)
            with f.when(a != known_as):
                self.demand(a.at("i8", TYPE).load("ptr") == known_as.at("i8", TYPE).load("ptr"))
                same = f.calls("PyObject_RichCompareBool", "i32", a, known_as,
                               f.const("i32", _EQUAL))
                self.demand(same == 1)

    def _meet(self, a: Value, row: Value) -> None:
        """A tensor from outside for the first time."""
        f, get, state = self.f, self.layout.get, self.state
        with f.when(a != row.load("ptr", 2)) as another:
            # Another tensor may stand here if none of its memory has been met.
            self.demand(a.at("i8", TYPE).load("ptr") == state["tensor"])
            memory = get(f, a, "mem")
            self._each_met(lambda other: self.demand(get(f, other, "mem") != memory))
        with another.otherwise():  # the same one must not be met under two numbers
            self._each_met(lambda other: self.demand(other != a))
        node, expected = get(f, a, "node"), row.load("ptr", 5)
        with f.when(expected != self.null) as the_same:
            self.demand(node == expected)
        with the_same.otherwise():  # somewhere in the graph, not where it was last time
            self.demand((node != none(f)) & (node != state["leaf"]))
        sig = get(f, a, "sig")
        self.demand((sig == row.load("ptr", 3)) | (sig == row.load("ptr", 4)))
        self.met.store(a, self.fresh())
        self.fresh.add(1)

    def _each_met(self, do: Callable[[Value], None]) -> None:
        with self.f.each(0, self.before) as k:
            do(_item(self.state["outside"], k, True))
        with self.f.each(0, self.fresh()) as k:
            do(self.met.load("ptr", k))

    def may_write(self) -> None:
        """Memory that somebody else can see must not change too late: Python sees to that."""
        f = self.f
        with f.each(0, self.record["writes"]) as i:
            number, tensor = self.record["written"].load("i64", i), f.var("ptr", self.null)
            with f.when(number < self.before) as known:
                tensor.set(_item(self.state["outside"], number, True))
            with known.otherwise():
                tensor.set(self.met.load("ptr", number - self.before))
            # References are counted in 32 bits by some versions of Python; above is something else.
            self.demand(self.layout.get(f, tensor(), "mem").load("i32") == 1)
            f.state.store(f.const("i64", 1), STATE.index("wrote"))

    def write_down(self, a: Value, row: Value, kind: Value) -> None:
        f, state = self.f, self.state
        with f.when(_is(f, kind, "float") | _is(f, kind, "number")):
            f.calls("PyList_Append", "i32", state["numbers"], a)
        with f.when(_is(f, kind, "outside")), \
                f.when(row.load("i64", 1) == _size(state["outside"])):
            with f.when(self.layout.get(f, a, "sig") == row.load("ptr", 4)):
                _put(f, a.at("i8", self.layout.offsets["sig"]), row.load("ptr", 3))
                f.calls("PyList_Append", "i32", state["tagged"], a)
            f.calls("PyList_Append", "i32", state["outside"], a)

    def give(self) -> None:
        """Make what the call returns; the trace is at the record's step from here on."""
        f, state, record = self.f, self.state, self.record
        made = f.var("ptr", self.null)
        with f.when(record["made"] == 0) as single:
            made.set(self._phantom(record["sig"], record["node"]))
        with single.otherwise():
            made.set(f.calls("PyTuple_New", "ptr", record["made"]))
            with f.each(0, record["made"]) as i:
                pair = record["sig"].at("i64", i * 2)
                each = self._phantom(pair.load("ptr"), pair.load("ptr", 1))
                _items(made(), False).store(each, i)
        _put(f, _items(state["at"], True), record["step"])
        f.state.store(record["next"], STATE.index("record"))
        f.give(made())

    def _phantom(self, sig: Value, node: Value) -> Value:
        """A new value of the path."""
        f = self.f
        made = f.calls("PyType_GenericAlloc", "ptr", self.state["type"], f.const("i64", 0))
        for name, value in (("sig", sig), ("node", node)):
            f.do(f"call void @Py_IncRef(ptr {value.name})")
            made.at("i8", self.layout.offsets[name]).store(value)
        f.calls("PyList_Append", "i32", self.state["values"], made)
        return made
