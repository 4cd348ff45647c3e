"""The microkernel: a tile of C is summed in registers over a loop in k, then finished and stored.

    void @name(ptr s, ptr v, i64 k, ptr c, ptr d, ptr frame, i64 columns)

C[r, j] = finish(alpha * sum over k of S[r, k] V[k, j] + beta * D[r, j]), r < rows, j < columns.
S is read element by element from any two strides; V's rows are contiguous, as are C's. A masked
tile touches no lane of its last vector beyond `columns`; another ignores it. k is at least 1.
Strides are in bytes, and are read, with all that tiles have in common, from words of `frame`.
"""

from __future__ import annotations

from collections.abc import Callable

from ....core.record import Record
from ..registers import tile_shape
from .host import Tile
from .text import Code

#: words of a frame, 8 bytes each. `kind` says what D is: see below. alpha and beta are doubles.
#: `last` is 1 where finish applies. `ahead` is how far after a row of V the next to fetch lies;
#: `next` how far after S that of the next tile, of which `next_step` bytes more are fetched with
#: every k.
FRAME = ("s_row", "s_step", "v_step", "c_row", "d_row", "kind", "alpha", "beta", "last", "ahead",
         "next", "next_step")
FRAME_BYTES = 8 * len(FRAME)
#: nothing, and alpha is 1; rows of D; one element of D a row; nothing
PLAIN, ROWS, COLUMN, SCALED = 0, 1, 2, 3

ARGUMENTS = "ptr %s, ptr %v, i64 %k, ptr %c, ptr %d, ptr %frame, i64 %columns"

#: memory dtypes narrower than the sums
_NARROW = {"bfloat16": "i16", "float16": "half"}


class Kernel(Record):
    """One microkernel: how large, whether lanes are masked, how C is kept, what finishes it.

    `finish(writer, value, vector_type) -> value` writes the instructions of an activation.
    """

    tile: Tile
    rows: int
    vectors: int
    masked: bool = False
    out: str = ""  # dtype of C and D, if not that of the sums
    finish: Callable | None = None
    source: str = ""  # dtype of S and V, if not that of the sums: panels have that of the sums
    add: Callable | None = None  # add(writer, tile, left, right, sums), if not their product

    def text(self, name: str) -> tuple[str, dict]:
        """The function of this name, and the declarations it needs (see text.module)."""
        return _Tile(self, name).text()


