"""A product described once: its words, and how it is cut into blocks and shared by threads."""

from __future__ import annotations

import functools
import struct
from array import array
from operator import itemgetter
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


def block_depth(tile: Tile, k: int) -> int:
    """Blocks in k, all about as deep: a panel of B takes an eighth of the second cache.

    A panel is read in order, so it need not stay in the first cache; sums that are taken from C
    and put back for every block cost more.
    """
    most = max(64, caches()[1] // 8 // (tile.columns * tile.size))
    return -(-k // -(-k // most))


def block_height(tile: Tile, depth: int) -> int:
    """Rows of A whose panels take a good third of the second cache."""
    rows = caches()[1] * 3 // 8 // (depth * tile.size)
    return max(1, rows // tile.rows) * tile.rows


def block_width(tile: Tile, k: int) -> int:
    """Columns of B that are packed before any is used."""
    columns = (8 << 20) // (k * tile.size)
    return max(4, columns // tile.columns) * tile.columns


def _depth(tile: Tile, k: int, cut: Cut, narrow: bool) -> int:
    """Half precision is rounded once, and sums along k are added up once: k is one block."""
    return k if narrow or cut.family == "dot" else block_depth(tile, k)


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
        tile = host_tile(SUMS[dtype])
        turned = n == 1 and m > 1 and c_row == 1 and cut is None
        if turned:
            m, n, a, b = n, m, Matrix(b.right, b.down), Matrix(a.right, a.down)
            d = None if d is None else (0, d[0])
            offsets = [(y, x, z, w) for x, y, z, w in offsets]
        self.offsets = array("q", [byte for row in offsets for byte in row])
        batch = len(self.offsets) // 4
        self.work = m * n * k * batch >> 4
        cut = cut or choose(tile, m, n, k, batch, a, b, dtype != tile.dtype)
        if kernels is None:
            name = "amx" if cut.family == "square" and in_tiles(dtype) else cut.family
            kernels = tiles(dtype, name, name == "square" and in_pairs(dtype, k))
        given, tile = (k, AMX) if kernels.amx else (0, tile)
        k = kernels.depth(k)
        if kernels.paired:
            a, b = Matrix(a.down, 2 * a.right), Matrix(2 * b.down, b.right)
        values = {"batch": batch, "offsets": self.offsets.buffer_info()[0], "m": m, "n": n, "k": k,
                  "given": given, "turned": turned}
        self._describe(values, dtype, a, b, c_row, cut)
        self._add(values, dtype, d, alpha, beta)
        _cut_up(values, tile, m, n, k, dtype, cut, kernels)
        values["alone"] = (batch == 1 and cut.route == EACH and not values["spare_a"]
                           and not any(self.offsets))
        self.words = array("q", [self.work, *_IN_ORDER(values)])
        self.address = self.words.buffer_info()[0] + 8

    @staticmethod
    def _describe(values: dict, dtype: str, a: Matrix, b: Matrix, c_row: int, cut: Cut) -> None:
        size = SIZES[dtype]
        lane = b.right * size if values["n"] > 1 else size
        values["a_row"], values["a_step"] = a.down * size, a.right * size
        values["b_lane"] = lane
        values["b_step"] = lane if cut.family == "dot" else b.down * size
        values["c_row"], values["c_size"] = c_row * size, size

    @staticmethod
    def _add(values: dict, dtype: str, d, alpha: float, beta: float) -> None:
        values["kind"], values["d_row"] = (SCALED if alpha != 1 else PLAIN), 0
        if d is not None:
            values["kind"], values["d_row"] = COLUMN if d[1] == 0 else ROWS, d[0] * SIZES[dtype]
        values["alpha"], values["beta"] = _bits(alpha), _bits(beta)


def _cut_up(values: dict, tile: Tile, m: int, n: int, k: int, dtype: str, cut: Cut,
            kernels: Tiles) -> None:
    """Blocks, the code that computes them, and the memory they need."""
    shape, (route, pack_a, pack_b, _) = kernels.family, cut
    shared = pack_b == SHARED
    depth = _depth(tile, k, cut, dtype != tile.dtype)
    height = block_height(tile, depth) if shared else max(m, shape.rows)
    all_columns = -(-n // tile.columns) * tile.columns
    width = block_width(tile, k) if shared else n
    room_a = _room_a(tile, min(height, m), depth) if pack_a else 0
    room_b = _room(min(PANELS * tile.columns, all_columns), depth, tile) if pack_b == HERE else 0
    left, right = kernels.packers() if pack_a or pack_b != DIRECT else (0, 0)
    enter, leave = around_tiles()[2:] if kernels.amx else (0, 0)
    values.update(
        depth=depth, height=height, round=width, pack_a=pack_a, pack_b=pack_b,
        across=route == ACROSS, each=route == EACH, rows_first=k <= 64,
        grain=_grain(m, n, k, cut, shape), tiles=kernels.need(n), tile_rows=shape.rows,
        tile_columns=shape.columns, tile_shift=shape.lanes.bit_length() - 1,
        tile_group=8 * shape.rows, tile_masked=8 * shape.rows * shape.vectors,
        tile_half=8 * shape.rows * kernels.half,
        packer_a=left if pack_a else 0, packer_b=right if pack_b != DIRECT else 0,
        enter=enter, leave=leave, finish=0, finish_with=0,
        spare_a=room_a + room_b, spare_at=room_a,
        spare_b=_room(min(width, all_columns), k, tile) if shared else 0,
        ahead=shape.columns * SIZES[dtype] if pack_b == DIRECT else 1024)


def _grain(m: int, n: int, k: int, cut: Cut, shape: Family) -> int:
    """Matrices, tiles or panels that are worth a range of their own."""
    unit = m * n * k
    if cut.route != EACH:
        unit = m * shape.columns * k if cut.route == ACROSS else shape.rows * n * k
    repeated = cut.route == ACROSS and cut.pack_a  # every range packs A anew
    return max(8 if repeated else 1, -(-RANGE_WORK // unit))


def _room(lanes: int, k: int, tile: Tile) -> int:
    """Bytes of panels, a vector to spare, whole lines of the cache."""
    return -(-(lanes * k + 2 * tile.lanes) * tile.size // 64) * 64


def _room_a(tile: Tile, rows: int, depth: int) -> int:
    """Bytes of panels of A: see _panel_bytes in block.py."""
    panels = -(-rows // tile.rows) + 1
    return _room(panels * (tile.pitch + -(-tile.lanes // depth)), depth, tile)


_IN_ORDER = itemgetter(*WORDS)


@functools.cache
def _bits(value: float) -> int:
    return struct.unpack("q", struct.pack("d", float(value)))[0]
