"""Windows gathered into panels, and the tile that multiplies them.

A column is one window; its elements lie at the column's own offset plus one offset per row (which
channel, which tap). `pack` copies rows of neighbouring columns, so the tile reads both its operands
one after the other.
"""

from __future__ import annotations

from .conv_words import PHASE, WEIGHT
from .lanes import Lanes, in_a_row, times_plus
from .writer import Function, Value

#: steps of a tile's sum that are written out
_UNROLLED = 4


def tile(lanes: Lanes, name: str, row: int, step: int) -> Function:
    """C = start + A B: A's element (i, k) is at i * row + k * step, B's rows are a tile wide.

    `start` is one number per row, or null to add to what C holds.
    """
    f = Function(name, "ptr a, ptr b, i64 k, ptr c, i64 ldc, ptr start_", local=True)
    rows, vectors = range(lanes.rows), range(lanes.vectors)
    sums = [[f.var(lanes.vector) for _ in vectors] for _ in rows]
    places = [[f.c.at(lanes.element, f.ldc * i + v * lanes.width) for v in vectors] for i in rows]
    with f.when(f.start_ == f.const("ptr", 0)) as fresh:
        for i in rows:
            for v in vectors:
                sums[i][v].set(lanes.load(places[i][v]))
    with fresh.otherwise():
        for i in rows:
            value = lanes.broadcast(f.start_, i)
            for v in vectors:
                sums[i][v].set(value)

    def multiply(k: Value, more: int) -> None:
        a, b = f.a.at(lanes.element, k * step), f.b.at(lanes.element, k * lanes.tile)
        for u in range(more):
            right = [lanes.load(b, u * lanes.tile + v * lanes.width) for v in vectors]
            for i in rows:
                left = lanes.broadcast(a, i * row + u * step)
                for v in vectors:
                    sums[i][v].set(times_plus(f, left, right[v], sums[i][v]()))

    whole = f.k & -_UNROLLED
    with f.each(0, whole, _UNROLLED) as k:
        multiply(k, _UNROLLED)
    with f.each(whole, f.k) as k:
        multiply(k, 1)
    for i in rows:
        for v in vectors:
            places[i][v].store(sums[i][v]())
    return f


def columns(lanes: Lanes, weigh: bool = False) -> Function:
    """Offsets of `count` columns from number `first` on, in the source and in the result.

    Beyond the last column of all it is repeated. With `weigh` there is no result.
    """
    record = WEIGHT if weigh else PHASE
    f = Function("weigh_columns" if weigh else "columns",
                 "ptr words, ptr inside, ptr outside, i64 first, i64 count", local=True)
    (cols, od, oh, ow, in_n, in_d, in_h) = record.read(f, f.words,
                                                       "cols od oh ow in_n in_d in_h")
    (out_n, out_d, out_h, out_w) = [f.const("i64", 0)] * 4 if weigh else PHASE.read(
        f, f.words, "out_n out_d out_h out_w")
    rest, w = f.first / ow, f.var("i64", f.first % ow)
    h, rest = f.var("i64", rest % oh), rest / oh
    d, n = f.var("i64", rest % od), f.var("i64", rest / od)
    source, target = f.var("i64"), f.var("i64")

    def locate() -> None:
        source.set(n() * in_n + d() * in_d + h() * in_h + w())
        target.set(n() * out_n + d() * out_d + h() * out_h + w() * out_w)

    locate()
    last = cols - f.first - 1
    with f.each(0, f.count) as i:
        f.inside.store(source(), i)
        f.outside.store(target(), i)
        with f.when(i < last):
            w.add(1)
            with f.when(w() < ow) as same:
                source.add(1)
                target.add(out_w)
            with same.otherwise():
                w.set(0)
                h.add(1)
                with f.when(h() == oh):
                    h.set(0)
                    d.add(1)
                    with f.when(d() == od):
                        d.set(0)
                        n.add(1)
                locate()
    return f


def pack(lanes: Lanes) -> Function:
    """Rows of `vectors` vectors of columns, `pitch` apart, from `source` by two tables of offsets.

    Neighbouring columns mostly lie side by side, or in two runs where a line of windows ends.
    """
    f = Function("pack", "ptr to, i64 pitch, ptr source, ptr inside, ptr koff, i64 rows, "
                         "i64 vectors", local=True)
    width, element = lanes.width, lanes.element
    with f.each(0, f.vectors) as v:
        at = f.inside.at("i64", v * width)
        to = f.to.at(element, v * width)
        first, last = at.load("i64"), at.load("i64", width - 1)
        with f.when(in_a_row(at, width)) as together:
            base = f.source.at(element, first)
            _each_row(f, lambda k, off: to.store(lanes.load(base, off), k * f.pitch))
        with together.otherwise():
            offsets = at.load(f"<{width} x i64>")
            along = first.spread(width) + lanes.count(f)
            same = offsets == along
            back = last - (width - 1)
            ending = offsets == back.spread(width) + lanes.count(f)
            with f.when((same | ending).mask() == -1) as two:
                low, high = f.source.at(element, first), f.source.at(element, back)
                other = ~same

                def joined(k: Value, off: Value) -> None:
                    left = lanes.masked(f, low.at(element, off), same)
                    both = lanes.masked(f, high.at(element, off), other, left)
                    to.store(both, k * f.pitch)

                _each_row(f, joined)
            with two.otherwise():
                lone = [f.source.at(element, at.load("i64", i)) for i in range(width)]

                def gathered(k: Value, off: Value) -> None:
                    for i, place in enumerate(lone):
                        to.store(place.load(element, off), k * f.pitch + i)

                _each_row(f, gathered)
    return f


def _each_row(f: Function, copy) -> None:
    with f.each(0, f.rows) as k:
        copy(k, f.koff.load("i64", k))
