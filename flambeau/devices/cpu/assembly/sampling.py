"""Images and volumes read at the points of a grid, whose coordinates run from -1 to 1, and the two
ways back: to what was read, and to the grid.

For some points at a time, where the taps around each lie and what they weigh is computed on
vectors; then every channel is read or added to there, one point after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import NamedTuple

from .lanes import smaller
from .writer import BYTES, Function, Value, parallel, wide

LANES = 8
#: channels that one task adds to
CHANNELS = 8
TYPES = {"float32": "float", "float64": "double"}
#: taps along one dimension
WIDTHS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
#: words of a context
CONTEXT = ("out", "x", "grid", "g", "channels", "depth", "height", "width", "points")
#: how sharply cubic weights bend
BEND = -0.75


def block_of(mode: str, rank: int) -> int:
    """Points whose taps are kept: their weights and places stay in the nearest cache."""
    return 1024 // max(WIDTHS[mode] ** rank, 4)


class _Tap(NamedTuple):
    """A pixel near a point: its place, what it weighs, and how fast that moves with the grid."""

    place: Value
    weight: Value | None
    slope: Value | None


class _Axis:
    """Coordinates along one dimension of so many pixels."""

    def __init__(self, f: Function, element: str, size: Value, padding: str, align: bool):
        self.f, self.element, self.padding, self.align = f, element, padding, align
        self.size = size.to(element)
        self.last = self.size - 1.0

    def in_pixels(self, x: Value) -> tuple[Value, Value]:
        """Where a point is, and how fast it moves with its coordinate."""
        size, last = self.size.spread(x.lanes), self.last.spread(x.lanes)
        if self.align:
            return (x + 1.0) * (last * 0.5), last * 0.5
        return ((x + 1.0) * size - 1.0) * 0.5, size * 0.5

    def placed(self, at: Value, speed: Value) -> tuple[Value, Value]:
        """What is past the edges brought back."""
        size, last = self.size.spread(at.lanes), self.last.spread(at.lanes)
        if self.padding == "reflection":
            at, speed = self._reflected(at, speed, size, last)
        return (at, speed) if self.padding == "zeros" else self._clipped(at, speed, last)

    def _clipped(self, at: Value, speed: Value, last: Value) -> tuple[Value, Value]:
        """Held inside; what lies at or past the edge no longer moves. What is no number is at 0."""
        return ((at > 0.0).pick((at < last).pick(at, last), 0.0),
                ((at > 0.0) & (at < last)).pick(speed, 0.0))

    def _reflected(self, at: Value, speed: Value, size: Value, last: Value):
        f, low = self.f, 0.0 if self.align else -0.5
        span = last if self.align else size
        away = f.intrinsic("fabs", at - low)
        flips = f.intrinsic("floor", away / span)
        rest = away - flips * span
        half = flips * 0.5
        even = f.intrinsic("floor", half) == half
        folded = even.pick(rest + low, span - rest + low)
        forward = ~(even ^ (at >= low))
        turned = forward.pick(speed, -speed)
        return (span == 0.0).pick(0.0, folded), (span == 0.0).pick(0.0, turned)

    def taps(self, x: Value, mode: str) -> list[_Tap]:
        """The pixels around a point."""
        f = self.f
        at, speed = self.in_pixels(x)
        if mode == "bicubic":
            return self._cubic(at, speed)
        at, speed = self.placed(at, speed)
        if mode == "nearest":
            return [_Tap(f.intrinsic("rint", at), None, None)]
        low = f.intrinsic("floor", at)
        share = at - low
        return [_Tap(low, 1.0 - share, -speed), _Tap(low + 1.0, share, speed)]

    def _cubic(self, at: Value, speed: Value) -> list[_Tap]:
        low = self.f.intrinsic("floor", at)
        t, taps = at - low, []
        for k in range(-1, 3):
            away, turn = (float(k) - t, -speed) if k > 0 else (t - float(k), speed)
            if k in (0, 1):
                weight = (away * (BEND + 2) - (BEND + 3)) * away * away + 1.0
                slope = (away * (3 * (BEND + 2)) - 2 * (BEND + 3)) * away
            else:
                weight = ((away * BEND - 5 * BEND) * away + 8 * BEND) * away - 4 * BEND
                slope = (away * (3 * BEND) - 10 * BEND) * away + 8 * BEND
            place, _ = self.placed(low + float(k), speed)
            taps.append(_Tap(self.f.intrinsic("rint", place), weight, slope * turn))
        return taps

    def inside(self, place: Value) -> Value:
        return (place >= 0.0) & (place < self.size.spread(place.lanes))


class _Block:
    """Some points of one image: their coordinates, and the taps around them."""

    def __init__(self, f: Function, element: str, rank: int, mode: str, padding: str, align: bool):
        self.f, self.element, self.rank, self.mode = f, element, rank, mode
        self.size = block_of(mode, rank)
        words = {name: f.context.load("ptr" if k < 4 else "i64", k)
                 for k, name in enumerate(CONTEXT)}
        self.words = words
        self.sizes = [words[name] for name in ("depth", "height", "width")[3 - rank:]]
        self.plane = words["depth"] * words["height"] * words["width"]
        self.axes = [_Axis(f, element, size, padding, align) for size in self.sizes]
        self.coordinates = [f.room(element, self.size) for _ in range(rank)]
        taps = WIDTHS[mode] ** rank
        self.places = [f.room("i32", self.size) for _ in range(taps)]
        self.weights = [f.room(element, self.size) for _ in range(taps)]

    def read(self, image: Value, first: Value, count: Value) -> None:
        """The coordinates of the points, one dimension after another."""
        here = self.words["grid"].at(self.element, (image * self.words["points"] + first)
                                     * self.rank)
        with self.f.each(0, count) as i:
            for d, room in enumerate(self.coordinates):
                room.store(here.load(self.element, i * self.rank + (self.rank - 1 - d)), i)

    @contextmanager
    def points(self, count: Value) -> Iterator[Value]:
        """For points `LANES` at a time: the rooms are long enough for what lies past the last."""
        with self.f.each(0, count, LANES) as i:
            yield i

    def chosen(self, i: Value) -> Iterator[tuple[tuple[_Tap, ...], Value]]:
        """Each choice of taps around some points, and which lie inside."""
        kind = wide(self.element, LANES)
        along = [axis.taps(room.load(kind, i), self.mode)
                 for axis, room in zip(self.axes, self.coordinates, strict=True)]
        for taps in product(*along):
            inside = None
            for axis, tap in zip(self.axes, taps, strict=True):
                within = axis.inside(tap.place)
                inside = within if inside is None else inside & within
            assert inside is not None
            yield taps, inside

    def weigh(self, count: Value, outside: int) -> None:
        """Weights and places of all taps put down; those outside weigh nothing."""
        with self.points(count) as i:
            for k, (taps, inside) in enumerate(self.chosen(i)):
                weight = self.weighed([tap.weight for tap in taps], inside)
                self.weights[k].store(weight, i)
                at = None
                for size, tap in zip(self.sizes, taps, strict=True):
                    row = size.to(self.element).spread(LANES)
                    at = tap.place if at is None else at * row + tap.place
                assert at is not None
                self.places[k].store(inside.pick(at, float(outside)).to("i32"), i)

    def weighed(self, factors: list[Value | None], inside: Value) -> Value:
        """The product of weights, 0 outside; what is no number stays so, also outside."""
        total = self.f.const(wide(self.element, LANES), 1.0)
        for k, factor in enumerate(v for v in factors if v is not None):
            total = total * factor if k else factor
        return inside.pick(total, total * 0.0)


@contextmanager
def _each_block(f: Function, block: _Block) -> Iterator[tuple[Value, Value, Value]]:
    """(image, first point, count) of tasks `begin` to `end`: blocks of points of all images."""
    points = block.words["points"]
    blocks = (points + (block.size - 1)) / block.size
    with f.each(f.begin, f.end) as task:
        image, first = task / blocks, task % blocks * block.size
        yield image, first, smaller(points - first, block.size)


def _read_blocks(*how) -> Function:
    """Sums over the taps around each point, of blocks of points `begin` to `end`."""
    f = Function("sample_blocks", "ptr context, i64 begin, i64 end", local=True)
    block = _Block(f, *how)
    words, element = block.words, block.element
    with _each_block(f, block) as (image, first, count):
        block.read(image, first, count)
        block.weigh(count, 0)
        with f.each(0, words["channels"]) as c:
            channel = image * words["channels"] + c
            plane = words["x"].at(element, channel * block.plane)
            to = words["out"].at(element, channel * words["points"] + first)
            with f.each(0, count) as i:
                total = None
                for place, weight in zip(block.places, block.weights, strict=True):
                    read = plane.load(element, place.load("i32", i).to("i64"))
                    part = read * weight.load(element, i)
                    total = part if total is None else total + part
                assert total is not None
                to.store(total, i)
    return f


def _spread_channels(*how) -> Function:
    """What was read gets its part of the gradient: some channels of an image after others."""
    f = Function("spread_channels", "ptr context, i64 begin, i64 end", local=True)
    block = _Block(f, *how)
    words, element = block.words, block.element
    channels, points = words["channels"], words["points"]
    groups = (channels + (CHANNELS - 1)) / CHANNELS
    with f.each(f.begin, f.end) as task:
        image, start = task / groups, task % groups * CHANNELS
        stop = smaller(channels, start + CHANNELS)
        planes = words["out"].at(element, image * channels * block.plane)
        with f.each(start * block.plane, stop * block.plane) as i:
            planes.store(f.const(element, 0.0), i)
        with f.each(0, points, block.size) as first:
            count = smaller(points - first, block.size)
            block.read(image, first, count)
            block.weigh(count, -1)
            with f.each(start, stop) as c:
                plane = planes.at(element, c * block.plane)
                g = words["g"].at(element, (image * channels + c) * points + first)
                with f.each(0, count) as i:
                    _add_to_taps(f, block, plane, g.load(element, i), i)
    return f


def _add_to_taps(f: Function, block: _Block, plane: Value, g: Value, i: Value) -> None:
    for place, weight in zip(block.places, block.weights, strict=True):
        at = place.load("i32", i)
        with f.when(at >= 0):
            there = plane.at(block.element, at.to("i64"))
            there.store(there.load(block.element) + g * weight.load(block.element, i))


def _move_blocks(*how) -> Function:
    """How the grid moves the result: first what each tap gets of all channels, then how fast its
    weight moves along each dimension."""
    f = Function("move_blocks", "ptr context, i64 begin, i64 end", local=True)
    block = _Block(f, *how)
    words, element, rank = block.words, block.element, block.rank
    pulls = [f.room(element, block.size) for _ in block.places]
    moved = [f.room(element, block.size) for _ in range(rank)]
    with _each_block(f, block) as (image, first, count):
        block.read(image, first, count)
        block.weigh(count, 0)
        with f.each(0, count) as i:
            for pull in pulls:
                pull.store(f.const(element, 0.0), i)
        with f.each(0, words["channels"]) as c:
            channel = image * words["channels"] + c
            plane = words["x"].at(element, channel * block.plane)
            g = words["g"].at(element, channel * words["points"] + first)
            with f.each(0, count) as i:
                here = g.load(element, i)
                for place, pull in zip(block.places, pulls, strict=True):
                    read = plane.load(element, place.load("i32", i).to("i64"))
                    pull.store(pull.load(element, i) + here * read, i)
        _combine(block, pulls, moved, count)
        to = words["out"].at(element, (image * words["points"] + first) * rank)
        with f.each(0, count) as i:
            for d, room in enumerate(moved):
                to.store(room.load(element, i), i * rank + (rank - 1 - d))
    return f


def _combine(block: _Block, pulls: list[Value], moved: list[Value], count: Value) -> None:
    kind = wide(block.element, LANES)
    with block.points(count) as i:
        totals: list[Value | None] = [None] * block.rank
        for pull, (taps, inside) in zip(pulls, block.chosen(i), strict=True):
            pulled = pull.load(kind, i)
            for d, total in enumerate(totals):
                factors = [tap.slope if k == d else tap.weight for k, tap in enumerate(taps)]
                part = pulled * block.weighed(factors, inside)
                totals[d] = part if total is None else total + part
        for room, total in zip(moved, totals, strict=True):
            assert total is not None
            room.store(total, i)


_WAYS = {"read": _read_blocks, "spread": _spread_channels, "move": _move_blocks}


def build(way: str, dtype: str, rank: int, mode: str, padding: str, align: bool) -> list[Function]:
    """sampled(out, x, grid, g, images, channels, depth, height, width, points, work)"""
    element = TYPES[dtype]
    body = _WAYS[way](element, rank, mode, padding, align)
    f = Function("sampled", "ptr out, ptr x, ptr grid, ptr g, i64 images, i64 channels, i64 depth, "
                            "i64 height, i64 width, i64 points, i64 work")
    given, context = f.parameters_by_name(), f.room("i64", len(CONTEXT))
    for k, word in enumerate(CONTEXT):
        context.store(given[word], k)
    if way == "spread":
        tasks = f.images * ((f.channels + (CHANNELS - 1)) / CHANNELS)
        parallel(f, body, context, tasks, (1 << 12) / (f.points * CHANNELS) + 1)
    else:
        block = block_of(mode, rank)
        tasks = f.images * ((f.points + (block - 1)) / block)
        parallel(f, body, context, tasks, 1 + (1 << 14) // block // BYTES[element])
    return [body, f]
