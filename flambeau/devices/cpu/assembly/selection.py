"""The best k of rows, without sorting what is not asked for.

An element is packed with its place so that the better one, or of equals the earlier one, is the
larger number: 64 bits for keys of up to 32 bits, else 128.
"""

from __future__ import annotations

from .keys import Keys
from .limits import NEAR, SPARE
from .ordering import LANES, Part, Row, entry
from .writer import Function, Value


class Packed:
    """Elements packed with their places."""

    def __init__(self, keys: Keys):
        self.keys = keys
        self.type = "i128" if keys.type == "i64" else "i64"
        self.shift = 64 if keys.type == "i64" else 32
        self.last = 2**self.shift - 1

    def make(self, key: Value, place: Value) -> Value:
        return (key.to(self.type) << self.shift) | (self.last - place.to(self.type))

    def place(self, packed: Value) -> Value:
        return (self.last - (packed & self.last)).to("i64")

    def key(self, packed: Value) -> Value:
        return (packed >> self.shift).to(self.keys.type)


def _select(packed: Packed) -> Function:
    """The k largest of n before the others, the least of them last (Hoare's quickselect).

    Pivots are medians of three at places no input can foretell the use of.
    """
    kind = packed.type
    f = Function("select_best", "ptr a, i64 n, i64 k", local=True)
    low, high, seed = f.var("i64", 0), f.var("i64", f.n - 1), f.var("i64", f.n)
    target = f.k - 1

    def candidate() -> Value:
        seed.set(seed() * 6364136223846793005 + 1442695040888963407)
        return f.a.load(kind, low() + (((seed() >> 33) * (high() - low() + 1)) >> 31))

    with f.repeat() as loop:
        loop.leave_if(low() >= high())
        one, two, three = (candidate() for _ in range(3))
        less, more = f.intrinsic("umin", one, two), f.intrinsic("umax", one, two)
        pivot = f.intrinsic("umax", less, f.intrinsic("umin", more, three))
        i, j = f.var("i64", low()), f.var("i64", high())
        with f.repeat() as inner:
            inner.leave_if(i() > j())
            with f.repeat() as up:
                up.leave_if(~pivot.below(f.a.load(kind, i())))
                i.add(1)
            with f.repeat() as down:
                down.leave_if(~f.a.load(kind, j()).below(pivot))
                j.add(-1)
            with f.when(i() <= j()):
                left, right = f.a.load(kind, i()), f.a.load(kind, j())
                f.a.store(right, i())
                f.a.store(left, j())
                i.add(1)
                j.add(-1)
        with f.when(target <= j()) as before:
            high.set(j())
        with before.otherwise():
            with f.when(target >= i()) as after:
                low.set(i())
            with after.otherwise():
                loop.leave()
    return f


def _descending(packed: Packed) -> Function:
    """The largest first: short runs by insertion, then merged; `b` is as large as `a`."""
    kind, run = packed.type, 8
    f = Function("descending", "ptr a, ptr b, i64 n", "ptr", local=True)
    with f.each(0, f.n, run) as start:
        end = f.intrinsic("smin", start + run, f.n)
        with f.each(start + 1, end) as i:
            held, j = f.a.load(kind, i), f.var("i64", i)
            with f.repeat() as loop:
                loop.leave_if(j() <= start)
                before = f.a.load(kind, j() - 1)
                loop.leave_if(~before.below(held))
                f.a.store(before, j())
                j.add(-1)
            f.a.store(held, j())
    source, target, width = f.var("ptr", f.a), f.var("ptr", f.b), f.var("i64", run)
    with f.repeat() as loop:
        loop.leave_if(width() >= f.n)
        with f.each(0, f.n, width() * 2) as start:
            _merge(f, kind, source(), target(), start,
                   f.intrinsic("smin", start + width(), f.n),
                   f.intrinsic("smin", start + width() * 2, f.n))
        kept = source()
        source.set(target())
        target.set(kept)
        width.set(width() * 2)
    f.give(source())
    return f


def _merge(f: Function, kind: str, source: Value, target: Value, start, middle, end) -> None:
    i, j = f.var("i64", start), f.var("i64", middle)
    with f.each(start, end) as out:
        left = f.intrinsic("smin", i(), middle - 1)
        right = f.intrinsic("smin", j(), end - 1)
        one, two = source.load(kind, left), source.load(kind, right)
        first = ((i() < middle) & (two.below(one) | (j() >= end)))
        target.store(first.pick(one, two, foretold=False), out)
        i.add(first.to("i64"))
        j.add((first ^ 1).to("i64"))


