"""Resampling written out: each line of the result is lines of the data weighed together, and then
elements of that line weighed together, by tables.

A weight of zero stands for no element: what is not finite there does not spread.
"""

from __future__ import annotations

from .conv_result import borrow
from .lanes import Lanes, lanes_of, smaller, times_plus
from .planes import over_planes
from .resample_words import RESAMPLE, SAME, TWICE
from .writer import Function, Value


def _table(f: Function, words: dict[str, Value], name: str) -> Value:
    return f.new("ptr", f"inttoptr i64 {words[name].name} to ptr")


def _each_vector(f: Function, lanes: Lanes, count: Value, visit) -> None:
    """visit(place) for vectors that cover a line; the last overlaps the one before."""
    x, last = f.var("i64", 0), count - lanes.width
    with f.repeat() as loop:
        loop.leave_if(x() >= count)
        visit(smaller(x(), last))
        x.add(lanes.width)


def _weighed(f: Function, lanes: Lanes, to: Value, line: Value, weight: Value, count: Value,
             more: Value) -> None:
    """to (+)= weight * line"""
    element = lanes.element
    factor = weight.spread(lanes.width)

    def vector(at: Value) -> None:
        place = to.at(element, at)
        value = lanes.load(line, at)
        with f.when(more) as added:
            place.store(times_plus(f, factor, value, lanes.load(place)))
        with added.otherwise():
            place.store(factor * value)

    def single(at: Value) -> None:
        value = f.var(element, weight * line.load(element, at))
        with f.when(more):
            value.add(to.load(element, at))
        to.store(value(), at)

    whole = count & -lanes.width
    with f.each(0, whole, lanes.width) as at:
        vector(at)
    with f.each(whole, count) as at:
        single(at)


def _across(f: Function, lanes: Lanes, words: dict[str, Value], line: Value, to: Value,
            spare: Value) -> None:
    """A line of the result by tables."""
    element, width = lanes.element, lanes.width
    indices, weights = (_table(f, words, name) for name in ("x_index", "x_weight"))
    ow, padded = words["ow"], words["padded"]
    with f.each(0, ow, width) as x:
        total = f.var(lanes.vector, 0)
        with f.each(0, words["x_taps"]) as t:
            at = indices.at("i64", t * padded + x)
            seen = Value(f, lanes.vector, "poison")
            for i in range(width):
                one = line.load(element, at.load("i64", i))
                seen = f.new(lanes.vector, f"insertelement {lanes.vector} {seen.name}, {element} "
                                           f"{one.name}, i64 {i}")
            factor = lanes.load(weights, t * padded + x)
            total.set((factor == 0).pick(total(), times_plus(f, factor, seen, total())))
        with f.when(x + width <= ow) as full:
            to.at(element, x).store(total())
        with full.otherwise():
            spare.store(total())
            with f.each(x, ow) as left:
                to.store(spare.load(element, left - x), left)


def _twice(f: Function, lanes: Lanes, line: Value, to: Value, count: Value) -> None:
    """Each element two times."""
    element, half = lanes.element, lanes.width // 2

    def vector(at: Value) -> None:
        value = lanes.load(line, at)
        for start in (0, half):
            order = [i for k in range(start, start + half) for i in (k, k)]
            to.at(element, at * 2 + 2 * start).store(value.shuffle(order))

    with f.when(count >= lanes.width) as long:
        _each_vector(f, lanes, count, vector)
    with long.otherwise(), f.each(0, count) as at:
        one = line.load(element, at)
        to.store(one, at * 2)
        to.store(one, at * 2 + 1)


def _body(lanes: Lanes) -> Function:
    """Planes `begin` to `end`; the context is (out, source, nothing, words)."""
    f = Function("resampled", "ptr context, i64 begin, i64 end", local=True)
    out, source, _, at = (f.context.load("ptr", i) for i in range(4))
    w = {name: at.load("i64", i) for i, name in enumerate(RESAMPLE.names)}
    element = lanes.element
    memory, near = borrow(f, (w["w"] + lanes.width) * lanes.bytes)
    spare = f.room(element, lanes.width)
    z_index, z_weight, y_index, y_weight = (
        _table(f, w, name) for name in ("z_index", "z_weight", "y_index", "y_weight"))
    with f.each(f.begin, f.end) as plane, f.each(0, w["od"]) as oz, f.each(0, w["oh"]) as oy:
        data = source.at(element, plane * (w["d"] * w["h"] * w["w"]))
        to = out.at(element, ((plane * w["od"] + oz) * w["oh"] + oy) * w["ow"])
        line = f.var("ptr", near)
        with f.when(w["plain"] != 0) as plain:
            row = z_index.load("i64", oz) * w["h"] + y_index.load("i64", oy)
            line.set(data.at(element, row * w["w"]))
        with plain.otherwise():
            line.set((w["across"] == SAME).pick(to, near))
            more = f.var("i1", 0)
            with f.each(0, w["z_taps"]) as tz, f.each(0, w["y_taps"]) as ty:
                z, y = oz * w["z_taps"] + tz, oy * w["y_taps"] + ty
                weight = z_weight.load(element, z) * y_weight.load(element, y)
                with f.when((weight != 0) | ((tz + ty + 1 == w["z_taps"] + w["y_taps"] - 1)
                                             & ~more())):
                    row = z_index.load("i64", z) * w["h"] + y_index.load("i64", y)
                    _weighed(f, lanes, line(), data.at(element, row * w["w"]), weight, w["w"],
                             more())
                    more.set(1)
        with f.when(w["across"] == TWICE) as double:
            _twice(f, lanes, line(), to, w["w"])
        with double.otherwise():
            with f.when(w["across"] != SAME) as tables:
                _across(f, lanes, w, line(), to, spare)
            with tables.otherwise(), f.when(w["plain"] != 0):
                _weighed(f, lanes, to, line(), f.const(element, 1), w["w"], f.const("i1", 0))
    f.calls("free", "void", memory)
    return f


def build(element: str) -> list[Function]:
    body = _body(lanes_of(element))
    place = RESAMPLE.place
    return [body, over_planes("resample", body, place["planes"], place["grain"])]
