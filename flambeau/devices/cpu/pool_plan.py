"""Plans of pooling: where windows begin and end along each dimension, as words for generated code.

All planes are taken as three-dimensional. Places count elements of a plane; taps count those of a
window, whether inside the plane or not.
"""

from __future__ import annotations

from array import array
from math import prod
from typing import NamedTuple

from ...core import spatial as sp
from .assembly.conv_words import address_of, table
from .assembly.pool_words import POOL
from .foundry import machine_code
from .remember import remembered

#: dtype name -> element of generated code
ELEMENTS = {"float32": "float", "float64": "double"}
#: taps along a line, and steps between windows, for which code is written out
_TAPS, _STEPS = 7, 7
#: taps that can be told apart by a byte
MOST_TAPS = 256
#: columns of a window from which on lanes go along its lines, not from window to window
_LONG = 8
#: elements seen that are worth a range of their own
_WORTH = 1 << 16
#: planes must be smaller than this, since places in them are counted in 32 bits
_LARGEST = 1 << 31


class Axis(NamedTuple):
    """Windows along one dimension."""

    size: int
    begin: tuple[int, ...]
    end: tuple[int, ...]
    first: tuple[int, ...]
    over: tuple[int, ...]
    apart: int = 1
    pad: int = 0
    step: int = 1
    taps: int = 1


