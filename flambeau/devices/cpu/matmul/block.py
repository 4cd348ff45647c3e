"""One block of a product by one thread: k in blocks, panels packed as needed, tiles in two loops.

    void @name(ptr a, ptr v, ptr c, ptr d, i64 rows, i64 columns, ptr spare, ptr words)

`v` is where the block's first column of B starts, or its first panel where panels are made already.
`spare` is `spare_a` bytes for panels of A and, where they are made here, of some columns of B.
"""

from __future__ import annotations

from .host import Tile, caches
from .text import Code
from .tile import FRAME, FRAME_BYTES, ROWS

#: what a product needs besides addresses: numbers, strides in bytes, addresses of functions.
#: tiles: addresses of microkernels: see Tiles. tile_shift: the columns of a group are two to this;
#: tile_group, tile_masked, tile_half: bytes to the next group, to the masked ones, and to those of
#: half a vector, or 0.
#: offsets: of A, B, C and D in bytes for each matrix of the batch. depth: the block in k. height:
#: the block in rows. across: threads share columns, not rows. each: threads share matrices.
#: rows_first: the inner loop goes along columns. spare_a: what a block needs, the last part of it
#: from `spare_at` on for panels of B; spare_b: panels of B that threads share. pack_b: DIRECT ...
#: given: what pack functions are told of k, if not how deep panels are. enter, leave: functions to
#: call before and after a block, if any. finish: a function that a product which finishes calls on
#: every part of C once all of k is in it, while it is in the cache, with where it starts, its rows
#: and columns, bytes from row to row, and finish_with. next, next_step, ahead: see FRAME.
WORDS = ("batch", "offsets", "m", "n", "k", "a_row", "a_step", "b_step", "b_lane", "c_row",
         "d_row", "kind", "alpha", "beta", "depth", "height", "pack_a", "pack_b", "across", "each",
         "rows_first", "grain", "tiles", "packer_a", "packer_b", "spare_a", "spare_b", "c_size",
         "round", "ahead", "spare_at", "tile_rows",
         "tile_columns", "tile_shift", "tile_group", "tile_masked", "tile_half", "alone",
         "turned", "given", "enter", "leave", "finish", "finish_with", "next", "next_step")
#: B is read where it lies; from panels that were made before; from panels made block by block
DIRECT, SHARED, HERE = 0, 1, 2
W = {name: i for i, name in enumerate(WORDS)}

PANELS = 4  # of B, packed at a time
#: tiles above each other in a block that is finished, at least, so that panels of B are read often
_TILES = 4
_ONE = 0x3FF0000000000000  # the double 1.0
_ARGUMENTS = "ptr %a, ptr %v, ptr %c, ptr %d, i64 %rows, i64 %columns, ptr %spare, ptr %words"


def near_bytes() -> int:
    """Bytes of C that are finished together: a part of the second cache."""
    return caches()[1] // 8


def block_text(tile: Tile, name: str, finishing: bool) -> tuple[str, dict]:
    """The function of this name, and the declarations it needs."""
    return (_FinishingBlock if finishing else _Block)(tile).text(name)


def call_pack(w: Code, packer, base, lane, step, lanes, k, to, pitch, panel) -> None:
    w.do(f"call void {packer}(ptr {base}, i64 {lane}, i64 {step}, i64 {lanes}, i64 {k}, "
         f"ptr {to}, i64 {pitch}, i64 {panel})")


def given_k(w: Code, words: str, deep: str) -> str:
    """What pack functions are told of k where panels are so deep."""
    given = w.word(words, W["given"])
    return w.pick(w.is_("eq", given, 0), deep, given)


