"""One element of each row by its rank in rising order: of any rank, or the median.

Short rows are sorted. Of others a sample says between which keys the one looked for lies, nearly
always, and only those between are kept, as often as that makes them much fewer. Then a key is found
bit by bit: how many keys are below what is known with the next bit set says whether it is set.
"""

from __future__ import annotations

from .keys import Keys
from .limits import BLOCK, NEAR
from .network import CHUNK
from .ordering import LANES, Part, Sorter, entry
from .writer import Function, Value, wide

#: rows up to this long are sorted: keys of 64 bits take longer to be found bit by bit
SORTED = {"i32": 128, "i64": 0}
#: rows are narrowed while they are longer than this, by what is so far from the rank in a sample
FEW, MARGIN = 128, 10
VECTOR_BITS = 512


def _below(f: Function, keys: Keys, a: Value, n: Value, bar: Value) -> Value:
    """How many of n keys are below a bar; n is a multiple of BLOCK."""
    lanes = VECTOR_BITS // keys.type_bits
    counts = [f.var(wide(keys.type, lanes), 0) for _ in range(4)]
    high = bar.spread(lanes)
    with f.each(0, n, 4 * lanes) as i:
        for k, count in enumerate(counts):
            less = a.load(wide(keys.type, lanes), i + k * lanes).below(high)
            count.add(less.to(keys.type))
    one, two, three, four = (count() for count in counts)
    total = f.calls(f"llvm.vector.reduce.add.v{lanes}{keys.type}", keys.type,
                    (one + two) + (three + four))
    return total.to("i64")


def _bisect(keys: Keys) -> Function:
    """The key of a rank among n keys from `low` to `low + span`.

    There is room for a block of keys behind them.
    """
    kind, bits = keys.type, keys.type_bits
    f = Function("bisect", f"ptr a, i64 n, i64 rank, {kind} low, {kind} span", kind, local=True)
    size = (f.n + (BLOCK - 1)) & -BLOCK
    with f.each(f.n, size) as i:
        f.a.store(f.const(kind, -1), i)
    known = f.var(kind, 0)
    with f.when(f.span != 0):
        zeros = f.calls(f"llvm.ctlz.{kind}", kind, f.span, f.const("i1", False))
        bit = f.var(kind, f.const(kind, 1) << (bits - 1 - zeros))
        with f.repeat() as loop:
            loop.leave_if(bit() == 0)
            more = known() | bit()
            few = _below(f, keys, f.a, size, f.low + more) <= f.rank
            inside = ~f.span.below(more)
            known.set((few & inside).pick(more, known(), foretold=False))
            bit.set(bit() >> 1)
    f.give(f.low + known())
    return f


def _between(keys: Keys) -> Function:
    """Of n keys those from `low` to `high`, in place; how many there are, and how many below."""
    kind, lanes = keys.type, VECTOR_BITS // keys.type_bits
    f = Function("between", f"ptr a, i64 n, {kind} low, {kind} high, ptr below", "i64", local=True)
    kept, under = f.var("i64", 0), f.var("i64", 0)
    low, span = f.low.spread(lanes), (f.high - f.low).spread(lanes)
    short = f"i{lanes}"
    name = f"llvm.experimental.vector.compress.v{lanes}{kind}"
    whole = f.n & -lanes

    def count(holds: Value) -> Value:
        return f.calls(f"llvm.ctpop.{short}", short, holds.mask()).to("i64")

    with f.each(0, whole, lanes) as i:
        found = f.a.load(wide(kind, lanes), i)
        inside = ~span.below(found - low)
        under.add(count(found.below(low)))
        # What was kept ends before what is read next: a whole vector can be put down.
        f.a.store(f.calls(name, wide(kind, lanes), found, inside,
                          f.const(wide(kind, lanes), 0)), kept())
        kept.add(count(inside))
    with f.each(whole, f.n) as i:
        found = f.a.load(kind, i)
        under.add(found.below(f.low).to("i64"))
        f.a.store(found, kept())
        kept.add((~(f.high - f.low).below(found - f.low)).to("i64"))
    f.below.store(under())
    f.give(kept())
    return f

def _rank(name: str, given: Value, n: Value, nans: Value) -> Value:
    if name == "kthvalue":
        return given - 1
    if name == "median":  # the first NaN comes right after all numbers
        return (nans > 0).pick(n - nans, (n - 1).sar(1))
    numbers = n - nans
    return (numbers > 0).pick((numbers - 1).sar(1), 0)