def axis(size, out, kernel, step, pad, apart=1, with_padding=False) -> Axis:
    """Windows of so many taps, cut where the data ends."""
    origins = [o * step - pad for o in range(out)]
    first = [max(0, -(at // apart)) if at < 0 else 0 for at in origins]
    begin = [at + f * apart for at, f in zip(origins, first, strict=True)]
    end = [min(at + (kernel - 1) * apart + 1, size) for at in origins]
    count = [max(1, min(at + kernel, size + pad) - at if with_padding else e - b)
             for at, b, e in zip(origins, begin, end, strict=True)]
    return Axis(size, tuple(begin), tuple(end), tuple(first), tuple(count), apart, pad, step,
                kernel)


def adaptive_axis(size: int, out: int) -> Axis:
    """Windows that share a dimension out, as evenly as can be."""
    if size % out == 0:
        return axis(size, out, size // out, size // out, 0)
    begin = [o * size // out for o in range(out)]
    end = [-(-(o + 1) * size // out) for o in range(out)]
    zeros = (0,) * out
    return Axis(size, tuple(begin), tuple(end), zeros,
                tuple(e - b for b, e in zip(begin, end, strict=True)))


class Plan:
    """Words, their tables, and the functions that read them."""

    __slots__ = ("address", "axes", "functions", "kind", "tables", "words", "work")

    def __init__(self, element: str, planes: int, axes: tuple[Axis, ...], divisor: int):
        self.axes = (_ONE,) * (3 - len(axes)) + axes
        *_, across = self.axes
        even = across.apart == 1 and 1 < across.taps <= _TAPS and across.step <= _STEPS
        inner = [x for x, (b, e) in enumerate(zip(across.begin, across.end, strict=True))
                 if e - b == across.taps] if even else []
        low, high = (inner[0], inner[-1] + 1) if inner else (0, 0)
        self.kind = (element, *((across.taps, across.step) if inner else (0, 0)))
        self.functions: dict = {}
        outs = [len(a.begin) for a in self.axes]
        seen = prod(outs) * prod(max(1, max(e - b for b, e in zip(a.begin, a.end, strict=True)))
                                 for a in self.axes)
        names: dict[str, int] = dict(zip("d h w od oh ow".split(),
                                         [*(a.size for a in self.axes), *outs], strict=True))
        self.tables = []
        for letter, a in zip("zyx", self.axes, strict=True):
            for what, values in (("begin", a.begin), ("end", a.end), ("first", a.first),
                                 ("count", a.over)):
                self.tables.append(table(values))
                names[letter + what] = address_of(self.tables[-1])
            names |= {letter + what: getattr(a, what) for what in ("apart", "pad", "step", "taps")}
        self.tables.append(table(self._moves()))
        self.words = table(POOL.values(planes=planes, low=low, high=high, divisor=divisor,
                                       moves=address_of(self.tables[-1]),
                                       grain=max(1, _WORTH // seen), **names))
        self.address, self.work = address_of(self.words), planes * seen

    def _moves(self) -> list[int]:
        """How far each tap is from its window's corner; none where there are too many to keep."""
        (_, deep, down), (z, y, x) = [a.size for a in self.axes], self.axes
        if z.taps * y.taps * x.taps > MOST_TAPS:
            return [0]
        return [(i * z.apart * deep + j * y.apart) * down + k * x.apart
                for i in range(z.taps) for j in range(y.taps) for k in range(x.taps)]

    def run(self, name: str, out: int, source: int, kept: int = 0) -> None:
        run = self.functions.get(name)
        if run is None:
            run = machine_code("pool", (f"pool_{name}",), name, *self.kind)[f"pool_{name}"]
            self.functions[name] = run
        run(out, source, kept, self.address, self.work)


_ONE = Axis(1, (0,), (1,), (0,), (1,))


def fits(dtype_name: str, sizes) -> bool:
    """Whether there is code for planes of these sizes."""
    return dtype_name in ELEMENTS and 0 < prod(sizes) < _LARGEST


@remembered
def max_plan(dtype_name, planes, sizes, outs, kernel, stride, padding, dilation) -> Plan:
    axes = tuple(axis(*v) for v in zip(sizes, outs, kernel, stride, padding, dilation, strict=True))
    return Plan(ELEMENTS[dtype_name], planes, axes, 0)


class Windows:
    """Windows of lines and columns that are large, one after another."""

    def __init__(self, dtype_name: str, planes: int, axes: tuple[Axis, ...]):
        down, across = axes if len(axes) == 2 else (adaptive_axis(1, 1), *axes)
        self.function = machine_code("pool_windows", ("windowed",), dtype_name)["windowed"]
        self.words = table([*down.begin, *down.end, *across.begin, *across.end])
        self.numbers = (address_of(self.words), down.size, across.size, len(down.begin),
                        len(across.begin), planes, planes * down.size * across.size)

    def run(self, what: str, out: int, x: int, places: int) -> None:
        """`what` is places: there is no other way."""
        self.function(out, places, x, *self.numbers)


@remembered
def adaptive_plan(dtype_name, planes, sizes, outs) -> Plan | Windows:
    if len(sizes) <= 2 and sizes[-1] >= _LONG * outs[-1]:
        return Windows(dtype_name, planes, tuple(map(adaptive_axis, sizes, outs)))
    return Plan(ELEMENTS[dtype_name], planes, tuple(map(adaptive_axis, sizes, outs)), 0)


@remembered
def mean_plan(dtype_name, planes, sizes, kernel, stride, padding, ceil_mode, with_padding,
              divisor) -> Plan:
    axes = tuple(axis(size, sp.pooled(size, k, s, p, 1, ceil_mode), k, s, p, 1, with_padding)
                 for size, k, s, p in zip(sizes, kernel, stride, padding, strict=True))
    return Plan(ELEMENTS[dtype_name], planes, axes, divisor or 0)


class Places(NamedTuple):
    """How elements of planes are found by place."""

    functions: dict
    words: array
    work: int

    def run(self, name: str, out: int, source: int, places: int) -> None:
        self.functions[f"planes_{name}"](out, source, places, address_of(self.words), self.work)


@remembered
def places_plan(dtype_name: str, planes: int, volume: int, count: int) -> Places:
    """The plan of planes of `volume` elements, of which `count` are named by place."""
    functions = machine_code("planes", ("planes_scatter", "planes_gather"), ELEMENTS[dtype_name])
    words = table([planes, volume, count, max(1, _WORTH // max(1, volume + 2 * count))])
    return Places(functions, words, planes * (volume + count))
