"""Products of small matrices inside larger kernels: tiles of C (+)= A B held in registers.

A kernel that is more than one product (attention, recurrent layers) is written with `Code`, one
function at a time, and calls `@product` on blocks that fit in the cache. A is read element by
element at any strides; rows of B and C are contiguous. All strides are in bytes.

While it sums, a product may fetch what the kernel needs next: rows beside those of C, in other
matrices. One at a time, spread over all sums, they come from memory at no cost; all of them at
once, products would wait for them.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core import dtype as dt
from ...core import expr as ex
from ..llvm import Exprs, Place, Writer
from .bridge import jit
from .registers import many_registers, tile_shape

#: vectors of a tile: with rows of them, as many vectors of B and one of A they fill the registers
VECTORS = 2
#: rows from the one that is copied to the one that is fetched
_AHEAD = 12
#: how a product starts: from nothing, from what is there, from what is there times a factor per row
FRESH, ADDED, SCALED = 0, 1, 2


def tile_rows() -> int:
    """Rows of a tile."""
    return 10 if many_registers() else 6


class Lanes:
    """An element type and its vectors, as wide as the machine's registers or a part of that."""

    def __init__(self, dtype: dt.dtype, part: int = 1):
        self.dtype, self.size = dtype, dtype.itemsize
        self.one = {4: "float", 8: "double"}[self.size]
        self.width = jit().bits // (8 * self.size * part)
        self.many = f"<{self.width} x {self.one}>"
        self.bits = f"<{self.width} x i1>"
        self.suffix = f"v{self.width}f{8 * self.size}"
        self.panel = VECTORS * self.width
        self.whole = f"i{8 * self.size}"

    @property
    def wholes(self) -> str:
        return f"<{self.width} x {self.whole}>"

    def iota(self, start: int = 0) -> str:
        return "<" + ", ".join(f"{self.whole} {start + k}" for k in range(self.width)) + ">"


