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
    width = given["width"]
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

    def later(there: Value, value: Value, after_equals: bool) -> Value:
        """Whether a value belongs after one of the sequence; NaN belongs after all."""
        return (there > value if after_equals else there >= value) ^ 1

    def search(first: Value, count: int, after_equals: bool) -> None:
        at = [first + k for k in range(count)]
        values = [element(given["x"], i) for i in at]
        rows = [given["sequence"].at(memory, i / given["each"] * width) for i in at]
        starts, lefts = ([f.var("i64", v) for _ in at] for v in (0, width))

        def halve(last: bool) -> None:
            """One step; only before the last one nothing may be left."""
            for row, start, left, value in zip(rows, starts, lefts, values, strict=True):
                half = left() >> 1
                middle = start() + half
                there = element(row, f.intrinsic("smin", middle, width - 1) if last else middle)
                beyond = later(there, value, after_equals)
                beyond = beyond & (left() > 0) if last else beyond
                start.set(beyond.pick(middle + 1, start(), foretold=False))
                left.set(beyond.pick(left() - half - 1, half, foretold=False))

        with f.each(1, steps):
            halve(False)
        with f.when(steps > 0):
            halve(True)
        for i, start in zip(at, starts, strict=True):
            with f.when(given["short"] != 0) as short:
                given["out"].store(start().to("i32"), i)
            with short.otherwise():
                given["out"].store(start(), i)

    whole = f.begin + ((f.end - f.begin) & -ABREAST)

    def search_all(after_equals: bool) -> None:
        with f.each(f.begin, whole, ABREAST) as i:
            search(i, ABREAST, after_equals)
        with f.each(whole, f.end) as i:
            search(i, 1, after_equals)

    with f.when(given["right"] != 0) as right:
        search_all(True)
    with right.otherwise():
        search_all(False)
    entry = Function(f"places_{dtype}", ", ".join(
        f"{'ptr' if k < 3 else 'i64'} {word}" for k, word in enumerate(CONTEXT)))
    context = entry.room("i64", len(CONTEXT))
    for k, value in enumerate(entry.parameters_by_name().values()):
        context.store(value, k)
    parallel(entry, body, context, entry.total, 4096)
    return [body, entry]


def build(dtype: str) -> list[Function]:
    return places(dtype)
