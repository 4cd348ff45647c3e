"""A product described once: its words, and how it is cut into blocks and shared by threads."""

from __future__ import annotations

import functools
import struct
from array import array
from typing import NamedTuple

from .block import DIRECT, HERE, PANELS, SHARED, WORDS
from .host import AMX, Tile, adds_pairs, caches, host_tile, multiplies_tiles
from .kernels import SIZES, SUMS, Family, Tiles, around_tiles, driver, drivers, packer, tiles
from .tile import COLUMN, PLAIN, ROWS, SCALED

__all__ = ["SIZES", "SUMS", "Cut", "Matrix", "Product", "Tiles", "choose", "driver", "drivers",
           "packer", "tiles"]

#: multiply-adds of a product worth more than one thread, and of a matrix of a batch
SHARED_WORK, MATRIX_WORK = 1 << 18, 1 << 22
#: multiply-adds that a range of a thread should at least have
RANGE_WORK = 1 << 17
#: up to so many rows, sums along k are quicker than panels; so many read panels of B often
#: enough; up to so many are one block
DOT_ROWS, FEW_ROWS, MODEST_ROWS = 24, 24, 256
#: k for each row, and at least, from which sums along k are worth adding up
DOT_SLOPE, DOT_DEPTH = 10, 64


class Matrix(NamedTuple):
    """Where an operand's elements lie: strides between rows and columns, in elements."""

    down: int
    right: int


#: what threads share: matrices of the batch, rows, columns
EACH, DOWN, ACROSS = "each", "down", "across"


class Cut(NamedTuple):
    """How a product is shared and packed, and the family of its microkernels."""

    route: str
    pack_a: bool
    pack_b: int
    family: str = "square"


def choose(tile: Tile, m: int, n: int, k: int, batch: int, a: Matrix, b: Matrix,
           narrow: bool) -> Cut:
    """The cut that suits a shape.

    Panels of B pay where enough rows read them and B does not sit in the first cache; panels of A
    where enough columns do.
    """
    work = m * n * k
    route = ACROSS if m <= MODEST_ROWS else DOWN
    if work < SHARED_WORK or (batch > 1 and work < MATRIX_WORK):
        route = EACH
    if b.down == a.right == 1 and m <= DOT_ROWS and k >= max(DOT_DEPTH, m * DOT_SLOPE):
        return Cut(route, False, DIRECT, "dot")
    odd = b.right != 1 and n > 1
    if m == 1 and not odd:
        return Cut(route, False, DIRECT, "wide")
    must = narrow or odd
    pays = m >= FEW_ROWS and n * k * tile.size > caches()[0] // 2
    here = HERE if must or pays else DIRECT
    if route == EACH:
        return Cut(EACH, narrow, here)
    if route == ACROSS:
        return Cut(ACROSS, narrow or n >= 16 * tile.columns, here)
    return Cut(DOWN, narrow or n >= 8 * tile.columns, SHARED)


def in_pairs(dtype: str, k: int) -> bool:
    """Whether a product of panels is sooner computed two steps of k at a time."""
    return dtype == "bfloat16" and k % 2 == 0 and adds_pairs()


def in_tiles(dtype: str) -> bool:
    """Whether a product of panels is computed by AMX, of any k."""
    return dtype == "bfloat16" and multiplies_tiles()


# -- blocks ------------------------------------------------------------------------------------