class Code(Writer):
    """One function: instructions by name, loops, and exprs on registers."""

    def __init__(self, name: str, arguments: str, lanes: Lanes, internal: bool = True):
        super().__init__()
        self.name, self.arguments, self.lanes, self.internal = name, arguments, lanes, internal
        self._formulas = Exprs(self)

    def text(self) -> str:
        self.do("ret void")
        scope = "internal " if self.internal else ""
        body = "\n".join(self.lines)
        return (f"define {scope}void @{self.name}({self.arguments}) #0 {{\nentry:\n{body}\n}}\n")

    # integers and places

    def integer(self, code: str, a, b) -> str:
        return self.emit(f"{code} i64 {a}, {b}")

    def add(self, a, b) -> str:
        return self.integer("add", a, b)

    def sub(self, a, b) -> str:
        return self.integer("sub", a, b)

    def mul(self, a, b) -> str:
        return self.integer("mul", a, b)

    def least(self, a, b) -> str:
        less = self.emit(f"icmp slt i64 {a}, {b}")
        return self.emit(f"select i1 {less}, i64 {a}, i64 {b}")

    def most(self, a, b) -> str:
        less = self.emit(f"icmp slt i64 {a}, {b}")
        return self.emit(f"select i1 {less}, i64 {b}, i64 {a}")

    def at(self, pointer: str, *steps) -> str:
        """A pointer moved by bytes; a step may be a pair to multiply."""
        for step in steps:
            offset = self.mul(*step) if isinstance(step, tuple) else step
            pointer = self.emit(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return pointer

    def word(self, words: str, i: int, type_: str = "i64") -> str:
        return self.emit(f"load {type_}, ptr {self.at(words, 8 * i)}")

    # elements and vectors

    def load(self, pointer: str, type_: str | None = None) -> str:
        type_ = type_ or self.lanes.many
        return self.emit(f"load {type_}, ptr {pointer}, align {self.lanes.size}")

    def store(self, value: str, pointer: str, type_: str | None = None) -> None:
        type_ = type_ or self.lanes.many
        self.do(f"store {type_} {value}, ptr {pointer}, align {self.lanes.size}")

    def splat(self, value: str, one: str | None = None) -> str:
        one = one or self.lanes.one
        many = f"<{self.lanes.width} x {one}>"
        first = self.emit(f"insertelement {many} poison, {one} {value}, i32 0")
        return self.emit(f"shufflevector {many} {first}, {many} poison, "
                         f"<{self.lanes.width} x i32> zeroinitializer")

    def masks(self, room: str, count: int = VECTORS) -> list[str]:
        """Which lanes of so many vectors lie before `room`."""
        lanes = self.lanes
        left = room if lanes.size == 8 else self.emit(f"trunc i64 {room} to {lanes.whole}")
        spread = self.splat(left, lanes.whole)
        return [self.emit(f"icmp slt {lanes.wholes} {lanes.iota(v * lanes.width)}, {spread}")
                for v in range(count)]

    def load_some(self, pointer: str, mask: str) -> str:
        many, bits = self.lanes.many, self.lanes.bits
        name = f"llvm.masked.load.{self.lanes.suffix}.p0"
        self.declare(name, many, ["ptr", bits, many])
        return self.emit(f"call {many} @{name}(ptr align {self.lanes.size} {pointer}, {bits} "
                         f"{mask}, {many} zeroinitializer)")

    def store_some(self, value: str, pointer: str, mask: str) -> None:
        many, bits = self.lanes.many, self.lanes.bits
        name = f"llvm.masked.store.{self.lanes.suffix}.p0"
        self.declare(name, "void", [many, "ptr", bits])
        self.do(f"call void @{name}({many} {value}, ptr align {self.lanes.size} {pointer}, {bits} "
                f"{mask})")

    def fma(self, a: str, b: str, c: str) -> str:
        many = self.lanes.many
        return self.call(f"llvm.fmuladd.{self.lanes.suffix}", many, [(many, a), (many, b),
                                                                     (many, c)])

    def arithmetic(self, code: str, a: str, b: str) -> str:
        return self.emit(f"{code} contract {self.lanes.many} {a}, {b}")

    def formula(self, e: ex.Expr, leaves: dict, width: int | None = None) -> str:
        """The value of an expr; its leaves are given as registers."""
        return self.lowered(e, self.place(leaves, width))

    def place(self, leaves: dict, width: int | None = None) -> Place:
        """Where exprs with these leaves are computed; they share what they have in common."""
        return Place(width or self.lanes.width, [], memo=dict(leaves))

    def lowered(self, e: ex.Expr, place: Place) -> str:
        return self._formulas.lower(ex.expand(e), place)

    # branches

    def when(self, condition: str, body, otherwise=None) -> None:
        then, other, done = (self.fresh(s)[1:] for s in ("then", "else", "end"))
        self.do(f"br i1 {condition}, label %{then}, label %{other if otherwise else done}")
        self.start(then)
        body()
        self.do(f"br label %{done}")
        if otherwise:
            self.start(other)
            otherwise()
            self.do(f"br label %{done}")
        self.start(done)

    def invoke(self, name: str, *args: tuple[str, str]) -> None:
        self.do(f"call void @{name}({', '.join(f'{t} {v}' for t, v in args)})")

    def fetch(self, place: str, write: bool = False) -> None:
        """Have a line of memory near when it is needed."""
        self.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        self.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 {int(write)}, i32 3, i32 1)")

    def product(self, c, ldc, a, down, along, b, ldb, across, inner, rows, cols, mode,
                factors="null", coming=()) -> None:
        """C[rows, cols] (+)= A[rows, inner] B[inner, cols]; `across` leads to B's next panel.

        `coming` are pairs of where rows to fetch start and how far they are apart, as many as the
        module's product functions were asked for.
        """
        self.invoke("product", ("ptr", c), ("i64", ldc), ("ptr", a), ("i64", down),
                    ("i64", along), ("ptr", b), ("i64", ldb), ("i64", across), ("i64", inner),
                    ("i64", rows), ("i64", cols), ("i64", mode), ("ptr", factors),
                    *(given for start, apart in coming
                      for given in (("ptr", start), ("i64", apart))))


