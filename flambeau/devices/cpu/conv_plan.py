"""Plans of convolutions: shapes and options as the words that generated code reads.

All are taken as three-dimensional. A `Result` computes a convolution, or a transposed one, which is
also the gradient of its data; a `Weight` computes its weights from data and result.
"""

from __future__ import annotations

from array import array
from itertools import product
from math import prod
from typing import NamedTuple

from .assembly.conv_words import (
    FRAME,
    ONE,
    PHASE,
    RESULT,
    ROUND,
    SQUARES,
    THREE,
    TILES,
    WEIGHT,
    address_of,
    table,
)
from .assembly.tile_sizes import (
    APART,
    BLOCK,
    CHUNK,
    DEPTH,
    ROWS,
    SQUARE,
    SQUARES_CHUNK,
    tile_of,
)
from .foundry import machine_code
from .remember import remembered

#: dtype name -> element of generated code
ELEMENTS = {"float32": "float", "float64": "double"}
#: multiply-adds, and copied elements, that are worth a range of their own
_WORTH, _COPIES = 1_000_000, 1 << 15
#: elements of a frame that a plane gets of its own
_NEAR = 1 << 14
#: channels on either side from which on squares are worth it, and elements of a block of them
_ENOUGH, _SQUARES = 16, 1 << 16
#: of weights by squares: sums that stay near, channels at most, squares of a unit, elements of the
#: slopes of a round, and tasks of a round at least
_SUMS, _CHANNELS, _UNIT, _ROUND, _TASKS = 96 << 10, 48, 256, 512 << 10, 4
#: up to so many blocks, it is quicker to turn weights in each of them than to keep them all
_FEW_BLOCKS = 2
#: groups with at most so many rows are summed directly
FEW = 2
#: parts and blocks there should be at least, so that there is enough to share
_SHARES = 8


def function(element: str, part: str, *high: int):
    """The function of a part, with tiles so high: see PARTS of the module of convolutions."""
    name = f"conv_{part.split()[0]}"
    return machine_code("conv", (name,), element, part, *high)[name]


class Line(NamedTuple):
    """Along one dimension: where results begin and how far apart, how many, and their taps."""

    start: int
    apart: int
    outs: int
    step: int        # between windows, in the source
    taps: tuple      # (tap, its offset in the source from the window's place)


def straight(outs: int, kernel: int, stride: int, padding: int, dilation: int) -> list[Line]:
    """The windows of a convolution."""
    taps = tuple((t, t * dilation - padding) for t in range(kernel))
    return [Line(0, 1, outs, stride, taps)]


