"""A convolution's weights by fewer products: the way back through Winograd's F(2x2, 3x3).

Forward, sixteen numbers of a square of data are multiplied with sixteen of the weights, and the
products turned into four results. Backward, the four slopes of the results are turned into sixteen
numbers, multiplied with the same sixteen of the data, summed over all squares, and the sums turned
into the slopes of the nine weights: sixteen products in place of thirty-six.
"""

from __future__ import annotations

from .conv_result import borrow, whole
from .conv_weight import turn_lines
from .conv_winograd import both_ways, each_square
from .conv_words import FRAME, ROUND, WEIGHT
from .lanes import Lanes, ceiling, smaller
from .tile_sizes import APART, SQUARE, SQUARES_CHUNK
from .transpose import put_abreast
from .writer import Function, Value, parallel

#: elements between packed rows of data
PITCH = SQUARES_CHUNK + 16
#: words of a context: weights, source, result, its squares, parts, words; then the first unit of a
#: round, and how many there are in it
_CONTEXT, _FIRST, _UNITS = 6, 6, 7


def _of_slopes(g: list[Value]) -> list[Value]:
    return [g[0], g[0] + g[1], g[0] - g[1], -g[1]]


def _to_weights(m: list[Value]) -> list[Value]:
    ends, middle = (m[1] + m[2]) * 0.5, (m[1] - m[2]) * 0.5
    return [m[0] + ends, middle, ends + m[3]]


def _slope_pitch(lanes: Lanes, words: Value, rounds: Value) -> tuple[Value, Value]:
    """Elements from one panel of slopes to the next, and from one number of squares; see APART."""
    f = words.f
    groups, panels = WEIGHT.read(f, words, "groups panels")
    unit, most = ROUND.read(f, rounds, "unit round")
    panel = unit * most * lanes.tile
    return panel, groups * panels * panel + APART


def turn_slopes(lanes: Lanes) -> Function:
    """Panels of rows `begin` to `end`, each of one unit of a round: turned, and made into squares.

    A unit is some lines of squares of one sample.
    """
    f = Function("turn_slopes", "ptr context, i64 begin, i64 end", local=True)
    result, slopes, words = (f.context.load("ptr", i) for i in (2, 3, 5))
    first_unit, units = (f.context.load("i64", i) for i in (_FIRST, _UNITS))
    rounds = words.at("i64", len(WEIGHT))
    groups, rows, panels, od, oh, ow = WEIGHT.read(f, words, "groups rows panels od oh ow")
    (unit,) = ROUND.read(f, rounds, "unit")
    element, tile = lanes.element, lanes.tile
    wide, size, pixels = ow * 2, od * oh * ow * 4, unit * 4
    panel_pitch, pitch = _slope_pitch(lanes, words, rounds)
    memory, near = borrow(f, pixels * (tile * lanes.bytes))
    with f.each(f.begin, f.end) as task:
        number, panel = task % units, task / units
        group, row = panel / panels, panel % panels * tile
        at = (first_unit + number) * pixels
        base = result.at(element, (at / size * groups + group) * rows * size + at % size)
        turn_lines(f, lanes, [base.at(element, smaller(row + j, rows - 1) * size)
                              for j in range(tile)], pixels, near)
        to = f.var("ptr", slopes.at(element, panel * panel_pitch + number * unit * tile))
        with f.each(0, pixels / wide, 2) as y, f.each(0, wide, 2) as x:
            corner = near.at(element, (y * wide + x) * tile)
            for v in range(0, tile, lanes.width):
                four = [lanes.load(corner.at(element, wide * (dy * tile)), dx * tile + v)
                        for dy in range(2) for dx in range(2)]
                for k, value in enumerate(both_ways(_of_slopes, four, 2)):
                    to().at(element, pitch * k + v).store(value)
            to.set(to().at(element, tile))
    f.calls("free", "void", memory)
    return f


