"""Recurrent layers over whole sequences, as one kernel each way.

Steps follow in turn; within one, slices of hidden units and parts of rows are cut among threads:
the product of the state with the slice's weights, packed once for all steps, and what its gates
make of it. A step works on the first rows of the running state, as many as sequences last that
long, so padded and packed sequences, forwards and backwards, are one. Gates stay where the
input's part was. Products fetch what gates will need, step by step: it lies in pieces that
hardware does not foresee.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable
from typing import NamedTuple

from ...core import dtype as dt
from ...core import expr as ex
from ..elementary.exponential import reduced
from ..elementary.floats import clamp, fma, power_of_two
from .bridge import wrapper_ir
from .compile import cache, load_or_build
from .matmul import scratch
from .threads import DECLARATION
from .tiles import (
    ADDED,
    FRESH,
    VECTORS,
    Code,
    Lanes,
    copied_panels,
    leaf,
    module,
    product_functions,
    tile_rows,
    transposed_panels,
)

_WORDS = ("steps", "table", "units", "slices", "parts", "grain", "scratch", "carried")
#: room behind the pointers for where a step is, for the one that is taken next, and for whether the
#: state before it is nothing but zeros
_STEP = ("first", "rows", "next_first", "next_rows", "still")

_POINTERS = {
    "forward": ("gates", "extra", "out", "before", "before_c", "state", "cell", "weight", "bias"),
    "backward": ("slopes", "other", "state", "cell", "g", "gates", "extra", "before", "before_c",
                 "weight"),
}


class Layout:
    """The words of a run over sequences: steps as (first row, rows) in the order they are taken.

    The way back is carried to the states before the first step, or ends there.
    """

    __slots__ = ("address", "table", "words")

    def __init__(self, kind: str, dtype: dt.dtype, units: int, steps, rows: int, carried: bool):
        panel, gates = Lanes(dtype).panel, KINDS[kind].gates
        slices = -(-units // panel)
        parts = min(max(1, rows // tile_rows()), -(-_PIECES // slices))
        self.table = array("q", [word for step in steps for word in step])
        each = rows * gates * units * panel // parts  # multiply-adds of a part of a slice in a step
        pieces = slices * parts
        grain = -(-_RANGE // each) if each * pieces >= _SHARED else pieces
        words = [len(steps), self.table.buffer_info()[0], units, slices, parts, grain,
                 gates * slices * panel * units * dtype.itemsize, int(carried)]
        work = sum(n for _, n in steps) * gates * units * units
        self.words = array("q", [work >> 4, *words])
        self.address = self.words.buffer_info()[0] + 8


#: multiply-adds of a step that threads share, and of a range of it; pieces to cut ranges from
_SHARED, _RANGE, _PIECES = 3 << 19, 1 << 17, 26


@functools.cache
def function(way: str, kind: str, dtype_name: str):
    """The callable of one direction: pointers as in _POINTERS, then the address of a layout."""
    scratch.publish()
    name = f"{kind}_{way}_{dtype_name}"
    return load_or_build(cache().key(name), name, lambda: _module(name, way, kind, dtype_name))


def _module(name: str, way: str, kind: str, dtype_name: str) -> str:
    lanes, cell = Lanes(getattr(dt, dtype_name)), KINDS[kind]
    functions = product_functions(lanes, len(_coming(cell, way)))
    if way == "forward":
        functions += [transposed_panels(lanes), *(_gates(lanes, cell, p) for p in (False, True)),
                      _slice(lanes, cell), _largest(lanes), _forward(name, lanes, cell)]
    else:
        functions += [copied_panels(lanes), *(_gates_back(lanes, cell, p) for p in (False, True)),
                      _slice_back(lanes, cell), _backward(name, lanes, cell)]
    declared = "\n".join([DECLARATION, *scratch.DECLARATIONS.values()])
    return module(functions, declared) + wrapper_ir(name, "p" * len(_POINTERS[way]) + "q", True)


# -- what gates make of their inputs ---------------------------------------------------------------


class Kind(NamedTuple):
    """Gates, what a step makes of them, and the way back, on exprs.

    `forward` takes the gates' sums by input and state, the extra (the part of the state in the
    last gate, where that is apart), the biases, the state and the cell, and returns gates to keep,
    extra to keep, state and cell. Where the state takes another function of what was computed just
    before, `state` makes it of gates and cell in a pass of its own: long chains leave the machine
    waiting. `backward` takes the slope of the state, that of the cell, the kept gates and extra,
    the state and cell before, and returns slopes of the gates by input, the last one by state where
    that is apart, what is carried to the state before, and to the cell.
    """

    gates: int
    apart: bool
    paired: bool
    forward: Callable
    backward: Callable
    state: Callable | None = None


def _sigmoid(x):
    """1 / (1 + exp(-x)), where what would be subnormal need not be exact."""
    bound = {dt.float32: 87.0, dt.float64: 708.0}[x.dtype]
    n, rest = reduced(clamp(-x, -bound, bound))
    return 1 / fma(rest + 1, power_of_two(n, x), 1)


def _tanh(x):
    return ex.call("tanh", x)


def _lstm(gates, extra, bias, h, c):
    i, f, g, o = gates
    i, f, g, o = _sigmoid(i), _sigmoid(f), _tanh(g), _sigmoid(o)
    return (i, f, g, o), None, None, f * c + i * g


def _lstm_state(gates, c):
    return gates[3] * _tanh(c)


def _lstm_back(dh, dc, gates, extra, h, c):
    i, f, g, o = gates
    new = _tanh(f * c + i * g)
    slope = dc + dh * o * (1 - new * new)
    return ((slope * g * i * (1 - i), slope * c * f * (1 - f), slope * i * (1 - g * g),
             dh * new * o * (1 - o)), None, None, slope * f)


def _gru(gates, extra, bias, h, c):
    r, z, n = gates
    r, z = _sigmoid(r + bias[0]), _sigmoid(z + bias[1])
    extra = extra + bias[2]
    n = _tanh(n + r * extra)
    return (r, z, n), extra, (h - n) * z + n, None


def _gru_back(dh, dc, gates, extra, h, c):
    r, z, n = gates
    candidate = dh * (1 - z) * (1 - n * n)
    return ((candidate * extra * r * (1 - r), dh * (h - n) * z * (1 - z), candidate),
            candidate * r, dh * z, None)


def _plain(activation):
    def forward(gates, extra, bias, h, c):
        out = activation(gates[0])
        return (out,), None, out, None
    return forward


def _plain_back(slope):
    def backward(dh, dc, gates, extra, h, c):
        return (slope(dh, gates[0]),), None, None, None
    return backward


KINDS = {
    "lstm":     Kind(4, False, True,  _lstm, _lstm_back, _lstm_state),
    "gru":      Kind(3, True,  False, _gru, _gru_back),
    "rnn_tanh": Kind(1, False, False, _plain(_tanh), _plain_back(lambda g, y: g * (1 - y * y))),
    "rnn_relu": Kind(1, False, False, _plain(lambda x: ex.maximum(x, 0)),
                     _plain_back(lambda g, y: ex.where(y > 0, g, ex.const(0, g.dtype)))),
}


def _coming(cell: Kind, way: str, product: int = 0) -> list[tuple[str, int, int]]:
    """What a product of a slice fetches for its gates: names, of how many times the units, and
    which time of them.

    On the way back all that they read after it; forwards each of a slice's products does its part
    for the step after this one.
    """
    if way == "backward":
        others = ["g"] + ["extra", "before"] * cell.apart + ["before_c"] * cell.paired
        return [("gates", cell.gates, k) for k in range(cell.gates)] + [(n, 1, 0) for n in others]
    others = ["out", "before"] + ["extra"] * cell.apart + ["before_c"] * cell.paired
    each = -(-len(others) // cell.gates)
    mine = (others * 2)[product * each:][:each]
    return [("gates", cell.gates, product)] + [(name, 1, 0) for name in mine]


class _Reach:
    """Vectors of a row's slice: whole ones, or those that lie within the last units."""

    def __init__(self, code: Code, partial: bool):
        self.code, self.partial = code, partial
        self.masks = code.masks("%room") if partial else [""] * VECTORS
        self.step = code.lanes.width * code.lanes.size

    def load(self, pointer: str, v: int) -> str:
        place = self.code.at(pointer, v * self.step) if v else pointer
        return self.code.load_some(place, self.masks[v]) if self.partial else self.code.load(place)

    def store(self, value: str, pointer: str, v: int) -> None:
        place = self.code.at(pointer, v * self.step) if v else pointer
        if self.partial:
            self.code.store_some(value, place, self.masks[v])
        else:
            self.code.store(value, place)


