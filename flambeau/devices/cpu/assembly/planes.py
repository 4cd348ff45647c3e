"""Elements of planes by place: added up there, or taken from there. Places outside are passed over.

The words are: planes, elements of a large plane, elements of a small one, planes of a range.
"""

from __future__ import annotations

from .tile_sizes import width_of
from .writer import Function, Value, parallel, wide


def clear(f: Function, element: str, target: Value, begin: Value, end: Value) -> None:
    """Zeros from one element to another."""
    width = width_of(element)
    full = begin + ((end - begin) & -width)
    with f.each(begin, full, width) as i:
        target.at(element, i).store(Value(f, wide(element, width), "zeroinitializer"))
    with f.each(full, end) as i:
        target.store(f.const(element, 0), i)


def _scatter(element: str) -> Function:
    """Small planes `begin` to `end` added into large ones of zeros; (out, source, places, words)"""
    f = Function("scatter", "ptr context, i64 begin, i64 end", local=True)
    out, source, places, words = (f.context.load("ptr", i) for i in range(4))
    volume, count = words.load("i64", 1), words.load("i64", 2)
    with f.each(f.begin, f.end) as plane:
        target = out.at(element, plane * volume)
        clear(f, element, target, f.const("i64", 0), volume)
        with f.each(0, count) as i:
            place = places.load("i64", plane * count + i)
            with f.when(place.below(volume)):
                at = target.at(element, place)
                at.store(at.load(element) + source.load(element, plane * count + i))
    return f


def _gather(element: str) -> Function:
    """Small planes `begin` to `end` taken from large ones; (out, source, places, words)"""
    f = Function("gather", "ptr context, i64 begin, i64 end", local=True)
    out, source, places, words = (f.context.load("ptr", i) for i in range(4))
    volume, count = words.load("i64", 1), words.load("i64", 2)
    with f.each(f.begin, f.end) as plane, f.each(0, count) as i:
        place = places.load("i64", plane * count + i)
        value = f.var(element, 0)
        with f.when(place.below(volume)):
            value.set(source.load(element, plane * volume + place))
        out.store(value(), plane * count + i)
    return f


def over_planes(name: str, body: Function, planes: int, grain: int) -> Function:
    """name(out, source, kept, words, work): a body over all planes, two words of which say how."""
    f = Function(name, "ptr out, ptr source, ptr kept, ptr words, i64 work")
    context = f.room("ptr", 4)
    for i, value in enumerate((f.out, f.source, f.kept, f.words)):
        context.store(value, i)
    parallel(f, body, context, f.words.load("i64", planes), f.words.load("i64", grain))
    return f


def build(element: str) -> list[Function]:
    bodies = {"planes_scatter": _scatter(element), "planes_gather": _gather(element)}
    return [*bodies.values(), *(over_planes(name, body, 0, 3) for name, body in bodies.items())]
