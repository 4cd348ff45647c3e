"""Inverses of square matrices: LAPACK solves for the columns of the identity, in doubles."""

from __future__ import annotations

from .writer import Function

_ELEMENTS = {"float32": "float", "float64": "double"}


def build(dtype: str) -> list[Function]:
    """inverse_<dtype>(out, infos, x, two, pivots, n, count, work): how many had none.

    There is room for `two` matrices; LAPACK wants them by columns, so they are turned on the way.
    """
    element = _ELEMENTS[dtype]
    f = Function(f"inverse_{dtype}", "ptr out, ptr infos, ptr x, ptr two, ptr pivots, i64 n, "
                 "i64 count, i64 work", "i64")
    n, size, failed = f.n, f.room("i32", 1), f.var("i64", 0)
    matrix, solution = f.two, f.two.at("double", n * n)
    size.store(n.to("i32"))
    with f.each(0, f.count) as k:
        x, out = (matrices.at(element, k * n * n) for matrices in (f.x, f.out))
        info = f.infos.at("i32", k)
        with f.each(0, n) as i, f.each(0, n) as j:
            matrix.store(x.load(element, i * n + j).to("double"), j * n + i)
            solution.store((i == j).pick(f.const("double", 1), f.const("double", 0)), i * n + j)
        f.calls("flambeau_dgesv", "void", size, size, matrix, size, f.pivots, solution, size, info)
        failed.add((info.load("i32") != 0).to("i64"))
        with f.each(0, n) as i, f.each(0, n) as j:
            out.store(solution.load("double", j * n + i).to(element), i * n + j)
    f.give(failed())
    return [f]
