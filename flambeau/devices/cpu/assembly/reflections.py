"""QR of small matrices by reflections, as LAPACK has them, on rows of vectors.

Rows are as long as whole vectors, `step`, so that a reflection goes down blocks of columns with
what it subtracts in a register. Where a block begins before the columns that are meant, the others
have nothing subtracted.
"""

from __future__ import annotations

from .factors import ELEMENTS
from .writer import BYTES, Function, Value, wide


def build(dtype: str) -> list[Function]:
    """qr_<dtype>(q, r, x, spare, k, m, n, a_step, p_step, count, work)

    k is the smaller of m and n. There is room to `spare` for a matrix with rows of a_step, for Q
    with rows of p_step, for m numbers of a reflection and for k scales.
    """
    element = ELEMENTS[dtype]
    lanes = 32 // BYTES[element]
    f = Function(f"qr_{dtype}", "ptr q, ptr r, ptr x, ptr spare, i64 k, i64 m, i64 n, "
                 "i64 a_step, i64 p_step, i64 count, i64 work")
    k, m, n, a = f.k, f.m, f.n, f.spare
    p = a.at(element, m * f.a_step)
    v = p.at(element, m * f.p_step)
    scales = v.at(element, m)
    nothing = f.const(element, 0)

    def padded(to: Value, rows: Value, step: Value, columns: Value, value) -> None:
        with f.each(0, rows) as i, f.each(0, step) as j:
            with f.when(j < columns) as inside:
                to.store(value(i, j), i * step + j)
            with inside.otherwise():
                to.store(nothing, i * step + j)

    with f.each(0, f.count) as b:
        x = f.x.at(element, b * m * n)
        padded(a, m, f.a_step, n, lambda i, j: x.load(element, i * n + j))
        with f.each(0, k) as c:
            scale = _reflector(f, element, a, v, c)
            scales.store(scale, c)
            _reflect(f, element, lanes, a, v, f.a_step, c, c + 1, scale)
            with f.each(c + 1, m) as i:
                a.store(v.load(element, i), i * f.a_step + c)
        r, q = f.r.at(element, b * k * n), f.q.at(element, b * m * k)
        with f.each(0, k) as i, f.each(0, n) as j:
            r.store((i <= j).pick(a.load(element, i * f.a_step + j), nothing), i * n + j)
        padded(p, m, f.p_step, k, lambda i, j: (i == j).pick(f.const(element, 1), nothing))
        with f.each(0, k) as turn:
            c = k - 1 - turn
            v.store(f.const(element, 1), c)
            with f.each(c + 1, m) as i:
                v.store(a.load(element, i * f.a_step + c), i)
            _reflect(f, element, lanes, p, v, f.p_step, c, c, scales.load(element, c))
        with f.each(0, m) as i, f.each(0, k) as j:
            q.store(p.load(element, i * f.p_step + j), i * k + j)
    return [f]


def _reflector(f: Function, element: str, a: Value, v: Value, c: Value) -> Value:
    """The reflection that leaves of column c, from its diagonal on, only the first number.

    Its vector, that begins with 1, is put in v; returned is what its products are scaled by.
    """
    step = f.a_step
    largest, total = f.var("double", 0), f.var("double", 0)
    with f.each(c + 1, f.m) as i:
        size = f.intrinsic("fabs", a.load(element, i * step + c).to("double"))
        largest.set((size <= largest()).pick(largest(), size))  # nan is the largest
    first = a.load(element, c * step + c).to("double")
    scale = f.var("double", 0)
    v.store(f.const(element, 1), c)
    with f.when(largest() == 0) as plain, f.each(c + 1, f.m) as i:
        v.store(f.const(element, 0), i)
    with plain.otherwise():
        size = f.intrinsic("fabs", first)
        largest.set((size <= largest()).pick(largest(), size))
        unit = largest()
        total.set((first / unit) * (first / unit))
        with f.each(c + 1, f.m) as i:
            part = a.load(element, i * step + c).to("double") / unit
            total.add(part * part)
        length = f.intrinsic("sqrt", total()) * unit
        left = -f.intrinsic("copysign", length, first)
        scale.set((left - first) / left)
        with f.each(c + 1, f.m) as i:
            part = a.load(element, i * step + c).to("double") / (first - left)
            v.store(part.to(element), i)
        a.store(left.to(element), c * step + c)
    return scale().to(element)


def _reflect(f: Function, element: str, lanes: int, rows: Value, v: Value, step: Value, c: Value,
             start: Value, scale: Value) -> None:
    """Subtract from rows, from c on, their projections: in columns from `start` on."""
    kind = wide(element, lanes)
    places = f.vector("i64", range(lanes))
    total = f.var(kind)
    with f.each((start / lanes) * lanes, step, lanes) as j:
        total.set(f.const(kind, 0))
        with f.each(c, f.m) as i:
            total.set(f.intrinsic("fmuladd", v.load(element, i).spread(lanes),
                                  rows.load(kind, i * step + j), total()))
        meant = places + j.spread(lanes) >= start.spread(lanes)
        less = meant.pick(total() * (-scale).spread(lanes), f.const(kind, 0))
        with f.each(c, f.m) as i:
            here = rows.load(kind, i * step + j)
            rows.store(f.intrinsic("fmuladd", v.load(element, i).spread(lanes), less, here),
                       i * step + j)
