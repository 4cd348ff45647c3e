"""Linear systems, least squares, factors and spectra of small matrices, that LAPACK computes in the
precision of their elements.

LAPACK wants matrices by columns, so they are turned on the way there and back. Functions return how
many matrices of the batch failed.
"""

from __future__ import annotations

from .factors import ELEMENTS, number
from .writer import Function, Value

LETTERS = {"float32": "s", "float64": "d"}


def _turned(f: Function, element: str, to: Value, start: Value, rows: Value,
            columns: Value) -> None:
    """A matrix by columns from one by rows; the sizes exchanged, one by rows from its columns."""
    with f.each(0, rows) as i, f.each(0, columns) as j:
        to.store(start.load(element, i * columns + j), j * rows + i)


def _letter(f: Function, text: str) -> Value:
    place = f.room("i8", 1)
    place.store(f.const("i8", ord(text)))
    return place


def _solve(dtype: str) -> Function:
    """solve_<dtype>(out, infos, a, b, a_step, b_step, spare, pivots, n, m, count, work)

    Steps lead from one matrix of a batch to the next. There is room to `spare` for a matrix and its
    right sides.
    """
    element = ELEMENTS[dtype]
    f = Function(f"solve_{dtype}", "ptr out, ptr infos, ptr a, ptr b, i64 a_step, i64 b_step, "
                 "ptr spare, ptr pivots, i64 n, i64 m, i64 count, i64 work", "i64")
    n, m, failed = f.n, f.m, f.var("i64", 0)
    size, sides = number(f, n), number(f, m)
    matrix, x = f.spare, f.spare.at(element, n * n)
    with f.each(0, f.count) as k:
        info = f.infos.at("i32", k)
        _turned(f, element, matrix, f.a.at(element, k * f.a_step), n, n)
        _turned(f, element, x, f.b.at(element, k * f.b_step), n, m)
        f.calls(f"flambeau_{LETTERS[dtype]}gesv", "void", size, sides, matrix, size, f.pivots, x,
                size, info)
        failed.add((info.load("i32") != 0).to("i64"))
        _turned(f, element, f.out.at(element, k * n * m), x, m, n)
    f.give(failed())
    return f


def _lu(dtype: str) -> Function:
    """lu_<dtype>(out, pivots, infos, x, spare, k, m, n, count, work), k the smaller of m and n.

    A matrix that is singular has factors too, and does not count as failed.
    """
    element = ELEMENTS[dtype]
    f = Function(f"lu_{dtype}", "ptr out, ptr pivots, ptr infos, ptr x, ptr spare, i64 k, i64 m, "
                 "i64 n, i64 count, i64 work")
    rows, columns = number(f, f.m), number(f, f.n)
    with f.each(0, f.count) as b:
        x, out = (start.at(element, b * f.m * f.n) for start in (f.x, f.out))
        _turned(f, element, f.spare, x, f.m, f.n)
        f.calls(f"flambeau_{LETTERS[dtype]}getrf", "void", rows, columns, f.spare, rows,
                f.pivots.at("i32", b * f.k), f.infos.at("i32", b))
        _turned(f, element, out, f.spare, f.n, f.m)
    return f


