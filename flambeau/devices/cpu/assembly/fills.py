"""Memory filled with random numbers of one dtype: words drawn a chunk at a time, then converted.

Each function draws as torch does for its distribution: 24 bits of a word for float32, 53 bits of
two words, the high one first, for all that is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ....core import expr
from ...elementary import circular
from .state import CHUNK, KEPT
from .twister import Twister, copy, drawn, lock, unlock
from .writer import BYTES, Function, Value, wide

LANES = 8

#: dtype -> (in memory, what its numbers are computed in)
TYPES = {
    "bool":     ("i8",     "i64"),
    "uint8":    ("i8",     "i64"),
    "int8":     ("i8",     "i64"),
    "uint16":   ("i16",    "i64"),
    "int16":    ("i16",    "i64"),
    "uint32":   ("i32",    "i64"),
    "int32":    ("i32",    "i64"),
    "uint64":   ("i64",    "i64"),
    "int64":    ("i64",    "i64"),
    "float16":  ("half",   "float"),
    "bfloat16": ("i16",    "float"),
    "float32":  ("float",  "float"),
    "float64":  ("double", "double"),
}


def is_signed(dtype: str) -> bool:
    """Whether integers of a dtype are widened by their sign."""
    return dtype != "bool" and not dtype.startswith("u")


# -- conversions ---------------------------------------------------------------------------------


def as_dtype(value: Value, dtype: str) -> Value:
    """Numbers as they are stored; the half types are reached through float32, as in torch."""
    memory, compute = TYPES[dtype]
    if value.element == "i1":
        value = value.to("i64" if compute == "i64" else "i32")
    if compute == "i64":
        if value.floating:  # an infinite waiting time fits no integer
            value = (value < 9.2e18).pick(value, 9.2e18)
            value = value.to("i64")
        if dtype == "bool":
            value = (value != 0).to("i8")
        return value.to(memory, signed=True)
    value = value.to(compute) if not value.floating or compute == "double" else value.to("float")
    return to_bfloat16(value) if dtype == "bfloat16" else value.to(memory)


def to_bfloat16(value: Value) -> Value:
    """Rounded to the nearest, ties to even."""
    bits = value.bits(wide("i32", value.lanes))
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return value.isnan().pick((bits >> 16) | 0x40, rounded).to("i16")


def from_memory(f: Function, place: Value, dtype: str, i) -> Value:
    """LANES elements as what they are computed in."""
    memory, compute = TYPES[dtype]
    loaded = place.load(wide(memory, LANES), i)
    if dtype == "bfloat16":
        return (loaded.to("i32") << 16).bits(wide("float", LANES))
    return loaded.to(compute)


def unsigned(value: Value) -> Value:
    """Integers without a sign as doubles."""
    return value._cast("uitofp", "double")


def wide_words(place: Value, i) -> Value:
    """64-bit words, the first of two words being the high half."""
    pairs = place.load(wide("i64", LANES), i)
    return (pairs << 32) | (pairs >> 32)


def unit(place: Value, i, compute: str) -> Value:
    """Numbers of [0, 1)."""
    if compute == "double":
        return unsigned(wide_words(place, i) & (2**53 - 1)) * 2.0**-53
    return (place.load(wide("i32", LANES), i) & (2**24 - 1)).to("float") * 2.0**-24


# -- the loop of a fill --------------------------------------------------------------------------


def stored(f: Function, out: Value, value: Value, i: Value, count: Value) -> None:
    """LANES elements at i, or as many as there are left of `count`."""
    with f.when(i + LANES <= count) as whole:
        out.store(value, i)
    with whole.otherwise():
        spare = f.room(value.element, LANES)
        spare.store(value)
        copy(f, out.at(value.element, i), spare, (count - i) * BYTES[value.element])


def filling(twister: Twister, name: str, arguments: str, element: str, per: int, make) -> Function:
    """fill(state, out, ..., n): make(f, words, i, at) gives LANES elements from `per` words each.

    `i` counts from the start of the words, `at` from the start of everything; what make needs
    once it computes at the first call, before the loops.
    """
    more = f", {arguments}" if arguments else ""
    f = Function(name, f"ptr state, ptr out{more}, i64 n")
    lock(f)
    convert = make(f)
    chunk = CHUNK // per
    with f.each(0, f.n, chunk) as start:
        count = (f.n - start < chunk).pick(f.n - start, chunk)
        words = drawn(f, twister, count * per)
        out = f.out.at(element, start)
        with f.each(0, count, LANES) as i:
            stored(f, out, convert(words, i, start + i), i, count)
    unlock(f)
    return f


def uniform(twister: Twister, dtype: str) -> Function:
    memory, compute = TYPES[dtype]

    def make(f):
        low, high = f.low.to(compute), f.high.to(compute)
        width = (high - low).spread(LANES)
        # Rounding may reach the bound that is excluded; torch then takes the other one.
        ends = [as_dtype(x.spread(LANES), dtype) for x in (low, high)]
        base = low.spread(LANES)

        def convert(words, i, at):
            value = as_dtype(f.intrinsic("fma", unit(words, i, compute), width, base), dtype)
            return (value == ends[1]).pick(ends[0], value)
        return convert

    return filling(twister, f"fill_uniform_{dtype}", "double low, double high", memory,
                   2 if compute == "double" else 1, make)


# -- integers ------------------------------------------------------------------------------------


def integers(twister: Twister, dtype: str) -> Function:
    """Words modulo a width below 2**28, and a lowest number added.

    The quotient is estimated in float64, where it is off by one at most.
    """
    def make(f):
        divisor = f.width.to("double").spread(LANES)
        inverse = 1.0 / divisor
        low = f.low.spread(LANES)

        def convert(words, i, at):
            word = words.load(wide("i32", LANES), i)
            number = unsigned(word)
            quotient = f.intrinsic("floor", number * inverse)
            rest = number - quotient * divisor
            rest = (rest < 0.0).pick(rest + divisor, rest)
            rest = (rest >= divisor).pick(rest - divisor, rest)
            return as_dtype(rest.to("i32").to("i64") + low, dtype)
        return convert

    return filling(twister, f"fill_integers_{dtype}", "i64 width, i64 low", TYPES[dtype][0], 1,
                   make)


def wide_integers(twister: Twister, dtype: str) -> Function:
    """64-bit words modulo a width, and a lowest number added; a width of 0 takes them whole."""
    def make(f):
        low = f.low.spread(LANES)
        mask = f.width - 1
        binary = (f.width & mask) == 0

        def convert(words, i, at):
            word = wide_words(words, i)
            value = f.var(word.type, word & mask.spread(LANES))
            with f.when(~binary):
                for lane in range(LANES):
                    rest = word.lane(lane) % f.width
                    value.set(f.new(word.type, f"insertelement {word.type} {value().name}, "
                                               f"i64 {rest.name}, i64 {lane}"))
            return as_dtype(value() + low, dtype)
        return convert

    return filling(twister, f"fill_wide_integers_{dtype}", "i64 width, i64 low", TYPES[dtype][0],
                   2, make)


def masked_integers(twister: Twister, dtype: str) -> Function:
    """The low bits of words."""
    def make(f):
        def convert(words, i, at):
            word = words.load(wide("i32", LANES), i).to("i64")
            return as_dtype(word & f.mask.spread(LANES), dtype)
        return convert

    return filling(twister, f"fill_masked_integers_{dtype}", "i64 mask", TYPES[dtype][0], 1, make)


# -- from one uniform each -----------------------------------------------------------------------


def threshold(p: Value) -> Value:
    """The number of 53 bits that those below, as a fraction of all, are fewer than p."""
    return p.f.intrinsic("ceil", p * 2.0**53).to("i64")


def bernoulli(twister: Twister, dtype: str) -> Function:
    def make(f):
        least = threshold(f.p).spread(LANES)

        def convert(words, i, at):
            return as_dtype((wide_words(words, i) & (2**53 - 1)) < least, dtype)
        return convert

    return filling(twister, f"fill_bernoulli_{dtype}", "double p", TYPES[dtype][0], 2, make)


def bernoulli_each(twister: Twister, dtype: str, given: str) -> Function:
    """1 with the probability that each element of an array gives."""
    compute = TYPES[given][1]

    def make(f):
        edge = f.room(TYPES[given][0], LANES)

        def convert(words, i, at):
            chances = f.var("ptr", f.chances.at(TYPES[given][0], at))
            with f.when(at + LANES > f.n):
                copy(f, edge, chances(), (f.n - at) * BYTES[TYPES[given][0]])
                chances.set(edge)
            p = from_memory(f, chances(), given, 0)
            return as_dtype(unit(words, i, compute) < p, dtype)
        return convert

    return filling(twister, f"fill_bernoulli_each_{dtype}_{given}", "ptr chances",
                   TYPES[dtype][0], 2 if compute == "double" else 1, make)


def _exponential(f):
    scale = (-1.0 / f.a).spread(LANES)
    # 1 - u is exact, so that this is log1p(-u).
    return lambda u: scale * f.math(_log, 1.0 - u)


def _log(x):
    return expr.call("log", x)


def _geometric(f):
    scale = f.call_math("log1p", -f.a).spread(LANES)
    return lambda u: f.intrinsic("ceil", f.math(_log, u) / scale)


def _cauchy(f):
    middle, scale = f.a.spread(LANES), f.b.spread(LANES)

    def value(u):
        s, c = sine_and_cosine(f, (u - 0.5) * math.pi)
        return middle + scale * (s / c)
    return value


FROM_UNIT = {"exponential": _exponential, "geometric": _geometric, "cauchy": _cauchy}


def from_unit(twister: Twister, name: str, dtype: str) -> Function:
    def make(f):
        value = FROM_UNIT[name](f)
        return lambda words, i, at: as_dtype(value(unit(words, i, "double")), dtype)

    return filling(twister, f"fill_{name}_{dtype}", "double a, double b", TYPES[dtype][0], 2, make)


# -- normal numbers ------------------------------------------------------------------------------


def sine_and_cosine(f: Function, angle: Value) -> tuple[Value, Value]:
    """Of angles of a few turns: one reduction, two polynomials."""
    def both(x):
        size = circular.absolute(x)
        if angle.element == "double":
            quadrant, r, low = circular._reduce_double(size)
        else:
            (quadrant, r), low = circular._reduce_single(size), None
        s, c = circular.reduced_sine(r, low), circular.reduced_cosine(r, low)
        odd = (quadrant & 1) == 1
        top = x.dtype.itemsize * 8 - 2

        def signed(value, turns):
            return circular.from_bits(circular.bits(value) ^ ((turns & 2) << top), value)
        sine = signed(expr.where(odd, c, s), quadrant)
        return circular._with_sign_of(x, sine), signed(expr.where(odd, s, c), quadrant + 1)

    return f.math(both, angle)


def _blocks(twister: Twister, dtype: str) -> Function:
    """Blocks of 16 uniforms (8 for the radius, 8 for the angle) to 16 normals (Box and Muller)."""
    memory, compute = TYPES[dtype]
    per = 2 if compute == "double" else 1
    f = Function("blocks", "ptr state, ptr out, double mean, double std, i64 n", local=True)
    mean, std = (x.to(compute).spread(8) for x in (f.mean, f.std))
    chunk = CHUNK // per
    with f.each(0, f.n, chunk) as start:
        count = (f.n - start < chunk).pick(f.n - start, chunk)
        words = drawn(f, twister, count * per)
        out = f.out.at(memory, start)
        with f.each(0, count, 16) as i:
            lengths, turns = (unit(words, i + k, compute) for k in (0, 8))
            radius = f.intrinsic("sqrt", f.math(_log, 1.0 - lengths) * -2.0)
            s, c = sine_and_cosine(f, turns * (2 * math.pi))
            for k, side in ((0, c), (8, s)):
                out.store(as_dtype(f.intrinsic("fma", radius * side, std, mean), dtype), i + k)
    return f


def normal(twister: Twister, dtype: str) -> list[Function]:
    """At least 16 contiguous numbers; what is over at the end is redone as a block."""
    memory, compute = TYPES[dtype]
    blocks = _blocks(twister, dtype)
    f = Function(f"fill_normal_{dtype}", "ptr state, ptr out, double mean, double std, i64 n")
    lock(f)
    whole = f.n & -16
    f.run(blocks, f.state, f.out, f.mean, f.std, whole)
    with f.when(whole != f.n):
        if dtype in ("float32", "float64"):  # these draw for every element before that
            drawn(f, twister, (f.n - whole) * (2 if compute == "double" else 1))
        f.run(blocks, f.state, f.out.at(memory, f.n - 16), f.mean, f.std, f.const("i64", 16))
    unlock(f)
    return [blocks, f]


def one_by_one(twister: Twister, dtype: str, exponential: bool) -> Function:
    """Normal numbers one after the other, or exp of them; many of them in eight pairs at a time."""
    name = "log_normal" if exponential else "normals"
    f = Function(f"fill_{name}_{dtype}", "ptr state, ptr out, double mean, double std, i64 n")
    lock(f)
    done = f.var("i64", 0)

    def put_next() -> None:
        value = f.intrinsic("fma", f.run(twister.normal, f.state), f.std, f.mean)
        if exponential:
            value = f.call_math("exp", value)
        f.out.store(as_dtype(value, dtype), done())
        done.add(1)

    with f.when(f.n >= 64):
        with f.when(f.state.load("i64", KEPT // 8) != 0):
            put_next()
        _pairs(f, twister, dtype, exponential, done)
    with f.repeat() as loop:
        loop.leave_if(done() >= f.n)
        put_next()
    unlock(f)
    return f


def _pairs(f: Function, twister: Twister, dtype: str, exponential: bool, done) -> None:
    """As many whole vectors of pairs as fit: an angle and a radius of two words each."""
    even = range(0, 2 * LANES, 2)
    mean, std = f.mean.spread(LANES), f.std.spread(LANES)
    end = done() + ((f.n - done()) & -(2 * LANES))
    chunk = CHUNK // 2
    with f.each(done(), end, chunk) as start:
        count = (end - start < chunk).pick(end - start, chunk)
        words = drawn(f, twister, count * 2)
        with f.each(0, count, 2 * LANES) as i:
            first, second = (unit(words, i + k, "double") for k in (0, LANES))
            turns = first.shuffle(even, second)
            tails = first.shuffle([k + 1 for k in even], second)
            radius = f.intrinsic("sqrt", f.math(_log, 1.0 - tails) * -2.0)
            s, c = sine_and_cosine(f, turns * (2 * math.pi))
            sides = [f.intrinsic("fma", radius * side, std, mean) for side in (c, s)]
            if exponential:
                sides = [f.math(_exp, side) for side in sides]
            for k in range(2):
                order = [j for pair in range(LANES // 2) for j in (
                    pair + k * LANES // 2, LANES + pair + k * LANES // 2)]
                f.out.store(as_dtype(sides[0].shuffle(order, sides[1]), dtype),
                            start + i + k * LANES)
    done.set(end)


def _exp(x):
    return expr.call("exp", x)


# -- dropout -------------------------------------------------------------------------------------


def dropout(twister: Twister, dtype: str) -> Function:
    """x / keep with probability keep, else 0 x; and the mask of what was kept."""
    memory, compute = TYPES[dtype]

    def make(f):
        least = threshold(f.keep).spread(LANES)
        scale = as_dtype((1.0 / f.keep.to(compute)).spread(LANES), dtype)
        if dtype == "bfloat16":
            scale = (scale.to("i32") << 16).bits(wide("float", LANES))
        scale = scale.to(compute)
        edge = f.room(memory, LANES)

        def convert(words, i, at):
            kept = (wide_words(words, i) & (2**53 - 1)) < least
            source = f.var("ptr", f.x.at(memory, at))
            with f.when(at + LANES > f.n):
                copy(f, edge, source(), (f.n - at) * BYTES[memory])
                source.set(edge)
            stored(f, f.mask, kept.to("i8"), at, f.n)
            return as_dtype(from_memory(f, source(), dtype, 0) * kept.pick(scale, 0.0), dtype)
        return convert

    return filling(twister, f"fill_dropout_{dtype}", "ptr mask, ptr x, double keep", memory, 2,
                   make)


# -- modules -------------------------------------------------------------------------------------


def build(name: str, dtype: str, *details) -> list[Function]:
    """The module of one fill."""
    twister = Twister()
    if name in FROM_UNIT:
        made = [from_unit(twister, name, dtype)]
    elif name == "normal":
        made = normal(twister, dtype)
    elif name in ("normals", "log_normal"):
        made = [one_by_one(twister, dtype, name == "log_normal")]
    else:
        made = [FILLS[name](twister, dtype, *details)]
    return [*twister.functions, *made]


FILLS: dict[str, Callable[..., Function]] = {
    "uniform": uniform, "integers": integers, "wide_integers": wide_integers,
    "masked_integers": masked_integers, "bernoulli": bernoulli, "bernoulli_each": bernoulli_each,
    "dropout": dropout}
