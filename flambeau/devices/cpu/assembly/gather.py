"""Finds the memory of many objects in one call, and writes the table `many.py` runs kernels over.

The objects are laid out by others; `offsets` say where they keep what is read here. Everything is
compared with what the caller knows of it before anything is changed.
"""

from __future__ import annotations

from ..anatomy import LIST_ITEMS, SIZE
from ..many import PART
from .gather_words import ANY, ITEM, OTHERWISE, SEARCH, TOO_SMALL, UPDATE
from .writer import Function, Value

_VERSION_AT = 56


class Layout:
    """Reads and writes fields of objects."""

    def __init__(self, offsets):
        self.offsets = dict(offsets)

    def get(self, f: Function, owner: Value, field: str) -> Value:
        return owner.at("i8", self.offsets[field]).load("ptr")

    def address(self, f: Function, tensor: Value) -> Value:
        return f.new("ptr", f"call ptr @flambeau_address(ptr {self.get(f, tensor, 'ptr').name})")

    def number(self, f: Function, owner: Value, field: str) -> Value:
        boxed = self.get(f, owner, field)
        return f.new("i64", f"call i64 @flambeau_integer(ptr {boxed.name})")

    def touch(self, f: Function, tensor: Value) -> None:
        """Count a change of the bytes under a tensor."""
        version = self.get(f, tensor, "mem").at("i8", _VERSION_AT)
        version.store(version.load("i64") + 1)

    def gradient(self, f: Function, tensor: Value) -> Value:
        """The gradient of a tensor, or null."""
        found = self.get(f, tensor, "_grad")
        return (found == none(f)).pick(f.const("ptr", 0), found)


def none(f: Function) -> Value:
    return Value(f, "ptr", "@_Py_NoneStruct")


def _truth(f: Function, other: Function, *arguments: Value) -> Value:
    found = f.run(other, *arguments)
    assert found is not None
    return found


def _same_values() -> Function:
    """Whether the values of a dict are these, in this order."""
    f = Function("same_values", "ptr dict, ptr values, i64 count", "i1", local=True)
    position, key, value = f.room("i64", 1), f.room("ptr", 1), f.room("ptr", 1)
    position.store(f.const("i64", 0))
    i = f.var("i64", 0)
    with f.repeat() as loop:
        some = f.calls("PyDict_Next", "i32", f.dict, position, key, value)
        assert some is not None
        loop.leave_if(some == 0)
        with f.when(i() >= f.count):
            f.give(f.const("i1", False))
        with f.when(value.load("ptr") != f.values.load("ptr", i())):
            f.give(f.const("i1", False))
        i.add(1)
    f.give(i() == f.count)
    return f


def _counter(layout: Layout) -> list[Function]:
    """Read a counter as a double, and write it; it is a float64 if wide, else a float32."""
    read = Function("read_counter", "ptr tensor, i64 wide", "double", local=True)
    place = layout.address(read, read.tensor)
    with read.when(read.wide != 0):
        read.give(place.load("double"))
    read.give(place.load("float").to("double"))
    write = Function("write_counter", "ptr tensor, i64 wide, double value", local=True)
    place = layout.address(write, write.tensor)
    layout.touch(write, write.tensor)
    with write.when(write.wide != 0) as broad:
        place.store(write.value)
    with broad.otherwise():
        place.store(write.value.to("float"))
    return [read, write]


def _words(f: Function, names: tuple[str, ...], plan: Value) -> dict[str, Value]:
    pointers = ("items", "table", "snapshot", "list", "state", "old", "new", "dtype", "device",
                "results", "type", "true")
    return {n: plan.load("ptr" if n in pointers else "i64", i) for i, n in enumerate(names)}