def _named_leaves(lanes: Lanes, cell: Kind):
    """Leaves for gates, extra, biases, state, cell, and the two slopes."""
    numbers = iter(range(100))

    def some(n):
        return [leaf(next(numbers), lanes.dtype) for _ in range(n)]

    gates, (extra,), bias = some(cell.gates), some(1), some(cell.gates)
    return gates, extra, bias, *some(4)


def _gates(lanes: Lanes, cell: Kind, partial: bool) -> Code:
    """@gates: all rows of one slice of units."""
    code = Code(f"gates{'_partial' if partial else ''}",
                "ptr %gates, ptr %extra, ptr %out, ptr %before, ptr %before_c, ptr %state, "
                "ptr %cell, ptr %bias, i64 %pitch, i64 %wide, i64 %rows, i64 %room", lanes)
    reach = _Reach(code, partial)
    gates, extra, bias, h, c, _, _ = _named_leaves(lanes, cell)
    kept, kept_extra, state, after = cell.forward(gates, extra, bias, h, c)
    given = [[reach.load(code.at("%bias", (k, "%pitch")), v) for k in range(cell.gates)]
             for v in range(VECTORS)] if cell.apart else None

    def row(r, _):
        down = code.mul(r, "%pitch")
        places = [code.at("%gates", (r, "%wide"), (k, "%pitch")) for k in range(cell.gates)]
        for v in range(VECTORS):
            known = dict(zip(gates, (reach.load(p, v) for p in places), strict=True))
            if cell.apart:
                known |= dict(zip(bias, given[v], strict=True))
                known[extra] = reach.load(code.at("%extra", down), v)
                known[h] = reach.load(code.at("%before", down), v)
            if cell.paired:
                known[c] = reach.load(code.at("%before_c", down), v)
            put([*zip(kept, places), (kept_extra, code.at("%extra", down)),
                 (after, code.at("%cell", down)),
                 *((state, code.at(place, down)) for place in ("%out", "%state"))], known, v)
        return []

    def late_row(r, _):
        """The state from gates and cells that are there already."""
        down, across = code.mul(r, "%pitch"), code.mul(r, "%wide")
        value = cell.state(gates, c)
        for v in range(VECTORS):
            known = {gate: reach.load(code.at("%gates", across, (k, "%pitch")), v)
                     for k, gate in enumerate(gates)}
            known[c] = reach.load(code.at("%cell", down), v)
            put([(value, code.at(place, down)) for place in ("%out", "%state")], known, v)
        return []

    def put(values, known: dict, v: int) -> None:
        """Compute exprs from what is known, and store each of those that there are."""
        values = [(value, place) for value, place in values if value is not None]
        found = _together(code, [value for value, _ in values], known)
        for register, (_, place) in zip(found, values, strict=True):
            reach.store(register, place, v)

    code.loop("0", "%rows", "1", (), row)
    if cell.state is not None:
        code.loop("0", "%rows", "1", (), late_row)
    return code


