"""Products of sparse matrices in compressed rows: with strided ones, and of strided ones where the
sparse one has elements.

`starts` says where each row begins among `places`, which are columns, and `values`. Strided
matrices are dense and row by row.
"""

from __future__ import annotations

from .factors import ELEMENTS
from .writer import Function, Value, Variable, parallel, wide

#: bytes of a vector; so many of them are added up side by side
VECTOR, ABREAST = 64, 4
_TIMES = ("out", "starts", "places", "values", "dense", "width")
_SAMPLED = ("out", "starts", "places", "left", "right", "width")


def _words(f: Function, names) -> dict[str, Value]:
    """Words of a context: addresses, and the width."""
    found = {}
    for k, name in enumerate(names):
        found[name] = f.context.load("i64" if name == "width" else "ptr", k)
    return found


def _row(w: dict[str, Value], index: str, r: Value) -> tuple[Value, Value]:
    """Where a row begins and ends."""
    return tuple(w["starts"].load(index, k).to("i64") for k in (r, r + 1))  # type: ignore


def _fused(f: Function, a: Value, b: Value, total: Variable) -> None:
    total.set(f.intrinsic("fma", a, b, total()))


def _added(f: Function, w, index: str, element: str, row, r: Value, j: Value, lanes: int,
           count: int) -> None:
    """Columns j and on of a row of the result: so many vectors of so many lanes."""
    vector = wide(element, lanes)
    totals = [f.var(vector, 0.0) for _ in range(count)]
    with f.each(*row) as k:
        column = w["places"].load(index, k).to("i64")
        value = w["values"].load(element, k).spread(lanes)
        source = w["dense"].at(element, column * w["width"] + j)
        for i, total in enumerate(totals):
            _fused(f, value, source.load(vector, i * lanes), total)
    target = w["out"].at(element, r * w["width"] + j)
    for i, total in enumerate(totals):
        target.store(total(), i * lanes)


def _dotted(f: Function, w, index: str, element: str, row, r: Value, lanes: int) -> None:
    """A row times a vector: columns several at a time."""
    begin, end = row
    vector = wide(element, lanes)
    total = f.var(vector, 0.0)
    last = begin + ((end - begin) & -lanes)
    with f.each(begin, last, lanes) as k:
        columns = w["places"].load(wide(index, lanes), k).to("i64")
        picked = f.const(vector, 0)
        for i in range(lanes):
            one = w["dense"].load(element, columns.lane(i))
            picked = f.new(vector, f"insertelement {vector} {picked.name}, {element} {one.name}, "
                                   f"i64 {i}")
        _fused(f, w["values"].load(vector, k), picked, total)
    rest = f.var(element, _sum(f, total(), lanes))
    with f.each(last, end) as k:
        column = w["places"].load(index, k).to("i64")
        _fused(f, w["values"].load(element, k), w["dense"].load(element, column), rest)
    w["out"].store(rest(), r)


def _sum(f: Function, x: Value, lanes: int) -> Value:
    while lanes > 2:
        lanes //= 2
        x = x.shuffle(range(lanes)) + x.shuffle(range(lanes, 2 * lanes))
    return x.lane(0) + x.lane(1)


def _times(dtype: str, index: str) -> Function:
    """Rows of a product with a strided matrix."""
    element = ELEMENTS[dtype]
    f = Function("times_rows", "ptr context, i64 begin, i64 end", local=True)
    w = _words(f, _TIMES)
    lanes = VECTOR // (4 if element == "float" else 8)
    broad = lanes * ABREAST
    every, whole = w["width"] & -broad, w["width"] & -lanes
    with f.each(f.begin, f.end) as r:
        row = _row(w, index, r)
        with f.when(w["width"] == 1) as narrow:
            _dotted(f, w, index, element, row, r, 8)
        with narrow.otherwise():
            with f.each(0, every, broad) as j:
                _added(f, w, index, element, row, r, j, lanes, ABREAST)
            with f.each(every, whole, lanes) as j:
                _added(f, w, index, element, row, r, j, lanes, 1)
            for few in (4, 1):
                done = whole if few == 4 else w["width"] & -4
                with f.each(done, w["width"] & -few, few) as j:
                    _added(f, w, index, element, row, r, j, few, 1)
    return f


def _sampled(dtype: str, index: str) -> Function:
    """For elements of rows, the products of a row of `left` and one of `right`."""
    element = ELEMENTS[dtype]
    f = Function("sampled_rows", "ptr context, i64 begin, i64 end", local=True)
    w = _words(f, _SAMPLED)
    lanes = VECTOR // (4 if element == "float" else 8)
    vector, whole = wide(element, lanes), w["width"] & -lanes
    with f.each(f.begin, f.end) as r:
        here = w["left"].at(element, r * w["width"])
        with f.each(*_row(w, index, r)) as k:
            column = w["places"].load(index, k).to("i64")
            there = w["right"].at(element, column * w["width"])
            total = f.var(vector, 0.0)
            with f.each(0, whole, lanes) as j:
                _fused(f, here.load(vector, j), there.load(vector, j), total)
            rest = f.var(element, _sum(f, total(), lanes))
            with f.each(whole, w["width"]) as j:
                _fused(f, here.load(element, j), there.load(element, j), rest)
            w["out"].store(rest(), k)
    return f


def build(which: str, dtype: str, index: str) -> list[Function]:
    """compressed_<which>(<words>, rows, grain, work)"""
    names, body = (_TIMES, _times) if which == "times" else (_SAMPLED, _sampled)
    inner = body(dtype, {"int64": "i64", "int32": "i32"}[index])
    arguments = ", ".join(f"{'i64' if n == 'width' else 'ptr'} {n}" for n in names)
    f = Function(f"compressed_{which}_{dtype}_{index}", f"{arguments}, i64 rows, i64 grain, "
                                                        "i64 work")
    given, context = f.parameters_by_name(), f.room("i64", len(names))
    for k, name in enumerate(names):
        context.store(given[name], k)
    parallel(f, inner, context, f.rows, f.grain)
    return [inner, f]
