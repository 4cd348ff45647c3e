"""Factors of small matrices, Cholesky's and QR, that LAPACK computes, and triangular solutions, in
doubles."""

from __future__ import annotations

from .writer import Function, Value

_ELEMENTS = {"float32": "float", "float64": "double"}


def _number(f: Function, value: Value) -> Value:
    """Where LAPACK finds an integer."""
    place = f.room("i32", 1)
    place.store(value.to("i32"))
    return place


def _cholesky(dtype: str) -> Function:
    """cholesky_<dtype>(out, infos, x, one, upper, n, count, work): how many had none.

    There is room for `one` matrix. A lower triangle by rows is an upper one by columns, as LAPACK
    sees it, so nothing is turned.
    """
    element = _ELEMENTS[dtype]
    f = Function(f"cholesky_{dtype}", "ptr out, ptr infos, ptr x, ptr one, i64 upper, i64 n, "
                 "i64 count, i64 work", "i64")
    n, size, failed = f.n, _number(f, f.n), f.var("i64", 0)
    letter, above = f.room("i8", 1), f.upper != 0
    letter.store(above.pick(f.const("i8", ord("L")), f.const("i8", ord("U"))))
    with f.each(0, f.count) as k:
        x, out = (matrices.at(element, k * n * n) for matrices in (f.x, f.out))
        info = f.infos.at("i32", k)
        with f.each(0, n * n) as i:
            f.one.store(x.load(element, i).to("double"), i)
        f.calls("flambeau_dpotrf", "void", letter, size, f.one, size, info, f.const("i64", 1))
        failed.add((info.load("i32") != 0).to("i64"))
        with f.each(0, n) as i, f.each(0, n) as j:
            inside = above.pick(i, j) <= above.pick(j, i)
            value = inside.pick(f.one.load("double", i * n + j), f.const("double", 0))
            out.store(value.to(element), i * n + j)
    f.give(failed())
    return f


def _qr(dtype: str) -> Function:
    """qr_<dtype>(q, r, x, spare, words, k, m, n, count, work), k being the smaller of m and n.

    There is room to `spare` for a matrix by columns, k numbers and so many words of LAPACK's own.
    """
    element = _ELEMENTS[dtype]
    f = Function(f"qr_{dtype}", "ptr q, ptr r, ptr x, ptr spare, i64 words, i64 k, i64 m, i64 n, "
                 "i64 count, i64 work")
    k, m, n = f.k, f.m, f.n
    least, rows, columns, words = (_number(f, v) for v in (k, m, n, f.words))
    matrix, scales, info = f.spare, f.spare.at("double", m * n), f.room("i32", 1)
    own = scales.at("double", k)
    with f.each(0, f.count) as b:
        x, q, r = (start.at(element, b * size) for start, size in (
            (f.x, m * n), (f.q, m * k), (f.r, k * n)))
        with f.each(0, m) as i, f.each(0, n) as j:
            matrix.store(x.load(element, i * n + j).to("double"), j * m + i)
        f.calls("flambeau_dgeqrf", "void", rows, columns, matrix, rows, scales, own, words, info)
        with f.each(0, k) as i, f.each(0, n) as j:
            value = (i <= j).pick(matrix.load("double", j * m + i), f.const("double", 0))
            r.store(value.to(element), i * n + j)
        f.calls("flambeau_dorgqr", "void", rows, least, least, matrix, rows, scales, own, words,
                info)
        with f.each(0, m) as i, f.each(0, k) as j:
            q.store(matrix.load("double", j * m + i).to(element), i * k + j)
    return f


def _triangle(dtype: str) -> Function:
    """triangle_<dtype>(out, a, b, ...): x of n unknowns for each of m right sides, by substitution.

    Steps lead from one matrix of a batch to the next, rows and columns within one; the unknowns are
    found from the first on, `down`, or from the last.
    """
    element = _ELEMENTS[dtype]
    f = Function(f"triangle_{dtype}", "ptr out, ptr a, ptr b, i64 a_step, i64 b_step, i64 row, "
                 "i64 column, i64 x_row, i64 x_column, i64 n, i64 m, i64 down, i64 unit, "
                 "i64 count, i64 work")
    n, last, down, unit = f.n, f.n - 1, f.down != 0, f.unit != 0

    def number(matrix: Value, at: Value) -> Value:
        return matrix.load(element, at).to("double")

    with f.each(0, f.count) as k:
        a, b = f.a.at(element, k * f.a_step), f.b.at(element, k * f.b_step)
        out = f.out.at(element, k * n * f.m)
        with f.each(0, n) as step:
            i = down.pick(step, last - step)
            whole = unit.pick(f.const("double", 1), number(a, i * f.row + i * f.column))
            with f.each(0, f.m) as j:
                side = j * f.x_column
                rest = f.var("double", number(b, i * f.x_row + side))
                with f.each(0, step) as known:
                    at = down.pick(known, last - known)
                    rest.set(rest() - number(a, i * f.row + at * f.column)
                             * number(out, at * f.x_row + side))
                out.store((rest() / whole).to(element), i * f.x_row + side)
    return f


_MADE = {"cholesky": _cholesky, "qr": _qr, "triangle": _triangle}


def build(name: str, dtype: str) -> list[Function]:
    return [_MADE[name](dtype)]
