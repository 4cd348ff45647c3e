"""Cholesky's factors of small matrices, that LAPACK computes, and triangular solutions, in
doubles."""

from __future__ import annotations

from .writer import Function, Value

ELEMENTS = {"float32": "float", "float64": "double"}


def number(f: Function, value: Value) -> Value:
    """Where LAPACK finds an integer."""
    place = f.room("i32", 1)
    place.store(value.to("i32"))
    return place


def _cholesky(dtype: str) -> Function:
    """cholesky_<dtype>(out, infos, x, one, upper, n, count, work): how many had none.

    There is room for `one` matrix. A lower triangle by rows is an upper one by columns, as LAPACK
    sees it, so nothing is turned.
    """
    element = ELEMENTS[dtype]
    f = Function(f"cholesky_{dtype}", "ptr out, ptr infos, ptr x, ptr one, i64 upper, i64 n, "
                 "i64 count, i64 work", "i64")
    n, size, failed = f.n, number(f, f.n), f.var("i64", 0)
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


def _triangle(dtype: str) -> Function:
    """triangle_<dtype>(out, a, b, ...): x of n unknowns for each of m right sides, by substitution.

    Steps lead from one matrix of a batch to the next, rows and columns within one; the unknowns are
    found from the first on, `down`, or from the last.
    """
    element = ELEMENTS[dtype]
    f = Function(f"triangle_{dtype}", "ptr out, ptr a, ptr b, i64 a_step, i64 b_step, i64 row, "
                 "i64 column, i64 x_row, i64 x_column, i64 n, i64 m, i64 down, i64 unit, "
                 "i64 count, i64 work")
    n, last, down, unit = f.n, f.n - 1, f.down != 0, f.unit != 0

    def wide(matrix: Value, at: Value) -> Value:
        return matrix.load(element, at).to("double")

    with f.each(0, f.count) as k:
        a, b = f.a.at(element, k * f.a_step), f.b.at(element, k * f.b_step)
        out = f.out.at(element, k * n * f.m)
        with f.each(0, n) as step:
            i = down.pick(step, last - step)
            whole = unit.pick(f.const("double", 1), wide(a, i * f.row + i * f.column))
            with f.each(0, f.m) as j:
                side = j * f.x_column
                rest = f.var("double", wide(b, i * f.x_row + side))
                with f.each(0, step) as known:
                    at = down.pick(known, last - known)
                    rest.set(rest() - wide(a, i * f.row + at * f.column)
                             * wide(out, at * f.x_row + side))
                out.store((rest() / whole).to(element), i * f.x_row + side)
    return f


_MADE = {"cholesky": _cholesky, "triangle": _triangle}


def build(name: str, dtype: str) -> list[Function]:
    return [_MADE[name](dtype)]
