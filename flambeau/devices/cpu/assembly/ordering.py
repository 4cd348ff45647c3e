"""Rows in order: sorting by radix, the best k, one by its rank, the most frequent.

An element is packed into one word of 64 bits: 32 bits of its key above its place in the row. From
integers and keys of 64 bits the lowest of the row is taken off first; what is left of these is cut
to 32 bits. Ties among cut keys are few and put right afterwards, or else the row is sorted twice,
by the lower bits first.
"""

from __future__ import annotations

from . import network
from .keys import Keys
from .limits import DIGITS, SHORT, SLOTS
from .writer import Function, Value, parallel, wide

#: rows up to this long are sorted by a network
SMALL = 256
#: a part is worth a thread's while from so many elements on
GRAIN = 4096
LANES = 8
LONGEST_TIE = 24


# -- packed elements -----------------------------------------------------------------------------


def _radix() -> Function:
    """Packed elements by the four digits of their keys; `counts` says how often each occurs.

    Digits that all elements share are skipped. Returns where the elements end up, a or b.
    """
    f = Function("radix", "ptr a, ptr b, ptr counts, i64 n", "ptr", local=True)
    source, target = f.var("ptr", f.a), f.var("ptr", f.b)
    for digit in range(4):
        counts, shift = f.counts.at("i32", digit * DIGITS), 32 + 8 * digit
        first = (source().load("i64") >> shift) & 255
        with f.when(counts.load("i32", first).to("i64") != f.n):
            total = f.var("i32", 0)
            with f.each(0, DIGITS) as d:
                have, so_far = counts.load("i32", d), total()
                counts.store(so_far, d)
                total.set(so_far + have)
            one, other = source(), target()
            with f.each(0, f.n) as i:
                packed = one.load("i64", i)
                d = (packed >> shift) & 255
                to = counts.load("i32", d)
                counts.store(to + 1, d)
                other.store(packed, to.to("i64"))
            source.set(other)
            target.set(one)
    f.give(source())
    return f


def _tally(counts: Value, packed: Value) -> None:
    for digit in range(4):
        place = counts.at("i32", digit * DIGITS)
        d = (packed >> (32 + 8 * digit)) & 255
        place.store(place.load("i32", d) + 1, d)


def _clear(f: Function, counts: Value) -> None:
    with f.each(0, 4 * DIGITS, LANES) as i:
        counts.store(f.const(wide("i32", LANES), 0), i)


class Row:
    """A row being sorted: where its elements are, and how far apart."""

    def __init__(self, f: Function, keys: Keys):
        self.f, self.keys = f, keys

    def key(self, i: Value) -> Value:
        """The key of element i, turned round if the order falls."""
        f = self.f
        value = self.keys.load(f.x, i * f.step)
        return self.keys.of(value) ^ self.keys.turned(f, f.flip)


def _packing(keys: Keys) -> Function:
    """Elements packed into a; with counts of digits if they will be sorted by them.

    Returns whether any key does not say which element it is of.
    """
    f = Function("packing", "ptr x, i64 step, ptr a, ptr counts, i64 n, i64 flip, i64 low, "
                            "i64 shift", "i64", local=True)
    row, lost = Row(f, keys), f.var("i64", int(keys.dtype == "float64"))
    counted = f.n > SMALL

    def packed(key: Value, at: Value) -> Value:
        if keys.type == "i64":
            key = (key - f.low) >> f.shift
        elif keys.kind != "f":
            key = key - f.low.to("i32")
        return (key.to("i64") << 32) | at

    def one(i: Value) -> None:
        made = packed(row.key(i), i)
        f.a.store(made, i)
        if keys.kind == "f" and keys.type == "i32":
            lost.set(lost() | keys.lost(keys.load(f.x, i * f.step)).to("i64"))

    if keys.type == "i32":
        with f.when(f.step == 1) as dense:
            whole = f.n & -LANES
            every = f.var(wide("i1", LANES), False)
            flip = keys.turned(f, f.flip, LANES)
            low = f.low.to("i32").spread(LANES)
            numbers = f.vector("i64", range(LANES))
            with f.each(0, whole, LANES) as i:
                value = keys.load(f.x, i, LANES)
                key = keys.of(value) ^ flip
                if keys.kind != "f":
                    key = key - low
                f.a.store((key.to("i64") << 32) | (i.spread(LANES) + numbers), i)
                if keys.kind == "f":
                    every.set(every() | keys.lost(value))
            lost.set((every().mask() != 0).to("i64"))
            with f.each(whole, f.n) as i:
                one(i)
        with dense.otherwise(), f.each(0, f.n) as i:
            one(i)
    else:
        with f.each(0, f.n) as i:
            one(i)
    with f.when(counted):
        _clear(f, f.counts)
        with f.each(0, f.n) as i:
            _tally(f.counts, f.a.load("i64", i))
    f.give(lost())
    return f


