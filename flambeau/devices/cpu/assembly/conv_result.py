"""A convolution's result, or transposed its data: packed weights times packed windows.

Results are cut into phases: the positions at which the same taps count. A convolution has one, and
a transposed one as many as its stride has remainders. A phase with few rows in a group, such as a
depthwise one, is summed directly instead, a line of windows at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .conv_finish import call_finish, is_wanted
from .conv_words import FRAME, ONE, PHASE, RESULT
from .lanes import Lanes, ceiling, in_a_row, larger, smaller, times_plus
from .tile_sizes import BLOCK, DEPTH
from .transpose import abreast
from .writer import Function, Value, parallel

#: bytes of packed weights that are used together, from the second level of cache
_NEAR = 160 << 10
#: words of a context: result, source, packed weights, words, weights, bias; then a frame's words,
#: and what finishes pieces of the result
_CONTEXT = 6


def pack_weights(lanes: Lanes, high: int) -> Function:
    """Panels `begin` to `end` of so many rows of weights, and their biases behind all panels."""
    f = Function("pack_weights", "ptr context, i64 begin, i64 end", local=True)
    _, _, panels, words, weights, bias = (f.context.load("ptr", i) for i in range(_CONTEXT))
    rows, inner, wk, wg, wr, count, groups = PHASE.read(f, words,
                                                        "rows inner wk wg wr panels groups")
    element = lanes.element
    table = f.new("ptr", f"inttoptr i64 {wk.name} to ptr")
    biases = panels.at(element, groups * count * inner * high)
    with f.each(f.begin, f.end) as panel:
        group, first = panel / count, panel % count * high
        start = weights.at(element, group * wg)
        lines = [start.at(element, smaller(first + i, rows - 1) * wr) for i in range(high)]
        to = panels.at(element, panel * inner * high)

        def put(k: Value, columns: list[Value]) -> None:
            for i, column in enumerate(columns):
                to.at(element, (k + i) * high).store(column)

        def some(k: Value, many: int) -> None:
            """So many columns, whose elements lie side by side in each line."""
            at = table.load("i64", k)
            put(k, abreast(f, lanes, [line.at(element, at) for line in lines], many))

        even = inner & -lanes.width
        with f.each(0, even, lanes.width) as k:
            with f.when(in_a_row(table.at("i64", k), lanes.width)) as together:
                some(k, lanes.width)
            with together.otherwise(), f.each(k, k + lanes.width) as one:
                some(one, 1)
        with f.each(even, inner) as k:
            some(k, 1)
        pack_biases(f, element, bias, panel, count, rows, high, biases)
    return f


def pack_biases(f: Function, element: str, bias: Value, panel: Value, count: Value, rows: Value,
                high: int, to: Value) -> None:
    """The biases of a panel, 0 where there are none."""
    group, first = panel / count, panel % count * high
    with f.each(0, high) as i:
        value = f.var(element, 0)
        with f.when((bias != f.const("ptr", 0)) & (first + i < rows)):
            value.set(bias.load(element, group * rows + first + i))
        to.store(value(), panel * high + i)


def product(lanes: Lanes, multiply: Function, columns: Function, pack: Function,
            finish: Function) -> Function:
    """Blocks `begin` to `end`: of each group, of columns, of panels of rows."""
    f = Function("product", "ptr context, i64 begin, i64 end", local=True)
    out, source, weights, words = (f.context.load("ptr", i) for i in range(4))
    (groups, rows, inner, kc, cols, in_g, out_0, out_g, out_m, koff, panels, blocks, splits,
     per) = PHASE.read(f, words, "groups rows inner kc cols in_g out_0 out_g out_m koff panels "
                                 "blocks splits per")
    element, tile, high = lanes.element, lanes.tile, lanes.rows
    offsets = f.new("ptr", f"inttoptr i64 {koff.name} to ptr")
    biases = weights.at(element, groups * panels * inner * high)
    inside, outside = (f.room("i64", lanes.block) for _ in range(2))
    packed = DEPTH * lanes.block  # elements of packed windows; behind them, tiles of results
    most = smaller(per * (f.end - f.begin), panels)
    memory, near = borrow(f, (most * (BLOCK * high * tile) + packed) * lanes.bytes)
    spare = near.at(element, packed)
    together = larger(f.const("i64", _NEAR // lanes.bytes) / (kc * high), 1)

    def multiplied(group, first, tiles, width, panel_from, panel_to, k0, depth):
        """All tiles of some panels, at one depth; what does not lie evenly is put down last."""
        start_here, done_here = k0 == 0, k0 + depth >= inner
        with f.each(0, tiles) as t:
            right = near.at(element, t * DEPTH * tile)
            target = outside.at("i64", t * tile)
            low = target.load("i64")
            even = in_a_row(target, tile)
            with f.each(panel_from, panel_to) as panel:
                number, row = group * panels + panel, panel * high
                left = weights.at(element, (number * inner + k0) * high)
                start = start_here.pick(biases.at(element, number * high), f.const("ptr", 0))
                place = out.at(element, out_0 + group * out_g + row * out_m)
                with f.when(even & (row + high <= rows)) as whole:
                    f.run(multiply, left, right, depth, place.at(element, low), out_m, start)
                with whole.otherwise():
                    own = spare.at(element, ((panel - first) * BLOCK + t) * (high * tile))
                    f.run(multiply, left, right, depth, own, f.const("i64", tile), start)
                    with f.when(done_here):
                        _spill(f, lanes, own, place, out_m, target, smaller(rows - row, high),
                               smaller(width - t * tile, tile))

    with shares(f, splits, per, panels) as (panel_from, panel_to, rest):
        first, group = rest % blocks * lanes.block, rest / blocks
        width = smaller(cols - first, lanes.block)
        tiles = ceiling(width, tile)
        f.run(columns, words, inside, outside, first, tiles * tile)
        origin = source.at(element, group * in_g)
        with f.each(0, larger(inner, 1), kc) as k0:
            depth = smaller(inner - k0, kc)
            with f.each(0, tiles) as t:
                f.run(pack, near.at(element, t * DEPTH * tile), f.const("i64", tile), origin,
                      inside.at("i64", t * tile), offsets.at("i64", k0), depth,
                      f.const("i64", lanes.vectors))
            with f.each(panel_from, panel_to, together) as panel:
                multiplied(group, panel_from, tiles, width, panel,
                           smaller(panel + together, panel_to), k0, depth)
        finish_panels(f, lanes, finish, group, panel_from, panel_to, rows, first, width)
    f.calls("free", "void", memory)
    return f


@contextlib.contextmanager
def shares(f: Function, splits: Value, per: Value, panels: Value) -> Iterator[tuple]:
    """(first panel, end of panels, number of the block) for the tasks of a range.

    A block of columns is so many tasks, of some panels each. Those of a block that are in the same
    range are taken together, for each would pack the same windows.
    """
    task = f.var("i64", f.begin)
    with f.repeat() as loop:
        loop.leave_if(task() >= f.end)
        split = task() % splits
        many = smaller(splits - split, f.end - task())
        yield split * per, smaller((split + many) * per, panels), task() / splits
        task.add(many)


def finish_panels(f: Function, lanes: Lanes, finish: Function, group, panel_from, panel_to, rows,
                  first, width) -> None:
    """Finish the results of some panels of weights and some columns, if anything is to be done."""
    with f.when(is_wanted(f)):
        row = panel_from * lanes.rows
        f.run(finish, f.context, group, row, smaller(panel_to * lanes.rows, rows) - row, first,
              width)


def borrow(f: Function, nbytes: Value) -> tuple[Value, Value]:
    """Memory to be freed by its first value, and its first place at the start of a cache line."""
    memory = f.calls("malloc", "ptr", nbytes + 64)
    assert memory is not None
    f.declare("llvm.ptrmask.p0.i64", "ptr", ["ptr", "i64"])
    near = f.new("ptr", f"call ptr @llvm.ptrmask.p0.i64(ptr {memory.at('i8', 63).name}, i64 -64)")
    return memory, near


def _spill(f: Function, lanes: Lanes, tile: Value, place: Value, out_m: Value, target: Value,
           rows: Value, width: Value) -> None:
    """What of a tile lies in the result goes there, one by one."""
    element = lanes.element
    with f.each(0, width) as j:
        at, value = place.at(element, target.load("i64", j)), tile.at(element, j)
        with f.each(0, rows) as i:
            at.store(value.load(element, i * lanes.tile), i * out_m)


# -- few rows ------------------------------------------------------------------------------------


def direct(lanes: Lanes, frame: Function, together: int) -> Function:
    """Planes `begin` to `end` of the result, so many together, from where windows' elements lie.

    A group of one channel whose planes need a frame gets it plane by plane, in the nearest cache.
    """
    f = Function("direct", "ptr context, i64 begin, i64 end", local=True)
    out, source, weights, words = (f.context.load("ptr", i) for i in range(4))
    (groups, rows, inner, od, oh, ow, in_n, in_g, in_d, in_h, out_0, out_n, out_g, out_m, out_d,
     out_h, out_w, koff, own, three) = PHASE.read(
        f, words, "groups rows inner od oh ow in_n in_g in_d in_h out_0 out_n out_g out_m out_d "
                  "out_h out_w koff own three")
    element = lanes.element
    offsets = f.new("ptr", f"inttoptr i64 {koff.name} to ptr")
    many = groups * rows / together
    biases = weights.at(element, many * inner * together)
    spare = f.room(element, lanes.width)
    memory, near = borrow(f, own * lanes.bytes)
    inner_context = f.room("ptr", 3)
    inner_context.store(source, 1)
    inner_context.store(f.context.load("ptr", _CONTEXT), 2)
    with f.each(f.begin, f.end) as plane:
        n, m = plane / many, plane % many
        group, row = m * together / rows, m * together % rows
        base = f.var("ptr", source.at(element, n * in_n + group * in_g))
        with f.when(own != 0):
            number = n * groups + group
            inner_context.store(near, 0)
            f.run(frame, inner_context, number, number + 1)
            base.set(near)
        target = out.at(element, out_0 + n * out_n + group * out_g + row * out_m)
        factors = weights.at(element, m * inner * together)
        starts = [lanes.broadcast(biases, m * together + i) for i in range(together)]
        with f.each(0, od) as z:
            given, to = base().at(element, z * in_d), target.at(element, z * out_d)
            lines = Lines(f, lanes, factors, offsets, inner, starts, ow, out_m, out_w, spare)
            if together == ONE:
                with f.when((three != 0) & (out_w == 1) & (ow >= lanes.width)) as square:
                    _three_by_three(f, lanes, given, to, factors, offsets, starts[0], oh, ow, in_h,
                                    out_h)
                with square.otherwise(), f.each(0, oh) as y:
                    lines.write(given.at(element, y * in_h), to.at(element, y * out_h))
            else:
                with f.each(0, oh) as y:
                    lines.write(given.at(element, y * in_h), to.at(element, y * out_h))
        with f.when(is_wanted(f)):
            call_finish(f, target, f.const("i64", together), od * oh * ow, out_m * lanes.bytes)
    f.calls("free", "void", memory)
    return f


def _three_by_three(f, lanes, given, to, factors, offsets, start, oh, ow, in_h, out_h) -> None:
    """Three lines of three taps side by side: all nine factors stay in registers."""
    element, width = lanes.element, lanes.width
    weights = [lanes.broadcast(factors, k) for k in range(9)]
    lines = [given.at(element, offsets.load("i64", 3 * i)) for i in range(3)]
    last = ow - width
    with f.each(0, oh) as y:
        rows = [line.at(element, y * in_h) for line in lines]
        put, x = to.at(element, y * out_h), f.var("i64", 0)
        with f.repeat() as loop:
            loop.leave_if(x() >= ow)
            places = [smaller(x() + v * width, last) for v in range(2)]
            sums = [start, start]
            for i, row in enumerate(rows):
                for k in range(3):
                    sums = [times_plus(f, weights[3 * i + k], lanes.load(row.at(element, at), k),
                                       total) for at, total in zip(places, sums, strict=True)]
            for at, total in zip(places, sums, strict=True):
                put.at(element, at).store(total)
            x.add(2 * width)


class Lines:
    """Lines of results, of as many rows as there are starts."""

    def __init__(self, f, lanes, factors, offsets, inner, starts, ow, out_m, out_w, spare):
        self.f, self.lanes, self.factors, self.offsets = f, lanes, factors, offsets
        self.inner, self.starts, self.ow, self.out_m = inner, starts, ow, out_m
        self.out_w, self.spare = out_w, spare

    def write(self, line: Value, to: Value) -> None:
        """Four, two or one vector at a time; the last ones overlap those before."""
        f, width, ow = self.f, self.lanes.width, self.ow
        with f.when(ow < width) as narrow:
            mask = self.lanes.count(f) < ow.spread(width)
            sums = self._sums(line, [f.const("i64", 0)], mask)
            for i, (total,) in enumerate(sums):
                self._scatter(to.at(self.lanes.element, self.out_m * i), total(), ow)
        with narrow.otherwise():
            x = f.var("i64", 0)
            with f.repeat() as loop:
                loop.leave_if(x() >= ow)
                with f.when(ow - x() > 2 * width) as long:
                    self._step(x, line, to, 4)
                with long.otherwise():
                    with f.when(ow - x() > width) as pair:
                        self._step(x, line, to, 2)
                    with pair.otherwise():
                        self._step(x, line, to, 1)

    def _sums(self, line: Value, places: list[Value], mask: Value | None = None) -> list:
        """Of each row, of each place, a vector."""
        f, lanes, count = self.f, self.lanes, len(self.starts)
        sums = [[f.var(lanes.vector, start) for _ in places] for start in self.starts]
        with f.each(0, self.inner) as k:
            at = line.at(lanes.element, self.offsets.load("i64", k))
            factors = [lanes.broadcast(self.factors, k * count + i) for i in range(count)]
            for j, place in enumerate(places):
                seen = lanes.load(at, place) if mask is None else lanes.masked(f, at, mask)
                for row, factor in zip(sums, factors, strict=True):
                    row[j].set(times_plus(f, factor, seen, row[j]()))
        return sums

    def _step(self, x, line: Value, to: Value, vectors: int) -> None:
        f, element, width = self.f, self.lanes.element, self.lanes.width
        places = [smaller(x() + v * width, self.ow - width) for v in range(vectors)]
        sums = self._sums(line, places)
        for i, row in enumerate(sums):
            put = to.at(element, self.out_m * i)
            with f.when(self.out_w == 1) as even:
                for place, total in zip(places, row, strict=True):
                    put.at(element, place).store(total())
            with even.otherwise():
                for place, total in zip(places, row, strict=True):
                    self._scatter(put.at(element, place * self.out_w), total(),
                                  f.const("i64", width))
        x.add(vectors * width)

    def _scatter(self, to: Value, vector: Value, count: Value) -> None:
        f, element = self.f, self.lanes.element
        self.spare.store(vector)
        with f.each(0, count) as i:
            to.store(self.spare.load(element, i), i * self.out_w)


# -- whole results -------------------------------------------------------------------------------


def result(lanes: Lanes, frame: Function, pack: Function, compute: Function,
           by_plane: bool = False) -> Function:
    """conv_result(out, source, weights, bias, scratch, words, work)

    Weights are packed and results computed from them, phase by phase, in blocks or by planes.
    """
    f = Function("conv_result", "ptr out, ptr source, ptr weights, ptr bias, ptr scratch, "
                                "ptr words, i64 work")
    framed, panels, biased, phases, finish, given = RESULT.read(
        f, f.words, "framed weights bias phases finish finish_with")
    finish, given = (f.new("ptr", f"inttoptr i64 {v.name} to ptr") for v in (finish, given))
    context = f.room("ptr", _CONTEXT + 3)
    source = f.var("ptr", f.source)
    frame_words = f.words.at("i64", len(RESULT))
    with f.when(framed != 0):
        whole(f, frame, context, f.scratch, f.source, frame_words)
        source.set(f.scratch)
    words = frame_words.at("i64", len(FRAME))
    bias = (biased != 0).pick(f.bias, f.const("ptr", 0))
    packed = f.scratch.at(lanes.element, panels)
    with f.each(0, phases) as i:
        phase = words.at("i64", i * len(PHASE))
        for k, value in enumerate((f.out, source(), packed, phase, f.weights, bias, frame_words,
                                   finish, given)):
            context.store(value, k)
        groups, count, blocks, splits, grain, pack_grain, od, cols, oh, ow = PHASE.read(
            f, phase, "groups panels blocks splits grain pack_grain od cols oh ow")
        parallel(f, pack, context, groups * count, pack_grain)
        tasks = cols / (od * oh * ow) * count if by_plane else blocks * splits
        parallel(f, compute, context, groups * tasks, grain)
    return f


def whole(f: Function, frame: Function, context: Value, to: Value, source: Value,
          words: Value) -> None:
    """All planes of a frame."""
    planes, grain = FRAME.read(f, words, "planes grain")
    for i, value in enumerate((to, source, words)):
        context.store(value, i)
    parallel(f, frame, context, planes, grain)
