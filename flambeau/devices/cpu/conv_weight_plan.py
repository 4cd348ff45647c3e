"""Plans of the weights of convolutions, from data and result, and of sums of a result."""

from __future__ import annotations

from math import prod

from .assembly.conv_words import ROUND, WEIGHT, address_of, table
from .assembly.tile_sizes import APART, CHUNK, ROWS, SQUARE, SQUARES_CHUNK, tile_of
from .conv_windows import (
    COPIES,
    FEW,
    SHARES,
    WORTH,
    Line,
    Plan,
    Source,
    by_squares,
    function,
    solid,
    square_axes,
    straight,
    whole,
)
from .remember import remembered

#: of weights by squares: sums that stay near, channels at most, squares of a unit, elements of the
#: slopes of a round, and tasks of a round at least
_SUMS, _CHANNELS, _UNIT, _ROUND, _TASKS = 96 << 10, 48, 256, 512 << 10, 4


def _cut(count: int, most: int, unit: int) -> tuple[int, int]:
    """Blocks of at most so many, all about as large and of whole units: how many, and of what."""
    blocks = -(-count // most)
    per = -(-count // (blocks * unit)) * unit
    return -(-count // per), per


def _parts(columns: int, chunk: int, wanted: int) -> tuple[int, int]:
    """So many parts of columns, if there are enough chunks of them: how many, and of what."""
    chunks = -(-columns // chunk)
    each = -(-chunks // max(1, min(chunks, wanted))) * chunk
    return -(-columns // each), each


def _seen(source: Source, lines: list[Line], koff, channels: int) -> dict[str, int]:
    """The words that say where windows, or squares, are."""
    depth, high, wide = (line.outs for line in lines)
    return {"framed": int(source.framed and not source.own), "own": source.own, "od": depth,
            "oh": high, "ow": wide, "in_n": source.n, "in_g": source.c * channels,
            "in_d": lines[0].step * source.d, "in_h": lines[1].step * source.h,
            "koff": address_of(koff)}


@remembered
def weight_plan(element, itemsize, shape, strides, kernel, rows, options, groups, outs) -> Plan:
    """The plan of weights, from data and a contiguous result of so many `rows` in a group."""
    n = len(kernel)
    stride, padding, dilation = (whole(v, n, f) for v, f in zip(options, (1, 0, 1), strict=True))
    kernel, shape, strides = whole(kernel, n, 1), solid(shape, n, 1), solid(strides, n, 0)
    axes = [straight(*v) for v in zip(whole(outs, n, 1), kernel, stride, padding, dilation,
                                      strict=True)]
    channels = shape[1] // groups
    if by_squares(axes, groups, rows, channels, element):
        return _by_squares(element, itemsize, shape, strides, square_axes(axes), groups, rows)
    source = Source(shape, strides, axes, channels == 1 and rows <= FEW)
    lines = [axis[0] for axis in axes]
    koff, size = table(source.offsets(lines, channels)), prod(line.outs for line in lines)
    inner, cols, direct = len(koff), shape[0] * size, rows <= FEW
    high, wide = tile_of(element, inner)
    panels, (blocks, per) = -(-rows // wide), _cut(inner, ROWS, high)
    parts, part_cols = _parts(cols, CHUNK, -(-SHARES // (blocks * groups)))
    task = cols * inner if direct else min(part_cols, cols) * per * rows
    turned = source.room
    partial = turned + (0 if direct else groups * panels * wide * cols + 64)
    total = partial + (0 if direct or parts == 1 else
                       parts * groups * -(-inner // high) * panels * high * wide)
    words = WEIGHT.values(
        **_seen(source, lines, koff, channels), groups=groups, rows=rows, inner=inner, cols=cols,
        turned=turned, partial=partial, panels=panels, blocks=blocks, per=per, parts=parts,
        part_cols=part_cols, grain=max(1, WORTH // max(1, task)),
        turn_grain=max(1, COPIES // max(1, wide * size)),
        join_grain=max(1, COPIES // max(1, wide * inner * parts)))
    run = function(element, "weight directly") if direct else function(element, "weight", high)
    return Plan(run, [*source.words, *words], [koff], total + 64, itemsize,
                cols * inner * rows * groups >> 4)


def _by_squares(element, itemsize, shape, strides, axes, groups, rows) -> Plan:
    """The plan of weights whose results are computed by squares."""
    source, channels = Source(shape, strides, axes, False), shape[1] // groups
    lines = [axis[0] for axis in axes]
    koff = table(source.offsets(lines, channels))
    high, wide = tile_of(element, channels)
    panels, across, beside = -(-rows // wide), lines[0].outs * lines[1].outs, lines[2].outs
    # Units are so many lines of squares; a round is so many units.
    many = max(n for n in range(1, across + 1)
               if across % n == 0 and (n == 1 or n * beside <= _UNIT))
    unit, units = many * beside, shape[0] * across // many
    each = SQUARE * groups * panels * wide * unit
    most = min(units, max(1, _ROUND // each))
    fit = _SUMS // (SQUARE * panels * wide) // high * high
    blocks, per = _cut(channels, min(max(high, fit), _CHANNELS), high)
    parts, part_cols = _parts(most * unit, SQUARES_CHUNK, -(-_TASKS // (blocks * groups)))
    slopes = source.room
    partial = slopes + each * most + SQUARE * APART
    total = partial + (0 if parts == 1 else parts * groups * rows * channels * 9)
    words = WEIGHT.values(
        **_seen(source, lines, koff, channels), groups=groups, rows=rows, inner=channels,
        cols=units * unit, turned=slopes, partial=partial, panels=panels, blocks=blocks, per=per,
        parts=parts, part_cols=part_cols,
        grain=max(1, WORTH // (part_cols * per * rows * SQUARE)),
        turn_grain=max(1, COPIES // (wide * unit * SQUARE)),
        join_grain=max(1, COPIES // (wide * parts)))
    words += ROUND.values(unit=unit, units=units, round=most)
    run = function(element, "weight squares", high)
    return Plan(run, [*source.words, *words], [koff], total + 64, itemsize,
                units * unit * SQUARE * channels * rows * groups >> 4)


@remembered
def sums_plan(element, itemsize, shape) -> Plan:
    """The plan of sums over all but the second dimension of a contiguous array."""
    samples, rows, *sizes = shape
    size = prod(sizes)
    words = [samples, rows, size, max(1, 2 * COPIES // max(1, samples * size))]
    return Plan(function(element, "sums"), words, [], 0, itemsize, samples * rows * size)