def _lowest(keys: Keys) -> Function:
    """The lowest key of a row.

    known[0] is by how much 64 bits above it are to be shifted, known[1] the highest less it.
    """
    f = Function("lowest", "ptr x, i64 step, ptr known, i64 n, i64 flip", "i64", local=True)
    row = Row(f, keys)
    first = row.key(f.const("i64", 0))
    low, high = f.var(keys.type, first), f.var(keys.type, first)
    start = f.var("i64", 1)
    with f.when(f.step == 1):
        flip = keys.turned(f, f.flip, LANES)
        lows, highs = (f.var(wide(keys.type, LANES), first.spread(LANES)) for _ in range(2))
        with f.each(0, f.n & -LANES, LANES) as i:
            key = keys.of(keys.load(f.x, i, LANES)) ^ flip
            lows.set(f.intrinsic("umin", lows(), key))
            highs.set(f.intrinsic("umax", highs(), key))
        for best, all_, name in ((low, lows, "umin"), (high, highs, "umax")):
            short = f"v{LANES}{keys.type}"
            best.set(f.calls(f"llvm.vector.reduce.{name}.{short}", keys.type, all_()))
        start.set(f.n & -LANES)
    with f.each(start(), f.n) as i:
        key = row.key(i)
        low.set(f.intrinsic("umin", low(), key))
        high.set(f.intrinsic("umax", high(), key))
    if keys.type == "i64":
        zeros = f.calls("llvm.ctlz.i64", "i64", high() - low(), f.const("i1", False))
        f.known.store((zeros < 32).pick(32 - zeros, 0))
    f.known.store((high() - low()).to("i64"), 1)
    f.give(low().to("i64"))
    return f


def _settle(keys: Keys) -> Function:
    """Put ties among cut keys right; whether it could be done, the ties being short."""
    f = Function("settle", "ptr x, i64 step, ptr a, i64 n, i64 flip", "i64", local=True)
    row = Row(f, keys)

    def place(packed: Value) -> Value:
        return packed & 0xFFFFFFFF

    start = f.var("i64", 0)
    with f.each(1, f.n) as i:
        held = f.a.load("i64", i)
        tied = (held ^ f.a.load("i64", i - 1)) >> 32
        with f.when(tied != 0) as apart:
            start.set(i)
        with apart.otherwise():
            with f.when(i - start() > LONGEST_TIE):
                f.give(f.const("i64", 0))
            key, j = row.key(place(held)), f.var("i64", i)
            with f.repeat() as loop:
                loop.leave_if(j() <= start())
                before = f.a.load("i64", j() - 1)
                loop.leave_if(~key.below(row.key(place(before))))
                f.a.store(before, j())
                j.add(-1)
            f.a.store(held, j())
    f.give(f.const("i64", 1))
    return f


def _twice(keys: Keys, radix: Function) -> Function:
    """Sort by the lower 32 bits of keys of 64, then by the upper ones."""
    f = Function("twice", "ptr x, i64 step, ptr a, ptr b, ptr counts, i64 n, i64 flip", "ptr",
                 local=True)
    row = Row(f, keys)

    def half(order, shift: int) -> None:
        _clear(f, f.counts)
        with f.each(0, f.n) as i:
            at = order(i)
            made = (((row.key(at) >> shift) & 0xFFFFFFFF) << 32) | at
            f.a.store(made, i)
            _tally(f.counts, made)

    half(lambda i: i, 0)
    found = f.var("ptr", f.run(radix, f.a, f.b, f.counts, f.n))
    with f.when(found() != f.a):
        f.calls("llvm.memcpy.p0.p0.i64", "void", f.a, found(), f.n * 8, f.const("i1", False))
    half(lambda i: f.a.load("i64", i) & 0xFFFFFFFF, 32)
    f.give(f.run(radix, f.a, f.b, f.counts, f.n))
    return f