def module(functions: list[Code], extra: str = "") -> str:
    """A module of functions, with the attributes and declarations they need."""
    declared: dict[str, str] = {}
    for f in functions:
        declared.update(f.declared)
    return "\n".join([*(f.text() for f in functions), *declared.values(), extra,
                      'attributes #0 = { nounwind "no-trapping-math"="true" }\n'])


def leaf(k: int, dtype: dt.dtype) -> ex.Expr:
    """A leaf for `Code.formula`."""
    return ex.make("state", (), k, dtype)


# -- products --------------------------------------------------------------------------------------

_TILE = ("ptr %c, i64 %ldc, ptr %a, i64 %down, i64 %along, ptr %b, i64 %ldb, i64 %inner, "
         "i64 %mode, ptr %factors, i64 %room")


def _rows_to_fetch(coming: int) -> str:
    """Arguments for so many matrices of which rows are fetched."""
    return "".join(f", ptr %coming{n}, i64 %apart{n}" for n in range(coming))


def _passed_on(code: Code, coming: int, row: str = "0") -> list[tuple[str, str]]:
    """Those arguments for another function, from a row on."""
    return [given for n in range(coming)
            for given in (("ptr", code.at(f"%coming{n}", (row, f"%apart{n}"))),
                          ("i64", f"%apart{n}"))]


class _Panel(NamedTuple):
    """Columns that a tile takes together: so many vectors; a partial one has fewer columns."""

    suffix: str
    lanes: Lanes
    vectors: int
    partial: bool = True

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes.width


def _panels(lanes: Lanes) -> list[_Panel]:
    """Kinds of panels, the narrowest first: few columns at the end are not computed as many."""
    panels = [_Panel("_thin", lanes, 1), _Panel("_partial", lanes, VECTORS),
              _Panel("", lanes, VECTORS, False)]
    if lanes.width * lanes.size == 64:  # of which many a CPU computes two halves in turn
        panels.insert(0, _Panel("_half", Lanes(lanes.dtype, 2), 1))
    return panels