class _Block:
    """Writes the function. Values that many of its loops read are attributes."""

    def __init__(self, tile: Tile):
        self.t, self.w = tile, Code()

    def word(self, name: str, type_: str = "i64") -> str:
        return self.w.word("%words", W[name], type_)

    def put(self, name: str, value) -> None:
        self.w.put(self.frame, FRAME.index(name), value)

    def text(self, name: str) -> tuple[str, dict]:
        w, t = self.w, self.t
        self.frame = w.emit(f"alloca [{FRAME_BYTES} x i8], align 16")
        self.pack_a = w.is_("ne", self.word("pack_a"), 0)
        self.here = w.is_("eq", self.word("pack_b"), HERE)
        self.direct = w.is_("eq", self.word("pack_b"), DIRECT)
        self.a_row, self.a_step = self.word("a_row"), self.word("a_step")
        self.b_step, self.b_lane = self.word("b_step"), self.word("b_lane")
        self.c_row, self.c_size = self.word("c_row"), self.word("c_size")
        self.d_row, self.kind, self.beta = self.word("d_row"), self.word("kind"), self.word("beta")
        self.tiles, self.k = self.word("tiles", "ptr"), self.word("k")
        self.panels = w.at("%spare", self.word("spare_at"))
        self.line = t.columns * t.size  # of a panel: only tiles of the host's own shape have any
        self.tile_rows, self.tile_columns = self.word("tile_rows"), self.word("tile_columns")
        self.half = self.word("tile_half")
        self.v_step = w.pick(self.direct, self.b_step, self.line)
        for field, value in (("v_step", self.v_step), ("ahead", self.word("ahead")),
                             ("c_row", self.c_row), ("alpha", self.word("alpha")),
                             ("s_row", w.pick(self.pack_a, t.size, self.a_row)),
                             ("s_step", self.a_step), ("next", self.word("next")),
                             ("next_step", self.word("next_step"))):
            self.put(field, value)
        self.height = self._even("%rows", self._most_rows())
        self._around("enter")
        w.loop(0, self.k, self.word("depth"), self._part_of_k)
        self._around("leave")
        return w.function(name, _ARGUMENTS), w.declared

    def _around(self, name: str) -> None:
        function = self.word(name, "ptr")
        self.w.when(self.w.is_("ne", function, "null", "ptr"),
                    lambda: self.w.do(f"call void {function}()"))

    def _even(self, total: str, most: str) -> str:
        """Blocks of at most so many rows, all about as high, whole tiles."""
        w = self.w
        parts = w.op("sdiv", w.sub(w.add(total, most), 1), most)
        some = w.pick(w.is_("slt", parts, 1), 1, parts)
        even = w.op("sdiv", w.sub(w.add(total, some), 1), some)
        tiles = w.op("sdiv", w.sub(w.add(even, self.tile_rows), 1), self.tile_rows)
        return w.mul(tiles, self.tile_rows)

    # -- loops, from the outside in --------------------------------------------------------------

    def _part_of_k(self, p: str, _) -> None:
        """The first part adds D, the later ones to what is there; the last is finished."""
        w = self.w
        left = w.sub(self.k, p)
        self.deep = w.least(self.word("depth"), left)
        self.given = given_k(w, "%words", self.deep)
        first, self.last = w.is_("eq", p, 0), w.is_("eq", self.deep, left)
        self.d_step = w.pick(first, self.d_row, self.c_row)
        for field, value in (("last", w.emit(f"zext i1 {self.last} to i64")),
                             ("kind", w.pick(first, self.kind, ROWS)),
                             ("beta", w.pick(first, self.beta, _ONE)), ("d_row", self.d_step)):
            self.put(field, value)
        d_lane = w.pick(w.is_("eq", self.kind, ROWS), self.c_size, 0)
        self.d_lane = w.pick(first, d_lane, self.c_size)
        self.d_base = w.pick(first, "%d", "%c", "ptr")
        v_step = w.pick(self.here, self.b_step, self.v_step)
        self.v_base = w.at("%v", w.mul(p, v_step))
        self.s_base = w.at("%a", w.mul(p, self.a_step))
        w.loop(0, "%rows", self.height, self._part_of_rows)

    def _part_of_rows(self, i: str, _) -> None:
        w = self.w
        self.count = w.least(self.height, w.sub("%rows", i))
        block = w.at(self.s_base, w.mul(i, self.a_row))
        w.when(self.pack_a, lambda: self._pack_rows(block))
        self.s_from = w.pick(self.pack_a, "%spare", block, "ptr")
        self.c_block = w.at("%c", w.mul(i, self.c_row))
        self.d_block = w.at(self.d_base, w.mul(i, self.d_step))
        group = w.pick(self.here, PANELS * self.t.columns, self._columns_together())
        w.loop(0, "%columns", group, lambda j, _: self._part_of_columns(j, group))

    def _part_of_columns(self, j: str, group: str) -> None:
        w = self.w
        self.wide = w.least(group, w.sub("%columns", j))
        inside = w.mul(self.deep, self.line)
        source = w.at(self.v_base, w.mul(j, self.b_lane))
        w.when(self.here, lambda: call_pack(
            w, self.word("packer_b", "ptr"), source, self.b_lane, self.b_step, self.wide,
            self.given, self.panels, self.line, inside))
        self.v_from = w.pick(self.here, self.panels, self._first_panel(j), "ptr")
        self.panel = w.pick(self.here, inside,
                            w.pick(self.direct, w.mul(self.tile_columns, self.b_lane),
                                   w.mul(self.k, self.line)))
        self.c_group = w.at(self.c_block, w.mul(j, self.c_size))
        self.d_group = w.at(self.d_block, w.mul(j, self.d_lane))
        w.when(w.is_("ne", self.word("rows_first"), 0), self._rows_outside, self._columns_outside)

    def _most_rows(self) -> str:
        """Rows of a part, at most."""
        return self.word("height")

    def _columns_together(self) -> str:
        """Columns of a part whose panels are made already, or not at all: all of them."""
        return "%columns"

    def _first_panel(self, j: str) -> str:
        """Where those panels start of a part from column j on."""
        return self.v_base

    def _columns_outside(self) -> None:
        self._by_columns(lambda *column: self._by_rows(lambda *row: self._tile(*column, *row)))

    def _rows_outside(self) -> None:
        self._by_rows(lambda *row: self._by_columns(lambda *column: self._tile(*column, *row)))

    def _by_columns(self, body) -> None:
        """body(c, d, v, columns, table of microkernels) for every panel, or part of the last."""
        w, size = self.w, [""]

        def one(j, at):
            wide = size[0] = self._columns(w.sub(self.wide, j))
            body(w.at(self.c_group, w.mul(j, self.c_size)),
                 w.at(self.d_group, w.mul(j, self.d_lane)), at[0], wide, self._table(wide))
            whole = w.is_("eq", wide, self.tile_columns)
            return [w.at(at[0], w.pick(whole, self.panel, w.mul(wide, self.t.size)))]

        w.loop(0, self.wide, lambda: size[0], one, [("ptr", self.v_from)])

    def _by_rows(self, body) -> None:
        """body(i, rows, s) for the rows of every tile."""
        w, size = self.w, [""]

        def one(i, at):
            rows = size[0] = self._rows(w.sub(self.count, i))
            body(i, rows, at[0])
            inside = self._panel_bytes(rows)
            return [w.at(at[0], w.pick(self.pack_a, inside, w.mul(rows, self.a_row)))]

        w.loop(0, self.count, lambda: size[0], one, [("ptr", self.s_from)])

    def _tile(self, c, d, v, wide, table, i, rows, s) -> None:
        w = self.w
        pitch = w.mul(self._pitch(rows), self.t.size)
        self.put("s_step", w.pick(self.pack_a, pitch, self.a_step))
        function = w.emit(f"load ptr, ptr {w.at(table, w.sub(w.mul(rows, 8), 8))}")
        w.do(f"call void {function}(ptr {s}, ptr {v}, i64 {self.deep}, "
             f"ptr {w.at(c, w.mul(i, self.c_row))}, ptr {w.at(d, w.mul(i, self.d_step))}, "
             f"ptr {self.frame}, i64 {wide})")

    # -- tiles and panels --------------------------------------------------------------------

    def _rows(self, left: str) -> str:
        """Rows of the next tile: no thin one remains at the end."""
        w, most = self.w, self.tile_rows
        half = w.op("lshr", w.add(left, 1), 1)
        rest = w.pick(w.is_("sgt", left, most), half, left)
        return w.pick(w.is_("sge", left, w.add(most, most)), most, rest)

    def _pitch(self, rows: str) -> str:
        """Elements from one k to the next in a panel of A."""
        w, lanes = self.w, self.t.lanes
        if self.t.rows <= lanes:
            return rows
        up = w.op("and", w.add(rows, lanes - 1), -lanes)
        return w.pick(w.is_("sle", rows, lanes), rows, up)

    def _columns(self, left: str) -> str:
        """Columns of the next tile: what fits half a vector comes after whole ones."""
        w, lanes = self.w, self.t.lanes
        rest = w.op("and", left, lanes - 1)
        apart = w.op("and", w.op("and", w.is_("slt", left, self.tile_columns),
                                 w.is_("sgt", left, lanes), "i1"), self._fits_half(rest), "i1")
        return w.pick(apart, w.sub(left, rest), w.least(self.tile_columns, left))

    def _fits_half(self, columns: str) -> str:
        """Whether so many columns, but not none, have tiles of half a vector."""
        w = self.w
        few = w.is_("ult", w.sub(columns, 1), self.t.lanes // 2)
        return w.op("and", few, w.is_("ne", self.half, 0), "i1")

    def _table(self, wide: str) -> str:
        """The microkernels of so many columns: see Tiles."""
        w, shift, group = self.w, self.word("tile_shift"), self.word("tile_group")
        vectors = w.op("lshr", w.sub(wide, 1), shift)
        rest = w.sub(wide, w.op("shl", w.op("lshr", wide, shift), shift))
        masked = w.pick(w.is_("eq", rest, 0), 0, self.word("tile_masked"))
        whole = w.add(w.mul(vectors, group), masked)
        partly = w.pick(w.is_("eq", wide, self.t.lanes // 2), 0, group)
        half = w.add(self.half, partly)
        return w.at(self.tiles, w.pick(self._fits_half(wide), half, whole))

    def _panel_bytes(self, rows: str) -> str:
        """From a panel of A to the next: the last vector of a panel reaches beyond its end."""
        w, t = self.w, self.t
        return w.add(w.mul(w.mul(self._pitch(rows), self.deep), t.size), t.lanes * t.size)

    def _pack_rows(self, block: str) -> None:
        w, size, packer = self.w, [""], self.word("packer_a", "ptr")

        def pack(base, rows, lanes, to) -> str:
            panel = self._panel_bytes(rows)
            call_pack(w, packer, base, self.a_row, self.a_step, lanes, self.given, to,
                      w.mul(self._pitch(rows), self.t.size), panel)
            return panel

        def one(i, at):
            rows = size[0] = self._rows(w.sub(self.count, i))
            panel = pack(w.at(block, w.mul(i, self.a_row)), rows, rows, at[0])
            return [w.at(at[0], panel)]

        first = "0"
        if self.t.rows <= self.t.lanes:
            first = self._pack_full_tiles(block, pack)
        done = w.op("udiv", first, self.tile_rows)
        to = w.at("%spare", w.mul(done, self._panel_bytes(self.tile_rows)))
        w.loop(first, self.count, lambda: size[0], one, [("ptr", to)])

    def _pack_full_tiles(self, block: str, pack) -> str:
        """Where rows of A are side by side, all whole tiles at once; how many rows that was."""
        w, most = self.w, self.tile_rows
        tiles = w.op("udiv", self.count, most)
        uneven = w.is_("ne", w.mul(tiles, most), self.count)
        full = w.sub(tiles, w.pick(uneven, 1, 0))  # the last whole one shares with what is left
        beside = w.is_("eq", self.a_row, self.c_size)
        several = w.op("and", beside, w.is_("sgt", full, 1), "i1")
        rows = w.pick(several, w.mul(full, most), 0)
        w.when(several, lambda: pack(block, most, rows, "%spare"))
        return rows


class _FinishingBlock(_Block):
    """Calls `finish` on parts of C, which are small enough to be in the second cache by then."""

    def _part_of_rows(self, i: str, _) -> None:
        super()._part_of_rows(i, _)
        self.w.when(self.w.op("and", self.last, self.here, "i1"),
                    lambda: self._finish(self.c_block, "%columns"))

    def _part_of_columns(self, j: str, group: str) -> None:
        super()._part_of_columns(j, group)
        others = self.w.emit(f"xor i1 {self.here}, true")
        self.w.when(self.w.op("and", self.last, others, "i1"),
                    lambda: self._finish(self.c_group, self.wide))

    def _finish(self, c: str, columns: str) -> None:
        function, given = self.word("finish", "ptr"), self.word("finish_with", "ptr")
        self.w.do(f"call void {function}(ptr {c}, i64 {self.count}, i64 {columns}, "
                  f"i64 {self.c_row}, ptr {given})")

    def _most_rows(self) -> str:
        """As many whole rows as are near, but some tiles of them.

        Where panels of B are made here a part has all rows, or they would be made again.
        """
        w, most = self.w, self.word("height")
        fit = w.op("udiv", near_bytes(), w.mul("%columns", self.c_size))
        least = w.mul(self.tile_rows, _TILES)
        fewer = w.least(most, w.pick(w.is_("slt", fit, least), least, fit))
        return w.pick(self.here, most, fewer)

    def _columns_together(self) -> str:
        """As many as are near.

        Where a row of C ends with less than a vector it is finished whole, so that what is left
        over is left over once.
        """
        w, t = self.w, self.t
        unit = PANELS * t.columns
        some = w.op("udiv", near_bytes(), w.mul(w.mul(self.count, self.c_size), unit))
        near = w.mul(w.pick(w.is_("eq", some, 0), 1, some), unit)
        even = w.is_("eq", w.op("and", "%columns", t.lanes - 1), 0)
        own = w.is_("eq", self.tile_columns, t.columns)
        return w.pick(w.op("and", even, own, "i1"), near, "%columns")

    def _first_panel(self, j: str) -> str:
        w = self.w
        column = w.pick(self.direct, self.b_lane, w.mul(self.k, self.t.size))
        return w.at(self.v_base, w.mul(j, column))