def _least(dtype: str) -> Function:
    """least_<dtype>(out, ranks, a, b, spare, order, limit, long, words, m, n, sides, count, work)

    By a complete orthogonal factorisation. There is room to `spare` for a matrix, for right sides
    of `long` rows, the longer of m and n, and for so many words of LAPACK's own; in `order` for n
    numbers. `limit` is where the condition of what counts as singular is.
    """
    element = ELEMENTS[dtype]
    f = Function(f"least_{dtype}", "ptr out, ptr ranks, ptr a, ptr b, ptr spare, ptr order, "
                 "ptr limit, i64 long, i64 words, i64 m, i64 n, i64 sides, i64 count, i64 work",
                 "i64")
    m, n, long, failed = f.m, f.n, f.long, f.var("i64", 0)
    rows, columns, right, height, words = (
        number(f, v) for v in (m, n, f.sides, long, f.words))
    matrix, x = f.spare, f.spare.at(element, m * n)
    own, rank, info = x.at(element, long * f.sides), f.room("i32", 1), f.room("i32", 1)
    with f.each(0, f.count) as k:
        _turned(f, element, matrix, f.a.at(element, k * m * n), m, n)
        b, out = f.b.at(element, k * m * f.sides), f.out.at(element, k * n * f.sides)
        with f.each(0, m) as i, f.each(0, f.sides) as j:
            x.store(b.load(element, i * f.sides + j), j * long + i)
        with f.each(0, n) as i:
            f.order.store(f.const("i32", 0), i)
        f.calls(f"flambeau_{LETTERS[dtype]}gelsy", "void", rows, columns, right, matrix, rows, x,
                height, f.order, f.limit, rank, own, words, info)
        failed.add((info.load("i32") != 0).to("i64"))
        f.ranks.store(rank.load("i32").to("i64", signed=True), k)
        with f.each(0, n) as i, f.each(0, f.sides) as j:
            out.store(x.load(element, j * long + i), i * f.sides + j)
    f.give(failed())
    return f


def _eigh(dtype: str) -> Function:
    """eigh_<dtype>(values, vectors, x, spare, order, job, upper, words, numbers, n, count, work)

    The job is LAPACK's letter, and with N there are no vectors. There is room to `spare` for a
    matrix and for so many words of LAPACK's own, and in `order` for so many numbers.
    """
    element = ELEMENTS[dtype]
    f = Function(f"eigh_{dtype}", "ptr values, ptr vectors, ptr x, ptr spare, ptr order, i64 job, "
                 "i64 upper, i64 words, i64 numbers, i64 n, i64 count, i64 work", "i64")
    n, failed, info = f.n, f.var("i64", 0), f.room("i32", 1)
    size, words, numbers = (number(f, v) for v in (n, f.words, f.numbers))
    half, job, one = f.room("i8", 1), f.room("i8", 1), f.const("i64", 1)
    job.store(f.job.to("i8"))
    half.store((f.upper != 0).pick(f.const("i8", ord("U")), f.const("i8", ord("L"))))
    own = f.spare.at(element, n * n)
    with f.each(0, f.count) as k:
        _turned(f, element, f.spare, f.x.at(element, k * n * n), n, n)
        f.calls(f"flambeau_{LETTERS[dtype]}syevd", "void", job, half, size, f.spare, size,
                f.values.at(element, k * n), own, words, f.order, numbers, info, one, one)
        failed.add((info.load("i32") != 0).to("i64"))
        with f.when(f.job == ord("V")):
            _turned(f, element, f.vectors.at(element, k * n * n), f.spare, n, n)
    f.give(failed())
    return f


def _eig(dtype: str) -> Function:
    """eig_<dtype>(values, vectors, x, spare, job, words, n, count, work), both complex.

    The job is LAPACK's letter, and with N there are no vectors. There is room to `spare` for two
    matrices, two vectors, and so many words of LAPACK's own.
    """
    element = ELEMENTS[dtype]
    f = Function(f"eig_{dtype}", "ptr values, ptr vectors, ptr x, ptr spare, i64 job, i64 words, "
                 "i64 n, i64 count, i64 work", "i64")
    n, failed, info = f.n, f.var("i64", 0), f.room("i32", 1)
    size, words, one = number(f, n), number(f, f.words), f.const("i64", 1)
    job, none = f.room("i8", 1), _letter(f, "N")
    job.store(f.job.to("i8"))
    found = f.spare.at(element, n * n)
    real = found.at(element, n * n)
    imaginary = real.at(element, n)
    own = imaginary.at(element, n)
    with f.each(0, f.count) as k:
        _turned(f, element, f.spare, f.x.at(element, k * n * n), n, n)
        f.calls(f"flambeau_{LETTERS[dtype]}geev", "void", none, job, size, f.spare, size, real,
                imaginary, found, size, found, size, own, words, info, one, one)
        failed.add((info.load("i32") != 0).to("i64"))
        values = f.values.at(element, k * n * 2)
        with f.each(0, n) as j:
            values.store(real.load(element, j), j * 2)
            values.store(imaginary.load(element, j), j * 2 + 1)
        with f.when(f.job == ord("V")):
            _pairs(f, element, f.vectors.at(element, k * n * n * 2), found, imaginary)
    f.give(failed())
    return f


