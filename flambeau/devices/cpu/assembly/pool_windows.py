"""The largest of large windows, and its place in its plane: lanes go along the lines of a window.

Of equals the first counts, and any NaN is larger than all numbers, the last of several.
"""

from __future__ import annotations

import math

from .writer import BYTES, Function, Value, parallel, wide

TYPES = {"float32": "float", "float64": "double"}
VECTOR = 32
#: words of a context
CONTEXT = ("out", "places", "x", "table", "height", "width", "tall", "broad")


def _window(f: Function, element: str, plane: Value, width: Value, rows, columns):
    """(largest, its place) of a window."""
    lanes = VECTOR // BYTES[element]
    first = (rows[0] * width + columns[0]).to("i32")
    best, at = f.var(element, -math.inf), f.var("i32", first)
    bests = f.var(wide(element, lanes), -math.inf)
    ats = f.var(wide("i32", lanes), first.spread(lanes))
    count = f.vector("i32", range(lanes))
    last = columns[1] - lanes

    def offer(value: Value, place: Value, best, at) -> None:
        better = (value > best()) | value.isnan()
        best.set(better.pick(value, best(), foretold=False))
        at.set(better.pick(place, at(), foretold=False))

    with f.each(*rows) as y:
        line, start = plane.at(element, y * width), y * width

        def vector(x: Value, line=line, start=start) -> None:
            offer(line.load(wide(element, lanes), x), (start + x).to("i32").spread(lanes) + count,
                  bests, ats)

        with f.when(last >= columns[0]) as long:
            with f.each(columns[0], last, lanes) as x:
                vector(x)
            vector(last)  # what it has in common with those before changes nothing
        with long.otherwise(), f.each(*columns) as x:
            offer(line.load(element, x), (start + x).to("i32"), best, at)
    for lane in range(lanes):
        value, place = bests().lane(lane), ats().lane(lane)
        takes = (value > best()) | ((value == best()) & (place < at())) | (
            value.isnan() & ((best() == best()) | (place > at())))
        best.set(takes.pick(value, best()))
        at.set(takes.pick(place, at()))
    return best(), at().to("i64")


def _planes(element: str) -> Function:
    """Planes `begin` to `end`. The table: where lines of windows begin and end, then columns."""
    f = Function("window_planes", "ptr context, i64 begin, i64 end", local=True)
    out, places, x, table = (f.context.load("ptr", k) for k in range(4))
    height, width, tall, broad = (f.context.load("i64", k) for k in range(4, 8))
    across = table.at("i64", tall * 2)
    with f.each(f.begin, f.end) as number, f.each(0, tall) as i, f.each(0, broad) as j:
        rows = table.load("i64", i), table.load("i64", tall + i)
        columns = across.load("i64", j), across.load("i64", broad + j)
        plane = x.at(element, number * height * width)
        best, at = _window(f, element, plane, width, rows, columns)
        target = (number * tall + i) * broad + j
        out.store(best, target)
        places.store(at, target)
    return f


def build(dtype: str) -> list[Function]:
    """windowed(out, places, x, table, height, width, tall, broad, planes, work)"""
    planes = _planes(TYPES[dtype])
    f = Function("windowed", "ptr out, ptr places, ptr x, i64 table, i64 height, i64 width, "
                             "i64 tall, i64 broad, i64 planes, i64 work")
    given, context = f.parameters_by_name(), f.room("i64", len(CONTEXT))
    for k, word in enumerate(CONTEXT):
        context.store(given[word], k)
    grain = f.const("i64", 1 << 15) / (f.height * f.width) + 1
    parallel(f, planes, context, f.planes, grain)
    return [planes, f]