class _Tile:
    def __init__(self, kernel: Kernel, name: str):
        self.k, self.t, self.name, self.w = kernel, kernel.tile, name, Code()
        self.out = kernel.out if kernel.out in _NARROW else ""
        self.source = kernel.source if kernel.source in _NARROW else ""
        self.out_size = 2 if self.out else self.t.size
        self.size = 2 if self.source else self.t.size
        self.places = [(r, v) for r in range(kernel.rows) for v in range(kernel.vectors)]

    def word(self, name: str, type_: str = "i64") -> str:
        return self.w.word("%frame", FRAME.index(name), type_)

    def at(self, base: str, offset) -> str:
        return self.w.at(base, offset)

    def rows_from(self, base: str, stride: str) -> list[str]:
        found = [base]
        for _ in range(1, self.k.rows):
            found.append(self.at(found[-1], stride))
        return found

    def splat(self, scalar: str, element: str = "", many: str = "") -> str:
        element, many = element or self.t.element, many or self.t.vector
        one = self.w.emit(f"insertelement {many} poison, {element} {scalar}, i64 0")
        return self.w.emit(f"shufflevector {many} {one}, {many} poison, "
                           f"<{self.t.lanes} x i32> zeroinitializer")

    def text(self) -> tuple[str, dict]:
        self._masks()
        sums = self._sums()
        self._finish(sums)
        return self.w.function(self.name, ARGUMENTS), self.w.declared

    # -- lanes -------------------------------------------------------------------------------

    def _masks(self) -> None:
        self.mask = ""
        if not self.k.masked:
            return
        t, w = self.t, self.w
        whole = f"i{8 * t.size}"  # as wide as an element, so that a comparison is a mask at once
        many = f"<{t.lanes} x {whole}>"
        left = "%columns" if t.size == 8 else w.emit(f"trunc i64 %columns to {whole}")
        room = self.splat(left, whole, many)
        lanes = ", ".join(f"{whole} {(self.k.vectors - 1) * t.lanes + i}" for i in range(t.lanes))
        self.mask = w.emit(f"icmp slt {many} <{lanes}>, {room}")

    def masks(self, v: int) -> bool:
        """Whether a vector may lie partly beyond the columns: only the last may."""
        return self.k.masked and v == self.k.vectors - 1

    def _memory(self, dtype: str) -> tuple[str, int]:
        if dtype:
            return f"<{self.t.lanes} x {_NARROW[dtype]}>", 2
        return self.t.vector, self.t.size

    def load(self, place: str, v: int, dtype: str = "") -> str:
        """Lanes of a vector, from half precision if a dtype is given."""
        type_, size = self._memory(dtype)
        if self.masks(v):
            suffix = f"v{self.t.lanes}{_suffix(type_)}.p0"
            value = self.w.call(f"llvm.masked.load.{suffix}", type_, [
                ("ptr", place), (f"<{self.t.lanes} x i1>", self.mask),
                (type_, "zeroinitializer")])
        else:
            value = self.w.emit(f"load {type_}, ptr {place}, align {size}")
        return widened(self.w, value, dtype, self.t.lanes) if dtype else value

    def store(self, value: str, place: str, v: int) -> None:
        type_, size = self._memory(self.out)
        if self.out:
            value = narrowed(self.w, value, self.out, self.t.lanes)
        if not self.masks(v):
            self.w.do(f"store {type_} {value}, ptr {place}, align {size}")
            return
        name, bits = f"llvm.masked.store.v{self.t.lanes}{_suffix(type_)}.p0", self.t.lanes
        self.w.declare(name, "void", [type_, "ptr", f"<{bits} x i1>"])
        self.w.do(f"call void @{name}({type_} {value}, ptr align {size} {place}, "
                  f"<{bits} x i1> {self.mask})")

    # -- the loop in k -----------------------------------------------------------------------

    def _sums(self) -> dict:
        """A loop whose strides are known where both operands are whole panels; then any strides."""
        w, t = self.w, self.t
        strides = [self.word(name) for name in ("s_row", "s_step", "v_step")]
        ahead = self.word("ahead")
        self.c_rows = self.rows_from("%c", self.word("c_row"))
        w.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        values = ["0", "%v", *["zeroinitializer"] * len(self.places)]
        done, following = "0", (self.at("%s", self.word("next")), self.word("next_step"))
        if (self.k.rows, self.k.vectors, self.source) == (t.rows, t.vectors, ""):
            known = [t.size, t.pitch * t.size, t.columns * t.size]
            same = [w.is_("eq", x, y) for x, y in zip(strides, known, strict=True)]
            panels = w.op("and", w.op("and", same[0], same[1], "i1"), same[2], "i1")
            done, values = self._summed_and_fetched(w.pick(panels, "%k", 0), values, known)
        else:
            for row in self.c_rows:
                self._fetch_row(row)
        sums = self._loop(done, "%k", 1, values, strides, ahead, following)[2:]
        return dict(zip(self.places, sums, strict=True))

    def _summed_and_fetched(self, k: str, values: list[str], strides: list) -> tuple[str, list]:
        """Sums over nearly all of k, and where they end. A row of C is fetched every now and then:
        if all came at once, panels would have to wait for them."""
        w, steps = self.w, tile_shape().steps  # of k at a time
        share = w.op("and", w.op("udiv", k, self.k.rows), -steps)
        c_row = self.word("c_row")

        def one(r, now):
            self._fetch_row(w.at("%c", w.mul(r, c_row)))
            begin = w.mul(r, share)
            return self._loop(begin, w.add(begin, share), steps, now, strides, "")

        return w.mul(share, self.k.rows), w.loop(0, self.k.rows, 1, one, self._carried(values))

    def _fetch_row(self, row: str) -> None:
        """Have the tile's part of a row of C near when the sums are done; it may begin anywhere in
        a line."""
        w, reach = self.w, self.k.vectors * self.t.lanes * self.out_size
        for byte in (*range(0, reach, 64), reach - 1):
            self._fetch(w.at(row, byte), write=True)

    def _fetch(self, place: str, near: int = 3, write: bool = False) -> None:
        self.w.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 {write:d}, i32 {near}, i32 1)")

    def _carried(self, values: list[str]) -> list[tuple[str, str]]:
        """What loops carry, with types: how far S was read, V and the sums."""
        types = ["i64", "ptr", *[self.t.vector] * len(self.places)]
        return list(zip(types, values, strict=True))

    def _loop(self, start, stop, steps: int, values: list[str], strides: list,
              ahead: str, following: tuple = ()) -> list[str]:
        """Sums over k, so many steps at a time; what follows S is fetched into the second cache."""
        w, (s_row, s_step, v_step) = self.w, strides
        s_rows = self.rows_from("%s", s_row)

        def some(i, now):
            offset, v, *sums = now
            if following:
                base, step = following
                self._fetch(self.at(base, w.mul(i, step)), near=2)
            for _ in range(steps):
                sums = self._step([self.at(row, offset) for row in s_rows], v, sums, ahead)
                offset, v = w.add(offset, s_step), self.at(v, v_step)
            return [offset, v, *sums]

        return w.loop(start, stop, steps, some, self._carried(values))

    def _step(self, s_rows: list[str], v: str, sums: list[str], ahead: str) -> list[str]:
        """The products of one k."""
        if ahead:
            self._fetch(self.at(v, ahead))
        right = [self.load(self.at(v, i * self.t.lanes * self.size), i, self.source)
                 for i in range(self.k.vectors)]
        left = [self._everywhere(row, self.source) for row in s_rows]
        return [self._added(left[r], right[i], total)
                for (r, i), total in zip(self.places, sums, strict=True)]

    def _added(self, left: str, right: str, sums: str) -> str:
        t = self.t
        if self.k.add is not None:
            return self.k.add(self.w, t, left, right, sums)
        return self.w.call(f"llvm.fmuladd.v{t.lanes}f{8 * t.size}", t.vector, [
            (t.vector, left), (t.vector, right), (t.vector, sums)])

    # -- what becomes of the sums --------------------------------------------------------------

    def _finish(self, sums: dict) -> None:
        w = self.w
        kind = self.word("kind")
        w.do(f"switch i64 {kind}, label %plain [ i64 {ROWS}, label %rows "
             f"i64 {COLUMN}, label %column i64 {SCALED}, label %scaled ]")
        arrivals = [("plain", dict(sums))]
        w.start("plain")
        w.do("br label %combined")
        for label, addend in (("scaled", None), ("rows", self._row), ("column", self._column)):
            w.start(label)
            arrivals.append((label, self._combined(sums, addend)))
            w.do("br label %combined")
        w.start("combined")
        merged = {}
        for p in self.places:
            merged[p] = w.emit(f"phi {self.t.vector} "
                               + ", ".join(f"[ {d[p]}, %{label} ]" for label, d in arrivals))
        if self.k.finish is not None:
            merged = self._activated(merged, self.k.finish)
        self._store(merged)

    def _number(self, name: str) -> str:
        value = self.word(name, "double")
        if self.t.size == 4:
            value = self.w.emit(f"fptrunc double {value} to float")
        return self.splat(value)

    def _combined(self, sums: dict, addend) -> dict:
        w, t = self.w, self.t
        alpha = self._number("alpha")
        if addend is None:
            return {p: w.emit(f"fmul {t.vector} {alpha}, {sums[p]}") for p in self.places}
        beta, rows = self._number("beta"), self.rows_from("%d", self.word("d_row"))
        found = {}
        for r, v in self.places:
            # Rounded as torch does it, which half precision shows: the scaled sum, then all of it.
            scaled = w.emit(f"fmul {t.vector} {alpha}, {sums[r, v]}")
            found[r, v] = w.call(f"llvm.fmuladd.v{t.lanes}f{8 * t.size}", t.vector, [
                (t.vector, beta), (t.vector, addend(rows[r], v)), (t.vector, scaled)])
        return found

    def _row(self, row: str, v: int) -> str:
        return self.load(self.at(row, v * self.t.lanes * self.out_size), v, self.out)

    def _column(self, row: str, v: int) -> str:
        return self._everywhere(row, self.out)

    def _everywhere(self, place: str, dtype: str) -> str:
        """One element in all lanes, from half precision if a dtype is given."""
        if not dtype:
            return self.splat(self.w.emit(f"load {self.t.element}, ptr {place}"))
        kind = _NARROW[dtype]
        one = self.w.emit(f"load <1 x {kind}>, ptr {place}, align 2")
        wide = widened(self.w, one, dtype, 1)
        return self.splat(self.w.emit(f"extractelement <1 x float> {wide}, i64 0"))

    def _activated(self, values: dict, finish: Callable) -> dict:
        w = self.w
        last = self.word("last")
        now = w.emit(f"icmp ne i64 {last}, 0")
        w.do(f"br i1 {now}, label %activate, label %keep")
        w.start("activate")
        done = {p: finish(w, values[p], self.t.vector) for p in self.places}
        end = w.block
        w.do("br label %keep")
        w.start("keep")
        return {p: w.emit(f"phi {self.t.vector} [ {values[p]}, %combined ], [ {done[p]}, %{end} ]")
                for p in self.places}

    def _store(self, values: dict) -> None:
        for r, v in self.places:
            self.store(values[r, v], self.at(self.c_rows[r], v * self.t.lanes * self.out_size), v)


