"""What every kernel of a dtype shares: the width of vectors, the tile, and a few instructions."""

from __future__ import annotations

from dataclasses import dataclass

from .tile_sizes import BLOCK, tile_of, width_of
from .writer import BYTES, Function, Value, wide


@dataclass(frozen=True)
class Lanes:
    """The shape of a tile: `rows` broadcast numbers by so many vectors."""

    element: str
    width: int
    rows: int
    vectors: int

    @property
    def vector(self) -> str:
        return wide(self.element, self.width)

    @property
    def tile(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.width

    @property
    def block(self) -> int:
        """Columns of a block."""
        return BLOCK * self.tile

    @property
    def bytes(self) -> int:
        return BYTES[self.element]

    def load(self, place: Value, i=0) -> Value:
        element = place if isinstance(i, int) and i == 0 else place.at(self.element, i)
        return element.load(self.vector)

    def broadcast(self, place: Value, i=0) -> Value:
        return place.load(self.element, i).spread(self.width)

    def count(self, f: Function) -> Value:
        """0, 1, 2, ..."""
        return f.vector("i64", range(self.width))

    def masked(self, f: Function, place: Value, mask: Value, otherwise: Value | None = None):
        """Elements where the mask holds; nothing else is read."""
        suffix = f"v{self.width}f{8 * self.bytes}.p0"
        name, kind = f"llvm.masked.load.{suffix}", f"<{self.width} x i1>"
        f.declare(name, self.vector, ["ptr", kind, self.vector])
        rest = "zeroinitializer" if otherwise is None else otherwise.name
        return f.new(self.vector, f"call {self.vector} @{name}(ptr align {self.bytes} {place.name},"
                                  f" {kind} {mask.name}, {self.vector} {rest})")

    def zero(self, f: Function) -> Value:
        return Value(f, self.vector, "zeroinitializer")

    def total(self, f: Function, vector: Value) -> Value:
        """All lanes added up, halves first."""
        lanes = self.width
        while lanes > 2:
            lanes //= 2
            vector = vector.shuffle(range(lanes)) + vector.shuffle(range(lanes, 2 * lanes))
        return vector.lane(0) + vector.lane(1)


def lanes_of(element: str, rows: int | None = None) -> Lanes:
    """The tile of an element on this machine, if need be of so many rows."""
    most, columns = tile_of(element)
    width = width_of(element)
    return Lanes(element, width, rows or most, columns // width)


def in_a_row(offsets: Value, count: int, step: int = 1) -> Value:
    """Whether so many offsets in memory go up by a step: their ends do not tell.

    Lines that end between them, and a last one that is repeated, can have the same ends.
    """
    f, first = offsets.f, offsets.load("i64").spread(count)
    wanted = first + f.vector("i64", range(0, count * step, step))
    return (offsets.load(f"<{count} x i64>") == wanted).mask() == -1


def smaller(a: Value, b) -> Value:
    b = a.f.const(a.type, b)
    return (a < b).pick(a, b)


def larger(a: Value, b) -> Value:
    b = a.f.const(a.type, b)
    return (a > b).pick(a, b)


def ceiling(a: Value, by) -> Value:
    """a / by, rounded up."""
    by = a.f.const("i64", by)
    return (a + by - 1) / by


def times_plus(f: Function, a: Value, b: Value, c: Value) -> Value:
    return f.intrinsic("fmuladd", a, b, c)