def weigh_squares(lanes: Lanes, multiply: Function, columns: Function, pack: Function) -> Function:
    """Blocks of channels `begin` to `end`: of each part of a round's squares, of each group."""
    f = Function("weigh_squares", "ptr context, i64 begin, i64 end", local=True)
    weights, source, slopes, parts, words = (f.context.load("ptr", i) for i in (0, 1, 3, 4, 5))
    first_unit, units = (f.context.load("i64", i) for i in (_FIRST, _UNITS))
    rounds = words.at("i64", len(WEIGHT))
    (groups, rows, channels, in_g, koff, panels, blocks, per, count, part_cols) = WEIGHT.read(
        f, words, "groups rows inner in_g koff panels blocks per parts part_cols")
    (unit,) = ROUND.read(f, rounds, "unit")
    element, tile, high = lanes.element, lanes.tile, lanes.rows
    offsets = f.new("ptr", f"inttoptr i64 {koff.name} to ptr")
    inside, outside = f.room("i64", SQUARES_CHUNK), f.room("i64", SQUARES_CHUNK)
    raw, zeros = f.room(element, SQUARE * lanes.width), f.room(element, high)
    for i in range(high):
        zeros.store(f.const(element, 0), i)
    data_pitch, sum_pitch = per * PITCH + APART, per * panels * tile + APART
    memory, near = borrow(f, (data_pitch + sum_pitch) * (SQUARE * lanes.bytes))
    sums = near.at(element, data_pitch * SQUARE)
    panel_pitch, slope_pitch = _slope_pitch(lanes, words, rounds)
    squares, is_first = units * unit, first_unit == 0
    target = (count == 1).pick(weights, parts)

    def turn_data(origin: Value, first: Value, height: Value, vectors: Value) -> None:
        with f.each(0, vectors) as v:
            def put(c: Value, numbers: list[Value]) -> None:
                place = near.at(element, c * PITCH + v * lanes.width)
                for k, value in enumerate(numbers):
                    place.at(element, data_pitch * k).store(value)

            each_square(f, lanes, pack, origin, inside.at("i64", v * lanes.width),
                        offsets.at("i64", first * SQUARE), height, raw, put)

    def finish(line: Value, at: Value, wide: Value, height: Value) -> None:
        """A tile of sums over all squares, as weights: `line` is where those of its first channel
        and row are. They are added to those of earlier rounds."""
        with f.each(0, height) as i, f.each(0, wide, lanes.width) as j:
            numbers = [lanes.load(at.at(element, sum_pitch * k), i * tile + j)
                       for k in range(SQUARE)]
            nine = both_ways(_to_weights, numbers, 4)
            places = [line.at(element, (j + lane) * channels * 9 + i * 9)
                      for lane in range(lanes.width)]
            with f.when(j + lanes.width <= wide) as all_lanes:
                put_abreast(f, lanes, nine, places, is_first)
            with all_lanes.otherwise():
                for t, value in enumerate(nine):
                    for lane, place in enumerate(places):
                        with f.when(j + lane < wide):
                            before = is_first.pick(f.const(element, 0), place.load(element, t))
                            place.store(value.lane(lane) + before, t)

    with f.each(f.begin, f.end) as task:
        block, rest = task % blocks, task / blocks
        group, part = rest % groups, rest / groups
        first = block * per
        height = smaller(channels - first, per)
        origin = source.at(element, group * in_g)
        begin = smaller(part * part_cols, squares)
        end = smaller(begin + part_cols, squares)
        with f.each(begin, end, SQUARES_CHUNK) as at:
            width = smaller(end - at, SQUARES_CHUNK)
            vectors = ceiling(width, lanes.width)
            f.run(columns, words, inside, outside, first_unit * unit + at, vectors * lanes.width)
            turn_data(origin, first, height, vectors)
            start = (at == begin).pick(zeros, f.const("ptr", 0))
            with f.each(0, SQUARE) as k, f.each(0, panels) as panel:
                right = slopes.at(element, slope_pitch * k + (group * panels + panel) * panel_pitch
                                  + at * tile)
                with f.each(0, height, high) as row:
                    place = (row / high * panels + panel) * (high * tile)
                    f.run(multiply, near.at(element, data_pitch * k + row * PITCH), right, width,
                          sums.at(element, sum_pitch * k + place), f.const("i64", tile), start)
        with f.when(begin < end), f.each(0, panels) as panel, f.each(0, height, high) as row:
            place = (row / high * panels + panel) * (high * tile)
            line = ((part * groups + group) * rows + panel * tile) * channels + first + row
            finish(target.at(element, line * 9), sums.at(element, place),
                   smaller(rows - panel * tile, tile), smaller(height - row, high))
    f.calls("free", "void", memory)
    return f


def add_parts(lanes: Lanes) -> Function:
    """Vectors of weights `begin` to `end`: parts added up in order."""
    f = Function("add_parts", "ptr context, i64 begin, i64 end", local=True)
    weights, parts, words = (f.context.load("ptr", i) for i in (0, 4, 5))
    groups, rows, channels, count = WEIGHT.read(f, words, "groups rows inner parts")
    element, total = lanes.element, groups * rows * channels * 9
    even = total & -lanes.width
    with f.each(f.begin * lanes.width, smaller(f.end * lanes.width, even), lanes.width) as i:
        value = f.var(lanes.vector, lanes.load(parts, i))
        with f.each(1, count) as p:
            value.add(lanes.load(parts, p * total + i))
        weights.at(element, i).store(value())
    with f.when(f.end * lanes.width > even), f.each(even, total) as i:
        one = f.var(element, parts.load(element, i))
        with f.each(1, count) as p:
            one.add(parts.load(element, p * total + i))
        weights.store(one(), i)
    return f


def weight_squares(lanes: Lanes, frame: Function, turn_slopes: Function, weigh: Function,
                   add_parts: Function) -> Function:
    """conv_weight(out, data, result, scratch, words, work)

    In rounds, so that the squares of slopes, which are four times as much as slopes, stay near.
    """
    f = Function("conv_weight", "ptr out, ptr data, ptr result_, ptr scratch, ptr words, i64 work")
    context, source = f.room("ptr", _CONTEXT + 2), f.var("ptr", f.data)
    words = f.words.at("i64", len(FRAME))
    (framed, groups, rows, channels, panels, blocks, count, grain, turn_grain, join_grain,
     slopes, partial) = WEIGHT.read(f, words, "framed groups rows inner panels blocks parts grain "
                                              "turn_grain join_grain turned partial")
    units, most = ROUND.read(f, words.at("i64", len(WEIGHT)), "units round")
    with f.when(framed != 0):
        whole(f, frame, context, f.scratch, f.data, f.words)
        source.set(f.scratch)
    places = [f.scratch.at(lanes.element, at) for at in (slopes, partial)]
    for i, value in enumerate((f.out, source(), f.result_, *places, words)):
        context.store(value, i)
    with f.each(0, units, most) as first:
        some = smaller(units - first, most)
        context.store(first, _FIRST)
        context.store(some, _UNITS)
        parallel(f, turn_slopes, context, groups * panels * some, turn_grain)
        parallel(f, weigh, context, count * groups * blocks, grain)
    with f.when(count > 1):
        parallel(f, add_parts, context, ceiling(groups * rows * channels * 9, lanes.width),
                 join_grain)
    return f
