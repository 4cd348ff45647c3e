"""A convolution's weights from its data and its result, and the sums of a result over all but rows.

Rows of the result are turned so that those of one column lie side by side; each block of weights is
the product of packed windows with them, over all columns. Where there are few blocks, columns are
cut into parts, as many as the problem says, and the parts added up in order.
"""

from __future__ import annotations

from .conv_result import borrow, whole
from .conv_words import FRAME, WEIGHT
from .lanes import Lanes, ceiling, smaller, times_plus
from .tile_sizes import CHUNK, ROWS
from .transpose import turned_square
from .writer import Function, Value, parallel

#: elements between packed rows: not a power of two, so that they do not meet in the cache
PITCH = CHUNK + 16
#: words of a context: weights, source, result, turned result, parts, words; then a frame's words
_CONTEXT = 6


def turn(lanes: Lanes) -> Function:
    """Panels of rows `begin` to `end`, each of one sample: column after column, a tile wide."""
    f = Function("turn", "ptr context, i64 begin, i64 end", local=True)
    _, _, result, turned, _, words = (f.context.load("ptr", i) for i in range(_CONTEXT))
    groups, rows, cols, od, oh, ow, panels = WEIGHT.read(f, words,
                                                         "groups rows cols od oh ow panels")
    element, tile = lanes.element, lanes.tile
    size = od * oh * ow
    samples = cols / size
    with f.each(f.begin, f.end) as task:
        n, panel = task % samples, task / samples
        group, first = panel / panels, panel % panels * tile
        base = result.at(element, (n * groups + group) * rows * size)
        lines = [base.at(element, smaller(first + j, rows - 1) * size) for j in range(tile)]
        turn_lines(f, lanes, lines, size, turned.at(element, (panel * cols + n * size) * tile))
    return f


def turn_lines(f: Function, lanes: Lanes, lines: list[Value], size: Value, to: Value) -> None:
    """Lines of so many elements, as many as a tile is wide, column after column."""
    element, tile, width = lanes.element, lanes.tile, lanes.width
    full = size & -width
    with f.each(0, full, width) as p:
        for part in range(lanes.vectors):
            square = [lanes.load(lines[part * width + j], p) for j in range(width)]
            for k, row in enumerate(turned_square(square)):
                to.at(element, (p + k) * tile + part * width).store(row)
    with f.each(full, size) as p:
        for j, line in enumerate(lines):
            to.store(line.load(element, p), p * tile + j)


def weigh(lanes: Lanes, multiply: Function, columns: Function, pack: Function) -> Function:
    """Blocks of weights `begin` to `end`: of each part, of each group, of rows of windows.

    Where there is one part only, a block stays near until it is done, and goes where it belongs.
    """
    f = Function("weigh", "ptr context, i64 begin, i64 end", local=True)
    weights, source, _, turned, parts, words = (f.context.load("ptr", i) for i in range(_CONTEXT))
    (groups, rows, inner, cols, in_g, koff, panels, blocks, per, count, part_cols) = WEIGHT.read(
        f, words, "groups rows inner cols in_g koff panels blocks per parts part_cols")
    element, tile, high = lanes.element, lanes.tile, lanes.rows
    offsets = f.new("ptr", f"inttoptr i64 {koff.name} to ptr")
    inside, outside = f.room("i64", CHUNK), f.room("i64", CHUNK)
    zeros = f.room(element, high)
    for i in range(high):
        zeros.store(f.const(element, 0), i)
    packed, alone = (ROWS + high) * PITCH, count == 1
    memory, near = borrow(f, (alone.pick(per * panels * tile, 0) + packed) * lanes.bytes)
    strips = ceiling(inner, high)  # of weights, in all blocks
    with f.each(f.begin, f.end) as task:
        block, rest = task % blocks, task / blocks
        group, part = rest % groups, rest / groups
        first_row = block * per
        height = smaller(inner - first_row, per)
        origin = source.at(element, group * in_g)
        strip = (part * groups + group) * strips + first_row / high
        sums = alone.pick(near.at(element, packed),
                          parts.at(element, strip * panels * (high * tile)))
        begin = part * part_cols
        with f.each(begin, smaller(begin + part_cols, cols), CHUNK) as at:
            width = smaller(smaller(begin + part_cols, cols) - at, CHUNK)
            vectors = ceiling(width, lanes.width)
            f.run(columns, words, inside, outside, at, vectors * lanes.width)
            f.run(pack, near, f.const("i64", PITCH), origin, inside,
                  offsets.at("i64", first_row), height, vectors)
            start = (at == begin).pick(zeros, f.const("ptr", 0))
            with f.each(0, panels) as panel:
                right = turned.at(element, ((group * panels + panel) * cols + at) * tile)
                with f.each(0, height, high) as row:
                    place = (row / high * panels + panel) * (high * tile)
                    f.run(multiply, near.at(element, row * PITCH), right, width,
                          sums.at(element, place), f.const("i64", tile), start)
        with f.when(alone), f.each(0, panels) as panel, f.each(0, height, high) as row:
            place = (row / high * panels + panel) * (high * tile)
            line = weights.at(element, (group * rows + panel * tile) * inner + first_row + row)
            _put(f, lanes, sums.at(element, place), line, inner, smaller(rows - panel * tile, tile),
                 smaller(height - row, high), count, f.const("i64", 0))
    f.calls("free", "void", memory)
    return f


