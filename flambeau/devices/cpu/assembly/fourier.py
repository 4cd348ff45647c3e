"""Fourier transforms along one dimension of short or middling length.

Rows are brought into two arrays, of real and of imaginary parts: as many rows side by side as a
vector has lanes, or one. Twice as many rows of real numbers go together, one half as the
imaginary parts of the other: what their spectra have in common tells them apart. An inverse
transform is the forward one with real and imaginary parts exchanged before and after.
"""

from __future__ import annotations

from .fourier_passes import passes, unzipped, zipped
from .fourier_words import ABREAST, FOURIER, MOST, NEAR, SHORT
from .lanes import smaller
from .tile_sizes import width_of
from .transpose import turned_square
from .writer import BYTES, Function, Value, parallel, wide

#: bytes of vectors at most: wider ones are no quicker, and need more rows to fill them
NARROW = 32
#: numbers between arrays, lest the same places of all be in the same place of the cache
APART = 144
_TYPES = {"float32": "float", "float64": "double"}
_SIZES = {"real": 1, "complex": 2}


class _Rows:
    """So many rows from memory into arrays, where their numbers are side by side, and back."""

    def __init__(self, task: _Task, rows: int):
        self.task, self.f, self.rows = task, task.f, rows
        self.element, self.width = task.element, task.width
        self.size = task.n * rows + APART
        self.vector = wide(self.element, self.width)

    def moved(self, memory: Value, first: Value, length: Value, columns: Value, size: int, square,
              row, one) -> None:
        """Numbers of all columns of rows of a length: by squares, by vectors, or else singly.

        square(starts, i) moves as many columns from i on as there are lanes, of rows that follow
        one another; row(start, i) one column whose rows are neighbours in memory;
        one(start, k, i) a number of row k.
        """
        f, inner, done = self.f, self.task.inner, self.f.var("i64", 0)
        whole = columns & -self.width

        def start(row: Value) -> Value:
            return memory.at(self.element, (row / inner * inner * length + row % inner) * size)

        if self.rows in (1, self.width):
            with f.when(inner == 1):
                starts = [memory.at(self.element, (first + k) * length * size)
                          for k in range(self.rows)]
                with f.each(0, whole, self.width) as i:
                    square(starts, i)
                done.set(whole)
        if self.rows == self.width:
            with f.when((inner > 1) & (first % inner + self.width <= inner)):
                here = start(first)
                with f.each(0, columns) as i:
                    row(here, i)
                done.set(columns)
        with f.when(done() < columns), f.each(0, self.rows) as k:
            here = start(first + k)
            with f.each(done(), columns) as i:
                one(here, k, i)

    def read(self, x: Value, first: Value, there: Value, targets: list[Value]) -> None:
        """Rows of `taken` numbers from the first on, so many of each."""
        size, inner, vector = len(targets), self.task.inner, self.vector

        def parts(place: Value, i) -> list[Value]:
            found = [place.load(vector, i * size + part * self.width) for part in range(size)]
            return unzipped(*found) if size == 2 else found

        def square(starts: list[Value], i: Value) -> None:
            found = [parts(place, i) for place in starts]
            for part, target in enumerate(targets):
                for k, line in enumerate(turned_square([line[part] for line in found])):
                    target.store(line, i * self.rows + k * self.width)

        def row(start: Value, i: Value) -> None:
            for part, target in zip(parts(start, i * inner), targets, strict=True):
                target.store(part, i * self.rows)

        def one(start: Value, k: Value, i: Value) -> None:
            for part, target in enumerate(targets):
                target.store(start.load(self.element, i * inner * size + part), i * self.rows + k)

        self.moved(x, first, self.task.taken, there, size, square, row, one)

    def write(self, out: Value, first: Value, sources: list[Value]) -> None:
        """Rows of `made` numbers, scaled."""
        size, inner, scale = len(sources), self.task.inner, self.task.scale
        scales = scale.spread(self.width)

        def put(place: Value, i, parts: list[Value]) -> None:
            for part, v in enumerate(zipped(*parts) if size == 2 else parts):
                place.store(v, i * size + part * self.width)

        def square(starts: list[Value], i: Value) -> None:
            columns = [turned_square([
                source.load(self.vector, i * self.rows + k * self.width) * scales
                for k in range(self.rows)]) for source in sources]
            for k, place in enumerate(starts):
                put(place, i, [lines[k] for lines in columns])

        def row(start: Value, i: Value) -> None:
            put(start, i * inner,
                [source.load(self.vector, i * self.rows) * scales for source in sources])

        def one(start: Value, k: Value, i: Value) -> None:
            for part, source in enumerate(sources):
                value = source.load(self.element, i * self.rows + k) * scale
                start.store(value, i * inner * size + part)

        self.moved(out, first, self.task.made, self.task.made, size, square, row, one)

    def clear(self, target: Value, begin: Value, end: Value) -> None:
        """Columns that are zero."""
        kind = wide(self.element, self.rows)
        with self.f.each(begin, end) as i:
            target.store(self.f.const(kind, 0.0), i * self.rows)

    def spans(self, begin: Value, end: Value, work) -> None:
        """work(i, lanes) for columns, or for several numbers at once of a row that goes alone."""
        f = self.f
        if self.rows > 1:
            with f.each(begin, end) as i:
                work(i, self.rows)
            return
        whole = begin + ((end - begin) & -self.width)
        with f.each(begin, whole, self.width) as i:
            work(i, self.width)
        with f.each(whole, end) as i:
            work(i, 1)

    def load(self, array: Value, i: Value, lanes: int) -> Value:
        return array.load(wide(self.element, lanes), i * self.rows)

    def store(self, array: Value, i: Value, value: Value) -> None:
        array.store(value, i * self.rows)

    def mirror(self, i: Value, lanes: int) -> Value:
        """Where what is as far from the end as i is from the beginning is."""
        return self.task.n - i - ((lanes - 1) if self.rows == 1 else 0)

    def facing(self, value: Value) -> Value:
        """Numbers of one row in the order of their mirror images."""
        if self.rows > 1 or value.lanes == 1:
            return value
        return value.shuffle(range(value.lanes - 1, -1, -1))