class Sorter:
    """The functions that sort a row of a dtype."""

    def __init__(self, keys: Keys):
        self.keys = keys
        *networks, self.chunk, self.network = network.build(SMALL)
        self.radix, self.packing = _radix(), _packing(keys)
        self.functions = [*networks, self.chunk, self.network, self.radix, self.packing]
        if keys.type == "i64" or keys.kind != "f":
            self.lowest = _lowest(keys)
            self.functions.append(self.lowest)
        if keys.type == "i64":
            self.settle = _settle(keys)
            self.twice = _twice(keys, self.radix)
            self.functions += [self.settle, self.twice]
        self.row = self._row()
        self.functions.append(self.row)

    def _row(self) -> Function:
        """Packed elements of a row in order; where they are.

        known[0] says whether keys do not tell elements; known[1] is what was taken off keys.
        """
        f = Function("sorted_row", "ptr x, i64 step, ptr a, ptr b, ptr counts, ptr known, i64 n, "
                                   "i64 flip", "ptr", local=True)
        low = shift = f.const("i64", 0)
        if self.keys.type == "i64" or self.keys.kind != "f":
            place = f.room("i64", 2)
            low = f.run(self.lowest, f.x, f.step, place, f.n, f.flip)
            shift = place.load("i64") if self.keys.type == "i64" else shift
        lost = f.run(self.packing, f.x, f.step, f.a, f.counts, f.n, f.flip, low, shift)
        f.known.store(lost | shift)
        f.known.store(low, 1)
        found = f.var("ptr", f.a)
        with f.when(f.n <= SMALL) as few:
            f.run(self.network, f.a, f.n)
        with few.otherwise():
            found.set(f.run(self.radix, f.a, f.b, f.counts, f.n))
        if self.keys.type == "i64":
            with f.when(shift != 0):
                settled = f.run(self.settle, f.x, f.step, found(), f.n, f.flip)
                with f.when(settled == 0):
                    found.set(f.run(self.twice, f.x, f.step, f.a, f.b, f.counts, f.n, f.flip))
        f.give(found())
        return f


# -- rows in parallel ----------------------------------------------------------------------------

#: words of a context: what a part of the rows is given
CONTEXT = ("x", "values", "order", "scratch", "n", "inner", "flip", "k", "grain", "slot")


class Part:
    """A function over a range of rows, which reads its context."""

    x: Value
    values: Value
    order: Value
    scratch: Value
    n: Value
    inner: Value
    flip: Value
    k: Value
    grain: Value
    slot: Value

    def __init__(self, name: str):
        self.f = f = Function(name, "ptr context, i64 begin, i64 end", local=True)
        for i, word in enumerate(CONTEXT):
            kind = "ptr" if word in ("x", "values", "order", "scratch") else "i64"
            setattr(self, word, f.context.load(kind, i))

    def memory(self) -> tuple[Value, Value, Value]:
        """Room for packed elements, twice, and for counts: the part's own."""
        f = self.f
        near = f.room("i64", 2 * SHORT)
        tables = f.room("i32", 4 * DIGITS)
        short = self.n <= SHORT
        mine = self.scratch.at("i8", f.begin / self.grain * self.slot)
        a = short.pick(near, mine)
        b = short.pick(near.at("i64", SHORT), mine.at("i64", self.n))
        return a, b, short.pick(tables, mine.at("i64", self.n * 2))

    def put(self, r: Value, at: Value, value: Value) -> None:
        """The one element that row r gives, and where it is."""
        self.order.store(at, r)
        self.values.store(value, r)

    def start(self, r: Value, n: Value) -> Value:
        """Where row r begins, when rows are n long."""
        return r / self.inner * n * self.inner + r % self.inner


