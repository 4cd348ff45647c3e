"""bfloat16 two by two, for CPUs with an instruction that adds up the products of pairs.

A panel of pairs looks like a panel of float32 for half of k: where one has a float32, the other has
two bfloat16 that follow each other in k. So all loops around tiles serve both, with k counted in
pairs and steps twice as far; k must be even.
"""

from __future__ import annotations

from .host import Tile
from .pack import Pack
from .text import Code


def add_products(w: Code, tile: Tile, left: str, right: str, sums: str, instruction: bool) -> str:
    """sums + the products of both halves of each lane; lanes come as float32."""
    if not instruction:
        for x, y in zip(_halves(w, left, tile), _halves(w, right, tile), strict=True):
            sums = w.call(f"llvm.fmuladd.v{tile.lanes}f32", tile.vector, [
                (tile.vector, x), (tile.vector, y), (tile.vector, sums)])
        return sums
    many = f"<{2 * tile.lanes} x bfloat>"
    pairs = [w.emit(f"bitcast {tile.vector} {value} to {many}") for value in (left, right)]
    return w.call(f"llvm.x86.avx512bf16.dpbf16ps.{32 * tile.lanes}", tile.vector, [
        (tile.vector, sums), (many, pairs[0]), (many, pairs[1])])


def _halves(w: Code, value: str, tile: Tile) -> tuple[str, str]:
    """The lower and the upper bfloat16 of each lane as float32."""
    ints = f"<{tile.lanes} x i32>"
    bits = w.emit(f"bitcast {tile.vector} {value} to {ints}")
    low = w.emit(f"shl {ints} {bits}, splat (i32 16)")
    high = w.emit(f"and {ints} {bits}, splat (i32 -65536)")
    return (w.emit(f"bitcast {ints} {low} to {tile.vector}"),
            w.emit(f"bitcast {ints} {high} to {tile.vector}"))


class PairPack(Pack):
    """Panels of pairs. `%step` goes from pair to pair; half of it, from one to the other."""

    def text(self, name: str) -> tuple[str, dict]:
        self.half = self.w.op("sdiv", "%step", 2)
        return super().text(name)

    def deep(self) -> None:
        """Pairs that lie together in k move as one."""
        kept = self.memory, self.size, self.narrow
        self.memory, self.size, self.narrow = "float", 4, ""
        self._groups(self._turn)
        self.memory, self.size, self.narrow = kept

    def is_deep(self) -> str:
        return self.w.is_("eq", "%step", 4)

    def lanes_at(self, place: str, mask=None) -> str:
        return self._joined(*(Pack.lanes_at(self, at, mask)
                              for at in (place, self.w.at(place, self.half))))

    def gathered(self, rows: list[str], byte: str) -> str:
        if self.size == 4:
            return Pack.gathered(self, rows, byte)
        return self._joined(*(Pack.gathered(self, rows, at)
                              for at in (byte, self.w.add(byte, self.half))))

    def _joined(self, low: str, high: str) -> str:
        """Two vectors of widened bfloat16, whose upper halves hold them, as pairs."""
        w, ints = self.w, f"<{self.t.lanes} x i32>"
        one, other = (w.emit(f"bitcast {self.t.vector} {v} to {ints}") for v in (low, high))
        down = w.emit(f"lshr {ints} {one}, splat (i32 16)")
        both = w.emit(f"or {ints} {down}, {other}")
        return w.emit(f"bitcast {ints} {both} to {self.t.vector}")

