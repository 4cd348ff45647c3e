"""Attention as one kernel each way, without the matrix of scores: block by block.

Scores lie transposed, a row for each key and a lane for each query: the largest and the sum of a
query's scores are lanes of vectors, and keys and values are read where they lie. Exponents are of
2: queries are scaled by log2(e). Each query's log2 of the sum is all that is kept for the way back,
which computes the scores anew; a span of keys is one thread's, so that sums have one order.
"""

from __future__ import annotations

import functools
import math
import struct
from array import array

from ...core import dtype as dt
from ...core import expr as ex
from ..elementary.exponential import EXPONENTIAL
from ..elementary.floats import fma, layout, nearest, polynomial, power_of_two
from .bridge import wrapper_ir
from .compile import cache, load_or_build
from .matmul import scratch
from .threads import DECLARATION
from .tiles import ADDED, FRESH, SCALED, Code, Lanes, leaf, module, product_functions, turned
from .tiles import transposed_panels as transposed

#: what a mask holds: nothing, numbers to add, or whether a key is seen
ADDITIVE, BOOLEAN = 1, 2

_WORDS = ("count", "grain", "length", "source", "depth", "breadth", "block", "keys", "causal",
          "mask", "factor", "scale", "keep", "scratch", "table", "blocks", "group", "spans", "span",
          "partial", "q", "k", "v", "mask_q", "mask_k", "out", "g", "dq", "dk", "dv")
#: byte offsets of each head, one row per head of queries
COLUMNS = ("q", "k", "v", "mask", "out", "g", "dq", "dk", "dv")
LOG2E = 1 / math.log(2)
_POINTERS = {"forward": ("out", "lse", "q", "k", "v", "mask", "drop"),
             "backward": ("dq", "dk", "dv", "g", "out", "lse", "q", "k", "v", "mask", "drop")}


class Layout:
    """Sizes, strides in bytes and offsets of heads, as the words that kernels read."""

    __slots__ = ("address", "table", "words")

    def __init__(self, work: int, numbers: dict, offsets):
        self.table = array("q", [byte for row in offsets for byte in row])
        known = {**numbers, "table": self.table.buffer_info()[0]}
        words = [_bits(known.get(name, 0)) for name in _WORDS]
        self.words = array("q", [work, *words])
        self.address = self.words.buffer_info()[0] + 8


def _bits(value) -> int:
    return struct.unpack("q", struct.pack("d", value))[0] if type(value) is float else int(value)


