"""Fourier transforms along one dimension of short or middling length, computed in doubles.

Each row is brought into two arrays, of real and of imaginary parts, and goes back and forth between
two such pairs, one pass for each factor of its length (Stockham's way: what comes out is in order).
Several short rows go together, their numbers side by side: so every pass finds neighbours to work
on at once. An inverse transform is the forward one with real and imaginary parts exchanged before
and after.
"""

from __future__ import annotations

from .fourier_words import FOURIER, MOST, STAGE
from .writer import Function, Value, parallel, wide

LANES = 4
_TYPES = {"float32": "float", "float64": "double"}
_SIZES = {"real": 1, "complex": 2}


class _Pass:
    """One pass over several rows: from the pair of arrays x to the pair y, n numbers each."""

    def __init__(self, name: str):
        self.f = f = Function(name, "ptr y, ptr x, i64 n, i64 rows, ptr stage", local=True)
        self.radix, apart, self.count = STAGE.read(f, f.stage, "radix apart count")
        self.apart = apart * f.rows
        self.table = f.stage.load("ptr", STAGE.place["table"])

    def load(self, i: Value, lanes: int) -> tuple[Value, Value]:
        kind = wide("double", lanes)
        return self.f.x.load(kind, i), self.f.x.load(kind, i + self.f.n)

    def store(self, value: tuple[Value, Value], i: Value) -> None:
        self.f.y.store(value[0], i)
        self.f.y.store(value[1], i + self.f.n)

    def weight(self, k: Value) -> tuple[Value, Value]:
        """A complex number of the table."""
        return self.table.load("double", k * 2), self.table.load("double", k * 2 + 1)

    def neighbours(self, work) -> None:
        """work(k, lanes) for all that is done alike `apart` times, several at once."""
        whole = self.apart & -LANES
        with self.f.each(0, whole, LANES) as k:
            work(k, LANES)
        with self.f.each(whole, self.apart) as k:
            work(k, 1)


def _times(a, w, lanes: int):
    """Complex product with a number that all lanes share."""
    (x, y), (c, s) = a, (part.spread(lanes) for part in w)
    return x * c - y * s, x * s + y * c


def _plus(a, b):
    return a[0] + b[0], a[1] + b[1]


def _minus(a, b):
    return a[0] - b[0], a[1] - b[1]


def _small(x: list) -> list:
    """The transform of two or four numbers, which takes no products."""
    if len(x) == 2:
        return [_plus(*x), _minus(*x)]
    even, odd = _small(x[::2]), _small(x[1::2])
    turned = odd[1][1], -odd[1][0]  # by -i
    return [_plus(even[0], odd[0]), _plus(even[1], turned),
            _minus(even[0], odd[0]), _minus(even[1], turned)]


def _by(radix: int, name: str) -> Function:
    """A pass by two or by four."""
    p = _Pass(name)
    with p.f.each(0, p.count) as j:
        weights = [p.weight(j * (radix - 1) + q) for q in range(radix - 1)]
        base, first = p.apart * j, p.apart * (j * radix)

        def work(k: Value, lanes: int) -> None:
            y = _small([p.load(base + k + p.apart * p.count * i, lanes) for i in range(radix)])
            p.store(y[0], first + k)
            for q in range(1, radix):
                p.store(_times(y[q], weights[q - 1], lanes), first + k + p.apart * q)

        p.neighbours(work)
    return p.f


def _by_any() -> Function:
    """A pass by any factor: each result is a sum of products."""
    p = _Pass("fourier_general")
    with p.f.each(0, p.count) as j, p.f.each(0, p.radix) as q:
        row = j * p.radix + q

        def work(k: Value, lanes: int) -> None:
            kind = wide("double", lanes)
            real, imaginary = p.f.var(kind, 0.0), p.f.var(kind, 0.0)
            with p.f.each(0, p.radix) as i:
                x = p.load(k + p.apart * (j + p.count * i), lanes)
                term = _times(x, p.weight(row * p.radix + i), lanes)
                real.add(term[0])
                imaginary.add(term[1])
            p.store((real(), imaginary()), k + p.apart * row)

        p.neighbours(work)
    return p.f


def _passes() -> list[Function]:
    """The passes, and last all of some rows: it gives the pair of arrays that the result is in."""
    by_four, by_two, by_any = _by(4, "fourier_four"), _by(2, "fourier_two"), _by_any()
    f = Function("fourier_passes", "ptr x, ptr y, i64 n, i64 rows, ptr words", "ptr", local=True)
    (stages,) = FOURIER.read(f, f.words, "stages")
    first = f.words.at("i64", len(FOURIER.names))
    x, y = f.var("ptr", f.x), f.var("ptr", f.y)
    with f.each(0, stages) as s:
        stage = first.at("i64", s * len(STAGE.names))
        (radix,) = STAGE.read(f, stage, "radix")
        given, made = x(), y()
        with f.when(radix == 4) as four:
            f.run(by_four, made, given, f.n, f.rows, stage)
        with four.otherwise():
            with f.when(radix == 2) as two:
                f.run(by_two, made, given, f.n, f.rows, stage)
            with two.otherwise():
                f.run(by_any, made, given, f.n, f.rows, stage)
        x.set(made)
        y.set(given)
    f.give(x())
    return [by_four, by_two, by_any, f]


