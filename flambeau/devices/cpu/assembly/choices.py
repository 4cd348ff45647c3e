"""Choices between categories: weights checked, the first of each row's race found, and shares of
running sums looked up."""

from __future__ import annotations

import math

from .writer import Function

TYPES = {"float32": "float", "float64": "double"}


def fit(dtype: str) -> Function:
    """0 if weights can be chosen by; 1 if one is negative, infinite or NaN; 2 if a row has none."""
    kind = TYPES[dtype]
    f = Function(f"weights_{dtype}", "ptr x, i64 width, i64 total", "i64")
    empty = f.var("i64", 0)
    with f.each(0, f.total, f.width) as start:
        total, bad = f.var("double", 0.0), f.var("i1", False)
        with f.each(start, start + f.width) as i:
            weight = f.x.load(kind, i)
            bad.set(bad() | (((weight >= 0.0) & (weight < math.inf)) ^ 1))
            total.add(weight.to("double"))
        with f.when(bad()):
            f.give(f.const("i64", 1))
        with f.when(total() <= 0.0):
            empty.set(2)
    f.give(empty())
    return f


def race(dtype: str) -> Function:
    """Of each row the category with the largest weight / time, the first of equals."""
    kind = TYPES[dtype]
    f = Function(f"race_{dtype}", "ptr x, ptr times, ptr out, i64 width, i64 total")
    row = f.var("i64", 0)
    with f.each(0, f.total, f.width) as start:
        best, at = f.var(kind, -1.0), f.var("i64", 0)
        with f.each(0, f.width) as i:
            speed = f.x.load(kind, start + i) / f.times.load(kind, start + i)
            faster = speed > best()
            best.set(faster.pick(speed, best()))
            at.set(faster.pick(i, at()))
        f.out.store(at(), row())
        row.add(1)
    return f


def lookup(dtype: str) -> Function:
    """Of each row the categories in whose share of the running sum numbers of [0, 1) lie."""
    kind = TYPES[dtype]
    f = Function(f"lookup_{dtype}",
                 "ptr x, ptr units, ptr running, ptr out, i64 width, i64 each_, i64 total")
    number, last = f.var("i64", 0), f.width - 1
    with f.each(0, f.total, f.width) as first:
        total = f.var(kind, 0.0)
        with f.each(0, f.width) as i:
            total.add(f.x.load(kind, first + i))
            f.running.store(total().to("double"), i)
        with f.each(0, last) as i:
            share = f.running.load("double", i).to(kind) / total()
            f.running.store(share.to("double"), i)
        f.running.store(f.const("double", 1.0), last)
        with f.each(0, f.each_):
            unit, low, count = f.units.load("double", number()), f.var("i64", 0), f.var("i64", last)
            with f.repeat() as loop:  # the first that is not below
                loop.leave_if(count() <= 0)
                half = count() >> 1
                below = f.running.load("double", low() + half) < unit
                low.set(below.pick(low() + half + 1, low(), foretold=False))
                count.set(below.pick(count() - half - 1, half, foretold=False))
            f.out.store(low(), number())
            number.add(1)
    return f


def build(dtype: str) -> list[Function]:
    return [fit(dtype), race(dtype), lookup(dtype)]