def _together(code: Code, values, known: dict) -> list[str]:
    """Registers of several exprs that share parts."""
    place = code.place(known)
    return [code.lowered(value, place) for value in values]


class _Context:
    """Pointers and words a thread finds in its context."""

    def __init__(self, code: Code, way: str, context: str = "%context"):
        names = (*_POINTERS[way], "words", "panels")
        self.p = {name: code.word(context, i, "ptr") for i, name in enumerate(names)}
        self.w = {name: code.word(self.p["words"], i) for i, name in enumerate(_WORDS)}
        base = len(names)
        self.step = {name: code.word(context, base + i) for i, name in enumerate(_STEP)}
        self.pitch = code.mul(self.w["units"], code.lanes.size)

    def rows_at(self, code: Code, name: str, first: str, times: int = 1) -> str:
        """Where rows from a first one on begin, in something of so many times the units."""
        return code.at(self.p[name], code.mul(first, code.mul(self.pitch, times)))

    def coming(self, code: Code, names, offset: str, begin: str) -> list[tuple[str, str]]:
        """What a product fetches of the next step: from an offset in rows from `begin` on."""
        first = code.add(self.step["next_first"], begin)
        return [(code.at(self.rows_at(code, name, first, times), offset, (k, self.pitch)),
                 code.mul(self.pitch, times)) for name, times, k in names]