def join(lanes: Lanes) -> Function:
    """Panels of weights `begin` to `end`: parts added up, each weight put where it belongs."""
    f = Function("join", "ptr context, i64 begin, i64 end", local=True)
    weights, parts, words = (f.context.load("ptr", i) for i in (0, 4, 5))
    groups, rows, inner, panels, count = WEIGHT.read(f, words, "groups rows inner panels parts")
    element, tile, high = lanes.element, lanes.tile, lanes.rows
    strips = ceiling(inner, high)
    whole_part = groups * strips * panels * (high * tile)
    with f.each(f.begin, f.end) as task:
        group, first = task / panels, task % panels * tile
        line = weights.at(element, (group * rows + first) * inner)
        with f.each(0, strips) as strip:
            place = ((group * strips + strip) * panels + task % panels) * (high * tile)
            _put(f, lanes, parts.at(element, place), line.at(element, strip * high), inner,
                 smaller(rows - first, tile), smaller(inner - strip * high, high), count,
                 whole_part)
    return f


def _put(f: Function, lanes: Lanes, at: Value, to: Value, inner: Value, wide: Value, high: Value,
         count: Value, whole_part: Value) -> None:
    """A tile of weights, so much of it as there is, added up from its parts: its columns are rows
    of weights."""
    element, tile = lanes.element, lanes.tile
    with f.when((high == lanes.rows) & (wide == tile)) as whole_tile:
        _put_whole(f, lanes, at, to, inner, count, whole_part)
    with whole_tile.otherwise(), f.each(0, wide) as j, f.each(0, high) as i:
        total = f.var(element, at.load(element, i * tile + j))
        with f.each(1, count) as p:
            total.add(at.load(element, p * whole_part + i * tile + j))
        to.store(total(), j * inner + i)


def _put_whole(f: Function, lanes: Lanes, at: Value, to: Value, inner: Value, count: Value,
               whole_part: Value) -> None:
    element, width = lanes.element, lanes.width
    for start in range(0, lanes.tile, width):
        for low in range(0, lanes.rows, width):
            rows = range(low, min(low + width, lanes.rows))
            places = [at.at(element, i * lanes.tile + start) for i in rows]
            totals = [f.var(lanes.vector, lanes.load(place)) for place in places]
            with f.each(1, count) as p:
                for total, place in zip(totals, places, strict=True):
                    total.add(lanes.load(place, p * whole_part))
            vectors = [total() for total in totals]
            vectors += vectors[-1:] * (width - len(rows))
            for j, column in enumerate(turned_square(vectors)):
                to.at(element, inner * (start + j) + low).store(column.shuffle(range(len(rows))))


# -- few rows ------------------------------------------------------------------------------------


def weigh_directly(lanes: Lanes, frame: Function, taps: int) -> Function:
    """Rows of weights `begin` to `end`, a few taps at a time, each a sum along lines."""
    f = Function("weigh_directly", "ptr context, i64 begin, i64 end", local=True)
    weights, source, result, _, _, words = (f.context.load("ptr", i) for i in range(_CONTEXT))
    (groups, rows, inner, cols, od, oh, ow, in_n, in_g, in_d, in_h, koff, own) = WEIGHT.read(
        f, words, "groups rows inner cols od oh ow in_n in_g in_d in_h koff own")
    element, width = lanes.element, lanes.width
    offsets = f.new("ptr", f"inttoptr i64 {koff.name} to ptr")
    size = od * oh * ow
    samples = cols / size
    full = ow & -width
    rest = lanes.count(f) < (ow - full).spread(width)
    memory, near = borrow(f, own * lanes.bytes)
    inner_context = f.room("ptr", 3)
    inner_context.store(source, 1)
    inner_context.store(f.context.load("ptr", _CONTEXT), 2)
    with f.each(f.begin, f.end) as row, f.each(0, inner, taps) as k0:
        moves = [offsets.load("i64", smaller(k0 + t, inner - 1)) for t in range(taps)]
        sums = [f.var(lanes.vector, 0) for _ in moves]
        with f.each(0, samples) as n:
            group = row / rows
            base = f.var("ptr", source.at(element, group * in_g + n * in_n))
            with f.when(own != 0):
                number = n * groups + group
                inner_context.store(near, 0)
                f.run(frame, inner_context, number, number + 1)
                base.set(near)
            with f.each(0, od) as z, f.each(0, oh) as y:
                line = base().at(element, z * in_d + y * in_h)
                given = result.at(element, (((n * groups * rows + row) * od + z) * oh + y) * ow)
                with f.each(0, full, width) as x:
                    g, at = lanes.load(given, x), line.at(element, x)
                    for total, move in zip(sums, moves, strict=True):
                        total.set(times_plus(f, g, lanes.load(at, move), total()))
                with f.when(full < ow):
                    g, at = lanes.masked(f, given.at(element, full), rest), line.at(element, full)
                    for total, move in zip(sums, moves, strict=True):
                        seen = lanes.masked(f, at.at(element, move), rest)
                        total.set(times_plus(f, g, seen, total()))
        to = weights.at(element, row * inner + k0)
        for t, total in enumerate(sums):
            with f.when(k0 + t < inner):
                to.store(lanes.total(f, total()), t)
    f.calls("free", "void", memory)
    return f