# -- sums along vectors of k ---------------------------------------------------------------------


class DotKernel(Record):
    """A microkernel for operands that are both contiguous in k: C[r, j] = S[r, :] . V[j, :].

    `v_step` of its frame is the stride between columns of V, and k is taken in vectors.
    """

    tile: Tile
    rows: int
    columns: int
    masked: bool = False
    out: str = ""
    finish: Callable | None = None
    source: str = ""

    def text(self, name: str) -> tuple[str, dict]:
        """The function of this name, and the declarations it needs (see text.module)."""
        t = self.tile
        ends = Kernel(Tile(t.dtype, self.rows, 1, self.columns), self.rows, 1, self.masked,
                      self.out, self.finish, self.source)
        return _Dot(ends, name, t).text()


class _Dot(_Tile):
    """Sums that are vectors in k while the loop runs, and then one number each."""

    def __init__(self, kernel: Kernel, name: str, tile: Tile):
        super().__init__(kernel, name)
        self.across = tile

    def _sums(self) -> dict:
        w, deep = self.w, self.across
        rows = self.rows_from("%s", self.word("s_row"))
        step = self.word("v_step")
        columns = [self.at("%v", self._column_offset(j, step)) for j in range(self.t.lanes)]
        self.c_rows = self.rows_from("%c", self.word("c_row"))
        places = [(r, j) for r in range(self.k.rows) for j in range(self.t.lanes)]
        whole, fused = w.op("and", "%k", -deep.lanes), f"llvm.fmuladd.v{deep.lanes}f{8 * deep.size}"

        def multiply(k, sums, load):
            byte = w.mul(k, self.size)
            left = [load(w.at(row, byte)) for row in rows]
            after = {}
            for j, column in enumerate(columns):
                right = load(w.at(column, byte))
                for r in range(len(rows)):
                    after[r, j] = w.call(fused, deep.vector, [
                        (deep.vector, left[r]), (deep.vector, right), (deep.vector, sums[r, j])])
            return [after[p] for p in places]

        type_ = f"<{deep.lanes} x {_NARROW.get(self.source, deep.element)}>"

        def wide(value: str) -> str:
            return widened(w, value, self.source, deep.lanes) if self.source else value

        def read(place: str) -> str:
            return wide(w.emit(f"load {type_}, ptr {place}, align {self.size}"))

        def read_rest(k: str):
            rest = self._rest(k, type_)
            return lambda place: wide(rest(place))

        zeros = [(deep.vector, "zeroinitializer")] * len(places)
        sums = w.loop(0, whole, deep.lanes,
                      lambda k, s: multiply(k, dict(zip(places, s, strict=True)), read), zeros)
        sums = w.loop(whole, "%k", deep.lanes,
                      lambda k, s: multiply(k, dict(zip(places, s, strict=True)), read_rest(k)),
                      list(zip([deep.vector] * len(places), sums, strict=True)))
        totals = dict(zip(places, map(self._total, sums), strict=True))
        return {(r, 0): self._gathered([totals[r, j] for j in range(self.t.lanes)])
                for r in range(self.k.rows)}

    def _column_offset(self, j: int, step: str) -> str:
        """Beyond the last column the last again."""
        if not self.k.masked:
            return self.w.mul(j, step)
        return self.w.mul(self.w.least(j, self.w.sub("%columns", 1)), step)

    def _rest(self, k: str, type_: str):
        """Reads what is left of k, and zeros after it."""
        w, t = self.w, self.across
        whole = f"i{8 * t.size}"
        many = f"<{t.lanes} x {whole}>"
        left = w.sub("%k", k)
        if t.size == 4:
            left = w.emit(f"trunc i64 {left} to i32")
        one = w.emit(f"insertelement {many} poison, {whole} {left}, i64 0")
        room = w.emit(f"shufflevector {many} {one}, {many} poison, "
                      f"<{t.lanes} x i32> zeroinitializer")
        lanes = ", ".join(f"{whole} {i}" for i in range(t.lanes))
        mask = w.emit(f"icmp slt {many} <{lanes}>, {room}")
        name = f"llvm.masked.load.v{t.lanes}{_suffix(type_)}.p0"
        return lambda place: w.call(name, type_, [
            ("ptr", place), (f"<{t.lanes} x i1>", mask), (type_, "zeroinitializer")])

    def _total(self, vector: str) -> str:
        """Halves are added until one is left."""
        w, lanes, element = self.w, self.across.lanes, self.across.element
        while lanes > 1:
            half, type_ = lanes // 2, f"<{lanes} x {element}>"
            low, high = (w.emit(f"shufflevector {type_} {vector}, {type_} poison, <{half} x i32> <"
                                + ", ".join(f"i32 {start + i}" for i in range(half)) + ">")
                         for start in (0, half))
            vector = w.emit(f"fadd <{half} x {element}> {low}, {high}")
            lanes = half
        return w.emit(f"extractelement <1 x {element}> {vector}, i64 0")

    def _gathered(self, numbers: list[str]) -> str:
        value = "poison"
        for i, number in enumerate(numbers):
            value = self.w.emit(f"insertelement {self.t.vector} {value}, {self.t.element} "
                                f"{number}, i64 {i}")
        return value


