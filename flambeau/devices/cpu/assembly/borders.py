"""Planes made larger: each line is copied between elements that a table takes from it."""

from __future__ import annotations

from .writer import Function, parallel, wide

#: bytes of a vector that is copied at once
VECTOR = 32
#: lines that are worth a thread's while
GRAIN = 512
#: words of a context
CONTEXT = ("out", "x", "table", "height", "width", "tall", "broad", "left")


def _lines(size: int) -> Function:
    """Lines `begin` to `end` of all planes. The table: a line's source for each, then columns'."""
    f = Function("border_lines", "ptr context, i64 begin, i64 end", local=True)
    kind, lanes = f"i{8 * size}", VECTOR // size
    out, x, table = (f.context.load("ptr", k) for k in range(3))
    height, width, tall, broad, left = (f.context.load("i64", k) for k in range(3, 8))
    columns, last = table.at("i64", tall), width - lanes
    with f.each(f.begin, f.end) as line:
        source = x.at(kind, (line / tall * height + table.load("i64", line % tall)) * width)
        target = out.at(kind, line * broad)
        middle = target.at(kind, left)

        def vector(i, source=source, middle=middle) -> None:
            middle.store(source.load(wide(kind, lanes), i), i)

        with f.when(last >= 0) as long:
            with f.each(0, last, lanes) as i:
                vector(i)
            vector(last)
        with long.otherwise(), f.each(0, width) as i:
            middle.store(source.load(kind, i), i)
        for start, end in ((f.const("i64", 0), left), (left + width, broad)):
            with f.each(start, end) as i:
                target.store(source.load(kind, columns.load("i64", i)), i)
    return f


def build(size: int) -> list[Function]:
    """bordered(out, x, table, height, width, tall, broad, left, count, work)"""
    lines = _lines(size)
    f = Function("bordered", "ptr out, ptr x, i64 table, i64 height, i64 width, i64 tall, "
                             "i64 broad, i64 left, i64 count, i64 work")
    given, context = f.parameters_by_name(), f.room("i64", len(CONTEXT))
    for k, word in enumerate(CONTEXT):
        context.store(given[word], k)
    parallel(f, lines, context, f.count, GRAIN)
    return [lines, f]
