"""How a small product is gone about, and about how long that takes: see small.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..bridge import jit
from ..registers import many_registers
from .kernels import SIZES
from .tile import COLUMN, ROWS

#: bytes of B, transposed, that are put on the stack
_SCRATCH = 1 << 14
#: cycles from a sum to the next of a chain, and how many such sums begin in one
_LATENCY, _AT_ONCE = 4, 2
#: multiply-adds that are written out one after the other, in place of a loop in k
_WRITTEN_OUT = 256
#: instructions of the longest code
_LONGEST = 768
#: bytes of the narrowest vector
_NARROWEST = 16


class Vector(NamedTuple):
    """Lanes side by side that are computed together: the first few of so many, from one on."""

    start: int
    width: int
    few: int


class Way(NamedTuple):
    """How a product is gone about: rows one by one, lanes together; strides in bytes.

    Either the rows and columns of C, or the other way round: then C is stored transposed.
    """

    size: int
    rows: int
    lanes: int
    depth: int
    s: tuple[int, int]  # of the operand that is read by elements: from row to row, from k to k
    v: tuple[int, int]  # of the one that is read by vectors: from k to k, from lane to lane
    c: tuple[int, int]  # from row to row, from lane to lane
    d: tuple[int, int]  # of what is added, likewise
    sideways: bool

    @property
    def vectors(self) -> list[Vector]:
        """Whole ones, and what is left in the narrowest that takes it."""
        most, found, start = widest(self.size), [], 0
        while start < self.lanes:
            left = self.lanes - start
            width = most if left >= most else max(_NARROWEST // self.size,
                                                  1 << (left - 1).bit_length())
            found.append(Vector(start, width, min(left, width)))
            start += width
        return found

    @property
    def is_straight(self) -> bool:
        """Whether lanes of an operand lie side by side."""
        return self.v[1] == self.size or self.lanes == 1

    def is_possible(self) -> bool:
        scratch = sum(x.width for x in self.vectors) * self.depth * self.size
        return self.d[1] in (0, self.size) and self.length() <= _LONGEST and (
            self.is_straight or (self.v[0] == self.size and scratch <= _SCRATCH))

    def length(self) -> int:
        """About how many instructions its code has."""
        found = 0
        for pair in self.pairs():
            height = self.height(len(pair))
            tiles = height + (self.rows % height if self.rows > height else 0)
            whole = self.held(len(pair)) or self.is_written_out(height * len(pair))
            found += len(pair) * (tiles * (self.depth if whole else 8) + self.squares(pair[0]))
        return found

    def squares(self, x: Vector) -> int:
        """Instructions that transpose what is read and what is stored of a vector."""
        one, two = self.depth * (not self.is_straight), self.rows * self.sideways
        return x.width.bit_length() * x.width * (-(-one // x.width) - (-two // x.width))

    def cost(self) -> int:
        """About how many cycles it takes."""
        found = 0
        for pair in self.pairs():
            chains = -(-self.rows // self.height(len(pair)))
            sums = self.rows * len(pair)
            found += self.depth * max(-(-sums // _AT_ONCE), _LATENCY * chains)
            found += len(pair) * self.squares(pair[0])
        return found

    def pairs(self) -> Iterator[list[Vector]]:
        """Vectors of one width that are computed together."""
        left = self.vectors
        while left:
            some = 2 if len(left) > 1 and left[0].width == left[1].width else 1
            yield left[:some]
            left = left[some:]

    def held(self, vectors: int) -> bool:
        """Whether all of an operand stays in registers."""
        return self.depth * vectors <= (16 if many_registers() else 6)

    def is_written_out(self, sums: int) -> bool:
        """Whether there is no loop in k, with so many sums in a tile."""
        return self.depth * sums <= _WRITTEN_OUT

    def height(self, vectors: int) -> int:
        """Rows that are summed together: as many as fit, so that few are left over."""
        taken = self.depth * vectors if self.held(vectors) else vectors
        most = max(1, min((30 if many_registers() else 14) - taken, 12 * vectors) // vectors)
        if self.rows <= most:
            return self.rows
        return next((r for r in range(most, most // 2, -1) if self.rows % r == 0), most)


def widest(size: int) -> int:
    """Elements of a whole register."""
    return jit().bits // (8 * size)


#: bytes of an element -> the dtype whose sums are of the same
DTYPES = {SIZES[name]: name for name in ("float32", "float64")}


def ways(words: dict[str, int]) -> list[Way]:
    """Those there are for a product that words describe."""
    m, n, k, size, d_row = (words[name] for name in ("m", "n", "k", "c_size", "d_row"))
    a, b = ((words[x], words[y]) for x, y in (("a_row", "a_step"), ("b_step", "b_lane")))
    c, d = (words["c_row"], size), {ROWS: (d_row, size), COLUMN: (d_row, 0)}.get(
        words["kind"], (0, 0))
    found = (Way(size, m, n, k, a, b, c, d, False),
             Way(size, n, m, k, b[::-1], a[::-1], c[::-1], d[::-1], True))
    return [way for way in found if way.is_possible()]
