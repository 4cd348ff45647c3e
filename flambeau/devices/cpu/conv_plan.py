"""Plans of convolutions, and of transposed ones, which are also the gradients of their data."""

from __future__ import annotations

import functools
from array import array
from itertools import product
from math import prod
from typing import NamedTuple

from .assembly.conv_words import ONE, PHASE, RESULT, SQUARES, THREE, TILES, address_of, table
from .assembly.tile_sizes import APART, BLOCK, DEPTH, SQUARE, tile_of
from .conv_windows import (
    COPIES,
    FEW,
    SHARES,
    WORTH,
    Plan,
    Source,
    backward,
    by_squares,
    function,
    solid,
    square_axes,
    square_line,
    straight,
    whole,
)
from .remember import remembered

#: elements of a block of squares
_SQUARES = 1 << 16
#: up to so many blocks, it is quicker to turn weights in each of them than to keep them all
_FEW_BLOCKS = 2


def _together(rows: int) -> int:
    """How many rows of a group are computed at a time, if they are few."""
    return ONE if rows <= FEW else THREE if rows == THREE else TILES


class _Weights(NamedTuple):
    """Where a weight is: by group, by row of the result, by channel of the source, by tap."""

    group: int
    row: int
    channel: int


@functools.cache
def _ordered(taps: tuple) -> tuple:
    """Taps by where they read."""
    return tuple(sorted(taps, key=lambda tap: tap[1]))


@functools.lru_cache(maxsize=1024)
def _weight_places(kernel, taps: tuple, step: int, channels: int) -> array:
    """Where the weights of a row are: channels that lie a step apart, then taps."""
    _, kh, kw = kernel
    spots = [(z * kh + y) * kw + x for (z, _), (y, _), (x, _) in product(*taps)]
    return table([c * step + t for c in range(channels) for t in spots])


def _phase(lines, source: Source, groups, rows, channels, weights: _Weights, kernel, out_strides,
           element: str, tables: list, squares: bool) -> list[int]:
    """The words of one phase of a result."""
    taps = tuple([_ordered(line.taps) for line in lines])
    wk = _weight_places(kernel, taps, weights.channel, channels)
    lines = [lines[0], *map(square_line, lines[1:])] if squares else [
        line._replace(taps=own) for line, own in zip(lines, taps)]
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
        1, min(panels // 2, -(-SHARES // (blocks * groups))))
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
        blocks=blocks, splits=splits, per=per, grain=max(1, WORTH // max(work, 1)),
        pack_grain=max(1, COPIES // max(1, inner * high)),
        own=source.own, three=int(_square(koff)), wide=many,
        near=int(squares and blocks <= _FEW_BLOCKS))


def _square(koff) -> bool:
    """Whether windows are three lines of three elements side by side."""
    return len(koff) == 9 and all(koff[i] + j == koff[i + j] for i in (0, 3, 6) for j in (1, 2))


def _result(element, itemsize, shape, strides, axes, groups, rows, weights, kernel, out_strides,
            biased) -> Plan:
    channels, tables = shape[1] // groups, list[array]()
    squares = by_squares(axes, groups, rows, channels, element)
    source = Source(shape, strides, square_axes(axes) if squares else axes,
                    channels == 1 and rows <= FEW)
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