def _suffix(type_: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16", "i16": "i16"}[type_.split()[-1][:-1]]


def widened(w: Code, value: str, dtype: str, lanes: int) -> str:
    """float32 lanes of half precision ones."""
    if dtype == "float16":
        return w.emit(f"fpext <{lanes} x half> {value} to <{lanes} x float>")
    wide = w.emit(f"zext <{lanes} x i16> {value} to <{lanes} x i32>")
    up = w.emit(f"shl <{lanes} x i32> {wide}, splat (i32 16)")
    return w.emit(f"bitcast <{lanes} x i32> {up} to <{lanes} x float>")


def narrowed(w: Code, value: str, dtype: str, lanes: int) -> str:
    """float32 lanes rounded to half precision, ties to even."""
    if dtype == "float16":
        return w.emit(f"fptrunc <{lanes} x float> {value} to <{lanes} x half>")
    ints = f"<{lanes} x i32>"
    bits = w.emit(f"bitcast <{lanes} x float> {value} to {ints}")
    low = w.emit(f"lshr {ints} {bits}, splat (i32 16)")
    odd = w.emit(f"and {ints} {low}, splat (i32 1)")
    bias = w.emit(f"add {ints} {odd}, splat (i32 32767)")
    rounded = w.emit(f"add {ints} {bits}, {bias}")
    nan = w.emit(f"fcmp uno <{lanes} x float> {value}, {value}")
    kept = w.emit(f"select <{lanes} x i1> {nan}, {ints} splat (i32 2143289344), {ints} {rounded}")
    top = w.emit(f"lshr {ints} {kept}, splat (i32 16)")
    return w.emit(f"trunc {ints} {top} to <{lanes} x i16>")