class _Rows:
    """Some rows from and to memory, of real or complex numbers."""

    def __init__(self, f: Function, words: Value, given: str, made: str, memory: str):
        self.f, self.words, self.given, self.made, self.memory = f, words, given, made, memory
        names = "inner n taken made swapped"
        self.inner, self.n, self.taken, self.kept, self.swapped = FOURIER.read(f, words, names)
        self.scale = words.load("double", FOURIER.place["scale"])

    def transform(self, out: Value, x: Value, pairs, passes: Function, first: Value,
                  rows: int) -> None:
        """So many rows from the first on."""
        f = self.f
        self.rows, self.all = rows, self.n * rows
        self.real_at = self.swapped * self.all       # where real parts are in a pair of arrays,
        self.imaginary_at = self.all - self.real_at  # and imaginary ones
        for k in range(rows):
            self._read(x.at(self.memory, self._start(first + k, self.taken, self.given)),
                       pairs[0], k)
        found = f.run(passes, *pairs, self.all, f.const("i64", rows), self.words)
        for k in range(rows):
            self._write(out.at(self.memory, self._start(first + k, self.kept, self.made)),
                        found, k)

    def _start(self, row: Value, length: Value, kind: str) -> Value:
        return (row / self.inner * self.inner * length + row % self.inner) * _SIZES[kind]

    def _read(self, x: Value, into: Value, k: int) -> None:
        """A row cut off or filled up with zeros; half a spectrum is followed by its mirror."""
        f, n = self.f, self.n
        whole = n / 2 + 1 if self.made == "real" else n
        there = (self.taken < whole).pick(self.taken, whole)
        zero = f.const("double", 0.0)
        with f.each(0, there) as i:
            real, imaginary = self._number(x, i * self.inner)
            self._put(into, i * self.rows + k, real, imaginary)
        with f.each(there, n) as i:
            self._put(into, i * self.rows + k, zero, zero)
        if self.made == "real":
            with f.each(1, n - whole + 1) as i:
                real, imaginary = (into.load("double", at + i * self.rows + k)
                                   for at in (self.real_at, self.imaginary_at))
                self._put(into, (n - i) * self.rows + k, real, -imaginary)

    def _number(self, x: Value, i: Value) -> tuple[Value, Value]:
        if self.given == "real":
            return x.load(self.memory, i).to("double"), self.f.const("double", 0.0)
        return x.load(self.memory, i * 2).to("double"), x.load(self.memory, i * 2 + 1).to("double")

    def _put(self, into: Value, i: Value, real: Value, imaginary: Value) -> None:
        into.store(real, self.real_at + i)
        into.store(imaginary, self.imaginary_at + i)

    def _write(self, out: Value, found: Value, k: int) -> None:
        f, size = self.f, _SIZES[self.made]
        with f.each(0, self.kept) as i:
            for part, at in zip(range(size), (self.real_at, self.imaginary_at), strict=False):
                value = found.load("double", at + i * self.rows + k) * self.scale
                out.store(value.to(self.memory), i * self.inner * size + part)


def build(given: str, made: str, dtype: str) -> list[Function]:
    """fourier_<given>_<made>_<dtype>(out, x, words, work)."""
    name, memory, passes = f"fourier_{given}_{made}_{dtype}", _TYPES[dtype], _passes()
    part = Function(f"{name}_part", "ptr context, i64 begin, i64 end", local=True)
    out, x, words = (part.context.load("ptr", k) for k in range(3))
    rows = _Rows(part, words, given, made, memory)
    pairs = [part.room("double", 2 * MOST) for _ in range(2)]
    # Rows that fit side by side; of long ones each goes alone.
    grouped = part.end - (part.end - part.begin) % LANES
    grouped = (rows.n <= MOST // LANES).pick(grouped, part.begin)
    with part.each(part.begin, grouped, LANES) as r:
        rows.transform(out, x, pairs, passes[-1], r, LANES)
    with part.each(grouped, part.end) as r:
        rows.transform(out, x, pairs, passes[-1], r, 1)
    f = Function(name, "ptr out, ptr x, ptr words, i64 work")
    count, grain = FOURIER.read(f, f.words, "rows grain")
    context = f.room("ptr", 3)
    for k, value in enumerate((f.out, f.x, f.words)):
        context.store(value, k)
    parallel(f, part, context, count, grain)
    return [*passes, part, f]