class _Task:
    """Transforms of rows from `begin` to `end`, of real or complex numbers."""

    def __init__(self, name: str, given: str, made: str, element: str, run: Function, width: int):
        self.f = f = Function(name, "ptr context, i64 begin, i64 end", local=True)
        self.given, self.kind, self.element, self.width = given, made, element, width
        self.out, self.x, self.words = (f.context.load("ptr", k) for k in range(3))
        self.inner, self.n, self.taken, self.made, self.swapped = FOURIER.read(
            f, self.words, "inner n taken made swapped")
        self.scale = self.words.load("double", FOURIER.place["scale"]).to(element)
        own = 2 * (NEAR + APART)
        near = f.room("double", 2 * own + APART)
        size = (self.n + APART) * (2 * BYTES[element])
        #: memory of its own for rows that go alone, where they are long
        self.far = self.n > NEAR
        self.memory = f.var("ptr", near)
        with f.when(self.far):
            self.memory.set(f.calls("malloc", "ptr", size * 2 + APART * 8))
        apart = self.far.pick(size, f.const("i64", own * 8)) + APART * 8
        self.pairs = [self.memory(), self.memory().at("i8", apart)]
        self.passes = run
        #: numbers of a row that are told: of a spectrum of real numbers the first half
        self.told = self.n / 2 + 1 if made == "real" else self.n
        self.there = smaller(self.taken, self.told)

    def arrays(self, pair: Value, rows: _Rows) -> tuple[Value, Value]:
        """Where real and imaginary parts are."""
        real, imaginary = self.swapped * rows.size, (1 - self.swapped) * rows.size
        return pair.at(self.element, real), pair.at(self.element, imaginary)

    def transformed(self, rows: _Rows) -> Value:
        return self.f.run(self.passes, *self.pairs, rows.size,
                          self.f.const("i64", rows.rows), self.words)

    def read(self, first: Value, rows: _Rows, pair: Value) -> None:
        """Rows cut off or filled up with zeros."""
        real, imaginary = self.arrays(pair, rows)
        if self.given == "real":
            rows.read(self.x, first, self.there, [real])
            rows.clear(real, self.there, self.told)
            rows.clear(imaginary, self.f.const("i64", 0), self.told)
        else:
            rows.read(self.x, first, self.there, [real, imaginary])
            rows.clear(real, self.there, self.told)
            rows.clear(imaginary, self.there, self.told)

    def plain(self, first: Value, rows: _Rows) -> None:
        """Rows by themselves."""
        f, pair = self.f, self.pairs[0]
        self.read(first, rows, pair)
        if self.kind == "real":
            real, imaginary = self.arrays(pair, rows)

            def mirrored(i: Value, lanes: int) -> None:
                far = rows.mirror(i, lanes)
                rows.store(real, far, rows.facing(rows.load(real, i, lanes)))
                rows.store(imaginary, far, rows.facing(-rows.load(imaginary, i, lanes)))

            rows.spans(f.const("i64", 1), self.n - self.told + 1, mirrored)
        found = self.arrays(self.transformed(rows), rows)
        rows.write(self.out, first, list(found[:_SIZES[self.kind]]))

    def double(self, first: Value, rows: _Rows) -> None:
        """Real rows, as many again as imaginary parts."""
        if self.given == "real":
            self._double_forward(first, rows)
        else:
            self._double_back(first, rows)

    def _double_forward(self, first: Value, rows: _Rows) -> None:
        f = self.f
        for k, array in enumerate(self.arrays(self.pairs[0], rows)):
            rows.read(self.x, first + k * rows.rows, self.there, [array])
            rows.clear(array, self.there, self.n)
        pair = self.transformed(rows)
        other = f.new("i1", f"icmp eq ptr {pair.name}, {self.pairs[0].name}").pick(
            self.pairs[1], self.pairs[0])
        (real, imaginary), into = self.arrays(pair, rows), self.arrays(other, rows)
        for turn in (0, 1):
            one, two = (real, imaginary) if not turn else (imaginary, real)

            def apart(i: Value, lanes: int, far: Value | None = None, one=one, two=two,
                      sign=0.5 - turn) -> None:
                """What both have in common, and in what they differ."""
                far = rows.mirror(i, lanes) if far is None else far
                a, c = (rows.load(array, i, lanes) for array in (one, two))
                b, d = (rows.facing(rows.load(array, far, lanes)) for array in (one, two))
                rows.store(into[0], i, (a + b) * 0.5)
                rows.store(into[1], i, (c - d) * sign)

            zero = f.const("i64", 0)
            apart(zero, rows.rows, zero)
            rows.spans(zero + 1, self.made, apart)
            rows.write(self.out, first + turn * rows.rows, list(into))

    def _double_back(self, first: Value, rows: _Rows) -> None:
        f = self.f
        for k, pair in enumerate(self.pairs):
            self.read(first + k * rows.rows, rows, pair)
        (real, imaginary), (a, b) = (self.arrays(pair, rows) for pair in self.pairs)

        def joined(i: Value, lanes: int) -> None:
            x, y, u, v = (rows.load(array, i, lanes) for array in (real, imaginary, a, b))
            far = rows.mirror(i, lanes)
            rows.store(real, i, x - v)
            rows.store(imaginary, i, y + u)
            rows.store(real, far, rows.facing(x + v))
            rows.store(imaginary, far, rows.facing(u - y))

        # The first number and the middle one have no imaginary part that counts.
        zero = f.const("i64", 0)
        rows.store(imaginary, zero, rows.load(a, zero, rows.rows))
        middle = self.n / 2
        with f.when(self.n & 1 == 0):
            rows.store(imaginary, middle, rows.load(a, middle, rows.rows))
        rows.spans(zero + 1, (self.n + 1) / 2, joined)
        found = self.arrays(self.transformed(rows), rows)
        for k, array in enumerate(found):
            rows.write(self.out, first + k * rows.rows, [array])

    def build(self) -> Function:
        """As many rows at a time as fit, while there are so many."""
        f, begin = self.f, self.f.var("i64", self.f.begin)
        ways = [(size, size, self.plain) for size in (self.width, 1)]
        if "real" in (self.given, self.kind):
            ways = [way for count, size, plain in ways for way in (
                (2 * count, size, self.double), (count, size, plain))]
        for count, size, way in ways:
            rows = _Rows(self, size)
            fits = self.n <= ((self.inner == 1).pick(SHORT, f.const("i64", ABREAST))
                              if size > 1 else MOST)
            end = fits.pick(f.end - (f.end - begin()) % count, begin())
            with f.each(begin(), end, count) as r:
                way(r, rows)
            begin.set(end)
        with f.when(self.far):
            f.calls("free", "void", self.memory())
        return f


def build(given: str, made: str, dtype: str) -> list[Function]:
    """fourier_<given>_<made>_<dtype>(out, x, words, work)."""
    name, element = f"fourier_{given}_{made}_{dtype}", _TYPES[dtype]
    width = min(width_of(element), NARROW // BYTES[element])
    functions = passes(element, width)
    part = _Task(f"{name}_part", given, made, element, functions[-1], width).build()
    f = Function(name, "ptr out, ptr x, ptr words, i64 work")
    count, grain = FOURIER.read(f, f.words, "rows grain")
    context = f.room("ptr", 3)
    for k, value in enumerate((f.out, f.x, f.words)):
        context.store(value, k)
    parallel(f, part, context, count, grain)
    return [*functions, part, f]
