"""Running results along rows: sums, products, and logarithms of sums of exponentials."""

from __future__ import annotations

import math

from ....core import expr
from .fills import TYPES, is_signed
from .writer import Function, Value, parallel, wide

#: how a number of a dtype is accumulated
WIDER = {"float": "double", "double": "double", "i64": "i64"}
LANES = 4
#: elements that are worth a thread's while
GRAIN = 1 << 14
BLOCK = 256


def _shifted(v: Value, by: int, rest: Value) -> Value:
    """Lanes moved up, others put in below."""
    return v.shuffle([LANES + k if k < by else k - by for k in range(LANES)], rest)


def running(name: str, source: str, target: str) -> list[Function]:
    """cumsum or cumprod of rows that are contiguous; `sizes` is rows * 2**32 + elements of each."""
    given, state = TYPES[source][0], WIDER[TYPES[target][1]]
    signed = is_signed(source)
    start = 0 if name == "cumsum" else 1
    f = Function(f"{name}_row", "ptr out, ptr x, i64 n", local=True)

    def join(a: Value, b: Value) -> Value:
        return a + b if name == "cumsum" else a * b

    def load(i: Value, lanes: int) -> Value:
        value = f.x.load(wide(given, lanes), i)
        if source == "bool":
            value = (value != 0).to("i8")
        return value.to(state, signed)

    def store(value: Value, i: Value) -> None:
        f.out.store(value.to(TYPES[target][0]), i)

    def summed(v: Value) -> Value:
        rest = f.const(v.type, start)
        v = join(v, _shifted(v, 1, rest))
        return join(v, _shifted(v, 2, rest))

    carry, whole = f.var(state, start), f.n & -(2 * LANES)

    def one_by_one(i: Value) -> None:
        carry.set(join(carry(), load(i, 1)))
        store(carry(), i)

    if state == "i64":  # a sum of integers takes one step as it is
        with f.each(0, whole, 2 * LANES) as i:
            for k in range(2 * LANES):
                one_by_one(i + k)
    else:
        _eight_at_a_time(f, whole, carry, join, summed, load, store)
    with f.each(whole, f.n) as i:
        one_by_one(i)
    return [f, *_over_rows(f"{name}_{source}_{target}", f, given, TYPES[target][0])]


def _eight_at_a_time(f: Function, whole: Value, carry, join, summed, load, store) -> None:
    with f.each(0, whole, 2 * LANES) as i:
        low, high = summed(load(i, LANES)), summed(load(i + LANES, LANES))
        first, second = low.lane(LANES - 1), high.lane(LANES - 1)
        # One step from carry to carry, whatever happens inside the eight.
        store(join(low, carry().spread(LANES)), i)
        store(join(high, join(carry(), first).spread(LANES)), i + LANES)
        carry.set(join(carry(), join(first, second)))


def _over_rows(name: str, row: Function, given: str, made: str) -> list[Function]:
    part = Function(f"{name}_part", "ptr context, i64 begin, i64 end", local=True)
    out, x = (part.context.load("ptr", k) for k in range(2))
    n = part.context.load("i64", 2)
    with part.each(part.begin, part.end) as r:
        part.run(row, out.at(made, r * n), x.at(given, r * n), n)
    f = Function(name, "ptr out, ptr x, i64 sizes")
    rows, n = f.sizes >> 32, f.sizes & 0xFFFFFFFF
    with f.when(rows == 1):
        f.run(row, f.out, f.x, n)
        f.give()
    context = f.room("i64", 3)
    for k, value in enumerate((f.out, f.x, n)):
        context.store(value, k)
    parallel(f, part, context, rows, f.const("i64", GRAIN) / n + 1)
    return [part, f]


# -- running extremes ------------------------------------------------------------------------------


class _Extremes:
    """The largest or smallest so far of a row, and its last place; from a NaN on, the last NaN."""

    def __init__(self, name: str, dtype: str):
        self.name, self.kind = name, TYPES[dtype][0]
        self.lanes = 8
        self.f = Function(f"{name}_row", "ptr values, ptr places, ptr x, i64 n", local=True)
        self.best, self.at = self.f.var(self.kind, self.f.x.load(self.kind)), self.f.var("i64", 0)

    def beats(self, x: Value, other: Value) -> Value:
        return x >= other if self.name == "cummax" else x <= other

    def one(self, i: Value) -> None:
        x = self.f.x.load(self.kind, i)
        taken = self.beats(x, self.best())
        if x.floating:
            taken = taken | x.isnan()
        self.best.set(taken.pick(x, self.best()))
        self.at.set(taken.pick(i, self.at()))
        self.f.values.store(self.best(), i)
        self.f.places.store(self.at(), i)

    def written(self) -> Function:
        """Eight at a time while nothing changes, which is most of the time; else one by one."""
        f, lanes = self.f, self.lanes
        whole = f.n & -lanes
        with f.each(0, whole, lanes) as i:
            v = f.x.load(wide(self.kind, lanes), i)
            taken = self.beats(v, self.best().spread(lanes))
            if v.floating:
                taken = taken | v.isnan()
            with f.when(taken.mask() != 0) as some, f.each(i, i + lanes) as k:
                self.one(k)
            with some.otherwise():
                f.values.store(self.best().spread(lanes), i)
                f.places.store(self.at().spread(lanes), i)
        with f.each(whole, f.n) as i:
            self.one(i)
        return f