def _unchanged(layout: Layout, same: Function, read: Function) -> Function:
    """Whether tensors, gradients, state and counters are what the plan says."""
    f = Function("unchanged", "ptr plan", "i1", local=True)
    w = _words(f, UPDATE, f.plan)

    def demand(condition: Value) -> None:
        with f.when(condition ^ True):
            f.give(f.const("i1", False))

    demand(w["list"].at("i8", SIZE).load("i64") == w["count"])
    with f.when(w["entries"] >= 0):
        demand(_truth(f, same, w["state"], w["snapshot"], w["entries"]))
    members = w["list"].at("i8", LIST_ITEMS).load("ptr")
    with f.each(0, w["count"]) as i:
        item = w["items"].at("i64", i * w["width"])
        p, sig, n, state = (item.load("i64" if k == 2 else "ptr", k) for k in range(ITEM))
        demand(members.load("ptr", i) == p)
        with f.when(n != ANY):
            g = layout.gradient(f, p)
            absent = n < 0
            demand((g == f.const("ptr", 0)) == absent)
            with f.when(absent ^ True):
                demand(layout.get(f, p, "sig") == sig)
                demand(layout.get(f, g, "sig") == sig)
                with f.when(state != f.const("ptr", 0)):
                    known = item.at("i64", ITEM)
                    demand(_truth(f, same, state, known, w["known"]))
                    states = known.at("i64", w["known"])
                    with f.each(0, w["states"]) as k:
                        demand(layout.get(f, states.load("ptr", k), "sig") == sig)
                    counters = states.at("i64", w["states"])
                    with f.each(0, w["counters"]) as k:
                        count = f.run(read, counters.load("ptr", k), w["wide"])
                        assert count is not None
                        demand(count == w["old"].load("double", k))
    f.give(f.const("i1", True))
    return f


def _cut() -> Function:
    """A row about a whole tensor becomes rows about its parts; returns how many."""
    f = Function("cut", "ptr row, i64 n, i64 columns, i64 item_size", "i64", local=True)
    row, left, rows = f.var("ptr", f.row), f.var("i64", f.n), f.var("i64", 1)
    with f.repeat() as loop:
        row().store((left() > PART).pick(f.const("i64", PART), left()))
        loop.leave_if(left() <= PART)
        following = row().at("i64", f.columns)
        with f.each(1, f.columns) as k:
            following.store(row().load("i64", k) + f.item_size * PART, k)
        left.set(left() - PART)
        row.set(following)
        rows.add(1)
    f.give(rows())
    return f


def _rows(layout: Layout, cut: Function, write: Function) -> Function:
    """Write rows of tensor, gradient and states, and move counters on; returns how many."""
    f = Function("rows", "ptr plan", "i64", local=True)
    w = _words(f, UPDATE, f.plan)
    rows, columns = f.var("i64", 0), w["states"] + 3
    with f.each(0, w["count"]) as i:
        item = w["items"].at("i64", i * w["width"])
        p, n = item.load("ptr"), item.load("i64", 2)
        with f.when(n >= 0):
            row = w["table"].at("i64", rows() * columns)
            states = item.at("i64", w["known"] + ITEM)
            row.store(layout.address(f, p), 1)
            row.store(layout.address(f, layout.gradient(f, p)), 2)
            layout.touch(f, p)
            with f.each(0, w["states"]) as k:
                row.store(layout.address(f, states.load("ptr", k)), k + 3)
                layout.touch(f, states.load("ptr", k))
            counters = states.at("i64", w["states"])
            with f.each(0, w["counters"]) as k:
                f.run(write, counters.load("ptr", k), w["wide"], w["new"].load("double", k))
            more = f.run(cut, row, n, columns, w["item_size"])
            assert more is not None
            rows.add(more)
    with f.each(0, w["counters"]) as k:
        w["old"].store(w["new"].load("double", k), k)
    f.give(rows())
    return f


def _gather(unchanged: Function, rows: Function) -> Function:
    """Rows of tensors; counters move on. -1, and no change, if anything differs."""
    f = Function("gather", "ptr plan, i64 zero", "i64")
    with f.when(_truth(f, unchanged, f.plan) ^ True):
        f.give(f.const("i64", OTHERWISE))
    f.give(_truth(f, rows, f.plan))
    return f


