"""Windows of three by three by fewer products: Winograd's F(2x2, 3x3) (Lavin and Gray, 2015).

Four results that lie in a square come from a square of sixteen elements. Both these and the nine
weights are turned into sixteen numbers each; the products of those, summed over channels, are
turned into the results: sixteen products in place of thirty-six.
"""

from __future__ import annotations

from .conv_result import borrow, finish_panels, pack_biases, shares
from .conv_words import PHASE
from .lanes import Lanes, ceiling, in_a_row, smaller
from .tile_sizes import APART, SQUARE
from .transpose import abreast
from .writer import Function, Value


def _panel_pitch(lanes: Lanes, channels: Value) -> Value:
    """Elements from one number of a square of weights to the next, in a panel.

    Not a power of two, so that the sixteen do not meet in the cache; see APART.
    """
    return channels * lanes.rows + APART


def _of_data(d: list[Value]) -> list[Value]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _of_weights(g: list[Value]) -> list[Value]:
    ends, middle = (g[0] + g[2]) * 0.5, g[1] * 0.5
    return [g[0], ends + middle, ends - middle, g[2]]


def _to_results(m: list[Value]) -> list[Value]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def both_ways(change, numbers: list[Value], side: int) -> list[Value]:
    """A change of columns, then of rows, of a square given row by row."""
    columns = [change(numbers[x::side]) for x in range(side)]
    rows = [change([column[y] for column in columns]) for y in range(len(columns[0]))]
    return [value for row in rows for value in row]


def _mirrored(k: int) -> int:
    """Where a number of a square of weights goes if taps are taken backwards in both directions."""
    y, x = divmod(k, 4)
    order = (3, 1, 2, 0)
    return 4 * order[y] + order[x]


def turn_panel(lanes: Lanes) -> Function:
    """One panel of weights, as squares."""
    f = Function("turn_panel", "ptr words, ptr weights, i64 panel, ptr to", local=True)
    rows, inner, wk, wg, wr, count = PHASE.read(f, f.words, "rows inner wk wg wr panels")
    element, high = lanes.element, lanes.rows
    table = f.new("ptr", f"inttoptr i64 {wk.name} to ptr")
    channels = inner / SQUARE
    pitch = _panel_pitch(lanes, channels)
    backwards = table.load("i64") > table.load("i64", 8)
    places = [backwards.pick(f.const("i64", _mirrored(k)), k) * pitch for k in range(SQUARE)]
    start, first = f.weights.at(element, f.panel / count * wg), f.panel % count * high
    lines = [start.at(element, smaller(first + i, rows - 1) * wr) for i in range(high)]
    with f.each(0, channels) as c:
        tap = smaller(table.load("i64", c * 9), table.load("i64", c * 9 + 8))
        found = abreast(f, lanes, [line.at(element, tap) for line in lines], 9)
        for place, value in zip(places, both_ways(_of_weights, found, 3), strict=True):
            f.to.at(element, place + c * high).store(value)
    return f


def turn_weights(lanes: Lanes, turn_panel: Function) -> Function:
    """Panels `begin` to `end` of weights, unless they are turned where they are needed, and their
    biases behind all panels."""
    f = Function("turn_weights", "ptr context, i64 begin, i64 end", local=True)
    _, _, panels, words, weights, bias = (f.context.load("ptr", i) for i in range(6))
    rows, count, near = PHASE.read(f, words, "rows panels near")
    element, high = lanes.element, lanes.rows
    size, biases = _panels(f, lanes, words, panels)
    with f.each(f.begin, f.end) as panel:
        with f.when(near == 0):
            f.run(turn_panel, words, weights, panel, panels.at(element, panel * size))
        pack_biases(f, element, bias, panel, count, rows, high, biases)
    return f


def _panels(f: Function, lanes: Lanes, words: Value, panels: Value) -> tuple[Value, Value]:
    """The size of a panel, and where biases are: behind all panels, if there are any."""
    inner, count, groups, near = PHASE.read(f, words, "inner panels groups near")
    size = _panel_pitch(lanes, inner / SQUARE) * SQUARE
    behind = (near == 0).pick(groups * count * size, 0)
    return size, panels.at(lanes.element, behind)


