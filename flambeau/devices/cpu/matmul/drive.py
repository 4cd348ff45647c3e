"""The loops around tiles: blocks of a product, its batch, and its threads.

    void @matmul(ptr c, ptr a, ptr b, ptr d, ptr words)

computes C = finish(alpha * A B + beta * D) for every matrix of a batch, as `words` say. A is read
by single elements and B by vectors, each either where it lies or from packed panels. Every element
of C is one chain of sums in k, in blocks that only k decides, so neither the cut into blocks of
rows and columns nor the number of threads changes a bit of the result.
"""

from __future__ import annotations

from .block import PANELS, SHARED, W, block_text, call_pack, given_k
from .host import Tile
from .scratch import DECLARATIONS
from .text import Code, module
from .tile import ROWS

#: what the threads of one product share
_CONTEXT = ("words", "a", "b", "c", "d", "panels", "first", "columns")
_C = {name: i for i, name in enumerate(_CONTEXT)}

ENTRY = "ptr %c, ptr %a, ptr %b, ptr %d, ptr %words"
_BODY = "ptr %context, i64 %begin, i64 %end"


class _Driver:
    """Writes the functions of one dtype of sums."""

    def __init__(self, tile: Tile, name: str, finishing: bool):
        self.t, self.name, self.finishing = tile, name, finishing

    def text(self) -> str:
        return module([block_text(self.t, f"{self.name}_block", self.finishing),
                       self.pack_range(), self.grid_range(), self.each_range(), self.shared(),
                       self.entry(), ("", DECLARATIONS)])

    # -- what threads do -----------------------------------------------------------------------

    def _context(self, w: Code) -> dict[str, str]:
        return {name: w.word("%context", i, "i64" if name in ("first", "columns") else "ptr")
                for i, name in enumerate(_CONTEXT)}

    def _pack_columns(self, w: Code, words, b, first, begin, end, panels) -> None:
        """Columns begin to end (after `first`) of B into panels, the first of them at `panels`."""
        t, line = self.t, self.t.columns * self.t.size
        lane, step = (w.word(words, W[name]) for name in ("b_lane", "b_step"))
        k, packer = w.word(words, W["k"]), w.word(words, W["packer_b"], "ptr")
        base = w.at(b, w.mul(w.add(first, begin), lane))
        panel = w.mul(k, line)
        to = w.at(panels, w.mul(w.op("udiv", begin, t.columns), panel))
        call_pack(w, packer, base, lane, step, w.sub(end, begin), given_k(w, words, k), to, line,
                  panel)

    def pack_range(self) -> tuple[str, dict]:
        """Units are a few panels of B."""
        w, unit = Code(), PANELS * self.t.columns
        c = self._context(w)
        begin = w.mul("%begin", unit)
        end = w.least(w.mul("%end", unit), c["columns"])
        self._pack_columns(w, c["words"], c["b"], c["first"], begin, end, c["panels"])
        return w.function("pack_range", _BODY, "internal "), w.declared

    def grid_range(self) -> tuple[str, dict]:
        """Units are rows of a tile's height, or panels of columns."""
        w, t = Code(), self.t
        c = self._context(w)
        word = lambda name: w.word(c["words"], W[name])  # noqa: E731
        across, m = w.is_("ne", word("across"), 0), word("m")
        packed_b = w.is_("eq", word("pack_b"), SHARED)

        def share(test: str, unit: str, total: str) -> tuple[str, str]:
            begin = w.pick(test, w.mul("%begin", unit), 0)
            return begin, w.pick(test, w.least(w.mul("%end", unit), total), total)

        down = w.emit(f"xor i1 {across}, true")
        i0, i1 = share(down, word("tile_rows"), m)
        j0, j1 = share(across, word("tile_columns"), c["columns"])
        spare = self._spare(w, word("spare_a"))
        a = w.at(c["a"], w.mul(i0, word("a_row")))
        j = w.add(c["first"], j0)
        inside = w.mul(w.op("udiv", j0, t.columns), w.mul(word("k"), t.columns * t.size))
        direct = w.mul(j, word("b_lane"))
        v = w.at(w.pick(packed_b, c["panels"], c["b"], "ptr"), w.pick(packed_b, inside, direct))
        out = w.at(w.at(c["c"], w.mul(i0, word("c_row"))), w.mul(j, word("c_size")))
        lane = w.pick(w.is_("eq", word("kind"), ROWS), word("c_size"), 0)
        d = w.at(w.at(c["d"], w.mul(i0, word("d_row"))), w.mul(j, lane))
        w.do(f"call void @{self.name}_block(ptr {a}, ptr {v}, ptr {out}, ptr {d}, "
             f"i64 {w.sub(i1, i0)}, i64 {w.sub(j1, j0)}, ptr {spare}, ptr {c['words']})")
        self._give(w, spare)
        return w.function("grid_range", _BODY, "internal "), w.declared

    def _spare(self, w: Code, size: str) -> str:
        """A buffer, or null if none is needed."""
        return w.either(w.is_("ne", size, 0), lambda: w.emit(
            f"call ptr @flambeau_scratch_take(i64 {size})"), "null", "ptr")

    def _give(self, w: Code, spare: str) -> None:
        w.when(w.is_("ne", spare, "null", "ptr"),
               lambda: w.do(f"call void @flambeau_scratch_give(ptr {spare})"))

    def each_range(self) -> tuple[str, dict]:
        """Units are whole matrices of the batch."""
        w = Code()
        c = self._context(w)
        word = lambda name, type_="i64": w.word(c["words"], W[name], type_)  # noqa: E731
        m, n, offsets = word("m"), word("n"), word("offsets", "ptr")
        spare = self._spare(w, word("spare_a"))

        def one(i, _):
            row = w.at(offsets, w.mul(i, 32))
            a, b, out, d = (w.at(c[name], w.word(row, at)) for at, name in enumerate("abcd"))
            w.do(f"call void @{self.name}_block(ptr {a}, ptr {b}, ptr {out}, ptr {d}, i64 {m}, "
                 f"i64 {n}, ptr {spare}, ptr {c['words']})")

        w.loop("%begin", "%end", 1, one)
        self._give(w, spare)
        return w.function("each_range", _BODY, "internal "), w.declared

    @staticmethod
    def _parts(w: Code, total: str, unit) -> str:
        return w.op("sdiv", w.sub(w.add(total, unit), 1), unit)

    # -- the whole -----------------------------------------------------------------------------

    def entry(self) -> tuple[str, dict]:
        w = Code()
        word = lambda name: w.word("%words", W[name])  # noqa: E731
        turned = w.is_("ne", word("turned"), 0)
        a, b = w.pick(turned, "%b", "%a", "ptr"), w.pick(turned, "%a", "%b", "ptr")

        def alone() -> None:
            w.do(f"call void @{self.name}_block(ptr {a}, ptr {b}, ptr %c, ptr %d, i64 {word('m')}, "
                 f"i64 {word('n')}, ptr null, ptr %words)")

        def shared() -> None:
            w.do(f"call void @{self.name}_shared(ptr %c, ptr {a}, ptr {b}, ptr %d, ptr %words)")

        w.when(w.is_("ne", word("alone"), 0), alone, shared)
        return w.function(self.name, ENTRY), w.declared

    def shared(self) -> tuple[str, dict]:
        """Threads share the matrices of the batch, or one matrix after the other."""
        w = Code()
        w.declare("flambeau_parallel", "void", ["ptr", "ptr", "i64", "i64"])
        context = w.emit(f"alloca [{8 * len(_CONTEXT)} x i8], align 16")
        word = lambda name, type_="i64": w.word("%words", W[name], type_)  # noqa: E731
        for name in ("words", "a", "b", "c", "d"):
            w.put(context, _C[name], f"%{name}", "ptr")
        grain, batch = word("grain"), word("batch")

        def share(body: str, count: str, grain: str) -> None:
            w.do(f"call void @flambeau_parallel(ptr @{body}, ptr {context}, i64 {count}, "
                 f"i64 {grain})")

        def one(i, _):
            row = w.at(word("offsets", "ptr"), w.mul(i, 32))
            for at, name in enumerate("abcd"):
                w.put(context, _C[name], w.at(f"%{name}", w.word(row, at)), "ptr")
            packed, n = w.is_("eq", word("pack_b"), SHARED), word("n")
            panels = self._spare(w, word("spare_b"))
            w.put(context, _C["panels"], panels, "ptr")
            across, m, most = w.is_("ne", word("across"), 0), word("m"), word("round")
            tall = self._parts(w, m, word("tile_rows"))

            def some_columns(j, _):
                columns = w.least(most, w.sub(n, j))
                w.put(context, _C["first"], j)
                w.put(context, _C["columns"], columns)
                groups = self._parts(w, columns, PANELS * self.t.columns)
                w.when(packed, lambda: share("pack_range", groups, "1"))
                wide = self._parts(w, columns, word("tile_columns"))
                share("grid_range", w.pick(across, wide, tall), grain)

            w.loop(0, n, most, some_columns)
            self._give(w, panels)

        w.when(w.is_("ne", word("each"), 0), lambda: share("each_range", batch, grain),
               lambda: w.loop(0, batch, 1, one))
        return w.function(f"{self.name}_shared", ENTRY, "internal "), w.declared


def driver_text(tile: Tile, name: str, finishing: bool) -> str:
    """The module with the function `name` of a dtype of sums, with or without `finish`."""
    return _Driver(tile, name, finishing).text()
