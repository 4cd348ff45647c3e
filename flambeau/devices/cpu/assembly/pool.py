"""Pooling written out: the largest or the mean of each window, line by line, and the ways back.

Where windows lie inside the data a vector of them is taken at once, the taps along a line and the
step between windows being part of the code; at the edges, and where windows differ, one at a time.
The largest is the first of equals, but the last NaN. With it goes nothing, or the number of its tap
in the window, or its place in the plane.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from .lanes import smaller
from .planes import clear, over_planes
from .pool_words import POOL
from .tile_sizes import width_of
from .writer import Function, Value, wide

#: what is said of the largest
NOTHING, TAP, PLACE = "values", "taps", "places"
_KEPT = {NOTHING: "", TAP: "i8", PLACE: "i64"}


class Plane:
    """One range of planes: the words, and where in a window's lines the code stands."""

    def __init__(self, name: str, element: str):
        self.f = Function(name, "ptr context, i64 begin, i64 end", local=True)
        self.element = element
        self.out, self.source, self.kept, words = (self.f.context.load("ptr", i) for i in range(4))
        self.words = {name: words.load("i64", i) for i, name in enumerate(POOL.names)}

    def __getattr__(self, name: str) -> Value:
        return self.words[name]

    def entry(self, axis: str, what: str, i: Value) -> Value:
        """Of the table of an axis."""
        table = self.words[f"{axis}{what}"]
        return self.f.new("ptr", f"inttoptr i64 {table.name} to ptr").load("i64", i)


class Spot:
    """A line of outputs in a plane, and the lines of data its windows see."""

    def __init__(self, p: Plane, plane: Value, z: Value, y: Value):
        self.p, element = p, p.element
        self.z, self.y = z, y
        self.source = p.source.at(element, plane * (p.d * p.h * p.w))
        self.number = ((plane * p.od + z) * p.oh + y) * p.ow
        self.out = p.out.at(element, self.number)
        self.z0, self.z1 = p.entry("z", "begin", z), p.entry("z", "end", z)
        self.y0, self.y1 = p.entry("y", "begin", y), p.entry("y", "end", y)
        self.z_first, self.y_first = p.entry("z", "first", z), p.entry("y", "first", y)

    def lines(self, visit: Callable[[Value, Value], None]) -> None:
        """visit(offset of the line in the plane, number of its first tap) for each line."""
        p, f = self.p, self.p.f
        deep = f.var("i64", self.z_first * p.ytaps)
        with f.each(self.z0, self.z1, p.zapart) as z:
            down = f.var("i64", deep() + self.y_first)
            with f.each(self.y0, self.y1, p.yapart) as y:
                visit((z * p.h + y) * p.w, down() * p.xtaps)
                down.add(1)
            deep.add(p.ytaps)


def _each_line(p: Plane, visit: Callable[[Spot], None]) -> None:
    f = p.f
    with f.each(f.begin, f.end) as plane, f.each(0, p.od) as z, f.each(0, p.oh) as y:
        visit(Spot(p, plane, z, y))


def _strided(f: Function, at: Value, element: str, width: int, step: int) -> Value:
    """A vector of elements so far apart; nothing beyond the last is read."""
    if step == 1:
        return at.load(wide(element, width))
    if step == 2 and width > 1:
        low, high = at.load(wide(element, width)), at.at(element, width - 1).load(
            wide(element, width))
        order = [*range(0, width, 2), *range(width + 1, 2 * width, 2)]
        mask = ", ".join(f"i32 {k}" for k in order)
        return f.new(low.type, f"shufflevector {low.type} {low.name}, {low.type} {high.name}, "
                               f"<{width} x i32> <{mask}>")
    kind = wide(element, width)
    vector = Value(f, kind, "poison")
    for i in range(width):
        one = at.load(element, i * step)
        vector = f.new(kind, f"insertelement {kind} {vector.name}, {element} {one.name}, i64 {i}")
    return vector


def _pair(f: Function, at: Value, element: str, width: int) -> list[Value]:
    """Two neighbouring taps of windows two apart."""
    kind = wide(element, width)
    low, high = at.load(kind), at.at(element, width).load(kind)
    found = []
    for start in (0, 1):
        mask = ", ".join(f"i32 {k}" for k in range(start, 2 * width, 2))
        found.append(f.new(kind, f"shufflevector {kind} {low.name}, {kind} {high.name}, "
                                 f"<{width} x i32> <{mask}>"))
    return found