def entry(name: str, part: Part, arguments: str) -> Function:
    """The function that Python calls: it fills a context, and hands rows out."""
    f = Function(name, arguments)
    rows = f.total / f.n
    cut = (rows + (SLOTS - 1)) / SLOTS
    enough = f.const("i64", GRAIN) / f.n + 1
    grain = (cut > enough).pick(cut, enough)
    given = {"slot": f.n * 16 + 4 * 4 * DIGITS, **f.parameters_by_name(), "grain": grain}
    context = f.room("i64", len(CONTEXT))
    for i, word in enumerate(CONTEXT):
        if word in given:
            context.store(given[word], i)
    parallel(f, part.f, context, rows, grain)
    return f


def sort(keys: Keys) -> list[Function]:
    sorter, part = Sorter(keys), Part("sort_rows")
    f = part.f
    a, b, counts = part.memory()
    known = f.room("i64", 2)
    wanted = f.new("i1", f"icmp ne ptr {part.values.name}, null")
    with f.each(f.begin, f.end) as r:
        start = part.start(r, part.n)
        x, values = (p.at(keys.memory, start) for p in (part.x, part.values))
        order = part.order.at("i64", start)
        found = f.run(sorter.row, x, part.inner, a, b, counts, known, part.n, part.flip)
        with f.each(0, part.n) as i:
            order.store(found.load("i64", i) & 0xFFFFFFFF, i * part.inner)
        exact, low = known.load("i64") == 0, known.load("i64", 1).to(keys.type)
        with f.when(wanted & exact), f.each(0, part.n) as i:
            key = (found.load("i64", i) >> 32).to(keys.type) + low
            values.store(keys.back(key ^ keys.turned(f, part.flip)), i * part.inner)
        with f.when(wanted & ~exact), f.each(0, part.n) as i:
            at = (found.load("i64", i) & 0xFFFFFFFF) * part.inner
            values.store(keys.load(x, at), i * part.inner)
    return [*sorter.functions, f, entry(
        f"sort_{keys.dtype}", part, "ptr x, ptr values, ptr order, ptr scratch, i64 n, i64 inner, "
        "i64 flip, i64 total")]


def same(f: Function, keys: Keys, x: Value, step: Value, found: Value, exact: Value, flip: Value):
    """A function of places i: whether packed elements i and i - 1 are equal; NaN equals nothing."""
    def equal(i: Value) -> Value:
        here, before = found.load("i64", i), found.load("i64", i - 1)
        answer = f.var("i1", (here >> 32) == (before >> 32))
        if keys.type == "i64":
            with f.when(answer() & ~exact):
                one, other = (keys.of(keys.load(x, (p & 0xFFFFFFFF) * step))
                              for p in (here, before))
                answer.set(one == other)
        if keys.kind == "f":
            with f.when(answer()):
                key = keys.of(keys.load(x, (here & 0xFFFFFFFF) * step))
                answer.set(~keys.is_nan(key))
        return answer()

    return equal


def mode(keys: Keys) -> list[Function]:
    """The most frequent of each row, the least of several, and the last place it is at."""
    sorter, part = Sorter(keys), Part("mode_rows")
    f = part.f
    a, b, counts = part.memory()
    known = f.room("i64", 2)
    with f.each(f.begin, f.end) as r:
        x = part.x.at(keys.memory, part.start(r, part.n))
        found = f.run(sorter.row, x, part.inner, a, b, counts, known, part.n, part.flip)
        equal = same(f, keys, x, part.inner, found, known.load("i64") == 0, part.flip)
        start, best, last = (f.var("i64", v) for v in (0, 0, 0))
        with f.each(1, part.n) as i:
            with f.when(~equal(i)):
                start.set(i)
            longer = i - start() > best()
            best.set(longer.pick(i - start(), best()))
            last.set(longer.pick(i, last()))
        at = found.load("i64", last()) & 0xFFFFFFFF
        part.put(r, at, keys.load(x, at * part.inner))
    return [*sorter.functions, f, entry(
        f"mode_{keys.dtype}", part, "ptr x, ptr values, ptr order, ptr scratch, i64 n, i64 inner, "
        "i64 flip, i64 total")]


def build(name: str, dtype: str) -> list[Function]:
    return {"sort": sort, "mode": mode}[name](Keys(dtype))