def _search(layout: Layout, cut: Function) -> Function:
    """Rows of the tensors of a list, or of their gradients, each with a place for one result.

    -1 if one is not plain, of the dtype asked for and outside the graph; -2 if the table is full.
    """
    f = Function("search", "ptr plan, i64 change", "i64")
    w = _words(f, SEARCH, f.plan)
    size = w["list"].at("i8", SIZE).load("i64")
    members = w["list"].at("i8", LIST_ITEMS).load("ptr")
    rows, elements = f.var("i64", 0), f.var("i64", 0)

    def demand(condition: Value, otherwise: int = OTHERWISE) -> None:
        with f.when(condition ^ True):
            f.give(f.const("i64", otherwise))

    with f.each(0, size) as i:
        member = members.load("ptr", i)
        demand(_is_a(f, member, w["type"]))
        tensor = f.var("ptr", member)
        with f.when(w["gradients"] != 0):
            tensor.set(layout.gradient(f, member))
        with f.when(tensor() != f.const("ptr", 0)):
            sig = layout.get(f, tensor(), "sig")
            demand(layout.get(f, sig, "dtype") == w["dtype"])
            demand(layout.get(f, sig, "device") == w["device"])
            demand(layout.get(f, sig, "tag") == none(f))
            demand(layout.get(f, tensor(), "node") == none(f))
            demand(layout.get(f, sig, "contiguous") == w["true"])
            n = layout.number(f, sig, "numel")
            demand(rows() + n / PART < w["room"], TOO_SMALL)
            row = w["table"].at("i64", rows() * 3)
            row.store(layout.address(f, tensor()), 1)
            more = f.run(cut, row, n, f.const("i64", 3), w["item_size"])
            assert more is not None
            with f.each(0, more) as k:
                row.store(w["results"].at("double", rows() + k), k * 3 + 2)
            rows.add(more)
            elements.add(n)
    f.plan.store(elements(), SEARCH.index("elements"))
    with f.when(f.change != 0), f.each(0, size) as i:
        tensor = f.var("ptr", members.load("ptr", i))
        with f.when(w["gradients"] != 0):
            tensor.set(layout.gradient(f, tensor()))
        with f.when(tensor() != f.const("ptr", 0)):
            layout.touch(f, tensor())
    f.give(rows())
    return f


def _is_a(f: Function, member: Value, type_: Value) -> Value:
    kind = member.at("i8", 8).load("ptr")
    found = f.calls("PyType_IsSubtype", "i32", kind, type_)
    assert found is not None
    return found != 0


def _forget(layout: Layout) -> Function:
    """Set the gradients of the tensors in a list to None; -1 at what is no tensor."""
    f = Function("forget", "ptr list, ptr type, i64 zero", "i64")
    i = f.var("i64", 0)
    with f.repeat() as loop:
        # Whatever a gradient's end sets off may change the list.
        loop.leave_if(i() >= f.list.at("i8", SIZE).load("i64"))
        member = f.list.at("i8", LIST_ITEMS).load("ptr").load("ptr", i())
        with f.when(_is_a(f, member, f.type) ^ True):
            f.give(f.const("i64", OTHERWISE))
        place = member.at("i8", layout.offsets["_grad"])
        old = place.load("ptr")
        with f.when(layout.gradient(f, member) != f.const("ptr", 0)):
            f.do("call void @Py_IncRef(ptr @_Py_NoneStruct)")
            place.store(none(f))
            f.calls("Py_DecRef", "void", old)
        i.add(1)
    f.give(i())
    return f


def updating(layout: Layout) -> list[Function]:
    """What updates are compared and laid out by; the last two are `unchanged` and `rows`."""
    same, cut = _same_values(), _cut()
    read, write = _counter(layout)
    return [same, read, write, cut, _unchanged(layout, same, read), _rows(layout, cut, write)]


def build(offsets) -> list[Function]:
    layout = Layout(offsets)
    same, read, write, cut, unchanged, rows = updating(layout)
    return [same, read, write, cut, unchanged, rows, _gather(unchanged, rows),
            _search(layout, cut), _forget(layout)]
