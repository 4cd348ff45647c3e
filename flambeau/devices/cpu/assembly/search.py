"""Where values belong in sorted rows: a search of as many steps for every value, four at a time.

Each step halves what is left as torch's does, so that rows that are not sorted give its answers.
"""

from __future__ import annotations

from .fills import TYPES, is_signed
from .writer import Function, Value, parallel

ABREAST = 4
CONTEXT = ("sequence", "x", "out", "width", "each", "right", "short", "total")


def places(dtype: str) -> list[Function]:
    """For each of total values the place in its row of `width`; `each` values share a row."""
    memory, compute = TYPES[dtype]
    body = Function("search_part", "ptr context, i64 begin, i64 end", local=True)
    f = body
    given = {word: f.context.load("ptr" if k < 3 else "i64", k) for k, word in enumerate(CONTEXT)}
    width, right = given["width"], given["right"] != 0
    steps = 64 - f.calls("llvm.ctlz.i64", "i64", width, f.const("i1", False))

    def element(place: Value, i) -> Value:
        value = place.load(memory, i)
        if dtype == "bfloat16":
            return (value.to("i32") << 16).bits("float")
        if memory == "half":
            return value.to("float")
        if compute == "i64":
            return value.to("i64", signed=is_signed(dtype))
        return value

    def later(there: Value, value: Value) -> Value:
        """Whether a value belongs after one of the sequence; NaN belongs after all."""
        weakly, strictly = (there >= value) ^ 1, (there > value) ^ 1
        return weakly | (strictly & right)

    def search(first: Value, count: int) -> None:
        at = [first + k for k in range(count)]
        values = [element(given["x"], i) for i in at]
        rows = [given["sequence"].at(memory, i / given["each"] * width) for i in at]
        starts, lefts = ([f.var("i64", v) for _ in at] for v in (0, width))
        with f.each(0, steps):
            for row, start, left, value in zip(rows, starts, lefts, values, strict=True):
                half = left() >> 1
                middle = start() + half
                there = element(row, f.intrinsic("smin", middle, width - 1))
                beyond = later(there, value) & (left() > 0)
                start.set(beyond.pick(middle + 1, start(), foretold=False))
                left.set(beyond.pick(left() - half - 1, half, foretold=False))
        for i, start in zip(at, starts, strict=True):
            with f.when(given["short"] != 0) as short:
                given["out"].store(start().to("i32"), i)
            with short.otherwise():
                given["out"].store(start(), i)

    whole = f.begin + ((f.end - f.begin) & -ABREAST)
    with f.each(f.begin, whole, ABREAST) as i:
        search(i, ABREAST)
    with f.each(whole, f.end) as i:
        search(i, 1)
    entry = Function(f"places_{dtype}", ", ".join(
        f"{'ptr' if k < 3 else 'i64'} {word}" for k, word in enumerate(CONTEXT)))
    context = entry.room("i64", len(CONTEXT))
    for k, value in enumerate(entry.parameters_by_name().values()):
        context.store(value, k)
    parallel(entry, body, context, entry.total, 4096)
    return [body, entry]


def build(dtype: str) -> list[Function]:
    return places(dtype)