class _Tile:
    """Writes the function of a few rows and a panel of columns of C; a partial one has `room`."""

    def __init__(self, panel: _Panel, rows: int, coming: int):
        self.panel, self.rows, self.coming = panel, rows, coming
        self.code = Code(f"tile{rows}{panel.suffix}", _TILE + _rows_to_fetch(coming), panel.lanes)
        self.step = panel.lanes.width * panel.lanes.size
        self.grid = [(r, v) for r in range(rows) for v in range(panel.vectors)]
        self.kinds = ["i64", "ptr", *(panel.lanes.many for _ in self.grid)]  # that loops carry

    def text(self) -> Code:
        code = self.code
        self.masks = code.masks("%room", self.panel.vectors)
        self.a, c = self._rows_from("%a", "%down"), self._rows_from("%c", "%ldc")
        self.places = {(r, v): self._vector(c[r], v) for r, v in self.grid}
        if not self.coming:
            for r in range(self.rows):
                self._fetch_c(c[r])
        self._write(self._sums())
        return code

    def _fetch_c(self, row: str) -> None:
        """Have a row of C near when the sums are done: it often comes from far."""
        for v in range(self.panel.vectors):
            self.code.fetch(self._vector(row, v), write=True)

    def _rows_from(self, base: str, apart: str) -> list[str]:
        found = [base]
        for _ in range(1, self.rows):
            found.append(self.code.at(found[-1], apart))
        return found

    def _vector(self, pointer: str, v: int) -> str:
        return self.code.at(pointer, v * self.step) if v else pointer

    def _read(self, pointer: str, v: int) -> str:
        code = self.code
        return code.load_some(pointer, self.masks[v]) if self.panel.partial else code.load(pointer)

    # -- sums ----------------------------------------------------------------------------------

    def _sums(self) -> dict:
        steps = tile_shape().steps  # of the inner loop at a time
        begin, found = "0", ["0", "%b", *("zeroinitializer" for _ in self.grid)]
        if self.coming:
            begin, found = self._summed_and_fetched(steps, found)
        for times in {steps: None, 1: None}:
            end = "%inner" if times == 1 else self.code.integer("and", "%inner", -times)
            found = self._summed(begin, end, times, found)
            begin = end
        return dict(zip(self.grid, found[2:], strict=True))

    def _summed(self, begin: str, end: str, times: int, values: list[str]) -> list[str]:
        """What loops carry, how far A was read, B and the sums, after more rows of B."""
        return self.code.loop(begin, end, times, list(zip(self.kinds, values, strict=True)),
                              lambda _, carried: self._some(times, *carried))

    def _some(self, times: int, along: str, b: str, *sums: str) -> list[str]:
        """So many rows of B."""
        code, count, after = self.code, self.panel.vectors, list(sums)
        for _ in range(times):
            right = [self._read(self._vector(b, v), v) for v in range(count)]
            for r in range(self.rows):
                left = code.splat(code.load(code.at(self.a[r], along), code.lanes.one))
                for v in range(count):
                    k = r * count + v
                    after[k] = code.fma(left, right[v], after[k])
            along, b = code.add(along, "%along"), code.at(b, "%ldb")
        return [along, b, *after]

    def _summed_and_fetched(self, steps: int, values: list[str]) -> tuple[str, list[str]]:
        """The first rows of B, as many for each row that is fetched before, of C and of others, and
        where they end."""
        code = self.code
        share = code.integer("and", code.integer("udiv", "%inner", self.rows), -steps)
        reach = VECTORS * self.step

        def one(r, carried):
            self._fetch_c(code.at("%c", (r, "%ldc")))
            for n in range(self.coming):
                place = code.at(f"%coming{n}", (r, f"%apart{n}"))
                for byte in (*range(0, reach, 64), reach - 1):
                    code.fetch(code.at(place, byte))
            begin = code.mul(r, share)
            return self._summed(begin, code.add(begin, share), steps, carried)

        found = code.loop("0", str(self.rows), "1", list(zip(self.kinds, values, strict=True)), one)
        return code.mul(share, self.rows), found

    # -- what becomes of them --------------------------------------------------------------------

    def _write(self, sums: dict) -> None:
        code, lanes, places = self.code, self.panel.lanes, self.places
        code.do(f"switch i64 %mode, label %fresh [ i64 {ADDED}, label %added i64 {SCALED}, "
                "label %scaled ]")
        code.start("added")
        self._put({k: code.arithmetic("fadd", sums[k], self._read(places[k], k[1]))
                   for k in self.grid})
        code.start("scaled")
        factors = [code.splat(code.load(code.at("%factors", r * lanes.size), lanes.one))
                   for r in range(self.rows)]
        self._put({(r, v): code.fma(self._read(places[r, v], v), factors[r], sums[r, v])
                   for r, v in self.grid})
        code.start("fresh")
        self._put(sums)
        code.start("done")

    def _put(self, values: dict) -> None:
        for k, place in self.places.items():
            if self.panel.partial:
                self.code.store_some(values[k], place, self.masks[k[1]])
            else:
                self.code.store(values[k], place)
        self.code.do("br label %done")