def _pieces(code: Code, here: _Context, body) -> None:
    """body(slice, units of it, begin and end of rows) for pieces %begin to %end."""
    panel, parts = code.lanes.panel, here.w["parts"]
    most = code.most(here.step["rows"], here.step["next_rows"])
    share = code.integer("sdiv", code.sub(code.add(most, parts), 1), parts)
    last = code.integer("sdiv", code.sub(code.add("%end", parts), 1), parts)

    def one(p, _):
        before = code.mul(p, parts)
        begin = code.mul(code.most(code.sub("%begin", before), "0"), share)
        end = code.mul(code.least(code.sub("%end", before), parts), share)
        body(p, code.sub(here.w["units"], code.mul(p, panel)), begin, end)
        return []

    code.loop(code.integer("sdiv", "%begin", parts), last, "1", (), one)


def _on_slice(code: Code, name: str, room: str, args) -> None:
    """Call a function on a slice, whole or partial."""
    args = [*args, ("i64", room)]
    code.when(code.emit(f"icmp sge i64 {room}, {code.lanes.panel}"),
              lambda: code.invoke(name, *args), lambda: code.invoke(f"{name}_partial", *args))


def _slice(lanes: Lanes, cell: Kind) -> Code:
    """@slice: one step for some pieces."""
    code = Code("slice", "ptr %context, i64 %begin, i64 %end", lanes)
    here = _Context(code, "forward")
    wide, panel = code.mul(here.pitch, cell.gates), lanes.panel * lanes.size
    across = code.mul(here.w["units"], panel)  # bytes of one panel

    def piece(p, room, begin, end):
        rows = code.sub(code.least(end, here.step["rows"]), begin)
        code.when(code.emit(f"icmp sgt i64 {rows}, 0"), lambda: some(p, room, begin, rows))

    def some(p, room, begin, rows):
        first, offset = code.add(here.step["first"], begin), code.mul(p, panel)
        gates = code.at(here.rows_at(code, "gates", first, cell.gates), offset)
        before = here.rows_at(code, "before", first)
        extra = code.at(here.rows_at(code, "extra", first), offset)

        def products():
            for k in range(cell.gates):
                packed = code.at(here.p["panels"],
                                 (code.add(code.mul(here.w["slices"], k), p), across))
                apart = cell.apart and k == cell.gates - 1
                code.product(extra if apart else code.at(gates, (k, here.pitch)),
                             here.pitch if apart else wide, before, here.pitch, lanes.size, packed,
                             panel, across, here.w["units"], rows, code.least(room, lanes.panel),
                             FRESH if apart else ADDED,
                             coming=here.coming(code, _coming(cell, "forward", k), offset, begin))

        if cell.apart:  # a gate's part of the state is kept, zeros or not
            products()
        else:
            code.when(code.emit(f"icmp eq i64 {here.step['still']}, 0"), products)
        pointers = [gates, extra, code.at(here.rows_at(code, "out", first), offset),
                    code.at(before, offset), code.at(here.rows_at(code, "before_c", first), offset),
                    code.at(here.rows_at(code, "state", begin), offset),
                    code.at(here.rows_at(code, "cell", begin), offset),
                    code.at(here.p["bias"], offset)]
        _on_slice(code, "gates", room, [*(("ptr", x) for x in pointers), ("i64", here.pitch),
                                        ("i64", wide), ("i64", rows)])

    _pieces(code, here, piece)
    return code


