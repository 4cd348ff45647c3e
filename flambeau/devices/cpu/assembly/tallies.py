"""Counts: how often each small integer occurs, and histograms of even bins."""

from __future__ import annotations

from .fills import TYPES, is_signed
from .writer import Function, Value

#: tables kept apart, so that equal neighbours do not wait for each other; up to so many bins
TABLES, FEW = 4, 2048


def largest(dtype: str) -> Function:
    """The largest of n > 0 integers; -1 if one is negative."""
    memory, _ = TYPES[dtype]
    signed = is_signed(dtype)
    f = Function(f"largest_{dtype}", "ptr x, i64 n", "i64")
    lanes = 8
    whole, kind = f.n & -lanes, f"<{lanes} x {memory}>"
    names = ("smin", "smax") if signed else ("umax",)
    every = [f.var(kind, f.x.load(memory).spread(lanes)) for _ in names]
    with f.each(0, whole, lanes) as i:
        value = f.x.load(kind, i)
        for best, name in zip(every, names, strict=True):
            best.set(f.intrinsic(name, best(), value))
    found = []
    for best, name in zip(every, names, strict=True):
        one = f.var(memory, f.calls(f"llvm.vector.reduce.{name}.v{lanes}{memory}", memory, best()))
        with f.each(whole, f.n) as i:
            one.set(f.intrinsic(name, one(), f.x.load(memory, i)))
        found.append(one().to("i64", signed))
    f.give((found[0] < 0).pick(-1, found[-1]))
    return f


def bincount(dtype: str) -> Function:
    """How often each integer from 0 to size - 1 occurs."""
    memory, _ = TYPES[dtype]
    f = Function(f"bincount_{dtype}", "ptr x, ptr out, i64 size, i64 n")
    tables = f.room("i32", TABLES * FEW)

    def place(i: Value) -> Value:
        return f.x.load(memory, i).to("i64")

    with f.each(0, f.size) as i:
        f.out.store(f.const("i64", 0), i)
    with f.when((f.size <= FEW) & (f.n >= 256) & (f.n < 2**31)) as few:
        with f.each(0, TABLES * FEW, 8) as i:
            tables.store(f.const("<8 x i32>", 0), i)
        whole = f.n & -TABLES
        with f.each(0, whole, TABLES) as i:
            for k in range(TABLES):
                at = place(i + k) + k * FEW
                tables.store(tables.load("i32", at) + 1, at)
        with f.each(whole, f.n) as i:
            at = place(i)
            tables.store(tables.load("i32", at) + 1, at)
        with f.each(0, f.size) as i:
            total = f.out.load("i64", i)
            for k in range(TABLES):
                total = total + tables.load("i32", i + k * FEW).to("i64")
            f.out.store(total, i)
    with few.otherwise(), f.each(0, f.n) as i:
        at = place(i)
        f.out.store(f.out.load("i64", at) + 1, at)
    return f


def histogram(dtype: str) -> Function:
    """How many elements lie in each of `bins` equal intervals from low to high; out has words."""
    memory, compute = TYPES[dtype]
    f = Function(f"histogram_{dtype}", "ptr x, ptr out, ptr words, i64 bins, double low, "
                                       "double high, double scale, i64 n")
    low, high, scale = (v.to(compute) for v in (f.low, f.high, f.scale))
    with f.each(0, f.bins) as i:
        f.words.store(f.const("i64", 0), i)
    with f.each(0, f.n) as i:
        x = f.x.load(memory, i).to(compute)
        with f.when((x >= low) & (x <= high)):
            at = f.intrinsic("smin", ((x - low) * scale).to("i64"), f.bins - 1)
            f.words.store(f.words.load("i64", at) + 1, at)
    with f.each(0, f.bins) as i:
        f.out.store(f.words.load("i64", i).to(compute).to(memory), i)
    return f


def build(dtype: str) -> list[Function]:
    return [histogram(dtype)] if dtype in ("float32", "float64") else [
        largest(dtype), bincount(dtype)]