def _column(panel: _Panel, coming: int) -> Code:
    """A panel of columns, its rows dealt out evenly to tiles."""
    arguments = f"{_TILE}, i64 %rows{_rows_to_fetch(coming)}"
    code, most = Code(f"column{panel.suffix}", arguments, panel.lanes), tile_rows()
    tiles = code.integer("sdiv", code.add("%rows", most - 1), most)

    def tile(i, carried):
        row, = carried
        left = code.sub("%rows", row)
        beside = code.sub(tiles, i)
        count = code.integer("sdiv", code.sub(code.add(left, beside), 1), beside)
        c, a = code.at("%c", (row, "%ldc")), code.at("%a", (row, "%down"))
        factors = code.at("%factors", (row, panel.lanes.size))
        fetched = _passed_on(code, coming, row)
        labels = [code.fresh("rows")[1:] for _ in range(most)]
        done = code.fresh("tile")[1:]
        cases = " ".join(f"i64 {r + 1}, label %{labels[r]}" for r in range(most))
        code.do(f"switch i64 {count}, label %{done} [ {cases} ]")
        for r in range(most):
            code.start(labels[r])
            code.invoke(f"tile{r + 1}{panel.suffix}", ("ptr", c), ("i64", "%ldc"), ("ptr", a),
                        ("i64", "%down"), ("i64", "%along"), ("ptr", "%b"), ("i64", "%ldb"),
                        ("i64", "%inner"), ("i64", "%mode"), ("ptr", factors), ("i64", "%room"),
                        *fetched)
            code.do(f"br label %{done}")
        code.start(done)
        return [code.add(row, count)]

    code.loop("0", tiles, "1", [("i64", "0")], tile)
    return code


def _product(lanes: Lanes, coming: int) -> Code:
    code = Code("product", "ptr %c, i64 %ldc, ptr %a, i64 %down, i64 %along, ptr %b, i64 %ldb, "
                "i64 %across, i64 %inner, i64 %rows, i64 %cols, i64 %mode, ptr %factors"
                + _rows_to_fetch(coming), lanes)

    def panel(i, _):
        c = code.at("%c", (i, lanes.panel * lanes.size))
        b = code.at("%b", (i, "%across"))
        room = code.sub("%cols", code.mul(i, lanes.panel))
        args = [("ptr", c), ("i64", "%ldc"), ("ptr", "%a"), ("i64", "%down"), ("i64", "%along"),
                ("ptr", b), ("i64", "%ldb"), ("i64", "%inner"), ("i64", "%mode"),
                ("ptr", "%factors"), ("i64", room), ("i64", "%rows"), *_passed_on(code, coming)]
        narrowest(_panels(lanes), room, args)
        return []

    def narrowest(panels, room, args):
        """The columns as the narrowest panel that has room for them."""
        first, *others = panels
        if not others:
            code.invoke(f"column{first.suffix}", *args)
            return
        limit = first.columns - (others == panels[-1:])  # a partial one that is full is whole
        code.when(code.emit(f"icmp sle i64 {room}, {limit}"),
                  lambda: code.invoke(f"column{first.suffix}", *args),
                  lambda: narrowest(others, room, args))

    panels = code.integer("sdiv", code.add("%cols", lanes.panel - 1), lanes.panel)
    code.loop("0", panels, "1", (), panel)
    return code


def product_functions(lanes: Lanes, coming: int = 0) -> list[Code]:
    """What a module that calls `Code.product` needs, fetching rows of so many matrices."""
    panels, heights = _panels(lanes), range(1, tile_rows() + 1)
    return [*(_Tile(panel, rows, coming).text() for panel in panels for rows in heights),
            *(_column(panel, coming) for panel in panels), _product(lanes, coming)]


# -- transposed panels -----------------------------------------------------------------------------