def _pairs(f: Function, element: str, out: Value, found: Value, imaginary: Value) -> None:
    """Complex vectors: of two values that are conjugate LAPACK gives the two parts of the first."""
    n = f.n
    with f.each(0, n) as j:
        turn = imaginary.load(element, j)
        first = (turn < 0.0).pick(j - 1, j)
        other = (first + 1 < n).pick(first + 1, first)
        sign = (turn > 0.0).pick(f.const(element, 1.0), (turn < 0.0).pick(
            f.const(element, -1.0), 0.0))
        with f.each(0, n) as i:
            out.store(found.load(element, first * n + i), (i * n + j) * 2)
            part = found.load(element, other * n + i)
            out.store((sign == 0.0).pick(0.0, part * sign), (i * n + j) * 2 + 1)


def _reflections(dtype: str) -> Function:
    """geqrf_<dtype>(out, taus, x, spare, k, words, m, n, count, work): R above the diagonal, and
    the reflections that make Q below it.

    There is room to `spare` for a matrix and so many words of LAPACK's own.
    """
    element = ELEMENTS[dtype]
    f = Function(f"geqrf_{dtype}", "ptr out, ptr taus, ptr x, ptr spare, i64 k, i64 words, i64 m, "
                 "i64 n, i64 count, i64 work")
    m, n, info = f.m, f.n, f.room("i32", 1)
    rows, columns, words = (number(f, v) for v in (m, n, f.words))
    own = f.spare.at(element, m * n)
    with f.each(0, f.count) as b:
        _turned(f, element, f.spare, f.x.at(element, b * m * n), m, n)
        f.calls(f"flambeau_{LETTERS[dtype]}geqrf", "void", rows, columns, f.spare, rows,
                f.taus.at(element, b * f.k), own, words, info)
        _turned(f, element, f.out.at(element, b * m * n), f.spare, n, m)
    return f


def _rotation(dtype: str) -> Function:
    """orgqr_<dtype>(out, taus, x, spare, k, words, m, n, step, count, work): the first n columns of
    a product of k reflections, from matrices of `step` columns.

    There is room to `spare` for a matrix and so many words of LAPACK's own.
    """
    element = ELEMENTS[dtype]
    f = Function(f"orgqr_{dtype}", "ptr out, ptr taus, ptr x, ptr spare, i64 k, i64 words, i64 m, "
                 "i64 n, i64 step, i64 count, i64 work")
    m, n, info = f.m, f.n, f.room("i32", 1)
    rows, columns, many, words = (number(f, v) for v in (m, n, f.k, f.words))
    own = f.spare.at(element, m * n)
    with f.each(0, f.count) as b:
        x = f.x.at(element, b * m * f.step)
        with f.each(0, m) as i, f.each(0, n) as j:
            f.spare.store(x.load(element, i * f.step + j), j * m + i)
        f.calls(f"flambeau_{LETTERS[dtype]}orgqr", "void", rows, columns, many, f.spare, rows,
                f.taus.at(element, b * f.k), own, words, info)
        _turned(f, element, f.out.at(element, b * m * n), f.spare, n, m)
    return f


