"""Panels: lanes of an operand laid side by side for every k, read from any strides.

    void @name(ptr from, i64 lane, i64 step, i64 lanes, i64 k, ptr to, i64 pitch, i64 panel)

to[k * pitch + i] = from[i * lane + k * step] for i < lanes and all k; all strides in bytes. More
lanes than a tile has columns go to further panels, each `panel` bytes after the one before. Where
the pitch is narrower than a vector and there are more lanes, panels are as wide as the pitch; where
it is wider than a tile has columns, there is one panel.
Whole vectors are written, so `to` needs room for one vector more than its last, and what lies
between `lanes` and the end of a vector is anything; k is written in rising order, so a pitch
narrower than a vector works where there is one vector. Half precision becomes float32 on the way.
Where lanes are contiguous rows are copied, where k is they are transposed in registers.
"""

from __future__ import annotations

from .host import Tile
from .text import Code
from .tile import widened

ARGUMENTS = ("ptr %from, i64 %lane, i64 %step, i64 %lanes, i64 %k, ptr %to, i64 %pitch, "
             "i64 %panel")

#: dtype in memory -> LLVM type, bytes
_MEMORY = {"float32": ("float", 4), "float64": ("double", 8), "float16": ("half", 2),
           "bfloat16": ("i16", 2)}
_TOGETHER = 4  # panels that are copied at a time
_AHEAD = 24  # rows from the one being copied to the one being fetched: they may be pages apart
_GROUPS = 2  # and groups of lanes, where those are transposed