def turned(code: Code, rows: list[str], type_: str | None = None) -> list[str]:
    """A square of vectors transposed: pairs of lanes are exchanged at every distance."""
    width, many = code.lanes.width, type_ or code.lanes.many
    distance = 1
    while distance < width:
        for i in range(width):
            if i & distance:
                continue
            one, other = rows[i], rows[i + distance]
            low = [k if not k & distance else width + k - distance for k in range(width)]
            high = [k + distance if not k & distance else width + k for k in range(width)]
            rows[i], rows[i + distance] = (
                code.emit(f"shufflevector {many} {one}, {many} {other}, <{width} x i32> <"
                          + ", ".join(f"i32 {k}" for k in picked) + ">") for picked in (low, high))
        distance *= 2
    return rows


def transposed_panels(lanes: Lanes) -> Code:
    """@turn: rows of a matrix become lanes, a panel of them at a time, times a factor.

    target[panel][column][lane]; lanes beyond the last row repeat it.
    """
    code = Code("turn", f"ptr %target, ptr %source, i64 %down, i64 %rows, i64 %cols, "
                f"{lanes.one} %factor", lanes)
    width, size = lanes.width, lanes.size
    factor = code.splat("%factor")
    last = code.sub("%rows", 1)
    vectors = code.integer("sdiv", code.add("%rows", width - 1), width)
    straight = code.integer("and", "%cols", -width)
    pitch = lanes.panel * size

    def strip(v, _):
        """One vector of rows."""
        sources = [code.at("%source", (code.least(code.add(code.mul(v, width), k), last), "%down"))
                   for k in range(width)]
        panel = code.integer("udiv", v, VECTORS)
        half = code.sub(v, code.mul(panel, VECTORS))
        target = code.at("%target", code.mul(code.mul(panel, "%cols"), pitch),
                         (half, width * size))

        def square(d, _):
            for source in sources:  # rows are short: hardware does not see which come next
                code.fetch(code.at(source, (width, "%down"), (d, size)))
            values = turned(code, [code.load(code.at(s, (d, size))) for s in sources])
            for k, value in enumerate(values):
                code.store(code.arithmetic("fmul", value, factor),
                           code.at(target, (code.add(d, k), pitch)))
            return []

        def single(d, _):
            value = "poison"
            for k, s in enumerate(sources):
                element = code.load(code.at(s, (d, size)), lanes.one)
                value = code.emit(f"insertelement {lanes.many} {value}, {lanes.one} {element}, "
                                  f"i32 {k}")
            code.store(code.arithmetic("fmul", value, factor), code.at(target, (d, pitch)))
            return []

        code.loop("0", straight, str(width), (), square)
        code.loop(straight, "%cols", "1", (), single)
        return []

    code.loop("0", vectors, "1", (), strip)
    return code


def copied_panels(lanes: Lanes) -> Code:
    """@strips: target[panel][row][lane] from the rows of a matrix; lanes past the last are 0."""
    code = Code("strips", "ptr %target, ptr %source, i64 %down, i64 %rows, i64 %cols", lanes)
    pitch, step = lanes.panel * lanes.size, lanes.width * lanes.size
    panels = code.integer("sdiv", code.add("%cols", lanes.panel - 1), lanes.panel)

    def panel(p, _):
        source = code.at("%source", (p, pitch))
        target = code.at("%target", code.mul(code.mul(p, "%rows"), pitch))
        room = code.sub("%cols", code.mul(p, lanes.panel))
        masks = code.masks(room)

        def copy(read):
            def row(r, _):
                later = code.at(source, (code.add(r, _AHEAD), "%down"))
                for byte in range(0, pitch, 64):
                    code.fetch(code.at(later, byte))
                for v in range(VECTORS):
                    code.store(read(code.at(source, (r, "%down"), v * step), v),
                               code.at(target, (r, pitch), v * step))
                return []
            return lambda: code.loop("0", "%rows", "1", (), row)

        code.when(code.emit(f"icmp sge i64 {room}, {lanes.panel}"),
                  copy(lambda place, v: code.load(place)),
                  copy(lambda place, v: code.load_some(place, masks[v])))
        return []

    code.loop("0", panels, "1", (), panel)
    return code
