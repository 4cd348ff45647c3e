"""Images read at the points of a grid, whose coordinates run from -1 to 1.

For some points at a time, where the taps around each lie and what they weigh is computed on
vectors; then every channel is read there, one point after another.
"""

from __future__ import annotations

from .fourier_passes import unzipped
from .lanes import smaller
from .writer import BYTES, Function, Value, parallel, wide

LANES = 8
#: points whose taps are kept: their weights and places stay in the nearest cache
BLOCK = 256
TYPES = {"float32": "float", "float64": "double"}
#: words of a context
CONTEXT = ("out", "x", "grid", "channels", "height", "width", "points")


class _Axis:
    """Coordinates along one dimension of so many pixels."""

    def __init__(self, f: Function, element: str, size: Value, padding: str, align: bool):
        self.f, self.element, self.padding, self.align = f, element, padding, align
        self.size = size.to(element)
        self.last = self.size - 1.0

    def placed(self, x: Value) -> Value:
        """Where a point is, in pixels, after what is past the edges was brought back."""
        lanes = x.lanes
        size, last = self.size.spread(lanes), self.last.spread(lanes)
        at = (x + 1.0) * (last * 0.5) if self.align else ((x + 1.0) * size - 1.0) * 0.5
        if self.padding == "reflection":
            at = self._reflected(at, size, last)
        return at if self.padding == "zeros" else self._clipped(at, last)

    def _clipped(self, at: Value, last: Value) -> Value:
        """Held inside; what is no number is at 0."""
        return (at > 0.0).pick((at < last).pick(at, last), 0.0)

    def _reflected(self, at: Value, size: Value, last: Value) -> Value:
        f, low = self.f, 0.0 if self.align else -0.5
        span = last if self.align else size
        away = f.intrinsic("fabs", at - low)
        flips = f.intrinsic("floor", away / span)
        rest = away - flips * span
        half = flips * 0.5
        even = f.intrinsic("floor", half) == half
        folded = even.pick(rest + low, span - rest + low)
        return (span == 0.0).pick(0.0, folded)

    def taps(self, x: Value, mode: str) -> list[tuple[Value, Value | None]]:
        """(place, weight) of the pixels around a point."""
        f, at = self.f, self.placed(x)
        if mode == "nearest":
            return [(f.intrinsic("rint", at), None)]
        low = f.intrinsic("floor", at)
        share = at - low
        return [(low, 1.0 - share), (low + 1.0, share)]

    def inside(self, place: Value) -> Value:
        return (place >= 0.0) & (place < self.size.spread(place.lanes))


def _points(f: Function, element: str, axes: list[_Axis], mode: str, grid: Value, row: Value,
            places: list[Value], weights: list[Value], i: Value, lanes: int) -> None:
    """Taps of so many points, put down."""
    if lanes > 1:
        x, y = unzipped(*(grid.load(wide(element, lanes), i * 2 + k * lanes) for k in (0, 1)))
    else:
        x, y = (grid.load(element, i * 2 + k) for k in (0, 1))
    down, across = axes[0].taps(y, mode), axes[1].taps(x, mode)
    pairs = [(one, other) for one in down for other in across]
    for k, ((v, p), (u, q)) in enumerate(pairs):
        inside = axes[0].inside(v) & axes[1].inside(u)
        one = f.const(wide(element, lanes), 1.0)
        weight = one if p is None or q is None else p * q
        # What is no number stays so, also outside.
        weights[k].store(inside.pick(weight, weight * 0.0), i)
        at = (v * row.spread(lanes) + u)
        places[k].store(inside.pick(at, 0.0).to("i32"), i)


def _blocks(element: str, mode: str, padding: str, align: bool) -> Function:
    """Blocks of points `begin` to `end`, of all images."""
    f = Function("sample_blocks", "ptr context, i64 begin, i64 end", local=True)
    out, x, grid = (f.context.load("ptr", k) for k in range(3))
    channels, height, width, points = (f.context.load("i64", k) for k in range(3, 7))
    axes = [_Axis(f, element, size, padding, align) for size in (height, width)]
    taps, row = 4 if mode == "bilinear" else 1, width.to(element)
    places = [f.room("i32", BLOCK) for _ in range(taps)]
    weights = [f.room(element, BLOCK) for _ in range(taps)]
    blocks = (points + (BLOCK - 1)) / BLOCK
    with f.each(f.begin, f.end) as task:
        image, first = task / blocks, task % blocks * BLOCK
        count = smaller(points - first, BLOCK)
        here = grid.at(element, (image * points + first) * 2)
        whole = count & -LANES
        for start, end, lanes in ((f.const("i64", 0), whole, LANES), (whole, count, 1)):
            with f.each(start, end, lanes) as i:
                _points(f, element, axes, mode, here, row, places, weights, i, lanes)
        with f.each(0, channels) as c:
            plane = x.at(element, (image * channels + c) * height * width)
            to = out.at(element, (image * channels + c) * points + first)
            with f.each(0, count) as i:
                total = None
                for place, weight in zip(places, weights, strict=True):
                    read = plane.load(element, place.load("i32", i).to("i64"))
                    part = read * weight.load(element, i)
                    total = part if total is None else total + part
                assert total is not None
                to.store(total, i)
    return f


def build(dtype: str, mode: str, padding: str, align: bool) -> list[Function]:
    """sampled(out, x, grid, images, channels, height, width, points, work)"""
    element = TYPES[dtype]
    blocks = _blocks(element, mode, padding, align)
    f = Function("sampled", "ptr out, ptr x, ptr grid, i64 images, i64 channels, i64 height, "
                            "i64 width, i64 points, i64 work")
    given, context = f.parameters_by_name(), f.room("i64", len(CONTEXT))
    for k, word in enumerate(CONTEXT):
        context.store(given[word], k)
    tasks = f.images * ((f.points + (BLOCK - 1)) / BLOCK)
    parallel(f, blocks, context, tasks, 1 + (1 << 14) // BLOCK // BYTES[element])
    return [blocks, f]