def _begin(name: str, way: str, lanes: Lanes):
    """The entry of a kernel: a context for threads, and room for packed weights."""
    pointers = _POINTERS[way]
    code = Code(name, ", ".join(f"ptr %{p}" for p in pointers) + ", i64 %where", lanes, False)
    code.do(f"%context = alloca [{len(pointers) + 2 + len(_STEP)} x i64]")
    words = code.emit("inttoptr i64 %where to ptr")
    size = code.word(words, _WORDS.index("scratch"))
    panels = code.emit(f"call ptr @flambeau_scratch_take(i64 {size})")
    for i, value in enumerate((*(f"%{p}" for p in pointers), words, panels)):
        code.do(f"store ptr {value}, ptr {code.at('%context', 8 * i)}")
    return code, _Context(code, way), panels


def _put_step(code: Code, way: str, values: dict) -> None:
    """Tell threads which step it is."""
    base = len(_POINTERS[way]) + 2
    for name, value in values.items():
        code.do(f"store i64 {value}, ptr {code.at('%context', 8 * (base + _STEP.index(name)))}")


def _share(code: Code, here: _Context, body: str) -> None:
    code.invoke("flambeau_parallel", ("ptr", f"@{body}"), ("ptr", "%context"),
                ("i64", code.mul(here.w["slices"], here.w["parts"])), ("i64", here.w["grain"]))


def _largest(lanes: Lanes) -> Code:
    """@largest: of so many elements the largest magnitude, as bits."""
    code = Code("largest", "ptr %x, i64 %count, ptr %found", lanes)
    whole, many = lanes.whole, lanes.wholes
    positive = (1 << 8 * lanes.size - 1) - 1

    def larger(type_: str, place: str, most: str) -> str:
        size = code.emit(f"and {type_} {code.load(place, type_)}, "
                         + (f"splat ({whole} {positive})" if type_ == many else str(positive)))
        name = f"llvm.umax.v{lanes.width}{whole}" if type_ == many else f"llvm.umax.{whole}"
        return code.call(name, type_, [(type_, size), (type_, most)])

    even = code.integer("and", "%count", -lanes.width)
    vector, = code.loop("0", even, str(lanes.width), [(many, "zeroinitializer")], lambda i, most: [
        larger(many, code.at("%x", (i, lanes.size)), *most)])
    one = code.call(f"llvm.vector.reduce.umax.v{lanes.width}{whole}", whole, [(many, vector)])
    one, = code.loop(even, "%count", "1", [(whole, one)], lambda i, most: [
        larger(whole, code.at("%x", (i, lanes.size)), *most)])
    code.store(one, "%found", whole)
    return code


def _is_still(code: Code, rows: str, panels: str, size: str) -> str:
    """Whether the state is nothing but zeros, which stay that times any of the packed weights."""
    lanes, infinite = code.lanes, {4: 0x7F800000, 8: 0x7FF0000000000000}[code.lanes.size]
    code.do(f"%found = alloca {lanes.whole}")

    def largest(place: str, count: str) -> str:
        code.invoke("largest", ("ptr", place), ("i64", count), ("ptr", "%found"))
        return code.load("%found", lanes.whole)

    zeros = code.emit(f"icmp eq {lanes.whole} {largest('%state', rows)}, 0")
    count = code.integer("sdiv", size, lanes.size)
    finite = code.emit(f"icmp ult {lanes.whole} {largest(panels, count)}, {infinite}")
    return code.emit(f"and i1 {zeros}, {finite}")


