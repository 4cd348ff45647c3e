"""The Mersenne twister mt19937 (Matsumoto and Nishimura, 1998), eight words at a time.

The recurrence reads words 0, 1 and 397 of the 624 before the one it makes. With the old block and
the new one side by side in memory nothing wraps around, so eight are made at once.
"""

from __future__ import annotations

from .state import DRAWN, FRESH, KEPT, LOCK, NEXT, NORMAL, RAW, TEMPERED, WORDS
from .writer import Function, Value

_LANES = 8
_EIGHT = f"<{_LANES} x i32>"


def _tempered(y: Value) -> Value:
    y = y ^ (y >> 11)
    y = y ^ ((y << 7) & 0x9D2C5680)
    y = y ^ ((y << 15) & 0xEFC60000)
    return y ^ (y >> 18)


def raw(f: Function) -> Value:
    return f.state.at("i8", RAW)


def _refill() -> Function:
    """The next block, tempered into `out`; it becomes the old one."""
    f = Function("refill", "ptr state, ptr out", local=True)
    words = raw(f)
    with f.each(0, WORDS, _LANES) as i:
        here, after, far = (words.load(_EIGHT, i + k) for k in (0, 1, 397))
        mixed = (here & 0x80000000) | (after & 0x7FFFFFFF)
        odd = f.const(_EIGHT, 0) - (after & 1)
        made = far ^ (mixed >> 1) ^ (odd & 0x9908B0DF)
        words.store(made, i + WORDS)
        f.out.store(_tempered(made), i)
    copy(f, words, words.at("i32", WORDS), f.const("i64", 4 * WORDS))
    f.state.store(f.const("i64", 0), FRESH // 8)
    return f


def copy(f: Function, target: Value, source: Value, count) -> None:
    f.calls("llvm.memcpy.p0.p0.i64", "void", target, source, f.const("i64", count),
            f.const("i1", False))


def _words(refill: Function) -> Function:
    """The next n words, into `out`."""
    f = Function("words", "ptr state, ptr out, i64 n", local=True)
    left, out = f.var("i64", f.n), f.var("ptr", f.out)
    tempered = f.state.at("i8", TEMPERED)
    with f.repeat() as loop:
        loop.leave_if(left() <= 0)
        with f.when(f.state.load("i64", NEXT // 8) == WORDS):
            whole = left() >= WORDS
            f.run(refill, f.state, whole.pick(out(), tempered))
            with f.when(whole):
                out.set(out().at("i32", WORDS))
                left.set(left() - WORDS)
                f.go(loop.head)
                f.start(f.label("dead"))
            f.state.store(f.const("i64", 0), NEXT // 8)
        at = f.state.load("i64", NEXT // 8)
        have = WORDS - at
        count = (left() < have).pick(left(), have)
        copy(f, out(), tempered.at("i32", at), count * 4)
        f.state.store(at + count, NEXT // 8)
        out.set(out().at("i32", count))
        left.set(left() - count)
    return f


def _word(refill: Function) -> Function:
    """The next word."""
    f = Function("word", "ptr state", "i32", local=True)
    tempered = f.state.at("i8", TEMPERED)
    with f.when(f.state.load("i64", NEXT // 8) == WORDS):
        f.run(refill, f.state, tempered)
        f.state.store(f.const("i64", 0), NEXT // 8)
    at = f.state.load("i64", NEXT // 8)
    f.state.store(at + 1, NEXT // 8)
    f.give(tempered.load("i32", at))
    return f


def _uniform(word: Function) -> Function:
    """One number of [0, 1) with 53 bits, of two words, the high one first."""
    f = Function("unit", "ptr state", "double", local=True)
    high, low = (f.run(word, f.state).to("i64") for _ in range(2))
    whole = ((high << 32) | low) & (2**53 - 1)
    f.give(whole.to("double") * 2.0**-53)
    return f


def _normal(uniform: Function) -> Function:
    """One standard normal number (Box and Muller); they come in pairs, and the second is kept."""
    f = Function("normal", "ptr state", "double", local=True)
    with f.when(f.state.load("i64", KEPT // 8) != 0):
        f.state.store(f.const("i64", 0), KEPT // 8)
        f.give(f.state.load("double", NORMAL // 8))
    turn, tail = f.run(uniform, f.state), f.run(uniform, f.state)
    radius = f.intrinsic("sqrt", f.call_math("log1p", -tail) * -2.0)
    angle = turn * 6.283185307179586
    f.state.store(radius * f.call_math("sin", angle), NORMAL // 8)
    f.state.store(f.const("i64", 1), KEPT // 8)
    f.give(radius * f.call_math("cos", angle))
    return f


class Twister:
    """The functions that draw, for the module of a routine."""

    def __init__(self) -> None:
        self.refill = _refill()
        self.words = _words(self.refill)
        self.word = _word(self.refill)
        self.uniform = _uniform(self.word)
        self.normal = _normal(self.uniform)

    @property
    def functions(self) -> list[Function]:
        return [self.refill, self.words, self.word, self.uniform, self.normal]


def lock(f: Function) -> None:
    """Wait until nobody else draws: whoever does needs no more than machine code to finish."""
    with f.repeat() as loop:
        was = f.new("i64", f"atomicrmw xchg ptr {f.state.at('i8', LOCK).name}, i64 1 acquire")
        loop.leave_if(was == 0)


def unlock(f: Function) -> None:
    f.do(f"store atomic i64 0, ptr {f.state.at('i8', LOCK).name} release, align 8")


def drawn(f: Function, twister: Twister, count: Value) -> Value:
    """So many words, at most a chunk, where they can be read."""
    place = f.state.at("i8", DRAWN)
    f.run(twister.words, f.state, place, count)
    return place


# -- the generator's own functions ---------------------------------------------------------------


def _seed() -> Function:
    f = Function("twister_seed", "ptr state, i64 seed")
    words, last = raw(f), f.var("i32", f.seed.to("i32"))
    words.store(last())
    with f.each(1, WORDS) as i:
        before = last()
        last.set((before ^ (before >> 30)) * 1812433253 + i.to("i32"))
        words.store(last(), i)
    for place, value in ((LOCK, 0), (NEXT, WORDS), (FRESH, 1), (KEPT, 0)):
        f.state.store(f.const("i64", value), place // 8)
    return f


def _temper() -> Function:
    """The words of a block that was put in place, for what is left of it to be drawn."""
    f = Function("twister_temper", "ptr state, i64 next")
    words, tempered = raw(f), f.state.at("i8", TEMPERED)
    with f.each(0, WORDS, _LANES) as i:
        tempered.store(_tempered(words.load(_EIGHT, i)), i)
    f.state.store(f.next, NEXT // 8)
    return f


def _draw(twister: Twister) -> Function:
    f = Function("twister_words", "ptr state, ptr out, i64 n")
    lock(f)
    f.run(twister.words, f.state, f.out, f.n)
    unlock(f)
    return f


def _shuffle(twister: Twister) -> Function:
    """Fisher and Yates: each place swaps with itself or a later one, as a word says which.

    Where a batch of words leads to is asked for before any of it is needed. Numbers of 32 bits lie
    closer together: they fill the second half of the memory, and spread over all of it at the end.
    """
    batch = 256
    f = Function("twister_shuffle", "ptr state, ptr out, i64 n")
    lock(f)
    order = f.out.at("i32", f.n)
    lanes = f.vector("i32", range(_LANES))
    with f.each(0, f.n & -_LANES, _LANES) as i:
        order.store(i.to("i32").spread(_LANES) + lanes, i)
    with f.each(f.n & -_LANES, f.n) as i:
        order.store(i.to("i32"), i)
    last = f.n - 1
    places = f.room("i32", batch)
    with f.each(0, last, batch) as start:
        count = (last - start < batch).pick(last - start, batch)
        words = drawn(f, twister, count)
        with f.each(0, count) as i:
            k = (start + i).to("i32")
            j = k + words.load("i32", i) % (f.n.to("i32") - k)
            places.store(j, i)
            f.calls("llvm.prefetch.p0", "void", order.at("i32", j.to("i64")), f.const("i32", 1),
                    f.const("i32", 3), f.const("i32", 1))
        with f.each(0, count) as i:
            k, j = start + i, places.load("i32", i).to("i64")
            mine, other = order.load("i32", k), order.load("i32", j)
            order.store(other, k)
            order.store(mine, j)
    with f.each(0, f.n) as i:
        f.out.store(order.load("i32", i).to("i64"), i)
    unlock(f)
    return f


def _inside_out(twister: Twister) -> Function:
    """Each number takes the place of itself or an earlier one, which moves to the end."""
    f = Function("twister_inside_out", "ptr state, ptr order, i64 n")
    lock(f)
    with f.each(0, f.n) as i:
        high, low = (f.run(twister.word, f.state).to("i64") for _ in range(2))
        j = ((high << 32) | low) % (i + 1)
        f.order.store(i, i)
        f.order.store(f.order.load("i64", j), i)
        f.order.store(i, j)
    unlock(f)
    return f


def _normals(twister: Twister) -> Function:
    f = Function("twister_normals", "ptr state, ptr out, i64 n")
    lock(f)
    with f.each(0, f.n) as i:
        f.out.store(f.run(twister.normal, f.state), i)
    unlock(f)
    return f


def build() -> list[Function]:
    twister = Twister()
    return [*twister.functions, _seed(), _temper(), _draw(twister), _normals(twister),
            _shuffle(twister), _inside_out(twister)]
