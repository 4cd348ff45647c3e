"""Passes of Fourier transforms, one for each factor of the length.

What comes out is in order (Stockham's way). Numbers are in two arrays, of real and of imaginary
parts; several rows go together, their numbers side by side, so that every pass finds neighbours to
work on at once. The first pass over a row that goes alone has none, and works on several of its
groups instead.
"""

from __future__ import annotations

import math

from .fourier_words import FOURIER, RADICES, STAGE
from .writer import Function, Value, wide

Complex = tuple[Value, Value]

#: what the neighbours of passes by powers of two are a multiple of, when they are not the first
LEAST = {8: 8, 4: 4, 2: 4}


# -- a few complex numbers -----------------------------------------------------------------------


def _times(a: Complex, w: Complex) -> Complex:
    (x, y), (c, s) = a, w
    f = x.f
    return f.intrinsic("fmuladd", x, c, -(y * s)), f.intrinsic("fmuladd", x, s, y * c)


def _plus(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def _quarter(a: Complex) -> Complex:
    """a times -i."""
    return a[1], -a[0]


def small(x: list[Complex]) -> list[Complex]:
    """The transform of a few numbers."""
    if len(x) == 2:
        return [_plus(*x), _minus(*x)]
    if len(x) % 2:
        return _odd(x)
    even, odd, half = small(x[::2]), small(x[1::2]), len(x) // 2
    if half == 2:
        odd[1] = _quarter(odd[1])
    else:
        root = math.sqrt(0.5)
        (a, b), (c, d) = odd[1], odd[3]
        odd[1:] = [((a + b) * root, (b - a) * root), _quarter(odd[2]),
                   ((d - c) * root, (c + d) * -root)]
    return ([_plus(e, o) for e, o in zip(even, odd, strict=True)]
            + [_minus(e, o) for e, o in zip(even, odd, strict=True)])


def _odd(x: list[Complex]) -> list[Complex]:
    """Of an odd number of them: those as far from either end share their products."""
    n, half = len(x), len(x) // 2 + 1
    sums = [_plus(x[j], x[n - j]) for j in range(1, half)]
    apart = [_minus(x[j], x[n - j]) for j in range(1, half)]
    found = [x[0]] * n
    for total in sums:
        found[0] = _plus(found[0], total)
    for q in range(1, half):
        near, far = x[0], None
        for j, (s, d) in enumerate(zip(sums, apart, strict=True), 1):
            turn = 2 * math.pi * (j * q % n) / n
            near = _plus(near, (s[0] * math.cos(turn), s[1] * math.cos(turn)))
            term = d[0] * math.sin(turn), d[1] * math.sin(turn)
            far = term if far is None else _plus(far, term)
        assert far is not None
        found[q], found[n - q] = _plus(near, _quarter(far)), _minus(near, _quarter(far))
    return found


def zipped(one: Value, other: Value) -> list[Value]:
    """Lanes of two vectors in turn."""
    lanes = one.lanes
    return [one.shuffle([k for j in range(start, start + lanes // 2) for k in (j, j + lanes)],
                        other) for start in (0, lanes // 2)]


def unzipped(one: Value, other: Value) -> list[Value]:
    """Every other lane of two vectors that follow each other, and the rest."""
    return [one.shuffle(range(start, 2 * one.lanes, 2), other) for start in (0, 1)]


def _interleaved(vectors: list[Value]) -> list[Value]:
    """Lanes of two, four or eight vectors in turn."""
    if len(vectors) == 1:
        return vectors
    even, odd = _interleaved(vectors[::2]), _interleaved(vectors[1::2])
    return [v for pair in zip(even, odd, strict=True) for v in zipped(*pair)]


# -- passes --------------------------------------------------------------------------------------


class _Pass:
    """One pass over several rows: from the pair of arrays x to the pair y, n numbers each."""

    def __init__(self, name: str, element: str, width: int):
        self.f = f = Function(name, "ptr y, ptr x, i64 n, i64 rows, ptr stage", local=True)
        self.element, self.width = element, width
        self.radix, apart, self.count = STAGE.read(f, f.stage, "radix apart count")
        self.apart = apart * f.rows
        self.table = f.stage.load("ptr", STAGE.place["table"])

    def load(self, i: Value, lanes: int) -> Complex:
        kind = wide(self.element, lanes)
        return self.f.x.load(kind, i), self.f.x.load(kind, i + self.f.n)

    def store(self, value: Complex, i: Value) -> None:
        self.f.y.store(value[0], i)
        self.f.y.store(value[1], i + self.f.n)

    def weight(self, j: Value, q: int, lanes: int = 1) -> Complex:
        """What result q of group j is multiplied with; lanes are groups."""
        kind, first = wide(self.element, lanes), self.count * (2 * (q - 1))
        return self.table.load(kind, first + j), self.table.load(kind, first + self.count + j)

    def neighbours(self, work, least: int = 1) -> None:
        """work(k, lanes) for all that is done alike `apart` times, several at once.

        That is a multiple of `least`.
        """
        begin = self.f.const("i64", 0)
        for lanes in sorted({min(n, self.width) for n in (self.width, 4, 1) if n >= min(
                least, self.width)}, reverse=True):
            end = self.apart & -lanes
            with self.f.each(begin, end, lanes) as k:
                work(k, lanes)
            begin = end


def _by(radix: int, element: str, width: int) -> Function:
    p = _Pass(f"fourier_by_{radix}", element, width)

    def group(j: Value, weights: list[Complex] | None) -> None:
        base, first = p.apart * j, p.apart * (j * radix)

        def work(k: Value, lanes: int) -> None:
            y = small([p.load(base + k + p.apart * p.count * i, lanes) for i in range(radix)])
            for q, value in enumerate(y):
                if q and weights is not None:
                    c, s = (part.spread(lanes) for part in weights[q - 1])
                    value = _times(value, (c, s))
                p.store(value, first + k + p.apart * q)

        p.neighbours(work, LEAST.get(radix, 1))

    plain = radix in LEAST  # of others there are few, and more code than it is worth
    if plain:
        group(p.f.const("i64", 0), None)  # all weights of the first group are one
    with p.f.each(int(plain), p.count) as j:
        group(j, [p.weight(j, q) for q in range(1, radix)])
    return p.f


def _first_by(radix: int, element: str, width: int) -> Function:
    """A pass whose numbers have no neighbours that are done alike: lanes are groups."""
    p = _Pass(f"fourier_first_{radix}", element, width)
    whole = p.count & -width

    def work(j: Value, lanes: int) -> None:
        y = small([p.load(j + p.count * i, lanes) for i in range(radix)])
        y[1:] = [_times(y[q], p.weight(j, q, lanes)) for q in range(1, radix)]
        if lanes == 1:
            for q in range(radix):
                p.store(y[q], j * radix + q)
            return
        for k, made in enumerate(zip(*(_interleaved([v[part] for v in y]) for part in (0, 1)),
                                     strict=True)):
            p.store(made, j * radix + k * width)

    with p.f.each(0, whole, width) as j:
        work(j, width)
    with p.f.each(whole, p.count) as j:
        work(j, 1)
    return p.f


def _by_any(element: str, width: int) -> Function:
    """A pass by any factor: each result is a sum of products."""
    p = _Pass("fourier_general", element, width)
    with p.f.each(0, p.count) as j, p.f.each(0, p.radix) as q:
        row = j * p.radix + q

        def work(k: Value, lanes: int) -> None:
            kind = wide(element, lanes)
            real, imaginary = p.f.var(kind, 0.0), p.f.var(kind, 0.0)
            with p.f.each(0, p.radix) as i:
                x = p.load(k + p.apart * (j + p.count * i), lanes)
                at = (row * p.radix + i) * 2
                c, s = (p.table.load(element, at + part).spread(lanes) for part in (0, 1))
                term = _times(x, (c, s))
                real.add(term[0])
                imaginary.add(term[1])
            p.store((real(), imaginary()), k + p.apart * row)

        p.neighbours(work)
    return p.f


def passes(element: str, width: int) -> list[Function]:
    """The passes, and last all of some rows: it gives the pair of arrays that the result is in."""
    several = {radix: _by(radix, element, width) for radix in RADICES}
    alone = {radix: _first_by(radix, element, width) for radix in (8, 4, 2)}
    general = _by_any(element, width)
    f = Function("fourier_passes", "ptr x, ptr y, i64 n, i64 rows, ptr words", "ptr", local=True)
    (stages,) = FOURIER.read(f, f.words, "stages")
    start = f.words.at("i64", len(FOURIER.names))
    x, y = f.var("ptr", f.x), f.var("ptr", f.y)
    with f.each(0, stages) as s:
        stage = start.at("i64", s * len(STAGE.names))
        radix, apart = STAGE.read(f, stage, "radix apart")
        lonely, done = apart * f.rows == 1, f.var("i1", False)
        for some, condition in ((alone, lonely), (several, ~lonely | (radix & 1 != 0))):
            for number, function in some.items():
                with f.when(condition & (radix == number)):
                    f.run(function, y(), x(), f.n, f.rows, stage)
                    done.set(True)
        with f.when(~done()):
            f.run(general, y(), x(), f.n, f.rows, stage)
        given = x()
        x.set(y())
        y.set(given)
    f.give(x())
    return [*several.values(), *alone.values(), general, f]