def _forward(name: str, lanes: Lanes, cell: Kind) -> Code:
    code, here, panels = _begin(name, "forward", lanes)
    code.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    units, slices, pitch = here.w["units"], here.w["slices"], here.pitch
    packed = code.mul(code.mul(slices, units), lanes.panel * lanes.size)
    for k in range(cell.gates):
        code.invoke("turn", ("ptr", code.at(panels, (packed, k))),
                    ("ptr", code.at("%weight", code.mul(code.mul(units, k), pitch))),
                    ("i64", pitch), ("i64", units), ("i64", units), (lanes.one, "1.0"))

    table = code.emit(f"inttoptr i64 {here.w['table']} to ptr")
    still = _is_still(code, code.mul(code.word(table, 1), units), panels,
                      code.mul(packed, cell.gates))

    def step(i, _):
        row = code.at(table, (i, 16))
        first, rows = code.word(row, 0), code.word(row, 1)
        last = code.sub(here.w["steps"], 1)
        after = code.at(table, (code.least(code.add(i, 1), last), 16))
        for to, from_ in [("before", "state")] + [("before_c", "cell")] * cell.paired:
            code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {code.at(f'%{to}', (first, pitch))}, "
                    f"ptr %{from_}, i64 {code.mul(rows, pitch)}, i1 false)")
        skipped = code.emit(f"and i1 {still}, {code.emit(f'icmp eq i64 {i}, 0')}")
        _put_step(code, "forward", {"first": first, "rows": rows,
                                    "next_first": code.word(after, 0), "next_rows": 0,
                                    "still": code.emit(f"zext i1 {skipped} to i64")})
        _share(code, here, "slice")
        return []

    code.loop("0", here.w["steps"], "1", (), step)
    code.do(f"call void @flambeau_scratch_give(ptr {panels})")
    return code


# -- the way back ----------------------------------------------------------------------------------


def _gates_back(lanes: Lanes, cell: Kind, partial: bool) -> Code:
    """@gates_back: slopes of the gates of one slice of units, in all rows."""
    code = Code(f"gates_back{'_partial' if partial else ''}",
                "ptr %slopes, ptr %other, ptr %state, ptr %cell, ptr %g, ptr %gates, ptr %extra, "
                "ptr %before, ptr %before_c, i64 %pitch, i64 %wide, i64 %rows, i64 %room", lanes)
    reach = _Reach(code, partial)
    gates, extra, _, h, c, dh, dc = _named_leaves(lanes, cell)
    slopes, apart, carried, cell_slope = cell.backward(dh, dc, gates, extra, h, c)
    values = [*slopes, *(x for x in (apart, carried, cell_slope) if x is not None)]
    last = cell.gates - 1

    def row(r, _):
        down, across = code.mul(r, "%pitch"), code.mul(r, "%wide")
        for v in range(VECTORS):
            known = {dh: code.arithmetic("fadd", reach.load(code.at("%state", down), v),
                                         reach.load(code.at("%g", down), v))}
            for k in range(cell.gates):
                known[gates[k]] = reach.load(code.at("%gates", across, (k, "%pitch")), v)
            if cell.apart:
                known[extra] = reach.load(code.at("%extra", down), v)
                known[h] = reach.load(code.at("%before", down), v)
            if cell.paired:
                known[dc] = reach.load(code.at("%cell", down), v)
                known[c] = reach.load(code.at("%before_c", down), v)
            found = dict(zip(values, _together(code, values, known), strict=True))
            for k in range(cell.gates):
                reach.store(found[slopes[k]], code.at("%slopes", across, (k, "%pitch")), v)
                if cell.apart:
                    value = apart if k == last else slopes[k]
                    reach.store(found[value], code.at("%other", across, (k, "%pitch")), v)
            if carried is not None:
                reach.store(found[carried], code.at("%state", down), v)
            if cell_slope is not None:
                reach.store(found[cell_slope], code.at("%cell", down), v)
        return []

    code.loop("0", "%rows", "1", (), row)
    return code


