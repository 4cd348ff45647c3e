"""What plans of convolutions have in common: windows, and how they find their elements.

All are taken as three-dimensional.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from .assembly.conv_words import FRAME, address_of, table
from .foundry import machine_code

#: dtype name -> element of generated code
ELEMENTS = {"float32": "float", "float64": "double"}
#: multiply-adds, and copied elements, that are worth a range of their own
WORTH, COPIES = 1_000_000, 1 << 15
#: elements of a frame that a plane gets of its own
_NEAR = 1 << 14
#: channels on either side from which on squares are worth it
_ENOUGH = 16
#: groups with at most so many rows are summed directly
FEW = 2
#: parts and blocks there should be at least, so that there is enough to share
SHARES = 8


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


class Source:
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
            split=self.split, grain=max(1, COPIES // plane))

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


def by_squares(axes, groups: int, rows: int, channels: int, element: str) -> bool:
    """Whether results are computed by squares of two by two: enough of them to be worth it."""
    if element != "float" or min(rows, channels) < _ENOUGH or len(axes[0][0].taps) != 1:
        return False
    return all(len(lines) == 1 and lines[0].step == lines[0].apart == 1 and (
        lines[0].outs % 2 == 0 and abs(lines[0].taps[-1][1] - lines[0].taps[0][1]) == 2
        and len(lines[0].taps) == 3) for lines in axes[1:]) and len(axes[0]) == 1


def square_line(line: Line) -> Line:
    """Squares in place of windows: half as many, each with one more tap."""
    first = min(off for _, off in line.taps)
    return Line(0, 2, line.outs // 2, 2, tuple((t, first + t) for t in range(4)))


def square_axes(axes: list[list[Line]]) -> list[list[Line]]:
    """The same with squares in place of windows."""
    return [axes[0], *([square_line(line) for line in lines] for lines in axes[1:])]


def whole(values, n: int, fill: int) -> tuple[int, ...]:
    """Of three dimensions, those that are missing filled in front."""
    return (fill,) * (3 - n) + tuple(values)


def solid(values, n: int, fill: int) -> tuple[int, ...]:
    """A shape or strides of batch, channels and three dimensions."""
    return (*values[:2], *whole(values[2:], n, fill))