def blocks_of(dtype: dt.dtype, length: int, causal: bool, backward: bool) -> tuple[int, int]:
    """Queries and keys of a block."""
    panel = Lanes(dtype).panel
    queries = 64 if not causal or length > 512 else 32
    queries = max(panel, queries // panel * panel)
    return min(queries, -(-length // panel) * panel), 64 if backward else 128


def scratch_of(dtype: dt.dtype, block: int, keys: int, depth: int, breadth: int) -> int:
    """Bytes a thread needs for its blocks, forward or back."""
    return (block * (depth + 2 * breadth + 2 * keys + 4)) * dtype.itemsize + 128


@functools.cache
def function(kind: str, dtype_name: str):
    """The callable of one direction: pointers as in _POINTERS, then the address of a layout."""
    scratch.publish()
    name = f"attention_{kind}_{dtype_name}"
    return load_or_build(cache().key(name), name, lambda: _module(name, kind, dtype_name))


def _module(name: str, kind: str, dtype_name: str) -> str:
    lanes = Lanes(getattr(dt, dtype_name))
    own = {"forward": (_softmax, _finish, _forward), "backward": (_slopes, _matches, _backward)}
    functions = [*product_functions(lanes), transposed(lanes), _hide_later(lanes),
                 *(_masked(lanes, mask) for mask in _MASKS), *(make(lanes) for make in own[kind])]
    pointers = _POINTERS[kind]
    entry = _entry(name, pointers)
    declared = "\n".join([DECLARATION, *scratch.DECLARATIONS.values()])
    return module(functions, declared + entry) + wrapper_ir(
        name, "p" * len(pointers) + "q", True)


def _entry(name: str, pointers) -> str:
    """Hands the pointers and words to every thread."""
    given = ", ".join(f"ptr %{p}" for p in pointers)
    stores = "".join(f"  %at.{p} = getelementptr ptr, ptr %context, i64 {i}\n"
                     f"  store ptr %{p}, ptr %at.{p}\n" for i, p in enumerate((*pointers, "words")))
    return f"""
define void @{name}({given}, i64 %where) #0 {{
  %context = alloca [{len(pointers) + 1} x ptr]
  %words = inttoptr i64 %where to ptr
{stores}  %count = load i64, ptr %words
  %p.grain = getelementptr i64, ptr %words, i64 {_WORDS.index("grain")}
  %grain = load i64, ptr %p.grain
  call void @flambeau_parallel(ptr @blocks, ptr %context, i64 %count, i64 %grain)
  ret void
}}
"""


# -- formulas --------------------------------------------------------------------------------------

# 2**r for |r| <= 1/2
_POWER = {dt.float32: (0.000153458104, 0.00133999312, 0.00961848896, 0.0555032878, 0.240226469,
                       0.693147206, 1.0)}


def _exp2(x: ex.Expr) -> ex.Expr:
    """2**x for x <= 0; what would be subnormal is 0, and NaN stays NaN."""
    shape = layout(x)
    whole, n = nearest(x + shape.whole)
    r = x - whole
    if x.dtype in _POWER:
        power = polynomial(r, _POWER[x.dtype])
    else:
        known = EXPONENTIAL[x.dtype]
        t = r * known.ln2[0]
        power = fma(t * t, polynomial(t, known.tail), t) + 1
    return ex.where(x < 1.0 - shape.bias, ex.const(0, x.dtype), power * power_of_two(n, x))


# -- parts of the kernels --------------------------------------------------------------------------


def _panels(code: Code, count: str, body) -> None:
    """body(byte offset) for each panel of lanes."""
    code.loop("0", count, "1", (),
              lambda i, _: body(code.mul(i, code.lanes.panel * code.lanes.size)) or [])


def _hide_later(lanes: Lanes) -> Code:
    """@hide_later: scores of keys after their query become minus infinity."""
    code = Code("hide_later", "ptr %s, i64 %pitch, i64 %key, i64 %query, i64 %keys, i64 %panels",
                lanes)
    ahead = code.sub("%key", "%query")
    first = code.most(code.add(code.sub("0", ahead), 1), "0")
    step = lanes.width * lanes.size
    low = f"splat ({lanes.one} 0xFFF0000000000000)"

    def row(k, _):
        place = code.at("%s", (k, "%pitch"))

        def panel(i, _):
            limit = code.sub(code.add(ahead, k), code.mul(i, lanes.panel))
            late = code.masks(limit)
            at = code.at(place, (i, lanes.panel * lanes.size))
            for v, mask in enumerate(late):
                here = code.at(at, v * step)
                kept = code.emit(f"select {lanes.bits} {mask}, {lanes.many} {low}, {lanes.many} "
                                 f"{code.load(here)}")
                code.store(kept, here)
            return []

        code.loop("0", "%panels", "1", (), panel)
        return []

    code.loop(first, "%keys", "1", (), row)
    return code


class _Mask:
    """How elements of a mask act on scores: `element` in memory, and what becomes of a score."""

    def __init__(self, name: str, element: str | None, act):
        self.name, self.element, self.act = name, element, act


def _add_number(code: Code, s: str, m: str, given: str) -> str:
    return code.fma(m, given, s)


def _hide_false(code: Code, s: str, m: str, given: str) -> str:
    lanes = code.lanes
    seen = code.emit(f"icmp ne <{lanes.width} x i8> {m}, zeroinitializer")
    low = f"splat ({lanes.one} 0xFFF0000000000000)"
    return code.emit(f"select {lanes.bits} {seen}, {lanes.many} {s}, {lanes.many} {low}")


def _thin(code: Code, s: str, m: str, given: str) -> str:
    lanes = code.lanes
    seen = code.emit(f"icmp ne <{lanes.width} x i8> {m}, zeroinitializer")
    kept = code.emit(f"select {lanes.bits} {seen}, {lanes.many} {given}, {lanes.many} "
                     "zeroinitializer")
    return code.arithmetic("fmul", s, kept)


_MASKS = (_Mask("add_mask", None, _add_number), _Mask("hide_masked", "i8", _hide_false),
          _Mask("thin_out", "i8", _thin))


def _masked(lanes: Lanes, mask: _Mask) -> Code:
    """A mask over (queries, keys), at any strides, acting on transposed scores."""
    code = Code(mask.name, "ptr %s, i64 %pitch, ptr %mask, i64 %down, i64 %along, i64 %rows, "
                f"i64 %keys, {lanes.one} %given", lanes)
    given, last = code.splat("%given"), code.sub("%rows", 1)
    one = mask.element or lanes.one
    many, size = f"<{lanes.width} x {one}>", 1 if mask.element else lanes.size
    width, step = lanes.width, lanes.width * lanes.size
    vectors = code.integer("sdiv", code.add("%rows", width - 1), width)

    def apply(k, at, value):
        here = code.at(at, (k, "%pitch"))
        code.store(mask.act(code, code.load(here), value, given), here)

    def read(pointer, type_):
        return code.emit(f"load {type_}, ptr {pointer}, align {size}")

    def strip(v, _):
        at = code.at("%s", (v, step))
        rows = [code.at("%mask", (code.least(code.add(code.mul(v, width), r), last), "%down"))
                for r in range(width)]

        def square(k, _):
            values = turned(code, [read(code.at(r, (k, size)), many) for r in rows], many)
            for i, value in enumerate(values):
                apply(code.add(k, i), at, value)
            return []

        def single(k, _):
            value = "poison"
            for i, r in enumerate(rows):
                element = read(code.at(r, (k, "%along")), one)
                value = code.emit(f"insertelement {many} {value}, {one} {element}, i32 {i}")
            apply(k, at, value)
            return []

        even = code.emit(f"icmp eq i64 %along, {size}")
        squares = code.emit(f"select i1 {even}, i64 {code.integer('and', '%keys', -width)}, i64 0")
        code.loop("0", squares, str(width), (), square)
        code.loop(squares, "%keys", "1", (), single)
        return []

    def same_for_all(k, _):
        value = code.splat(read(code.at("%mask", (k, "%along")), one), one)
        code.loop("0", vectors, "1", (),
                  lambda v, _: apply(k, code.at("%s", (v, step)), value) or [])
        return []

    repeated = code.emit("icmp eq i64 %down, 0")
    code.when(repeated, lambda: code.loop("0", "%keys", "1", (), same_for_all),
              lambda: code.loop("0", vectors, "1", (), strip))
    return code


def _softmax(lanes: Lanes) -> Code:
    """@softmax: scores become powers, and what is known of each query moves on."""
    code = Code("softmax", "ptr %s, i64 %pitch, ptr %most, ptr %sum, ptr %shrink, i64 %keys, "
                "i64 %panels", lanes)
    x, m = leaf(0, lanes.dtype), leaf(1, lanes.dtype)
    step, many = lanes.width * lanes.size, lanes.many
    low = f"splat ({lanes.one} 0xFFF0000000000000)"
    vectors = (0, step)

    def panel(offset):
        at = code.at("%s", offset)
        before = [code.load(code.at("%most", offset, v)) for v in vectors]

        def larger(k, most):
            found = []
            for v, largest in zip(vectors, most, strict=True):
                s = code.load(code.at(at, (k, "%pitch"), v))
                above = code.emit(f"fcmp ogt {many} {s}, {largest}")
                found.append(code.emit(f"select {lanes.bits} {above}, {many} {s}, {many} "
                                       f"{largest}"))
            return found

        most = code.loop("0", "%keys", "1", [(many, b) for b in before], larger)
        shift = []
        for largest in most:
            none = code.emit(f"fcmp oeq {many} {largest}, {low}")
            shift.append(code.emit(f"select {lanes.bits} {none}, {many} zeroinitializer, {many} "
                                   f"{largest}"))

        def raised(k, sums):
            found = []
            for v, by, total in zip(vectors, shift, sums, strict=True):
                here = code.at(at, (k, "%pitch"), v)
                p = code.formula(_exp2(x - m), {x: code.load(here), m: by})
                code.store(p, here)
                found.append(code.arithmetic("fadd", total, p))
            return found

        sums = code.loop("0", "%keys", "1", [(many, "zeroinitializer")] * 2, raised)
        for i, v in enumerate(vectors):
            shrink = code.formula(_exp2(x - m), {x: before[i], m: shift[i]})
            total = code.load(code.at("%sum", offset, v))
            code.store(code.fma(total, shrink, sums[i]), code.at("%sum", offset, v))
            code.store(most[i], code.at("%most", offset, v))
            code.store(shrink, code.at("%shrink", offset, v))

    _panels(code, "%panels", panel)
    return code


def _finish(lanes: Lanes) -> Code:
    """@finish: sums of values divided by sums of weights, and the log2 of those."""
    code = Code("finish", "ptr %out, i64 %down, ptr %o, ptr %lse, ptr %most, ptr %sum, i64 %rows, "
                "i64 %cols, i64 %panels", lanes)
    step, many, size = lanes.width * lanes.size, lanes.many, lanes.size
    x = leaf(0, lanes.dtype)

    def panel(offset):
        for v in (0, step):
            place, most = code.at("%sum", offset, v), code.at("%most", offset, v)
            total = code.load(place)
            none = code.emit(f"fcmp oeq {many} {total}, zeroinitializer")
            inverse = code.emit(f"fdiv {many} splat ({lanes.one} 1.0), {total}")
            code.store(code.emit(f"select {lanes.bits} {none}, {many} zeroinitializer, {many} "
                                 f"{inverse}"), place)
            log = code.arithmetic("fadd", code.load(most), code.formula(
                ex.call("log2", x), {x: total}))
            code.store(code.emit(f"select {lanes.bits} {none}, {many} splat ({lanes.one} "
                                 f"0x7FF0000000000000), {many} {log}"), most)

    _panels(code, "%panels", panel)
    whole = code.integer("and", "%cols", -lanes.width)
    rest = code.masks(code.sub("%cols", whole), 1)[0]
    some = code.emit(f"icmp ne i64 {whole}, %cols")
    pitch = code.mul("%cols", size)

    def row(r, _):
        factor = code.splat(code.load(code.at("%sum", (r, size)), lanes.one))
        source, target = code.at("%o", (r, pitch)), code.at("%out", (r, "%down"))

        def vector(d, _):
            value = code.load(code.at(source, (d, size)))
            code.store(code.arithmetic("fmul", value, factor), code.at(target, (d, size)))
            return []

        code.loop("0", whole, str(lanes.width), (), vector)
        code.when(some, lambda: code.store_some(code.arithmetic(
            "fmul", code.load_some(code.at(source, (whole, size)), rest), factor),
            code.at(target, (whole, size)), rest))
        code.store(code.load(code.at("%most", (r, size)), lanes.one),
                   code.at("%lse", (r, size)), lanes.one)
        return []

    code.loop("0", "%rows", "1", (), row)
    return code


class _Frame:
    """What a kernel's body begins with: pointers, words, and scratch cut into blocks."""

    def __init__(self, lanes: Lanes, kind: str):
        self.code = code = Code("blocks", "ptr %context, i64 %begin, i64 %end", lanes, True)
        self.lanes, size = lanes, lanes.size
        names = (*_POINTERS[kind], "words")
        self.p = {name: code.word("%context", i, "ptr") for i, name in enumerate(names)}
        doubles = ("factor", "scale", "keep")
        self.w = w = {name: code.word(self.p["words"], i, "double" if name in doubles else "i64")
                      for i, name in enumerate(_WORDS)}
        for name in doubles:
            if size == 4:
                w[name] = code.emit(f"fptrunc double {w[name]} to float")
        self.raw = code.emit(f"call ptr @flambeau_scratch_take(i64 {w['scratch']})")
        self.next = self.raw
        self.pitch = code.mul(w["block"], size)

    def take(self, columns: str) -> str:
        """Scratch for a block of queries by so many columns."""
        here = self.next
        self.next = self.code.at(here, (self.pitch, columns))
        return here

    def units(self, body) -> Code:
        code = self.code
        code.loop("%begin", "%end", "1", (), lambda unit, _: body(unit) or [])
        code.do(f"call void @flambeau_scratch_give(ptr {self.raw})")
        return code

    def head(self, number: str) -> dict[str, str]:
        """Pointers to one head of everything."""
        code = self.code
        table = code.emit(f"inttoptr i64 {self.w['table']} to ptr")
        row = code.at(table, (number, 8 * len(COLUMNS)))
        found = {name: code.at(self.p[name], code.word(row, i))
                 for i, name in enumerate(COLUMNS) if name in self.p}
        found["lse"] = code.at(self.p["lse"], code.mul(code.mul(number, self.w["length"]),
                                                        self.lanes.size))
        found["drop"] = code.at(self.p["drop"], code.mul(
            code.mul(number, self.w["length"]), self.w["source"]))
        return found

    def rows_of(self, block: str):
        """(first query, how many, panels of lanes, lanes) of a block of queries."""
        code, panel = self.code, self.lanes.panel
        first = code.mul(block, self.w["block"])
        rows = code.least(self.w["block"], code.sub(self.w["length"], first))
        panels = code.integer("sdiv", code.add(rows, panel - 1), panel)
        return first, rows, panels, code.mul(panels, panel)

    def last_key(self, first: str, rows: str, limit: str) -> str:
        """Where keys that the block may see end."""
        code = self.code
        causal = code.emit(f"icmp ne i64 {self.w['causal']}, 0")
        return code.emit(f"select i1 {causal}, i64 {code.least(code.add(first, rows), limit)}, "
                         f"i64 {limit}")

    def turn(self, target, source, down, rows, cols, factor) -> None:
        self.code.invoke("turn", ("ptr", target), ("ptr", source), ("i64", down), ("i64", rows),
                         ("i64", cols), (self.lanes.one, factor))

    def scores(self, s, turned_rows, rows_at, down, depth, keys, lanes_count) -> None:
        """s[key, query] = keys times queries."""
        code, panel = self.code, self.lanes.panel * self.lanes.size
        code.product(s, self.pitch, rows_at, down, self.lanes.size, turned_rows, panel,
                     code.mul(depth, panel), depth, keys, lanes_count, FRESH)

    def mask(self, s, at, first, rows, panels, key, keys) -> None:
        """Scores of what a query may not see become minus infinity, or numbers are added."""
        code, w, lanes = self.code, self.w, self.lanes
        causal = code.emit(f"icmp ne i64 {w['causal']}, 0")
        late = code.emit(f"icmp sgt i64 {code.add(key, keys)}, {code.add(first, 1)}")
        code.when(code.emit(f"and i1 {causal}, {late}"), lambda: code.invoke(
            "hide_later", ("ptr", s), ("i64", self.pitch), ("i64", key), ("i64", first),
            ("i64", keys), ("i64", panels)))

        def apply(kind, name, given):
            def inside():
                place = code.at(at["mask"], (first, w["mask_q"]), (key, w["mask_k"]))
                code.invoke(name, ("ptr", s), ("i64", self.pitch), ("ptr", place),
                            ("i64", w["mask_q"]), ("i64", w["mask_k"]), ("i64", rows),
                            ("i64", keys), (lanes.one, given))
            code.when(code.emit(f"icmp eq i64 {w['mask']}, {kind}"), inside)

        exact = ex.const(LOG2E, lanes.dtype)
        apply(ADDITIVE, "add_mask", code.formula(exact, {}, 1))
        apply(BOOLEAN, "hide_masked", "0.0")

    def thin(self, s, at, first, rows, key, keys) -> None:
        """Leave out what dropout leaves out, and scale up the rest."""
        code, w = self.code, self.w
        code.when(code.emit(f"icmp ne ptr {self.p['drop']}, null"), lambda: code.invoke(
            "thin_out", ("ptr", s), ("i64", self.pitch),
            ("ptr", code.at(at["drop"], (first, w["source"]), key)), ("i64", w["source"]),
            ("i64", "1"), ("i64", rows), ("i64", keys), (self.lanes.one, w["keep"])))


def _forward(lanes: Lanes) -> Code:
    frame = _Frame(lanes, "forward")
    code, w, size = frame.code, frame.w, lanes.size
    queries, s = frame.take(w["depth"]), frame.take(w["keys"])
    o, most, total, shrink = frame.take(w["breadth"]), *(frame.take("1") for _ in range(3))
    low = f"splat ({lanes.one} 0xFFF0000000000000)"

    def unit(number):
        head = code.integer("sdiv", number, w["blocks"])
        at = frame.head(head)
        first, rows, panels, count = frame.rows_of(code.sub(number, code.mul(head, w["blocks"])))
        frame.turn(queries, code.at(at["q"], (first, w["q"])), w["q"], rows, w["depth"],
                   w["factor"])

        def clear(offset):
            for v in (0, lanes.width * size):
                code.store(low, code.at(most, offset, v))
                code.store("zeroinitializer", code.at(total, offset, v))

        _panels(code, panels, clear)

        def keys_from(key, _):
            keys = code.least(w["keys"], code.sub(end, key))
            frame.scores(s, queries, code.at(at["k"], (key, w["k"])), w["k"], w["depth"], keys,
                         count)
            frame.mask(s, at, first, rows, panels, key, keys)
            code.invoke("softmax", ("ptr", s), ("i64", frame.pitch), ("ptr", most),
                        ("ptr", total), ("ptr", shrink), ("i64", keys), ("i64", panels))
            frame.thin(s, at, first, rows, key, keys)
            begun = code.emit(f"icmp ne i64 {key}, 0")
            mode = code.emit(f"select i1 {begun}, i64 {SCALED}, i64 {FRESH}")
            code.product(o, code.mul(w["breadth"], size), s, size, frame.pitch,
                         code.at(at["v"], (key, w["v"])), w["v"], lanes.panel * size, keys, rows,
                         w["breadth"], mode, shrink)
            return []

        end = frame.last_key(first, rows, w["source"])
        code.loop("0", end, w["keys"], (), keys_from)
        code.invoke("finish", ("ptr", code.at(at["out"], (first, w["out"]))), ("i64", w["out"]),
                    ("ptr", o), ("ptr", code.at(at["lse"], (first, size))), ("ptr", most),
                    ("ptr", total), ("i64", rows), ("i64", w["breadth"]), ("i64", panels))

    return frame.units(unit)


# -- the way back ----------------------------------------------------------------------------------


def _slopes(lanes: Lanes) -> Code:
    """@slopes: scores become weights, and slopes of weights become slopes of scores."""
    code = Code("slopes", "ptr %s, ptr %t, i64 %pitch, ptr %lse, ptr %mean, i64 %keys, "
                f"i64 %panels, {lanes.one} %scale", lanes)
    x, m = leaf(0, lanes.dtype), leaf(1, lanes.dtype)
    vectors, scale = (0, lanes.width * lanes.size), code.splat("%scale")

    def panel(offset):
        logs, means = ([code.load(code.at(p, offset, v)) for v in vectors]
                       for p in ("%lse", "%mean"))

        def row(k, _):
            down = code.mul(k, "%pitch")
            for i, v in enumerate(vectors):
                at_s, at_t = code.at("%s", offset, down, v), code.at("%t", offset, down, v)
                p = code.formula(_exp2(x - m), {x: code.load(at_s), m: logs[i]})
                code.store(p, at_s)
                apart = code.arithmetic("fsub", code.load(at_t), means[i])
                code.store(code.arithmetic("fmul", code.arithmetic("fmul", p, apart), scale), at_t)
            return []

        code.loop("0", "%keys", "1", (), row)

    _panels(code, "%panels", panel)
    return code


def _matches(lanes: Lanes) -> Code:
    """@matches: for each row the sum of products of two matrices' elements."""
    code = Code("matches", "ptr %mean, ptr %a, i64 %down_a, ptr %b, i64 %down_b, i64 %rows, "
                "i64 %cols", lanes)
    size, many = lanes.size, lanes.many
    whole = code.integer("and", "%cols", -lanes.width)
    rest = code.masks(code.sub("%cols", whole), 1)[0]

    def row(r, _):
        a, b = code.at("%a", (r, "%down_a")), code.at("%b", (r, "%down_b"))
        total, = code.loop("0", whole, str(lanes.width), [(many, "zeroinitializer")],
                           lambda d, t: [code.fma(code.load(code.at(a, (d, size))),
                                                  code.load(code.at(b, (d, size))), t[0])])
        total = code.fma(code.load_some(code.at(a, (whole, size)), rest),
                         code.load_some(code.at(b, (whole, size)), rest), total)
        width = lanes.width
        while width > 1:
            width //= 2
            half = ", ".join(f"i32 {k + width if k < width else k}" for k in range(lanes.width))
            other = code.emit(f"shufflevector {many} {total}, {many} poison, "
                              f"<{lanes.width} x i32> <{half}>")
            total = code.arithmetic("fadd", total, other)
        code.store(code.emit(f"extractelement {many} {total}, i32 0"),
                   code.at("%mean", (r, size)), lanes.one)
        return []

    code.loop("0", "%rows", "1", (), row)
    return code


def _clear_rows(code: Code, pointer, down, rows, cols) -> None:
    size = code.mul(cols, code.lanes.size)
    code.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])

    def row(r, _):
        code.do(f"call void @llvm.memset.p0.i64(ptr {code.at(pointer, (r, down))}, i8 0, "
                f"i64 {size}, i1 false)")
        return []

    code.loop("0", rows, "1", (), row)


def _backward(lanes: Lanes) -> Code:
    frame = _Frame(lanes, "backward")
    code, w, size, panel = frame.code, frame.w, lanes.size, lanes.panel * lanes.size
    queries, slopes = frame.take(w["depth"]), frame.take(w["breadth"])
    s, t = frame.take(w["keys"]), frame.take(w["keys"])
    logs, mean = frame.take("1"), frame.take("1")

    def unit(number):
        kv = code.integer("sdiv", number, w["spans"])
        part = code.sub(number, code.mul(kv, w["spans"]))
        begin = code.mul(part, w["span"])
        limit = code.least(w["source"], code.add(begin, w["span"]))
        leader = code.mul(kv, w["group"])
        own = frame.head(leader)
        for name, cols in (("dk", "depth"), ("dv", "breadth")):
            _clear_rows(code, code.at(own[name], (begin, w[name])), w[name],
                        code.sub(limit, begin), w[cols])

        def one_head(h, _):
            at = frame.head(code.add(leader, h))
            at["dq"] = code.at(at["dq"], (part, w["partial"]))
            code.loop("0", w["blocks"], "1", (), lambda b, _: block(at, b, begin, limit) or [])
            return []

        code.loop("0", w["group"], "1", (), one_head)

    def block(at, number, begin, limit):
        first, rows, panels, count = frame.rows_of(number)
        end = frame.last_key(first, rows, limit)
        dq = code.at(at["dq"], (first, w["dq"]))
        code.when(code.emit(f"icmp sle i64 {end}, {begin}"),
                  lambda: _clear_rows(code, dq, w["dq"], rows, w["depth"]),
                  lambda: some_keys(at, dq, first, rows, panels, count, begin, end))

    def some_keys(at, dq, first, rows, panels, count, begin, end):
        q, g = code.at(at["q"], (first, w["q"])), code.at(at["g"], (first, w["g"]))
        frame.turn(queries, q, w["q"], rows, w["depth"], w["factor"])
        frame.turn(slopes, g, w["g"], rows, w["breadth"], "1.0")
        code.invoke("matches", ("ptr", mean), ("ptr", g), ("i64", w["g"]),
                    ("ptr", code.at(at["out"], (first, w["out"]))), ("i64", w["out"]),
                    ("i64", rows), ("i64", w["breadth"]))
        code.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {logs}, ptr "
                f"{code.at(at['lse'], (first, size))}, i64 {code.mul(rows, size)}, i1 false)")

        def keys_from(key, _):
            keys = code.least(w["keys"], code.sub(end, key))
            k, v = code.at(at["k"], (key, w["k"])), code.at(at["v"], (key, w["v"]))
            frame.scores(s, queries, k, w["k"], w["depth"], keys, count)
            frame.mask(s, at, first, rows, panels, key, keys)
            frame.scores(t, slopes, v, w["v"], w["breadth"], keys, count)
            frame.thin(t, at, first, rows, key, keys)
            code.invoke("slopes", ("ptr", s), ("ptr", t), ("i64", frame.pitch), ("ptr", logs),
                        ("ptr", mean), ("i64", keys), ("i64", panels), (lanes.one, w["scale"]))
            frame.thin(s, at, first, rows, key, keys)
            for target, cols, from_, rows_at, down in (("dv", "breadth", s, g, "g"),
                                                       ("dk", "depth", t, q, "q")):
                code.product(code.at(at[target], (key, w[target])), w[target], from_, frame.pitch,
                             size, rows_at, w[down], panel, rows, keys, w[cols], ADDED)
            begun = code.emit(f"icmp ne i64 {key}, {begin}")
            mode = code.emit(f"select i1 {begun}, i64 {ADDED}, i64 {FRESH}")
            code.product(dq, w["dq"], t, size, frame.pitch, k, w["k"], panel, keys, rows,
                         w["depth"], mode)
            return []

        code.loop(begin, end, w["keys"], (), keys_from)

    return frame.units(unit)
