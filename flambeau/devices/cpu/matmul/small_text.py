"""The code of a small product: see small.py."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ....core import dtype as dt
from ..bridge import wrapper_ir
from ..tiles import Code, Lanes, module, turned
from .small_way import DTYPES, Vector, Way, widest
from .tile import COLUMN, PLAIN, ROWS


def small_text(name: str, way: Way, words: dict[str, int], added: bool) -> str:
    """The module with the function of this name, which goes about a product in a way."""
    return _Small(name, way, words, added).text()


class _Small:
    """Writes one product."""

    def __init__(self, name: str, way: Way, words: dict[str, int], added: bool):
        self.name, self.way, self.added = name, way, added
        self.kind = words["kind"]
        self.adds = self.kind in (ROWS, COLUMN)
        self.alpha, self.beta = (_number(words[n], way.size) for n in ("alpha", "beta"))
        exchanged = way.sideways ^ bool(words["turned"])
        self.s, self.v = ("%b", "%a") if exchanged else ("%a", "%b")
        self.letters = "ppp" + "p" * added + "q"
        given = ["ptr %c", "ptr %a", "ptr %b", *["ptr %d"] * added, "i64 %words"]
        self.code = Code(name, ", ".join(given), self._lanes(widest(way.size)), False)

    def _lanes(self, width: int) -> Lanes:
        size = self.way.size
        return Lanes(getattr(dt, DTYPES[size]), widest(size) // width)

    def text(self) -> str:
        for pair in self.way.pairs():
            self._panel(pair)
        return module([self.code], wrapper_ir(self.name, self.letters, True))

    # -- a few vectors of lanes ------------------------------------------------------------------

    def _panel(self, pair: list[Vector]) -> None:
        """All rows of a vector or two."""
        code, way = self.code, self.way
        code.lanes = self._lanes(pair[0].width)
        height = way.height(len(pair))
        whole = way.rows - way.rows % height
        right = self._right(pair)

        def tile(r, rows: int) -> list:
            self._store(self._sums(code.at(self.s, (r, way.s[0])), rows, right), r, rows, pair)
            return []

        if whole > height:
            code.loop(0, whole, height, [], lambda r, _: tile(r, height))
        else:
            tile(0, height)
        if whole < way.rows:
            tile(whole, way.rows - whole)

    def _right(self, pair: list[Vector]) -> _Right:
        """The operand that is read by vectors: from memory with every k, or kept in registers."""
        way, code = self.way, self.code
        held = way.held(len(pair))
        if way.is_straight:
            base = code.at(self.v, pair[0].start * way.size)
            found = _Right(self, pair, base, way.v[0], None)
            return found._replace(known=[found.at(base, k) for k in range(way.depth)]) if (
                held) else found
        columns = [self._turned(x) for x in pair]
        if held:
            return _Right(self, pair, "", 0, [list(vectors) for vectors in zip(*columns)])
        width = pair[0].width * way.size
        scratch = code.emit(f"alloca [{way.depth * len(pair) * width} x i8], align 64")
        for n, vectors in enumerate(columns):
            for k, vector in enumerate(vectors):
                code.store(vector, code.at(scratch, (k * len(pair) + n) * width))
        every = [Vector(n * x.width, x.width, x.width) for n, x in enumerate(pair)]
        return _Right(self, every, scratch, len(pair) * width, None)

    def _turned(self, x: Vector) -> list[str]:
        """All k of a vector whose lanes lie apart: squares of what lies side by side are turned."""
        way, code, found = self.way, self.code, []
        for k in range(0, way.depth, x.width):
            few = min(x.width, way.depth - k)
            rows = [self.some(few, code.at(self.v, k * way.size + (x.start + j) * way.v[1]))
                    if j < x.few else "zeroinitializer" for j in range(x.width)]
            found += turned(code, rows)[:few]
        return found

    def some(self, few: int, place: str) -> str:
        """The first elements of a vector, and zeros in its other lanes.

        No lane is masked: where one lies in a page that nobody has touched, that takes long.
        """
        code, lanes = self.code, self.code.lanes
        if few == lanes.width:
            return code.load(place)
        kind = f"<{few} x {lanes.one}>"
        picked = ", ".join(f"i32 {min(lane, few)}" for lane in range(lanes.width))
        return code.emit(f"shufflevector {kind} {code.load(place, kind)}, {kind} zeroinitializer, "
                         f"<{lanes.width} x i32> <{picked}>")

    def _put(self, value: str, place: str, few: int) -> None:
        """Store the first lanes."""
        code, lanes = self.code, self.code.lanes
        if few == lanes.width:
            code.store(value, place)
            return
        picked = ", ".join(f"i32 {lane}" for lane in range(few))
        code.store(code.emit(f"shufflevector {lanes.many} {value}, {lanes.many} poison, "
                             f"<{few} x i32> <{picked}>"), place, f"<{few} x {lanes.one}>")

    # -- sums ------------------------------------------------------------------------------------

    def _sums(self, s: str, rows: int, right: _Right) -> list[list[str]]:
        """Those of a tile: of each row, its vectors."""
        code, way, many = self.code, self.way, len(right.pair)

        def some(s: str, v: str, ks, sums: list[str]) -> list[str]:
            for k in ks:
                vectors = right.at(v, k)
                for r in range(rows):
                    left = code.splat(code.load(code.at(s, r * way.s[0] + k * way.s[1]),
                                                code.lanes.one))
                    for n, vector in enumerate(vectors):
                        sums[r * many + n] = code.fma(left, vector, sums[r * many + n])
            return sums

        sums = ["zeroinitializer"] * (rows * many)
        written_out = right.known is not None or way.is_written_out(rows * many)
        steps = max(1, min(8, 64 // (rows * many)))
        looped = 0 if written_out else way.depth - way.depth % steps
        if looped:
            sums = code.loop(
                0, looped, steps, [(code.lanes.many, value) for value in sums],
                lambda k, sums: some(code.at(s, (k, way.s[1])),
                                     code.at(right.base, (k, right.step)), range(steps), [*sums]))
        sums = some(s, right.base, range(looped, way.depth), [*sums])
        return [sums[r * many:(r + 1) * many] for r in range(rows)]

    # -- what becomes of them --------------------------------------------------------------------

    def _store(self, sums: list[list[str]], r, rows: int, pair: list[Vector]) -> None:
        code, way = self.code, self.way
        c, d = code.at("%c", (r, way.c[0])), code.at("%d", (r, way.d[0])) if self.adds else ""
        for n, x in enumerate(pair):
            place = code.at(c, x.start * way.c[1])
            values = [self._combined(row[n], x, code.at(d, k * way.d[0]) if self.adds else "")
                      for k, row in enumerate(sums)]
            if way.sideways:
                self._store_turned(values, place, x)
            else:
                for k, value in enumerate(values):
                    self._put(value, code.at(place, k * way.c[0]), x.few)

    def _combined(self, sums: str, x: Vector, d: str) -> str:
        """Rounded as tiles do it: the scaled sum, then all of it."""
        code, way = self.code, self.way
        if self.kind == PLAIN:
            return sums
        scaled = code.emit(f"fmul {code.lanes.many} {code.splat(self.alpha)}, {sums}")
        if not self.adds:
            return scaled
        place = code.at(d, x.start * way.d[1])
        addend = self.some(x.few, place) if way.d[1] else code.splat(
            code.load(place, code.lanes.one))
        return code.fma(code.splat(self.beta), addend, scaled)

    def _store_turned(self, values: list[str], place: str, x: Vector) -> None:
        """Rows become lanes, a square at a time."""
        code, way, width = self.code, self.way, x.width
        for first in range(0, len(values), width):
            rows = values[first:first + width]
            lanes = turned(code, [*rows, *["poison"] * (width - len(rows))])
            for j in range(x.few):
                self._put(lanes[j], code.at(place, first * way.c[0] + j * way.c[1]), len(rows))


class _Right(NamedTuple):
    """Vectors of the right operand."""

    of: _Small
    pair: list[Vector]
    base: str
    step: int                       # bytes from k to k
    known: list[list[str]] | None   # registers, if they are there once and for all

    def at(self, base: str, k: int) -> list[str]:
        """Those of a k, so many after a place."""
        if self.known is not None:
            return self.known[k]
        size, first = self.of.way.size, self.pair[0].start
        return [self.of.some(x.few, self.of.code.at(
            base, k * self.step + (x.start - first) * size)) for x in self.pair]


def _number(bits: int, size: int) -> str:
    """A double, given by its bits, as a constant of so many bytes."""
    value, = struct.unpack("d", struct.pack("q", bits))
    if size == 4:
        value, = struct.unpack("f", struct.pack("f", value))
    return "0x" + struct.pack(">d", value).hex().upper()