def extremes(name: str, dtype: str) -> list[Function]:
    """cummax or cummin of rows that are contiguous; `sizes` as for sums."""
    row, kind = _Extremes(name, dtype).written(), TYPES[dtype][0]
    part = Function(f"{name}_part", "ptr context, i64 begin, i64 end", local=True)
    values, places, x = (part.context.load("ptr", k) for k in range(3))
    n = part.context.load("i64", 3)
    with part.each(part.begin, part.end) as r:
        part.run(row, values.at(kind, r * n), places.at("i64", r * n), x.at(kind, r * n), n)
    f = Function(f"{name}_{dtype}", "ptr values, ptr places, ptr x, i64 sizes")
    rows, n = f.sizes >> 32, f.sizes & 0xFFFFFFFF
    context = f.room("i64", 4)
    for k, value in enumerate((f.values, f.places, f.x, n)):
        context.store(value, k)
    parallel(f, part, context, rows, f.const("i64", GRAIN) / n + 1)
    return [row, part, f]


# -- log of running sums of exponentials ---------------------------------------------------------


def _exp(x):
    return expr.call("exp", x)


def _log(x):
    return expr.call("log", x)


def _exactly(f: Function, xs: Value, count: Value, top, total) -> None:
    """A block element by element: infinities, NaN, and numbers far apart."""
    with f.each(0, count) as i:
        x, m, s = xs.load("double", i), top(), total()
        with f.when(x > m) as larger:
            total.set(s * f.call_math("exp", m - x) + 1.0)
            with f.when(m == -math.inf):
                total.set(1.0)
            top.set(x)
        with larger.otherwise():
            # Of equal infinities the difference is NaN.
            more = (x == m).pick(1.0, f.call_math("exp", x - m))
            total.set(s + ((x == -math.inf).pick(0.0, more)))
        with f.when(x.isnan()):
            top.set(math.nan)
        m = top()
        xs.store((f.intrinsic("fabs", m) == math.inf).pick(
            m, m + f.call_math("log", total())), i)


def _blockwise(f: Function, xs: Value, count: Value, top, total, highest: Value) -> None:
    """A block at once: exponentials against its largest, their sums, logarithms of these."""
    lanes = LANES
    high = highest.spread(lanes)
    with f.each(0, BLOCK, lanes) as i:
        xs.store(f.math(_exp, xs.load(wide("double", lanes), i) - high), i)
    total.set(total() * (top() == -math.inf).pick(0.0, f.call_math("exp", top() - highest)))
    with f.each(0, count) as i:
        total.set(total() + xs.load("double", i))
        xs.store(total(), i)
    with f.each(0, BLOCK, lanes) as i:
        xs.store(f.math(_log, xs.load(wide("double", lanes), i)) + high, i)
    top.set(highest)


def logcumsumexp(dtype: str) -> list[Function]:
    """Along rows of n elements `inner` apart."""
    memory = TYPES[dtype][0]
    part = Function("logs_part", "ptr context, i64 begin, i64 end", local=True)
    f = part
    out, x = (f.context.load("ptr", k) for k in range(2))
    n, inner = (f.context.load("i64", k) for k in (2, 3))
    xs = f.room("double", BLOCK)
    with f.each(f.begin, f.end) as r:
        base = r / inner * n * inner + r % inner
        top, total = f.var("double", -math.inf), f.var("double", 0.0)
        with f.each(0, n, BLOCK) as start:
            count = (n - start < BLOCK).pick(n - start, BLOCK)
            high, odd = f.var("double", top()), f.var("i1", False)
            with f.each(0, count) as i:
                value = x.load(memory, base + (start + i) * inner).to("double")
                xs.store(value, i)
                odd.set(odd() | value.isnan())
                high.set((value > high()).pick(value, high()))
            with f.each(count, BLOCK) as i:
                xs.store(f.const("double", 0.0), i)
            first = xs.load("double")
            least = (first > top()).pick(first, top())
            near = (high() - least < 600.0) & (f.intrinsic("fabs", high()) < math.inf)
            with f.when(near & ~odd() & ~top().isnan()) as usual:
                _blockwise(f, xs, count, top, total, high())
            with usual.otherwise():
                _exactly(f, xs, count, top, total)
            with f.each(0, count) as i:
                out.store(xs.load("double", i).to(memory), base + (start + i) * inner)
    e = Function(f"logcumsumexp_{dtype}", "ptr out, ptr x, i64 n, i64 inner, i64 total")
    context = e.room("i64", 4)
    for k, value in enumerate((e.out, e.x, e.n, e.inner)):
        context.store(value, k)
    parallel(e, part, context, e.total / e.n, e.const("i64", GRAIN // 4) / e.n + 1)
    return [part, e]


def build(name: str, *dtypes: str) -> list[Function]:
    if name in ("cummax", "cummin"):
        return extremes(name, *dtypes)
    return logcumsumexp(*dtypes) if name == "logcumsumexp" else running(name, *dtypes)