class Ranked:
    """A row whose element of a rank is looked for."""

    def __init__(self, f: Function, keys: Keys, part: Part, x: Value):
        self.f, self.keys, self.part, self.x = f, keys, part, x
        self.whole = (part.inner == 1).pick(part.n & -LANES, 0)

    def key(self, i: Value) -> Value:
        return self.keys.of(self.keys.load(self.x, i * self.part.inner))

    def near(self, i: Value) -> Value:
        """The keys of LANES elements that lie one after another."""
        return self.keys.of(self.keys.load(self.x, i, LANES))

    def nans(self) -> Value:
        f, keys, count = self.f, self.keys, self.f.var("i64", 0)
        if keys.kind == "f":
            with f.each(0, self.whole, LANES) as i:
                unknown = keys.is_nan(self.near(i)).mask()
                count.add(f.calls("llvm.ctpop.i8", "i8", unknown).to("i64"))
            with f.each(self.whole, self.part.n) as i:
                count.add(keys.is_nan(self.key(i)).to("i64"))
        return count()

    def pack(self, a: Value) -> tuple[Value, Value]:
        """All keys into a; the lowest and the highest."""
        f, kind = self.f, self.keys.type
        first = self.key(f.const("i64", 0))
        ends = [(name, f.var(kind, first), f.var(wide(kind, LANES), first.spread(LANES)))
                for name in ("umin", "umax")]
        with f.each(0, self.whole, LANES) as i:
            near = self.near(i)
            a.store(near, i)
            for name, _, several in ends:
                several.set(f.intrinsic(name, several(), near))
        for name, end, several in ends:
            end.set(f.calls(f"llvm.vector.reduce.{name}.v{LANES}{kind}", kind, several()))
        with f.each(self.whole, self.part.n) as i:
            key = self.key(i)
            a.store(key, i)
            for name, end, _ in ends:
                end.set(f.intrinsic(name, end(), key))
        return ends[0][1](), ends[1][1]()

    def place(self, key: Value, skipped: Value) -> Value:
        """Where a key is, after so many equal ones."""
        f, left, at = self.f, self.f.var("i64", skipped), self.f.var("i64", 0)
        with f.repeat() as loop:
            loop.leave_if(at() >= self.whole)
            equal = (self.near(at()) == key.spread(LANES)).mask()
            count = f.calls("llvm.ctpop.i8", "i8", equal).to("i64")
            loop.leave_if(left() < count)
            left.set(left() - count)
            at.add(LANES)
        with f.repeat() as loop:
            here = self.key(at()) == key
            loop.leave_if(here & (left() == 0))
            left.set(left() - here.to("i64"))
            at.add(1)
        return at()