def _taps(f: Function, at: Value, element: str, width: int, taps: int, step: int) -> list[Value]:
    """What a vector of windows sees along one line."""
    found: list[Value] = []
    while len(found) < taps:
        place = at.at(element, len(found))
        if step == 2 and len(found) + 1 < taps and width > 1:
            found += _pair(f, place, element, width)
        else:
            found.append(_strided(f, place, element, width, step))
    return found


def _along(p: Plane, widths: list[int], vector: Callable, single: Callable) -> None:
    """A line of outputs: vector(x, width) where windows are alike, single(x) elsewhere."""
    f = p.f
    alone = f.var("i64", p.low)  # outputs up to here are done by vectors or before them
    with f.each(0, p.low) as x:
        single(x)
    for width in widths:
        with f.when(p.high - alone() >= width):
            last = p.high - width
            at = f.var("i64", alone())
            with f.repeat() as loop:
                loop.leave_if(at() >= p.high)
                vector(smaller(at(), last), width)
                at.add(width)
            alone.set(p.high)
    with f.each(alone(), p.ow) as x:
        single(x)


# -- the largest -----------------------------------------------------------------------------------


def largest(element: str, taps: int, step: int, kept: str) -> Function:
    """Planes `begin` to `end` of the largest; the context is (out, source, kept, words)."""
    p = Plane(f"largest_{kept}", element)
    f, whole = p.f, "i32" if element == "float" else "i64"
    full = width_of(element)

    def better(value: Value, best) -> Value:
        return (value > best()) | value.isnan()

    def line(spot: Spot) -> None:
        kept_at = p.kept.at(_KEPT[kept] or "i8", spot.number)

        def start(width: int, x_first: Value):
            best = f.var(wide(element, width), -inf)
            where = None
            if kept == PLACE:
                where = f.var(wide(whole, width), _spread(
                    (spot.z0 * p.h + spot.y0) * p.w + x_first, whole, width))
            elif kept == TAP:
                first = (spot.z_first * p.ytaps + spot.y_first) * p.xtaps + x_first
                where = f.var(wide(whole, width), _spread(first, whole, width))
            return best, where

        def see(best, where, value: Value, number: Value, width: int) -> None:
            found = better(value, best)
            best.set(found.pick(value, best()))
            if where is not None:
                where.set(found.pick(_spread(number, whole, width), where()))

        def vector(x: Value, width: int) -> None:
            begin = x * step - p.xpad
            best, where = start(width, f.const("i64", 0))

            def visit(offset: Value, tap: Value) -> None:
                seen = _taps(f, spot.source.at(element, offset + begin), element, width, taps, step)
                for k, value in enumerate(seen):
                    see(best, where, value, (offset if kept == PLACE else tap) + k, width)

            spot.lines(visit)
            spot.out.at(element, x).store(best())
            if kept == TAP:
                kept_at.at("i8", x).store(_narrow(where(), "i8"))
            elif kept == PLACE:
                moves = f.vector("i64", [i * step for i in range(width)])
                place = where().to("i64", True) + begin.spread(width) + moves
                kept_at.at("i64", x).store(place)

        def single(x: Value) -> None:
            x0, x1 = p.entry("x", "begin", x), p.entry("x", "end", x)
            x_first = p.entry("x", "first", x)
            best, where = start(1, x0 if kept == PLACE else x_first)

            def visit(offset: Value, tap: Value) -> None:
                number = f.var("i64", tap + x_first)
                with f.each(x0, x1, p.xapart) as at:
                    value = spot.source.load(element, offset + at)
                    see(best, where, value, offset + at if kept == PLACE else number(), 1)
                    number.add(1)

            spot.lines(visit)
            spot.out.store(best(), x)
            if kept == TAP:
                kept_at.store(_narrow(where(), "i8"), x)
            elif kept == PLACE:
                kept_at.store(where().to("i64", True), x)

        _along(p, [full, full // 2] if taps and full > 2 else [full] if taps else [], vector,
               single)

    _each_line(p, line)
    return f


def _spread(value: Value, element: str, width: int) -> Value:
    return _narrow(value, element).spread(width)


def _narrow(value: Value, element: str) -> Value:
    return value if value.element == element else value._cast("trunc", element)


def back_by_taps(element: str, taps: int, step: int) -> Function:
    """Gradients of planes: each goes to the tap that was the largest; (out, g, taps, words)."""
    p = Plane("back_taps", element)
    f = p.f
    volume = p.d * p.h * p.w
    with f.each(f.begin, f.end) as plane:
        target = p.out.at(element, plane * volume)
        tiled = (p.ztaps == 1) & (p.xpad == 0) & (p.ypad == 0) & (p.ystep == p.ytaps) & (
            p.yapart == 1) & (p.xapart == 1) & (p.od == p.d) & (p.high == p.ow)
        if taps == 2 and step == 2:
            with f.when(tiled & (p.ow >= width_of(element))) as even:
                _tiled(p, element, plane, target)
            with even.otherwise():
                _scattered(p, element, plane, target, volume)
        else:
            _scattered(p, element, plane, target, volume)
    return f


def _scattered(p: Plane, element: str, plane: Value, target: Value, volume: Value) -> None:
    """Zeros, and gradients added one by one."""
    f = p.f
    clear(f, element, target, f.const("i64", 0), volume)
    moves = f.new("ptr", f"inttoptr i64 {p.moves.name} to ptr")
    with f.each(0, p.od) as z, f.each(0, p.oh) as y:
        number = ((plane * p.od + z) * p.oh + y) * p.ow
        corner = ((z * p.zstep - p.zpad) * p.h + (y * p.ystep - p.ypad)) * p.w - p.xpad
        with f.each(0, p.ow) as x:
            tap = p.kept.load("i8", number + x).to("i64")
            at = target.at(element, corner + moves.load("i64", tap) + x * p.xstep)
            at.store(at.load(element) + p.source.load(element, number + x))


def _tiled(p: Plane, element: str, plane: Value, target: Value) -> None:
    """Windows two wide that cover a line without overlap: every element is written once."""
    f = p.f
    width, whole = width_of(element), "i32" if element == "float" else "i64"
    zero = f.const(wide(element, width), 0)
    with f.each(0, p.od) as z, f.each(0, p.oh) as y:
        number = ((plane * p.od + z) * p.oh + y) * p.ow
        last = p.ow - width
        with f.each(0, p.ytaps) as row:
            line = target.at(element, (z * p.h + y * p.ystep + row) * p.w)
            x = f.var("i64", 0)
            with f.repeat() as loop:
                loop.leave_if(x() >= p.ow)
                at = smaller(x(), last)
                g = p.source.at(element, number + at).load(wide(element, width))
                tap = p.kept.at("i8", number + at).load(wide("i8", width)).to(whole)
                parts = [(tap == _spread(row * 2 + k, whole, width)).pick(g, zero)
                         for k in range(2)]
                for start in (0, width // 2):
                    order = [k for i in range(start, start + width // 2) for k in (i, i + width)]
                    mask = ", ".join(f"i32 {k}" for k in order)
                    kind = wide(element, width)
                    mixed = f.new(kind, f"shufflevector {kind} {parts[0].name}, {kind} "
                                        f"{parts[1].name}, <{width} x i32> <{mask}>")
                    line.at(element, at * 2 + 2 * start).store(mixed)
                x.add(width)
            clear(f, element, line, p.ow * 2, p.w)
        with f.when(y == p.oh - 1):
            plane_at = target.at(element, z * p.h * p.w)
            clear(f, element, plane_at, p.oh * p.ystep * p.w, p.h * p.w)


# -- means -----------------------------------------------------------------------------------------


def mean(element: str, taps: int, step: int) -> Function:
    """Planes `begin` to `end` of means; the context is (out, source, nothing, words)."""
    p = Plane("mean", element)
    f, full = p.f, width_of(element)

    def line(spot: Spot) -> None:
        count = p.entry("z", "count", spot.z) * p.entry("y", "count", spot.y)

        def divisor(x: Value) -> Value:
            own = count * p.entry("x", "count", x)
            return (p.divisor != 0).pick(p.divisor, own).to(element)

        def vector(x: Value, width: int) -> None:
            begin = x * step - p.xpad
            total = f.var(wide(element, width), 0)

            def visit(offset: Value, tap: Value) -> None:
                for value in _taps(f, spot.source.at(element, offset + begin), element, width, taps,
                                   step):
                    total.add(value)

            spot.lines(visit)
            spot.out.at(element, x).store(total() / divisor(x).spread(width))

        def single(x: Value) -> None:
            total = f.var(element, 0)

            def visit(offset: Value, tap: Value) -> None:
                with f.each(p.entry("x", "begin", x), p.entry("x", "end", x)) as at:
                    total.add(spot.source.load(element, offset + at))

            spot.lines(visit)
            spot.out.store(total() / divisor(x), x)

        _along(p, [full, full // 2] if taps and full > 2 else [full] if taps else [], vector,
               single)

    _each_line(p, line)
    return f


def spread(element: str, taps: int, step: int) -> Function:
    """Gradients of planes: each mean's share to all it was over; (out, g, nothing, words)."""
    p = Plane("spread", element)
    f, full = p.f, width_of(element)
    volume = p.d * p.h * p.w

    def line(target: Value, source: Value, z: Value, y: Value) -> None:
        count = p.entry("z", "count", z) * p.entry("y", "count", y)
        z0, z1 = p.entry("z", "begin", z), p.entry("z", "end", z)
        y0, y1 = p.entry("y", "begin", y), p.entry("y", "end", y)

        def divisor(x: Value) -> Value:
            own = (p.divisor != 0).pick(p.divisor, count * p.entry("x", "count", x))
            return own.to(element)

        def single(x: Value) -> None:
            share = source.load(element, x) / divisor(x)
            x0, x1 = p.entry("x", "begin", x), p.entry("x", "end", x)
            with f.each(z0, z1) as deep, f.each(y0, y1) as row:
                at = target.at(element, (deep * p.h + row) * p.w)
                with f.each(x0, x1) as k:
                    at.store(at.load(element, k) + share, k)

        def vector(x: Value) -> None:
            shares = source.at(element, x).load(wide(element, full)) / divisor(x).spread(full)
            with f.each(z0, z1) as deep, f.each(y0, y1) as row:
                at = target.at(element, (deep * p.h + row) * p.w + x * step - p.xpad)
                _add_taps(f, at, shares, element, taps, step)

        with f.each(0, p.low) as x:
            single(x)
        done = f.var("i64", p.low)
        if taps:
            with f.each(p.low, p.high - (full - 1), full) as x:
                vector(x)
                done.set(x + full)
        with f.each(done(), p.ow) as x:
            single(x)

    with f.each(f.begin, f.end) as plane:
        target = p.out.at(element, plane * volume)
        clear(f, element, target, f.const("i64", 0), volume)
        with f.each(0, p.od) as z, f.each(0, p.oh) as y:
            line(target, p.source.at(element, ((plane * p.od + z) * p.oh + y) * p.ow), z, y)
    return f


def _add_taps(f: Function, at: Value, shares: Value, element: str, taps: int, step: int) -> None:
    """A vector of shares added to every tap of their windows."""
    width = shares.lanes
    if step == 2 and taps == 2:
        for start in (0, width // 2):
            twice = shares.shuffle([i for k in range(start, start + width // 2) for i in (k, k)])
            to = at.at(element, 2 * start)
            to.store(to.load(shares.type) + twice)
        return
    for tap in range(taps):
        if step == 1:
            to = at.at(element, tap)
            to.store(to.load(shares.type) + shares)
        else:
            for i in range(width):
                to = at.at(element, tap + i * step)
                to.store(to.load(element) + shares.lane(i))


# -- modules -------------------------------------------------------------------------------------


#: what a module is for -> its body, of element, taps and step
PARTS: dict[str, Callable] = {
    "values":    partial(largest, kept=NOTHING),
    "taps":      partial(largest, kept=TAP),
    "places":    partial(largest, kept=PLACE),
    "back_taps": back_by_taps,
    "mean":      mean,
    "spread":    spread,
}  # fmt: skip


def build(part: str, element: str, taps: int, step: int) -> list[Function]:
    """For windows of so many taps along a line, so many apart; 0 where they differ."""
    body = PARTS[part](element, taps, step)
    return [body, over_planes(f"pool_{part}", body, POOL.place["planes"], POOL.place["grain"])]