class Form:
    """What products of a dtype and a cut have in common, whatever their sizes: most words, and the
    measures of their blocks."""

    def __init__(self, dtype: str, cut: Cut, kernels: Tiles):
        tile, shape = AMX if kernels.amx else host_tile(SUMS[dtype]), kernels.family
        self.cut, self.kernels = cut, kernels
        self.rows, self.columns = shape.rows, shape.columns
        self.panel_rows, self.panel_columns = tile.rows, tile.columns
        self.pitch, self.lanes, self.size = tile.pitch, tile.lanes, tile.size
        self.loaded: set[int] = set()  # columns, whole tiles taken as one, whose code is loaded
        # Half precision is rounded once, and sums along k are added up once: k is one block.
        self.whole_depth = dtype != tile.dtype or cut.family == "dot"
        same = self._same_words(dtype, cut, shape)
        self.words = array("q", [same.get(name, 0) for name in ("work", *WORDS)])

    def _same_words(self, dtype: str, cut: Cut, shape: Family) -> dict[str, int]:
        kernels, (route, pack_a, pack_b, _) = self.kernels, cut
        left, right = kernels.packers() if pack_a or pack_b != DIRECT else (0, 0)
        enter, leave = around_tiles()[2:] if kernels.amx else (0, 0)
        return dict(
            pack_a=pack_a, pack_b=pack_b, across=route == ACROSS, each=route == EACH,
            c_size=SIZES[dtype], tile_rows=shape.rows, tile_columns=shape.columns,
            tile_shift=shape.lanes.bit_length() - 1, tile_group=8 * shape.rows,
            tile_masked=8 * shape.rows * shape.vectors, tile_half=8 * shape.rows * kernels.half,
            packer_a=left if pack_a else 0, packer_b=right if pack_b != DIRECT else 0,
            enter=enter, leave=leave,
            ahead=shape.columns * SIZES[dtype] if pack_b == DIRECT else 1024)

    def blocks(self, m: int, n: int, k: int) -> dict[str, int]:
        """How a product of these sizes is cut into blocks, and the memory they need."""
        pack_a, pack_b = self.cut.pack_a, self.cut.pack_b
        depth = k if self.whole_depth else self.depth(k)
        blocks = {"depth": depth, "height": m if m > self.rows else self.rows, "round": n,
                  "rows_first": k <= 64, "grain": self.grain(m, n, k), "tiles": self.tiles(n)}
        if pack_b == SHARED:
            blocks["height"], blocks["round"] = self.height(depth), self.width(k)
        if pack_a or pack_b != DIRECT:
            columns = -(-n // self.panel_columns) * self.panel_columns
            room_a = self._room_a(min(blocks["height"], m), depth) if pack_a else 0
            room_b = self._room(min(PANELS * self.panel_columns, columns), depth)
            blocks["spare_at"] = room_a
            blocks["spare_a"] = room_a + room_b if pack_b == HERE else room_a
            if pack_b == SHARED:
                blocks["spare_b"] = self._room(min(blocks["round"], columns), k)
        return blocks

    def tiles(self, n: int) -> int:
        """The address of a table with the microkernels that a product of n columns calls."""
        called = n if n < self.columns else self.columns + n % self.columns
        if called not in self.loaded:
            self.kernels.need(n)
            self.loaded.add(called)
        return self.kernels.address

    def depth(self, k: int) -> int:
        """Blocks in k, all about as deep: a panel of B takes an eighth of the second cache.

        A panel is read in order, so it need not stay in the first cache; sums that are taken from C
        and put back for every block cost more.
        """
        most = max(64, caches()[1] // 8 // (self.panel_columns * self.size))
        return k if k <= most else -(-k // -(-k // most))

    def height(self, depth: int) -> int:
        """Rows of A whose panels take a good third of the second cache."""
        rows = caches()[1] * 3 // 8 // (depth * self.size)
        return max(1, rows // self.panel_rows) * self.panel_rows

    def width(self, k: int) -> int:
        """Columns of B that are packed before any is used."""
        columns = (8 << 20) // (k * self.size)
        return max(4, columns // self.panel_columns) * self.panel_columns

    def grain(self, m: int, n: int, k: int) -> int:
        """Matrices, tiles or panels that are worth a range of their own."""
        route = self.cut.route
        unit = (m * n if route == EACH else m * self.columns if route == ACROSS else
                self.rows * n) * k
        repeated = route == ACROSS and self.cut.pack_a  # every range packs A anew
        return max(8 if repeated else 1, -(-RANGE_WORK // unit))

    def _room(self, lanes: int, k: int) -> int:
        """Bytes of panels, a vector to spare, whole lines of the cache."""
        return -(-(lanes * k + 2 * self.lanes) * self.size // 64) * 64

    def _room_a(self, rows: int, depth: int) -> int:
        """Bytes of panels of A: see _panel_bytes in block.py."""
        panels = -(-rows // self.panel_rows) + 1
        return self._room(panels * (self.pitch + -(-self.lanes // depth)), depth)


form = functools.cache(Form)

#: where the words that sizes decide are; before them all is how much work there is
_AT = {name: i for i, name in enumerate(WORDS, 1)}


class Product:
    """The words of C = alpha A B + beta D over a batch, kept alive with what they point to.

    Strides are in elements, `offsets` are bytes of A, B, C and D for each matrix; `d` has the
    strides of D between rows and columns, the latter 0 or 1. A product with one column is
    computed as one with one row, its operands exchanged.
    """

    __slots__ = ("address", "offsets", "words", "work")

    def __init__(self, dtype: str, m: int, n: int, k: int, a: Matrix, b: Matrix, c_row: int,
                 offsets, d: tuple[int, int] | None = None, alpha=1.0, beta=1.0,
                 kernels: Tiles | None = None, cut: Cut | None = None):
        turned = n == 1 and m > 1 and c_row == 1 and cut is None
        if turned:
            m, n, a, b = n, m, Matrix(b.right, b.down), Matrix(a.right, a.down)
            d = None if d is None else (0, d[0])
            offsets = [(y, x, z, w) for x, y, z, w in offsets]
        self.offsets = array("q", [byte for row in offsets for byte in row])
        batch = len(offsets)
        self.work = m * n * k * batch >> 4
        tile = host_tile(SUMS[dtype])
        cut = cut or choose(tile, m, n, k, batch, a, b, dtype != tile.dtype)
        if kernels is None:
            name = "amx" if cut.family == "square" and in_tiles(dtype) else cut.family
            kernels = tiles(dtype, name, name == "square" and in_pairs(dtype, k))
        found, size = form(dtype, cut, kernels), SIZES[dtype]
        self.words = words = found.words[:]
        self.address = words.buffer_info()[0] + 8
        words[0] = self.work
        deep = kernels.depth(k)
        if kernels.paired:
            a, b = Matrix(a.down, 2 * a.right), Matrix(2 * b.down, b.right)
        lane = b.right * size if n > 1 else size
        blocks = found.blocks(m, n, deep)
        for name, value in (
                ("batch", batch), ("offsets", self.offsets.buffer_info()[0]), ("m", m), ("n", n),
                ("k", deep), ("given", k if kernels.amx else 0), ("turned", turned),
                ("a_row", a.down * size), ("a_step", a.right * size), ("b_lane", lane),
                ("b_step", lane if cut.family == "dot" else b.down * size),
                ("c_row", c_row * size), ("kind", SCALED if alpha != 1 else PLAIN),
                ("alpha", _bits(alpha)), ("beta", _bits(beta)),
                ("alone", batch == 1 and cut.route == EACH and not blocks.get("spare_a")
                 and not any(self.offsets)), *blocks.items()):
            words[_AT[name]] = value
        if d is not None:
            words[_AT["kind"]] = COLUMN if d[1] == 0 else ROWS
            words[_AT["d_row"]] = d[0] * size
        if not cut.pack_a:
            words[_AT["next"]], words[_AT["next_step"]] = _following(
                a.down * size, a.right * size, found.rows, blocks["depth"])


def _following(down: int, right: int, rows: int, depth: int) -> tuple[int, int]:
    """How far on A of the next tile is, and how much of it to fetch with every k.

    Where rows of A are side by side, each k is far from the next: hardware does not see it coming.
    Otherwise all of it is one piece, unless rows are long.
    """
    if down < right:
        return (2 * rows - 1) * down, right
    step = rows * down // depth
    return (rows * down, step) if step <= 64 else (0, 0)


@functools.cache
def _bits(value: float) -> int:
    return struct.unpack("q", struct.pack("d", float(value)))[0]
