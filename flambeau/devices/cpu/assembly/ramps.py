"""Numbers in even steps: integers, floats counted on from the first of each vector, and those
between two ends, of which the second half is counted from the end. Each is rounded as torch does.
The places of a triangle of a matrix are such numbers, row by row.
"""

from __future__ import annotations

from .lanes import larger, smaller
from .writer import Function, Value

LANES = 8
TYPES = {"float32": "float", "float64": "double"}
#: what torch's kernels hold in one register
VECTOR_BYTES = 32


def whole() -> Function:
    """start, start + step, ... as int64."""
    f = Function("whole_ramp", "ptr to, i64 begin, i64 step, i64 count")
    every = f.count & -LANES
    steps = f.vector("i64", range(LANES)) * f.step.spread(LANES)
    with f.each(0, every, LANES) as i:
        f.to.store((f.begin + i * f.step).spread(LANES) + steps, i)
    with f.each(every, f.count) as i:
        f.to.store(f.begin + i * f.step, i)
    return f


def _fused(f: Function, a: Value, n: Value, b: Value) -> Value:
    """a * n + b, rounded once."""
    return f.intrinsic("fma", a, n.to("double"), b)


def counted(dtype: str) -> Function:
    """Elements `first` to `end` of start, start + step, ...: vectors up to `even`, then one by one.

    The first number of a vector is rounded, the others are counted on from there.
    """
    kind = TYPES[dtype]
    lanes = VECTOR_BYTES // (4 if kind == "float" else 8)
    f = Function(f"counted_ramp_{dtype}",
                 "ptr to, double begin, double step, i64 first, i64 even, i64 end")
    numbers, steps = f.vector("i64", range(lanes)), f.step.spread(lanes)

    def at(i: Value) -> Value:
        return _fused(f, f.step, i, f.begin).to(kind)

    with f.each(f.first, f.even, lanes) as i:
        base = at(i).to("double").spread(lanes)
        f.to.store(_fused(f, steps, numbers, base).to(kind), i)
    with f.each(f.even, f.end) as i:
        f.to.store(at(i), i)
    return f


def between(dtype: str) -> Function:
    """Two or more numbers from start to end, both included."""
    kind = TYPES[dtype]
    f = Function(f"even_ramp_{dtype}", "ptr to, double begin, double end_, i64 count")
    first, last = f.begin.to(kind), f.end_.to(kind)
    most = f.count - 1
    step = ((last - first) / most.to(kind)).to("double")
    low, high, half = first.to("double"), last.to("double"), f.count >> 1
    numbers = f.vector("i64", range(LANES))

    def from_start(i: Value, lanes: int) -> Value:
        at = i.spread(lanes) + numbers if lanes > 1 else i
        return _fused(f, step.spread(lanes), at, low.spread(lanes)).to(kind)

    def from_end(i: Value, lanes: int) -> Value:
        at = (most - i).spread(lanes) - numbers if lanes > 1 else most - i
        return _fused(f, (-step).spread(lanes), at, high.spread(lanes)).to(kind)

    for begin, end, value in ((f.const("i64", 0), half, from_start), (half, f.count, from_end)):
        every = begin + ((end - begin) & -LANES)
        with f.each(begin, every, LANES) as i:
            f.to.store(value(i, LANES), i)
        with f.each(every, end) as i:
            f.to.store(value(i, 1), i)
    return f


def triangle() -> Function:
    """The rows of all places of a triangle, then their columns; `count` is how many there are."""
    f = Function("triangle_places", "ptr to, i64 rows, i64 columns, i64 offset, i64 lower, "
                 "i64 count")
    at, across = f.var("i64", 0), f.to.at("i64", f.count)
    below = f.lower != 0
    with f.each(0, f.rows) as i:
        cut = i + f.offset + below.to("i64")
        cut = larger(smaller(cut, f.columns), 0)
        begin, end = below.pick(0, cut), below.pick(cut, f.columns)
        here = at()
        with f.each(begin, end) as j:
            place = here + j - begin
            f.to.store(i, place)
            across.store(j, place)
        at.set(here + end - begin)
    return f


def build(name: str, dtype: str) -> list[Function]:
    if name in ("whole", "triangle"):
        return [whole() if name == "whole" else triangle()]
    return [{"counted": counted, "even": between}[name](dtype)]
