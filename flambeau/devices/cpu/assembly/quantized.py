"""Products of bytes: floats as unsigned bytes, times a matrix of signed bytes, in 32-bit sums.

Weights lie in panels of 16 columns, four of k beside each other: what one instruction multiplies.
"""

from __future__ import annotations

from .writer import Function, Value, parallel, wide

LANES, DEPTH = 16, 4
#: rows and panels of the result that are held in registers
ROWS, PANELS = 8, 2
_WORDS = ("out", "a", "b", "scales", "offsets", "bias", "rows", "columns", "deep")
_POINTERS = frozenset(_WORDS[:6])


def quantized() -> Function:
    """quantized_rows(out, x, scale, zero, rows, width, padded, work): x / scale + zero as bytes.

    `scale` is given as its inverse; rows are filled up with zeros.
    """
    f = Function("quantized_rows", "ptr out, ptr x, double scale, i64 zero, i64 rows, i64 width, "
                                   "i64 padded, i64 work")
    by, zero = f.scale.to("float"), f.zero.to("i32")

    def byte(x: Value) -> Value:
        lanes = x.lanes
        found = f.intrinsic("rint", x * by.spread(lanes))
        found = f.intrinsic("maxnum", found, f.const(found.type, -512.0))
        found = f.intrinsic("minnum", found, f.const(found.type, 512.0))
        whole = found.to("i32") + zero.spread(lanes)
        whole = (whole < 0).pick(f.const(whole.type, 0), whole)
        return (whole > 255).pick(f.const(whole.type, 255), whole).to("i8")

    whole = f.width & -LANES
    with f.each(0, f.rows) as r:
        here, there = f.x.at("float", r * f.width), f.out.at("i8", r * f.padded)
        with f.each(0, whole, LANES) as j:
            there.store(byte(here.load(wide("float", LANES), j)), j)
        with f.each(whole, f.width) as j:
            there.store(byte(here.load("float", j)), j)
        with f.each(f.width, f.padded) as j:
            there.store(f.const("i8", 0), j)
    return f


def _multiplied(f: Function, total: Value, a: Value, b: Value, fast: bool) -> Value:
    """total + four products of each lane: a has unsigned bytes, b signed ones."""
    if fast:
        bits = wide("i8", LANES * DEPTH)
        return f.calls("llvm.x86.avx512.vpdpbusd.512", wide("i32", LANES), total, a.bits(bits),
                       b.bits(bits))
    for k in range(DEPTH):
        left = (a >> (8 * k)) & 255
        right = (b << (24 - 8 * k)).sar(24)
        total = total + left * right
    return total


def _tile(f: Function, w: dict[str, Value], first: Value, panel: Value, rows: int, panels: int,
          fast: bool) -> None:
    """Some rows of some panels, from sums to floats."""
    vector, stride = wide("i32", LANES), w["deep"] * DEPTH
    totals = [[f.var(vector, 0) for _ in range(panels)] for _ in range(rows)]
    size = w["deep"] * (LANES * DEPTH)
    source = w["b"].at("i8", panel * size)
    left = w["a"].at("i8", first * stride)
    with f.each(0, w["deep"]) as k:
        parts = [source.at("i8", size * p + k * (LANES * DEPTH)).load(vector)
                 for p in range(panels)]
        for r in range(rows):
            four = left.at("i8", stride * r + k * DEPTH).load("i32").spread(LANES)
            for p in range(panels):
                total = totals[r][p]
                total.set(_multiplied(f, total(), four, parts[p], fast))
    for p in range(panels):
        column = (panel + p) * LANES
        scale, offset, bias = (w[name].load(wide(kind, LANES), column) for name, kind in (
            ("scales", "float"), ("offsets", "i32"), ("bias", "float")))
        for r in range(rows):
            found = (totals[r][p]() - offset).to("float") * scale + bias
            _stored(f, w, found, first + r, column)


def _stored(f: Function, w: dict[str, Value], found: Value, row: Value, column: Value) -> None:
    target = w["out"].at("float", row * w["columns"] + column)
    with f.when(column + LANES <= w["columns"]) as whole:
        target.store(found)
    with whole.otherwise():
        spare = f.room("float", LANES)
        spare.store(found)
        with f.each(0, w["columns"] - column) as j:
            target.store(spare.load("float", j), j)


def _panels(fast: bool) -> Function:
    """Panels begin to end of the result, two by two."""
    f = Function("byte_panels", "ptr context, i64 begin, i64 end", local=True)
    w = {name: f.context.load("ptr" if name in _POINTERS else "i64", k)
         for k, name in enumerate(_WORDS)}
    every = w["rows"] & -ROWS
    pairs = f.begin + ((f.end - f.begin) & -PANELS)
    for start, stop, count in ((f.begin, pairs, PANELS), (pairs, f.end, 1)):
        with f.each(start, stop, count) as panel:
            with f.each(0, every, ROWS) as r:
                _tile(f, w, r, panel, ROWS, count, fast)
            with f.each(every, w["rows"]) as r:
                _tile(f, w, r, panel, 1, count, fast)
    return f


def products(fast: bool) -> list[Function]:
    """byte_products(<words>, panels, grain, work)"""
    inner = _panels(fast)
    arguments = ", ".join(f"{'ptr' if n in _POINTERS else 'i64'} {n}" for n in _WORDS)
    f = Function("byte_products", f"{arguments}, i64 panels, i64 grain, i64 work")
    given, context = f.parameters_by_name(), f.room("i64", len(_WORDS))
    for k, name in enumerate(_WORDS):
        context.store(given[name], k)
    parallel(f, inner, context, f.panels, f.grain)
    return [inner, f]


def build(fast: bool) -> list[Function]:
    return [quantized(), *products(fast)]