def backward(size: int, kernel: int, stride: int, padding: int, dilation: int) -> list[Line]:
    """What of its result each element of the data is in: one line for each remainder."""
    lines = []
    for start in range(min(stride, size)):
        taps = tuple((t, (start + padding - t * dilation) // stride) for t in range(kernel)
                     if (start + padding - t * dilation) % stride == 0)
        lines.append(Line(start, stride, -(-(size - start) // stride), 1, taps))
    return lines


class _Source:
    """How windows find their elements: in the source itself, or in a frame copied from it."""

    def __init__(self, shape, strides, axes: list[list[Line]], alone: bool):
        self.samples, self.channels, *sizes = shape
        low = [max([0, *(-off for line in lines for _, off in line.taps)]) for lines in axes]
        reach = [max([1, *(b + (line.outs - 1) * line.step + off + 1
                           for line in lines for _, off in line.taps)])
                 for b, lines in zip(low, axes, strict=True)]
        self.step, self.before, self.own = axes[2][0].step, low, 0
        self.framed = (any(low) or self.step > 1 or strides[4] != 1
                       or any(r > s for r, s in zip(reach, sizes, strict=True)))
        if not self.framed:
            self.words, self.room = [0] * len(FRAME), 0
            self.n, self.c, self.d, self.h = strides[:4]
            return
        self.split = -(-reach[2] // self.step)
        pitch = self.split * self.step
        plane = pitch * reach[1] * reach[0]
        if alone and plane <= _NEAR:
            self.own, self.room = plane, 0
            self.n, self.c, self.h, self.d = 0, 0, pitch, pitch * reach[1]
        else:
            self.c, self.h = pitch, pitch * self.channels
            self.d, self.n = self.h * reach[1], self.h * reach[1] * reach[0]
            self.room = self.n * self.samples + 64
        self.words = FRAME.values(
            planes=self.samples * self.channels, channels=self.channels, d=sizes[0], h=sizes[1],
            w=sizes[2], sn=strides[0], sc=strides[1], sd=strides[2], sh=strides[3], sw=strides[4],
            tn=self.n, tc=self.c, td=self.d, th=self.h, pd=low[0], ph=low[1], pw=low[2],
            fd=reach[0], fh=reach[1], pitch=pitch, step=self.step,
            split=self.split, grain=max(1, _COPIES // plane))

    def offsets(self, lines, inner: int) -> list[int]:
        """Of each row of a window: channels, then taps."""
        spots = []
        for (_, z), (_, y), (_, x) in product(*(line.taps for line in lines)):
            z, y, x = z + self.before[0], y + self.before[1], x + self.before[2]
            across = x % self.step * self.split + x // self.step if self.framed else x
            spots.append(z * self.d + y * self.h + across)
        return [c * self.c + spot for c in range(inner) for spot in spots]


class Plan:
    """A function, words for it, tables that they point to, and scratch memory that it needs."""

    __slots__ = ("address", "bytes", "function", "tables", "words", "work")

    def __init__(self, function, words: list[int], tables: list, elements: int, itemsize: int,
                 work: int):
        self.function = function
        self.words, self.tables = table(words), tables
        self.address = address_of(self.words)
        self.bytes = max(64, elements * itemsize)
        self.work = work


def _together(rows: int) -> int:
    """How many rows of a group are computed at a time, if they are few."""
    return ONE if rows <= FEW else THREE if rows == THREE else TILES


class _Weights(NamedTuple):
    """Where a weight is: by group, by row of the result, by channel of the source, by tap."""

    group: int
    row: int
    channel: int


def _squares(axes, groups: int, rows: int, channels: int, element: str) -> bool:
    """Whether results are computed by squares of two by two: enough of them to be worth it."""
    if element != "float" or min(rows, channels) < _ENOUGH or len(axes[0][0].taps) != 1:
        return False
    return all(len(lines) == 1 and lines[0].step == lines[0].apart == 1 and (
        lines[0].outs % 2 == 0 and abs(lines[0].taps[-1][1] - lines[0].taps[0][1]) == 2
        and len(lines[0].taps) == 3) for lines in axes[1:]) and len(axes[0]) == 1


def _square_line(line: Line) -> Line:
    """Squares in place of windows: half as many, each with one more tap."""
    first = min(off for _, off in line.taps)
    return Line(0, 2, line.outs // 2, 2, tuple((t, first + t) for t in range(4)))


def _phase(lines, source: _Source, groups, rows, channels, weights: _Weights, kernel, out_strides,
           element: str, tables: list, squares: bool) -> list[int]:
    """The words of one phase of a result."""
    _, kh, kw = kernel
    taps = [(z * kh + y) * kw + x for (z, _), (y, _), (x, _) in product(
        *(sorted(v.taps, key=lambda tap: tap[1]) for v in lines))]
    wk = table([c * weights.channel + t for c in range(channels) for t in taps])
    ordered = [line._replace(taps=tuple(sorted(line.taps, key=lambda tap: tap[1])))
               for line in lines]
    lines = [lines[0], *map(_square_line, lines[1:])] if squares else ordered
    koff = table(source.offsets(lines, channels))
    tables += [koff, wk]
    inner, counts = len(koff), [line.outs for line in lines]
    together, (high, wide) = SQUARES if squares else _together(rows), tile_of(element, rows)
    high = together if together in (ONE, THREE) else high
    cols = source.samples * prod(counts)
    many = max(1, min(BLOCK, _SQUARES // (16 * wide * channels))) if squares else BLOCK
    block, panels = many * wide, -(-rows // high)
    blocks = -(-cols // block)
    splits = 1 if together in (ONE, THREE) else max(
        1, min(panels // 2, -(-_SHARES // (blocks * groups))))
    per = -(-panels // splits)
    splits = -(-panels // per)
    if together in (ONE, THREE):
        work = prod(counts) * max(inner, 1) * high
    else:
        work = min(block, cols) * max(inner, 1) * min(per * high, rows)
    n, m, *apart = out_strides
    return PHASE.values(
        groups=groups, rows=rows, inner=inner, cols=cols,
        kc=-(-inner // max(1, -(-inner // DEPTH))) or 1, od=counts[0],
        oh=counts[1], ow=counts[2], in_n=source.n, in_g=source.c * channels,
        in_d=lines[0].step * source.d, in_h=lines[1].step * source.h,
        out_0=sum(line.start * step for line, step in zip(lines, apart, strict=True)), out_n=n,
        out_g=rows * m, out_m=m, **{f"out_{axis}": line.apart * step for axis, line, step in
                                    zip("dhw", lines, apart, strict=True)},
        koff=address_of(koff), wk=address_of(wk), wg=weights.group, wr=weights.row, panels=panels,
        blocks=blocks, splits=splits, per=per, grain=max(1, _WORTH // max(work, 1)),
        pack_grain=max(1, _COPIES // max(1, inner * high)),
        own=source.own, three=int(_square(koff)), wide=many,
        near=int(squares and blocks <= _FEW_BLOCKS))


def _square(koff) -> bool:
    """Whether windows are three lines of three elements side by side."""
    return len(koff) == 9 and all(koff[i] + j == koff[i + j] for i in (0, 3, 6) for j in (1, 2))


def _result(element, itemsize, shape, strides, axes, groups, rows, weights, kernel, out_strides,
            biased) -> Plan:
    channels, tables = shape[1] // groups, list[array]()
    squares = _squares(axes, groups, rows, channels, element)
    seen = axes if not squares else [
        axes[0], *([_square_line(line) for line in lines] for lines in axes[1:])]
    source = _Source(shape, strides, seen, channels == 1 and rows <= FEW)
    found = [_phase(lines, source, groups, rows, channels, weights, kernel, out_strides, element,
                    tables, squares) for lines in product(*axes) if all(v.outs for v in lines)]
    place = {name: i for i, name in enumerate(PHASE.names)}
    tile = tile_of(element, rows)[0]
    high = tile if squares else _together(rows) or tile
    between = SQUARE * APART if squares else 0
    packed = max(groups * p[place["panels"]] * (
        high if p[place["near"]] else (p[place["inner"]] + 1) * high + between) for p in found)
    work = sum(p[place["cols"]] * p[place["inner"]] * rows * groups for p in found)
    words = [*RESULT.values(framed=int(source.framed and not source.own), weights=source.room,
                            bias=int(biased), phases=len(found), bytes=itemsize, finish=0,
                            finish_with=0), *source.words]
    for phase in found:
        words += phase
    part = f"result {SQUARES if squares else _together(rows)}"
    run = function(element, part, *([tile] if high == tile else []))
    return Plan(run, words, tables, source.room + packed + 64, itemsize, work >> 4)


def whole(values, n: int, fill: int) -> tuple[int, ...]:
    """Of three dimensions, those that are missing filled in front."""
    return (fill,) * (3 - n) + tuple(values)


def solid(values, n: int, fill: int) -> tuple[int, ...]:
    """A shape or strides of batch, channels and three dimensions."""
    return (*values[:2], *whole(values[2:], n, fill))


@remembered
def result_plan(element, itemsize, shape, strides, kernel, rows, options, groups, outs,
                out_strides, biased, transposed) -> Plan:
    """The plan of a convolution of a source, or with `transposed` of its transpose.

    `rows` are the channels of the result in a group. The weights are contiguous: of (rows, channels
    of the source) in each group, or transposed the other way around, and taps.
    """
    n = len(kernel)
    stride, padding, dilation = (whole(v, n, f) for v, f in zip(options, (1, 0, 1), strict=True))
    kernel, shape = whole(kernel, n, 1), solid(shape, n, 1)
    strides, out_strides = solid(strides, n, 0), solid(out_strides, n, 0)
    lines = backward if transposed else straight
    axes = [lines(*v) for v in zip(whole(outs, n, 1), kernel, stride, padding, dilation,
                                   strict=True)]
    taps, channels = prod(kernel), shape[1] // groups
    weights = _Weights(rows * channels * taps, *((taps, rows * taps) if transposed else
                                                 (channels * taps, taps)))
    return _result(element, itemsize, shape, strides, axes, groups, rows, weights, kernel,
                   out_strides, biased)


@remembered
def weight_plan(element, itemsize, shape, strides, kernel, rows, options, groups, outs) -> Plan:
    """The plan of weights, from data and a contiguous result of so many `rows` in a group."""
    n = len(kernel)
    stride, padding, dilation = (whole(v, n, f) for v, f in zip(options, (1, 0, 1), strict=True))
    kernel, shape, strides = whole(kernel, n, 1), solid(shape, n, 1), solid(strides, n, 0)
    axes = [straight(*v) for v in zip(whole(outs, n, 1), kernel, stride, padding, dilation,
                                      strict=True)]
    if _squares(axes, groups, rows, shape[1] // groups, element):
        return _weight_by_squares(element, itemsize, shape, strides, axes, groups, rows)
    source = _Source(shape, strides, axes, shape[1] == groups and rows <= FEW)
    lines = [axis[0] for axis in axes]
    koff = table(source.offsets(lines, shape[1] // groups))
    inner, counts = len(koff), [line.outs for line in lines]
    high, wide = tile_of(element, inner)
    cols, panels, direct = shape[0] * prod(counts), -(-rows // wide), rows <= FEW
    blocks = -(-inner // ROWS)
    per = -(-inner // (blocks * high)) * high
    blocks = -(-inner // per)
    chunks = -(-cols // CHUNK)
    parts = max(1, min(chunks, -(-_SHARES // (blocks * groups))))
    part_cols = -(-chunks // parts) * CHUNK
    parts = -(-cols // part_cols)
    task = cols * inner if direct else min(part_cols, cols) * per * rows
    turned = source.room
    partial = turned + (0 if direct else groups * panels * wide * cols + 64)
    total = partial + (0 if direct or parts == 1 else
                       parts * groups * -(-inner // high) * panels * high * wide)
    words = WEIGHT.values(
        own=source.own, framed=int(source.framed and not source.own), groups=groups, rows=rows,
        inner=inner, cols=cols, od=counts[0],
        oh=counts[1], ow=counts[2], in_n=source.n, in_g=source.c * (shape[1] // groups),
        in_d=lines[0].step * source.d, in_h=lines[1].step * source.h, koff=address_of(koff),
        turned=turned, partial=partial, panels=panels, blocks=blocks, per=per, parts=parts,
        part_cols=part_cols, grain=max(1, _WORTH // max(1, task)),
        turn_grain=max(1, _COPIES // max(1, wide * prod(counts))),
        join_grain=max(1, _COPIES // max(1, wide * inner * parts)))
    work = cols * inner * rows * groups
    run = function(element, "weight directly") if direct else function(element, "weight", high)
    return Plan(run, [*source.words, *words], [koff], total + 64, itemsize, work >> 4)


def _weight_by_squares(element, itemsize, shape, strides, axes, groups, rows) -> Plan:
    """The plan of weights whose results are computed by squares."""
    seen = [axes[0], *([_square_line(line) for line in lines] for lines in axes[1:])]
    source, channels = _Source(shape, strides, seen, False), shape[1] // groups
    lines = [axis[0] for axis in seen]
    koff, counts = table(source.offsets(lines, channels)), [line.outs for line in lines]
    high, wide = tile_of(element, channels)
    panels, across = -(-rows // wide), counts[0] * counts[1]
    # Units are so many lines of squares; a round is so many units.
    many = max(n for n in range(1, across + 1)
               if across % n == 0 and (n == 1 or n * counts[2] <= _UNIT))
    unit, units = many * counts[2], shape[0] * across // many
    each = SQUARE * groups * panels * wide * unit
    most = min(units, max(1, _ROUND // each))
    fit = _SUMS // (SQUARE * panels * wide) // high * high
    blocks = -(-channels // min(max(high, fit), _CHANNELS))
    per = -(-channels // (blocks * high)) * high
    blocks = -(-channels // per)
    chunks = -(-most * unit // SQUARES_CHUNK)
    parts = max(1, min(chunks, -(-_TASKS // (blocks * groups))))
    part_cols = -(-chunks // parts) * SQUARES_CHUNK
    parts = -(-most * unit // part_cols)
    slopes = source.room
    partial = slopes + each * most + SQUARE * APART
    total = partial + (0 if parts == 1 else parts * groups * rows * channels * 9)
    words = WEIGHT.values(
        own=0, framed=int(source.framed), groups=groups, rows=rows, inner=channels,
        cols=units * unit, od=counts[0], oh=counts[1], ow=counts[2], in_n=source.n,
        in_g=source.c * channels, in_d=lines[0].step * source.d, in_h=lines[1].step * source.h,
        koff=address_of(koff), turned=slopes, partial=partial, panels=panels, blocks=blocks,
        per=per, parts=parts, part_cols=part_cols,
        grain=max(1, _WORTH // (part_cols * per * rows * SQUARE)),
        turn_grain=max(1, _COPIES // (wide * unit * SQUARE)),
        join_grain=max(1, _COPIES // (wide * parts)))
    words += ROUND.values(unit=unit, units=units, round=most)
    run = function(element, "weight squares", high)
    return Plan(run, [*source.words, *words], [koff], total + 64, itemsize,
                units * unit * SQUARE * channels * rows * groups >> 4)


@remembered
def sums_plan(element, itemsize, shape) -> Plan:
    """The plan of sums over all but the second dimension of a contiguous array."""
    samples, rows, *sizes = shape
    size = prod(sizes)
    words = [samples, rows, size, max(1, 2 * _COPIES // max(1, samples * size))]
    return Plan(function(element, "sums"), words, [], 0, itemsize, samples * rows * size)
