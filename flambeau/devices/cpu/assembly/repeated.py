"""Rows that are the same are kept once: which they are, and the way there and back in place.

    repeats      the distinct ones of some numbers of rows, and which of them each place has
    expand_rows  from one row of each kind, at the beginning, to a row in each place
    fold_rows    the other way, adding up what stands for the same
    add_rows     rows to those of a table that have these numbers

Kinds are numbered in the order in which they are first met, so a row never comes before that of its
kind: nothing is overwritten that is still to be read. Where few rows are repeated each counts as a
kind of its own, and moving them does nothing. Threads share columns.
"""

from __future__ import annotations

from ..bridge import jit
from .writer import Function, Value, parallel, wide

ELEMENT = {"float32": "float", "float64": "double"}
#: bytes of a row that are moved at a time; elements that are worth a range
_SPAN, _RANGE = 512, 1 << 15
#: of so many rows this many may be distinct, or it does not pay
_OF, _MOST = 8, 7
_BODY = "ptr context, i64 begin, i64 end"


def _repeats(dtype: str) -> Function:
    f = Function(f"repeats_{dtype}", "ptr ids, ptr kinds, ptr count, ptr marks, ptr numbers, "
                                     "i64 high, i64 n")
    with f.each(0, f.high) as i:
        f.marks.store(f.const("i32", -1), i)
    met = f.var("i64", 0)
    with f.each(0, f.n) as i:
        number = f.numbers.load("i64", i)
        known = f.marks.load("i32", number)
        with f.when(known < 0) as new:
            f.marks.store(met().to("i32"), number)
            f.ids.store(number, met())
            f.kinds.store(met(), i)
            met.add(1)
        with new.otherwise():
            f.kinds.store(known.to("i64"), i)
    with f.when(met() * _OF > f.n * _MOST) as many:
        with f.each(0, f.n) as i:
            f.ids.store(f.numbers.load("i64", i), i)
            f.kinds.store(i, i)
        met.set(f.n)
    with many.otherwise(), f.each(met(), f.n) as i:  # who reads all of them finds rows that exist
        f.ids.store(f.ids.load("i64", 0), i)
    f.count.store(met())
    return f


class _Columns:
    """A routine over n rows of `width` elements whose threads share the columns."""

    def __init__(self, name: str, dtype: str, arguments: str):
        self.element = ELEMENT[dtype]
        size = {"float": 4, "double": 8}[self.element]
        self.lanes, self.span = jit().bits // (8 * size), _SPAN // size
        f = self.entry = Function(f"{name}_{dtype}", f"{arguments}, i64 n, i64 width")
        self.body = Function(f"{name}_range", _BODY, local=True)
        context = f.room("i64", len(f.parameters))
        for k, (type_, argument) in enumerate(f.parameters):
            context.store(Value(f, type_, f"%{argument}"), k)
            setattr(self.body, argument, self.body.context.load(type_, k))
        parallel(f, self.body, context, (f.width + (self.span - 1)) / self.span,
                 f.const("i64", _RANGE // self.span) / f.n + 1)

    @property
    def functions(self) -> list[Function]:
        return [self.body, self.entry]

    def spans(self):
        """First columns of those that are taken together."""
        f = self.body
        return f.each(f.begin * self.span, f.end * self.span, self.span)

    def _each(self, first: Value, act) -> None:
        """act(column, type) on the elements of a span, by vectors."""
        f = self.body
        last = (first + self.span < f.width).pick(first + self.span, f.width)
        whole = first + ((last - first) & -self.lanes)
        with f.each(first, whole, self.lanes) as at:
            act(at, wide(self.element, self.lanes))
        with f.each(whole, last) as at:
            act(at, self.element)

    def copy(self, first: Value, to: Value, source: Value) -> None:
        """A span of one row to another."""
        self._each(first, lambda at, type_: to.at(self.element, at).store(
            source.at(self.element, at).load(type_)))

    def add(self, first: Value, to: Value, source: Value) -> None:
        def act(at, type_):
            place = to.at(self.element, at)
            place.store(place.load(type_) + source.at(self.element, at).load(type_))

        self._each(first, act)


def _expand(dtype: str) -> list[Function]:
    made = _Columns("expand_rows", dtype, "ptr x, ptr kinds")
    f = made.body
    with made.spans() as first, f.each(0, f.n) as k:
        row = f.n - 1 - k  # the last ones first: those before them are still as they were
        kind = f.kinds.load("i64", row)
        with f.when(kind != row):
            made.copy(first, *(f.x.at(made.element, r * f.width) for r in (row, kind)))
    return made.functions


def _fold(dtype: str) -> list[Function]:
    made = _Columns("fold_rows", dtype, "ptr x, ptr kinds")
    f = made.body
    met = f.var("i64", 0)
    with made.spans() as first:
        met.set(0)
        with f.each(0, f.n) as row:
            kind = f.kinds.load("i64", row)
            to, source = (f.x.at(made.element, r * f.width) for r in (kind, row))
            with f.when(kind == met()) as new:
                met.add(1)
                with f.when(kind != row):
                    made.copy(first, to, source)
            with new.otherwise():
                made.add(first, to, source)
    return made.functions


def _add(dtype: str) -> list[Function]:
    made = _Columns("add_rows", dtype, "ptr table, ptr x, ptr ids, ptr count, i64 pitch")
    f = made.body
    with made.spans() as first, f.each(0, f.count.load("i64")) as row:
        made.add(first, f.table.at(made.element, f.ids.load("i64", row) * f.pitch),
                 f.x.at(made.element, row * f.width))
    return made.functions


def build(dtype: str) -> list[Function]:
    return [_repeats(dtype), *_expand(dtype), *_fold(dtype), *_add(dtype)]