def _triangles(dtype: str) -> Function:
    """trsm_<dtype>(out, a, b, a_step, b_step, side, half, turn, unit, n, rows, columns, count,
    work): A X = B or X A = B for triangles A, in place in `out`.

    What lies by rows is its transpose by columns, so sides and halves are exchanged, and nothing
    has to be turned; they, and whether A itself is turned, are LAPACK's letters.
    """
    element = ELEMENTS[dtype]
    f = Function(f"trsm_{dtype}", "ptr out, ptr a, ptr b, i64 a_step, i64 b_step, i64 side, "
                 "i64 half, i64 turn, i64 unit, i64 n, i64 rows, i64 columns, i64 count, i64 work")
    letters = []
    for given in (f.side, f.half, f.turn, f.unit):
        place = f.room("i8", 1)
        place.store(given.to("i8"))
        letters.append(place)
    size, rows, columns = (number(f, v) for v in (f.n, f.rows, f.columns))
    whole, one = f.room(element, 1), f.const("i64", 1)
    whole.store(f.const(element, 1.0))
    many = f.rows * f.columns
    with f.each(0, f.count) as k:
        out, b = f.out.at(element, k * many), f.b.at(element, k * f.b_step)
        with f.each(0, many) as i:
            out.store(b.load(element, i), i)
        f.calls(f"flambeau_{LETTERS[dtype]}trsm", "void", *letters, columns, rows, whole,
                f.a.at(element, k * f.a_step), size, out, columns, one, one, one, one)
    return f


def _svd(dtype: str) -> Function:
    """svd_<dtype>(u, s, v, x, spare, order, job, words, left, right, k, m, n, count, work)

    u has so many columns on the `left`, v rows on the `right`, and there are k singular values; the
    job is LAPACK's letter, and with N there are no u and v. There is room to `spare` for the three
    matrices and so many words of LAPACK's own, and in `order` for 8 k numbers.
    """
    element = ELEMENTS[dtype]
    f = Function(f"svd_{dtype}", "ptr u, ptr s, ptr v, ptr x, ptr spare, ptr order, i64 job, "
                 "i64 words, i64 left, i64 right, i64 k, i64 m, i64 n, i64 count, i64 work", "i64")
    m, n, failed, info = f.m, f.n, f.var("i64", 0), f.room("i32", 1)
    rows, columns, height, words = (number(f, v) for v in (m, n, f.right, f.words))
    job = f.room("i8", 1)
    job.store(f.job.to("i8"))
    vectors = f.job != ord("N")
    u = f.spare.at(element, m * n)
    v = u.at(element, m * f.left)
    own = v.at(element, f.right * n)
    with f.each(0, f.count) as b:
        _turned(f, element, f.spare, f.x.at(element, b * m * n), m, n)
        f.calls(f"flambeau_{LETTERS[dtype]}gesdd", "void", job, rows, columns, f.spare, rows,
                f.s.at(element, b * f.k), u, rows, v, height, own, words, f.order, info,
                f.const("i64", 1))
        failed.add((info.load("i32") != 0).to("i64"))
        with f.when(vectors):
            _turned(f, element, f.u.at(element, b * m * f.left), u, f.left, m)
            _turned(f, element, f.v.at(element, b * f.right * n), v, n, f.right)
    f.give(failed())
    return f


def _exchanges(dtype: str) -> Function:
    """exchanges_<dtype>(out, pivots, order, k, rows, count, work): matrices of permutations.

    There is room in `order` for as many numbers as there are rows.
    """
    element = ELEMENTS[dtype]
    f = Function(f"exchanges_{dtype}", "ptr out, ptr pivots, ptr order, i64 k, i64 rows, "
                 "i64 count, i64 work")
    n = f.rows
    with f.each(0, f.count) as b:
        out, pivots = f.out.at(element, b * n * n), f.pivots.at("i32", b * f.k)
        with f.each(0, n) as i:
            f.order.store(i, i)
        with f.each(0, f.k) as i:
            j = pivots.load("i32", i).to("i64", signed=True) - 1
            here, there = f.order.load("i64", i), f.order.load("i64", j)
            f.order.store(there, i)
            f.order.store(here, j)
        with f.each(0, n * n) as i:
            out.store(f.const(element, 0), i)
        with f.each(0, n) as i:
            out.store(f.const(element, 1), f.order.load("i64", i) * n + i)
    return f


_MADE = {"solve": _solve, "lu": _lu, "exchanges": _exchanges, "least": _least,
         "eigh": _eigh, "eig": _eig, "svd": _svd, "geqrf": _reflections, "orgqr": _rotation,
         "trsm": _triangles}


def build(name: str, dtype: str) -> list[Function]:
    return [_MADE[name](dtype)]