# -- whole weights -------------------------------------------------------------------------------


def weight(frame: Function, lanes: Lanes, turn: Function, weigh: Function,
           join: Function) -> Function:
    """conv_weight(out, data, result, scratch, words, work)"""
    f, context, words = _begun(frame)
    (groups, cols, od, oh, ow, turned, partial, panels, blocks, count, grain, turn_grain,
     join_grain) = WEIGHT.read(f, words, "groups cols od oh ow turned partial panels blocks parts "
                                         "grain turn_grain join_grain")
    for i, at in ((3, turned), (4, partial)):
        context.store(f.scratch.at(lanes.element, at), i)
    samples = cols / (od * oh * ow)
    parallel(f, turn, context, groups * panels * samples, turn_grain)
    parallel(f, weigh, context, count * groups * blocks, grain)
    with f.when(count > 1):
        parallel(f, join, context, groups * panels, join_grain)
    return f


def weight_directly(frame: Function, weigh_directly: Function) -> Function:
    """conv_weight(out, data, result, scratch, words, work)"""
    f, context, words = _begun(frame)
    groups, rows, grain = WEIGHT.read(f, words, "groups rows grain")
    parallel(f, weigh_directly, context, groups * rows, grain)
    return f


def _begun(frame: Function) -> tuple[Function, Value, Value]:
    """The function, its context with the data framed if need be, and its words."""
    f = Function("conv_weight", "ptr out, ptr data, ptr result_, ptr scratch, ptr words, i64 work")
    context, source = f.room("ptr", _CONTEXT + 1), f.var("ptr", f.data)
    words = f.words.at("i64", len(FRAME))
    (framed,) = WEIGHT.read(f, words, "framed")
    with f.when(framed != 0):
        whole(f, frame, context, f.scratch, f.data, f.words)
        source.set(f.scratch)
    nothing = f.const("ptr", 0)
    for i, value in enumerate((f.out, source(), f.result_, nothing, nothing, words, f.words)):
        context.store(value, i)
    return f, context, words


# -- sums ----------------------------------------------------------------------------------------


def sum_rows(lanes: Lanes) -> Function:
    """Rows `begin` to `end`: the sum of a row over all samples; (sums, result, words)."""
    f = Function("sum_rows", "ptr context, i64 begin, i64 end", local=True)
    sums, result, words = (f.context.load("ptr", i) for i in range(3))
    samples, rows, size = (words.load("i64", i) for i in range(3))
    element, width = lanes.element, lanes.width
    with f.each(f.begin, f.end) as row:
        totals = [f.var(lanes.vector, 0) for _ in range(4)]
        last = f.var(element, 0)
        with f.each(0, samples) as n:
            line = result.at(element, (n * rows + row) * size)
            long = size & -(4 * width)
            with f.each(0, long, 4 * width) as i:
                for v, total in enumerate(totals):
                    total.add(lanes.load(line, i + v * width))
            full = size & -width
            with f.each(long, full, width) as i:
                totals[0].add(lanes.load(line, i))
            with f.each(full, size) as i:
                last.add(line.load(element, i))
        pairs = (totals[0]() + totals[1]()) + (totals[2]() + totals[3]())
        sums.store(lanes.total(f, pairs) + last(), row)
    return f


def sums(lanes: Lanes, sum_rows: Function) -> Function:
    """conv_sums(out, result, scratch, words, work): samples, rows, the size of a row, the grain."""
    f = Function("conv_sums", "ptr out, ptr result_, ptr scratch, ptr words, i64 work")
    context = f.room("ptr", 3)
    for i, value in enumerate((f.out, f.result_, f.words)):
        context.store(value, i)
    parallel(f, sum_rows, context, f.words.load("i64", 1), f.words.load("i64", 3))
    return f