def _collect(packed: Packed, select: Function) -> Function:
    """The k best of a row, and perhaps some others after them, packed into a; how many there are.

    Only what beats the worst of the k best so far is collected; when the room is full, the k
    best of it are selected, and the bar rises.
    """
    keys, kind = packed.keys, packed.type
    f = Function("collect", "ptr x, i64 step, ptr a, i64 n, i64 flip, i64 k", "i64", local=True)
    row, room = Row(f, keys), f.k * 2 + SPARE
    count, bar, open_ = f.var("i64", 0), f.var(keys.type, 0), f.var("i1", True)

    def offer(key: Value, i: Value) -> None:
        with f.when(open_() | bar().below(key)):
            f.a.store(packed.make(key, i), count())
            count.add(1)
            with f.when(count() >= room):
                f.run(select, f.a, count(), f.k)
                count.set(f.k)
                bar.set(packed.key(f.a.load(kind, f.k - 1)))
                open_.set(False)

    done = f.var("i64", 0)
    with f.when(f.step == 1):
        flip = keys.turned(f, f.flip, LANES)
        with f.each(0, f.n & -LANES, LANES) as i:
            found = keys.of(keys.load(f.x, i, LANES)) ^ flip
            over = bar().spread(LANES).below(found).mask()
            with f.when(open_() | (over != 0)):
                for lane in range(LANES):
                    offer(found.lane(lane), i + lane)
        done.set(f.n & -LANES)
    with f.each(done(), f.n) as i:
        offer(row.key(i), i)
    f.give(count())
    return f


def _insert(packed: Packed) -> Function:
    """The few best of a row in order: what beats the last of them so far is put in its place."""
    keys, kind = packed.keys, packed.type
    f = Function("insert_best", "ptr x, i64 step, ptr a, i64 n, i64 flip, i64 k", local=True)
    row, last, bar = Row(f, keys), f.k - 1, f.var(keys.type, 0)

    def put(key: Value, i: Value, first: Value) -> None:
        held, j = packed.make(key, i), f.var("i64", first)
        with f.repeat() as loop:
            loop.leave_if(j() <= 0)
            before = f.a.load(kind, j() - 1)
            loop.leave_if(~before.below(held))
            f.a.store(before, j())
            j.add(-1)
        f.a.store(held, j())

    with f.each(0, f.k) as i:
        put(row.key(i), i, i)
    bar.set(packed.key(f.a.load(kind, last)))

    def offer(key: Value, i: Value) -> None:
        with f.when(bar().below(key)):
            put(key, i, last)
            bar.set(packed.key(f.a.load(kind, last)))

    done = f.var("i64", f.k)
    with f.when(f.step == 1):
        flip = keys.turned(f, f.flip, LANES)
        end = f.k + ((f.n - f.k) & -LANES)
        with f.each(f.k, end, LANES) as i:
            found = keys.of(keys.load(f.x, i, LANES)) ^ flip
            over = f.var("i8", bar().spread(LANES).below(found).mask())
            with f.repeat() as loop:
                loop.leave_if(over() == 0)
                lane = f.calls("llvm.cttz.i8", "i8", over(), f.const("i1", False)).to("i64")
                offer(row.key(i + lane), i + lane)
                over.set(over() & (over() - 1))
        done.set(end)
    with f.each(done(), f.n) as i:
        offer(row.key(i), i)
    return f


#: so many are kept in order as they come
FEW = 16


def topk(keys: Keys) -> list[Function]:
    packed, part = Packed(keys), Part("best_rows")
    select, descending, insert = _select(packed), _descending(packed), _insert(packed)
    collect, f, kind = _collect(packed, select), part.f, packed.type
    near = f.room(kind, NEAR)
    short = part.k * 3 + SPARE <= NEAR
    mine = part.scratch.at("i8", f.begin / part.grain * part.slot)
    a = short.pick(near, mine)
    with f.each(f.begin, f.end) as r:
        x = part.x.at(keys.memory, part.start(r, part.n))
        out = part.start(r, part.k)
        values, order = part.values.at(keys.memory, out), part.order.at("i64", out)
        found = f.var("ptr", a)
        with f.when(part.k <= FEW) as few:
            f.run(insert, x, part.inner, a, part.n, part.flip, part.k)
        with few.otherwise():
            count = f.run(collect, x, part.inner, a, part.n, part.flip, part.k)
            with f.when(count > part.k):
                f.run(select, a, count, part.k)
            found.set(f.run(descending, a, a.at(kind, part.k), part.k))
        with f.each(0, part.k) as i:
            at = packed.place(found().load(kind, i))
            order.store(at, i * part.inner)
            values.store(keys.load(x, at * part.inner), i * part.inner)
    return [select, descending, insert, collect, f, entry(
        f"topk_{keys.dtype}", part, "ptr x, ptr values, ptr order, ptr scratch, i64 n, i64 inner, "
        "i64 flip, i64 k, i64 slot, i64 total")]


def build(dtype: str) -> list[Function]:
    return topk(Keys(dtype))