def squares(lanes: Lanes, turn_panel: Function, multiply: Function, columns: Function,
            pack: Function, complete: Function) -> Function:
    """Blocks `begin` to `end` of squares: of each group, of panels of them."""
    f = Function("squares", "ptr context, i64 begin, i64 end", local=True)
    out, source, turned, words, weights = (f.context.load("ptr", i) for i in range(5))
    (rows, inner, cols, in_g, out_0, out_g, out_m, out_h, koff, panels, blocks, splits, per, wide,
     is_near) = PHASE.read(f, words, "rows inner cols in_g out_0 out_g out_m out_h koff panels "
                                     "blocks splits per wide near")
    element, tile, high = lanes.element, lanes.tile, lanes.rows
    offsets = f.new("ptr", f"inttoptr i64 {koff.name} to ptr")
    channels, most = inner / SQUARE, wide * tile
    panel_size, biases = _panels(f, lanes, words, turned)
    alone = is_near != 0  # panels are turned here, one at a time: it stays in the second cache
    together = alone.pick(f.const("i64", 1), _GROUP)
    inside, outside = (f.room("i64", _MOST * tile) for _ in range(2))
    zeros, spare = f.room(element, high), f.room(element, 4 * lanes.width)
    for i in range(high):
        zeros.store(f.const(element, 0), i)
    pitch = channels * most + APART
    memory, near = borrow(f, (pitch * SQUARE + _GROUP * SQUARE * high * tile + alone.pick(
        panel_size, 0)) * lanes.bytes)
    products, raw = near.at(element, pitch * SQUARE), f.room(element, SQUARE * lanes.width)
    own_panel = products.at(element, _GROUP * SQUARE * high * tile)

    def turn_data(origin: Value, tiles: Value) -> None:
        with f.each(0, tiles * lanes.vectors) as v:
            to = near.at(element, v / lanes.vectors * channels * tile
                         + v % lanes.vectors * lanes.width)

            def put(c: Value, numbers: list[Value]) -> None:
                place = to.at(element, c * tile)
                for k, value in enumerate(numbers):
                    place.at(element, pitch * k).store(value)

            each_square(f, lanes, pack, origin, inside.at("i64", v * lanes.width), offsets,
                        channels, raw, put)

    def finish(group: Value, panel: Value, products: Value, t: Value, width: Value) -> None:
        """The products of one tile of squares, as results."""
        row = panel * high
        with f.each(0, smaller(rows - row, high)) as i:
            start = lanes.broadcast(biases, (group * panels + panel) * high + i)
            place = out.at(element, out_0 + group * out_g + (row + i) * out_m)
            for v in range(lanes.vectors):
                given = [lanes.load(products, (k * high + i) * tile + v * lanes.width)
                         if k else lanes.load(products, i * tile + v * lanes.width)
                         for k in range(SQUARE)]
                found = [value + start for value in both_ways(_to_results, given, 4)]
                target = outside.at("i64", t * tile + v * lanes.width)
                _put(f, lanes, found, place, target, out_h, width - t * tile - v * lanes.width,
                     spare)

    with shares(f, splits, per, panels) as (start, last, rest):
        first, group = rest % blocks * most, rest / blocks
        width = smaller(cols - first, most)
        tiles = ceiling(width, tile)
        f.run(columns, words, inside, outside, first, tiles * tile)
        turn_data(source.at(element, group * in_g), tiles)
        with f.each(start, last, together) as begin:
            end = smaller(begin + together, last)
            number = group * panels + begin
            with f.when(alone):
                f.run(turn_panel, words, weights, number, own_panel)
            lefts = alone.pick(own_panel, turned.at(element, number * panel_size))
            with f.each(0, tiles) as t:
                with f.each(0, SQUARE) as k, f.each(0, end - begin) as p:
                    f.run(multiply, lefts.at(element, p * panel_size + k * (panel_size / SQUARE)),
                          near.at(element, pitch * k + t * channels * tile), channels,
                          products.at(element, (p * SQUARE + k) * (high * tile)),
                          f.const("i64", tile), zeros)
                with f.each(0, end - begin) as p:
                    finish(group, begin + p, products.at(element, p * (SQUARE * high * tile)), t,
                           width)
        finish_panels(f, lanes, complete, group, start, last, rows, first, width)
    f.calls("free", "void", memory)
    return f


def each_square(f: Function, lanes: Lanes, pack: Function, origin: Value, at: Value,
                offsets: Value, channels: Value, raw: Value, put) -> None:
    """put(channel, sixteen numbers) for every channel of a vector of squares of data.

    `at` says where squares begin, `offsets` where each channel's elements are from there; `raw` is
    room for a vector of squares.
    """
    first = at.load("i64")
    moves = [offsets.load("i64", k) for k in range(SQUARE)]

    def turned(c: Value, given: list[Value]) -> None:
        put(c, both_ways(_of_data, given, 4))

    with f.when(in_a_row(at, lanes.width)) as together, f.each(0, channels) as c:
        move = offsets.load("i64", c * SQUARE) - moves[0]
        line = origin.at(lanes.element, first + move)
        turned(c, [lanes.load(line, at) for at in moves])
    with together.otherwise(), f.each(0, channels) as c:
        f.run(pack, raw, f.const("i64", lanes.width), origin, at, offsets.at("i64", c * SQUARE),
              f.const("i64", SQUARE), f.const("i64", 1))
        turned(c, [lanes.load(raw, k * lanes.width) for k in range(SQUARE)])


#: tiles of squares in a block, at most; panels of weights that are multiplied together
_MOST, _GROUP = 8, 12


def _put(f: Function, lanes: Lanes, found: list[Value], place: Value, target: Value, out_h: Value,
         count: Value, spare: Value) -> None:
    """A vector of squares of two by two results, put where they belong."""
    element, width = lanes.element, lanes.width
    low = target.load("i64")
    half_h = out_h / 2
    with f.when(in_a_row(target, width, 2)) as together:
        for y in range(2):
            line = place.at(element, low + half_h * y)
            a, b = found[2 * y], found[2 * y + 1]
            for start in (0, width // 2):
                order = [k for i in range(start, start + width // 2) for k in (i, i + width)]
                mask = ", ".join(f"i32 {k}" for k in order)
                mixed = f.new(a.type, f"shufflevector {a.type} {a.name}, {b.type} {b.name}, "
                                      f"<{width} x i32> <{mask}>")
                line.at(element, 2 * start).store(mixed)
    with together.otherwise():
        for k, value in enumerate(found):
            spare.at(element, k * width).store(value)
        with f.each(0, smaller(count, width)) as i:
            at = place.at(element, target.load("i64", i))
            for k in range(4):
                at.store(spare.load(element, k * width + i), half_h * (k // 2) + k % 2)