def _slice_back(lanes: Lanes, cell: Kind) -> Code:
    """@slice_back: what the slopes of a step's gates are to the state before, and then the slopes
    of the gates of the step before, for some pieces."""
    code = Code("slice_back", "ptr %context, i64 %begin, i64 %end", lanes)
    here = _Context(code, "backward")
    wide, panel = code.mul(here.pitch, cell.gates), lanes.panel * lanes.size
    inner = code.mul(here.w["units"], cell.gates)
    across = code.mul(inner, panel)

    def piece(p, room, begin, end):
        rows = code.sub(code.least(end, here.step["rows"]), begin)
        code.when(code.emit(f"icmp sgt i64 {rows}, 0"), lambda: carry(p, room, begin, rows))
        more = code.sub(code.least(end, here.step["next_rows"]), begin)
        code.when(code.emit(f"icmp sgt i64 {more}, 0"), lambda: slopes(p, room, begin, more))

    def carry(p, room, begin, rows):
        first = code.add(here.step["first"], begin)
        given = here.rows_at(code, "other" if cell.apart else "slopes", first, cell.gates)
        offset = code.mul(p, panel)
        state = code.at(here.rows_at(code, "state", begin), offset)
        code.product(state, here.pitch, given, wide, lanes.size,
                     code.at(here.p["panels"], (p, across)), panel, across, inner, rows,
                     code.least(room, lanes.panel), ADDED if cell.apart else FRESH,
                     coming=here.coming(code, _coming(cell, "backward"), offset, begin))

    def slopes(p, room, begin, rows):
        first = code.add(here.step["next_first"], begin)
        places = [("slopes", first, cell.gates), ("other", first, cell.gates), ("state", begin, 1),
                  ("cell", begin, 1), ("g", first, 1), ("gates", first, cell.gates),
                  ("extra", first, 1), ("before", first, 1), ("before_c", first, 1)]
        pointers = [code.at(here.rows_at(code, *place), (p, panel)) for place in places]
        _on_slice(code, "gates_back", room, [*(("ptr", x) for x in pointers),
                                             ("i64", here.pitch), ("i64", wide), ("i64", rows)])

    _pieces(code, here, piece)
    return code


def _backward(name: str, lanes: Lanes, cell: Kind) -> Code:
    code, here, panels = _begin(name, "backward", lanes)
    inner = code.mul(here.w["units"], cell.gates)
    code.invoke("strips", ("ptr", panels), ("ptr", "%weight"), ("i64", here.pitch), ("i64", inner),
                ("i64", here.w["units"]))
    table = code.emit(f"inttoptr i64 {here.w['table']} to ptr")

    def step(i, carried):
        """From the slopes of the step after this one to those of this one, in one sharing."""
        at = code.sub(here.w["steps"], code.add(i, 1))
        place = code.at(table, (code.most(at, "0"), 16))
        outside = code.emit(f"icmp slt i64 {at}, 0")
        rows = code.emit(f"select i1 {outside}, i64 0, i64 {code.word(place, 1)}")
        first = code.word(place, 0)
        _put_step(code, "backward", dict(zip(_STEP, (*carried, first, rows, 0), strict=True)))
        _share(code, here, "slice_back")
        return [first, rows]

    rounds = code.add(here.w["steps"], here.w["carried"])
    code.loop("0", rounds, "1", [("i64", "0"), ("i64", "0")], step)
    code.do(f"call void @flambeau_scratch_give(ptr {panels})")
    return code