class Pack:
    """Writes the pack function of operands of dtype `source`."""

    def __init__(self, tile: Tile, source: str):
        self.t, self.source, self.w = tile, source, Code()
        self.memory, self.size = _MEMORY[source]
        self.narrow = source if self.size == 2 else ""
        self.quad = 16 // tile.size  # lanes of 128 bits, within which shuffles are cheap

    def text(self, name: str) -> tuple[str, dict]:
        w = self.w
        line = self.t.columns * self.t.size
        self.single = w.is_("sgt", "%pitch", line)  # higher tiles than wide: one panel of A
        self.width = w.pick(self.single, "%lanes", self.t.columns)
        flat = w.is_("eq", "%lane", self.size)
        thin = w.op("and", w.is_("slt", "%pitch", self.t.lanes * self.t.size),
                    w.is_("sgt", w.mul("%lanes", self.t.size), "%pitch"), "i1")
        thin = w.op("and", thin, flat, "i1")
        deep = self.is_deep()
        w.when(thin, self._thin_panels, lambda: w.when(flat, self._copy, lambda: w.when(
            deep, self.deep, lambda: self._groups(self._gather))))
        return w.function(name, ARGUMENTS), w.declared

    def is_deep(self) -> str:
        """Whether k is contiguous."""
        return self.w.is_("eq", "%step", self.size)

    def deep(self) -> None:
        self._groups(self._turn)

    def wide(self, value: str, lanes: int) -> str:
        return widened(self.w, value, self.narrow, lanes) if self.narrow else value

    def vector(self, lanes: int) -> str:
        return f"<{lanes} x {self.memory}>"

    def lanes_at(self, place: str, mask=None) -> str:
        """A vector of contiguous lanes, as panels have them; of masked ones, only some."""
        w, lanes = self.w, self.t.lanes
        type_ = self.vector(lanes)
        if mask is None:
            value = w.emit(f"load {type_}, ptr {place}, align {self.size}")
        else:
            suffix = {"float": "f32", "double": "f64", "half": "f16", "i16": "i16"}[self.memory]
            value = w.call(f"llvm.masked.load.v{lanes}{suffix}.p0", type_, [
                ("ptr", place), (f"<{lanes} x i1>", mask), (type_, "zeroinitializer")])
        return self.wide(value, lanes)

    def gathered(self, rows: list[str], byte: str) -> str:
        """A vector of lanes, each so many bytes after the start of its row."""
        w, lanes = self.w, self.t.lanes
        value = "poison"
        for i, row in enumerate(rows):
            scalar = w.emit(f"load {self.memory}, ptr {w.at(row, byte)}, align {self.size}")
            value = w.emit(f"insertelement {self.vector(lanes)} {value}, {self.memory} {scalar}, "
                           f"i64 {i}")
        return self.wide(value, lanes)

    # -- contiguous lanes --------------------------------------------------------------------

    def _copy(self) -> None:
        """Several panels at a time, so that a line after the other is read of every row."""
        w, t = self.w, self.t
        per = t.columns
        many = w.mul(w.op("sdiv", "%lanes", _TOGETHER * per), _TOGETHER * per)
        full = w.mul(w.op("sdiv", "%lanes", per), per)
        many, full = w.pick(self.single, 0, many), w.pick(self.single, 0, full)

        def panels(count):
            def body(i, _):
                base = w.at("%from", w.mul(i, self.size))
                self._rows(range(count * t.vectors), base, self._panel(i), None)
            return body

        w.loop(0, many, _TOGETHER * per, panels(_TOGETHER))
        w.loop(many, full, per, panels(1))
        self._groups(self._copy_group, full)

    def _panel(self, lane: str) -> str:
        """Where the panel of a lane starts."""
        w = self.w
        return w.at("%to", w.mul(w.op("udiv", lane, self.width), "%panel"))

    def _thin_panels(self) -> None:
        """Panels narrower than a vector, several at a time; only the last could read too far."""
        w = self.w
        span = w.op("sdiv", "%pitch", self.t.size)
        count = w.op("sdiv", "%lanes", span)
        apart = w.mul(span, self.size)
        whole = w.sub(count, 1)
        many = w.op("and", whole, -_TOGETHER)

        def panels(together):
            def body(i, _):
                base, to = w.at("%from", w.mul(i, apart)), w.at("%to", w.mul(i, "%panel"))
                self._thin_rows(together, base, to, apart)
            return body

        w.loop(0, many, _TOGETHER, panels(_TOGETHER))
        w.loop(many, whole, 1, panels(1))
        self._copy_group(w.at("%from", w.mul(whole, apart)), w.at("%to", w.mul(whole, "%panel")),
                         span)

    def _thin_rows(self, together: int, base: str, to: str, apart: str) -> None:
        w = self.w
        ahead = w.mul("%step", _AHEAD)
        lines = -(-together * self.t.rows * self.size // 64)

        def body(_, at):
            source, panel = at
            later = w.at(source, ahead)
            for line in range(lines):
                self._fetch(w.at(later, 64 * line))
            for _ in range(together):
                self.store(self.lanes_at(source), panel)
                source, panel = w.at(source, apart), w.at(panel, "%panel")
            return [w.at(at[0], "%step"), w.at(at[1], "%pitch")]

        w.loop(0, "%k", 1, body, [("ptr", base), ("ptr", to)])

    def _copy_group(self, base: str, to: str, count: str) -> None:
        w, t = self.w, self.t
        whole = w.is_("sge", count, t.lanes)

        def part() -> None:
            many = f"<{t.lanes} x i32>"
            room = w.emit(f"trunc i64 {count} to i32")
            one = w.emit(f"insertelement {many} poison, i32 {room}, i64 0")
            all_ = w.emit(f"shufflevector {many} {one}, {many} poison, {many} zeroinitializer")
            lanes = ", ".join(f"i32 {i}" for i in range(t.lanes))
            mask = w.emit(f"icmp slt {many} <{lanes}>, {all_}")
            self._rows(range(1), base, to, mask)

        w.when(whole, lambda: self._rows(range(1), base, to, None), part)

    def _rows(self, vectors, base: str, to: str, mask) -> None:
        w, t = self.w, self.t
        lines = max(1, len(vectors) * t.lanes * self.size // 64)
        ahead = w.mul("%step", _AHEAD)

        def body(_, at):
            later = w.at(at[0], ahead)
            for line in range(lines):
                self._fetch(w.at(later, 64 * line))
            found = [self.lanes_at(w.at(at[0], v * t.lanes * self.size), mask) for v in vectors]
            panel = at[1]
            for v, value in zip(vectors, found, strict=True):
                if v and v % t.vectors == 0:
                    panel = w.at(panel, "%panel")
                beside = v % t.vectors * t.lanes * t.size
                self.store(value, w.at(panel, beside))
            return [w.at(at[0], "%step"), w.at(at[1], "%pitch")]

        w.loop(0, "%k", 1, body, [("ptr", base), ("ptr", to)])

    def store(self, value: str, place: str) -> None:
        self.w.do(f"store {self.t.vector} {value}, ptr {place}, align {self.t.size}")

    # -- other lanes, a vector of them at a time ---------------------------------------------

    def _groups(self, group, first="0") -> None:
        w, t = self.w, self.t

        def body(i, _):
            base = w.at("%from", w.mul(i, "%lane"))
            beside = w.mul(w.op("urem", i, self.width), t.size)
            group(base, w.at(self._panel(i), beside), w.sub("%lanes", i))

        w.loop(first, "%lanes", t.lanes, body)

    def _sources(self, base: str, count: str) -> list[str]:
        """Where each lane starts; beyond the last one, the last again."""
        w, last, found = self.w, self.w.sub(count, 1), [base]
        for i in range(1, self.t.lanes):
            found.append(w.at(base, w.mul(w.least(i, last), "%lane")))
        return found

    def _turn(self, base: str, to: str, count: str) -> None:
        w, q = self.w, self.quad
        rows = self._sources(base, count)
        whole = w.op("and", "%k", -q)

        def body(k, at):
            byte = w.mul(k, self.size)
            self._fetch_next_lanes(w.at(base, byte), k)
            for column in self._turned([w.at(row, byte) for row in rows]):
                self.store(column, at[0])
                at = [w.at(at[0], "%pitch")]
            return at

        (rest,) = w.loop(0, whole, q, body, [("ptr", to)])
        self._one_by_one(rows, whole, rest)

    def _fetch_next_lanes(self, place: str, k: str) -> None:
        """What lanes after these will read at this k: each line once, when its turn comes.

        A row may be a few lines long only, too short for hardware to see where reading goes on.
        """
        w, q = self.w, self.quad
        turns = 64 // (q * self.size)  # quads of a line
        turn = w.op("and", w.op("udiv", k, q), turns - 1)
        lanes = w.mul(w.least(self.t.lanes, "%lanes"), _GROUPS)
        row = w.at(place, w.mul(w.add(lanes, turn), "%lane"))
        for _ in range(max(1, self.t.lanes // turns)):
            self._fetch(row)
            row = w.at(row, w.mul(turns, "%lane"))

    def _fetch(self, place: str) -> None:
        """Have a line in the second cache: the first can wait for a few at a time only."""
        self.w.call("llvm.prefetch.p0", "void", [
            ("ptr", place), ("i32", "0"), ("i32", "2"), ("i32", "1")])

    def _turned(self, places: list[str]) -> list[str]:
        """A quad of k from every lane, as a vector of lanes for every k of it."""
        w, t, q = self.w, self.t, self.quad
        type_, wide = self.vector(q), f"<{q} x {t.element}>"
        quads = [self.wide(w.emit(f"load {type_}, ptr {p}, align {self.size}"), q) for p in places]
        # Row i beside rows i + q, i + 2q ...: what is left to do stays within 128 bits.
        rows = [self._beside(quads[i::q], wide, q) for i in range(q)]
        span = 1
        while span < q:
            rows = self._interleaved(rows, span)
            span *= 2
        bits = q.bit_length() - 1  # each stage settled one bit of k, the highest first
        return [rows[int(f"{k:0{bits}b}"[::-1], 2)] for k in range(q)]

    def _beside(self, parts: list[str], type_: str, lanes: int) -> str:
        while len(parts) > 1:
            numbers = ", ".join(f"i32 {i}" for i in range(2 * lanes))
            parts = [self.w.emit(f"shufflevector {type_} {x}, {type_} {y}, "
                                 f"<{2 * lanes} x i32> <{numbers}>")
                     for x, y in zip(parts[::2], parts[1::2], strict=True)]
            lanes *= 2
            type_ = f"<{lanes} x {self.t.element}>"
        return parts[0]

    def _interleaved(self, rows: list[str], span: int) -> list[str]:
        """One stage of transposing squares of a quad: runs of `span` from pairs of rows."""
        t, q = self.t, self.quad
        out = [""] * q
        for i in range(q):
            if i & span:
                continue
            for half in range(2):
                lanes = []
                for block in range(0, t.lanes, q):
                    for run in range(q // (2 * span)):
                        start = block + half * (q // 2) + run * span
                        lanes += [start + j for j in range(span)]
                        lanes += [t.lanes + start + j for j in range(span)]
                numbers = ", ".join(f"i32 {n}" for n in lanes)
                out[i + half * span] = self.w.emit(
                    f"shufflevector {t.vector} {rows[i]}, {t.vector} {rows[i + span]}, "
                    f"<{t.lanes} x i32> <{numbers}>")
        return out

    def _gather(self, base: str, to: str, count: str) -> None:
        self._one_by_one(self._sources(base, count), "0", to)

    def _one_by_one(self, rows: list[str], start: str, to: str) -> None:
        w = self.w

        def body(k, at):
            self.store(self.gathered(rows, w.mul(k, "%step")), at[0])
            return [w.at(at[0], "%pitch")]

        w.loop(start, "%k", 1, body, [("ptr", to)])