class Search:
    """Keys of a row among which one of a rank is looked for, fewer and fewer of them."""

    def __init__(self, row: Ranked, a: Value, sorter: Sorter):
        f, kind = row.f, row.keys.type
        self.f, self.row, self.a, self.sorter = f, row, a, sorter
        self.sample, self.under = f.room("i64", CHUNK), f.room("i64", 1)
        self.count, self.rank = f.var("i64"), f.var("i64")
        self.low, self.high = f.var(kind), f.var(kind)
        self.margin = f.var("i64", MARGIN)
        self.restart()

    def restart(self) -> None:
        """Look among all."""
        self.keep(self.row.part.n, *self.row.pack(self.a))

    def keep(self, count: Value, low: Value, high: Value) -> None:
        self.count.set(count)
        self.low.set(low)
        self.high.set(high)

    def bracket(self) -> tuple[Value, Value]:
        """Keys between which the one looked for lies, nearly always."""
        f, kind = self.f, self.row.keys.type
        with f.each(0, CHUNK) as i:
            self.sample.store(self.a.load(kind, i * self.count() / CHUNK).to("i64"), i)
        f.run(self.sorter.chunk, self.sample)
        at = self.rank() * CHUNK / self.count()
        first, last = at - self.margin(), at + self.margin()
        low = self.sample.load("i64", f.intrinsic("smax", first, f.const("i64", 0)))
        high = self.sample.load("i64", f.intrinsic("smin", last, f.const("i64", CHUNK - 1)))
        return ((first >= 0).pick(low.to(kind), self.low()),
                (last < CHUNK).pick(high.to(kind), self.high()))

    def narrow(self, wanted: Value, between: Function) -> None:
        """Keep what lies in a bracket, while that is much less; a wider one after one failed."""
        f = self.f
        self.rank.set(wanted)
        with f.repeat() as loop:
            loop.leave_if(self.count() <= FEW)
            (low, high), before = self.bracket(), self.count()
            kept = f.run(between, self.a, before, low, high, self.under)
            self.rank.add(-self.under.load("i64"))
            with f.when((self.rank() < 0) | (self.rank() >= kept)):
                self.rank.set(wanted)
                self.margin.set(self.margin() * 2)
                self.restart()
                loop.again()
            self.keep(kept, low, high)
            loop.leave_if(kept * 4 > before * 3)

    def found(self, bisect: Function) -> tuple[Value, Value]:
        """The key, and how many equal ones come before it."""
        f, keys = self.f, self.row.keys
        key, skipped = f.var(keys.type), f.var("i64", 0)
        short = self.count() <= (FEW if keys.type == "i64" else 0)
        with f.when(short) as few:
            f.run(self.sorter.network, self.a, self.count())
            key.set(self.a.load(keys.type, self.rank()))
            with f.repeat() as loop:
                before = self.rank() - skipped() - 1
                loop.leave_if(before < 0)
                loop.leave_if(self.a.load(keys.type, before) != key())
                skipped.add(1)
        with few.otherwise():
            key.set(f.run(bisect, self.a, self.count(), self.rank(), self.low(),
                          self.high() - self.low()))
            size = (self.count() + (BLOCK - 1)) & -BLOCK
            skipped.set(self.rank() - _below(f, keys, self.a, size, key()))
        return key(), skipped()


def _of_short_rows(part: Part, sorter: Sorter, name: str) -> Function:
    """Rows that are sorted, which takes less time than looking for one element."""
    f, keys = part.f, sorter.keys
    a, b, counts = part.memory()
    known = f.room("i64", 2)
    with f.each(f.begin, f.end) as r:
        x = part.x.at(keys.memory, part.start(r, part.n))
        row = Ranked(f, keys, part, x)
        nans = row.nans() if name != "kthvalue" else part.n
        found = f.run(sorter.row, x, part.inner, a, b, counts, known, part.n, f.const("i64", 0))
        at = found.load("i64", _rank(name, part.k, part.n, nans)) & 0xFFFFFFFF
        part.put(r, at, keys.load(x, at * part.inner))
    return f


def _of_long_rows(part: Part, sorter: Sorter, name: str) -> list[Function]:
    f, keys = part.f, sorter.keys
    bisect, between = _bisect(keys), _between(keys)
    mine = part.scratch.at("i8", f.begin / part.grain * part.slot)
    a = (part.n <= NEAR).pick(f.room(keys.type, NEAR + BLOCK), mine)
    with f.each(f.begin, f.end) as r:
        x = part.x.at(keys.memory, part.start(r, part.n))
        row = Ranked(f, keys, part, x)
        search, nans = Search(row, a, sorter), f.var("i64", 0)
        if name != "kthvalue" and keys.kind == "f":
            with f.when(keys.is_nan(search.high())):
                nans.set(row.nans())
        search.narrow(_rank(name, part.k, part.n, nans()), between)
        at = row.place(*search.found(bisect))
        part.put(r, at, keys.load(x, at * part.inner))
    return [bisect, between, f]


def build(name: str, dtype: str) -> list[Function]:
    """The element of a rank of each row, and where it is."""
    keys = Keys(dtype)
    sorter, short, long = Sorter(keys), Part("short_rows"), Part("long_rows")
    functions = [*sorter.functions, _of_short_rows(short, sorter, name),
                 *_of_long_rows(long, sorter, name)]
    either = Part("ranked_rows")
    f = either.f
    with f.when(either.n <= SORTED[keys.type]) as few:
        f.run(short.f, f.context, f.begin, f.end)
    with few.otherwise():
        f.run(long.f, f.context, f.begin, f.end)
    return [*functions, f, entry(
        f"{name}_{dtype}", either, "ptr x, ptr values, ptr order, ptr scratch, i64 n, "
        "i64 inner, i64 flip, i64 k, i64 slot, i64 total")]
