"""Copies between memory that runs along one dimension and memory that runs along another.

Squares of elements are read by rows and turned in registers. Squares at an edge overlap those
before, so nothing is copied one by one. Columns are cut into blocks, so that the lines of memory
that are written stay in the caches until they are full.
"""

from __future__ import annotations

from .lanes import Lanes, smaller
from .transpose_words import BLOCK, TURN
from .writer import Function, Value, parallel, wide


def turned_square(vectors: list[Value]) -> list[Value]:
    """Vectors as the columns of a square become its rows."""
    width, half = len(vectors), len(vectors) // 2
    for _ in range(width.bit_length() - 1):
        vectors = [
            vectors[i].shuffle([k for j in range(start, start + half) for k in (j, j + width)],
                               vectors[i + half])
            for i in range(half) for start in (0, half)]
    return vectors


def abreast(f: Function, lanes: Lanes, lines: list[Value], count: int) -> list[Value]:
    """The elements that lines begin with, so many of each: a vector of all lines for each."""
    width, found = lanes.width, list[Value]()
    for start in range(0, count, width):
        many = min(width, count - start)
        places = [line.at(lanes.element, start) for line in lines]
        if many == 1 or len(lines) == 1 or len(lines) > width:
            found += [_gathered(f, lanes, places, i) for i in range(many)]
            continue
        some = lanes.count(f) < f.const("i64", many).spread(width)
        vectors = [lanes.load(p) if many == width else lanes.masked(f, p, some) for p in places]
        vectors += vectors[-1:] * (width - len(lines))
        found += [v.shuffle(range(len(lines))) for v in turned_square(vectors)[:many]]
    return found


def put_abreast(f: Function, lanes: Lanes, vectors: list[Value], places: list[Value],
                fresh: Value) -> None:
    """Vectors as the columns of lines, which begin at so many places as a vector has lanes: put
    there if they are fresh, else added to what is there."""
    width = lanes.width
    for start in range(0, len(vectors), width):
        some = vectors[start:start + width]
        targets = [place.at(lanes.element, start) for place in places]
        if len(some) == 1:
            lines = [some[0].lane(j) for j in range(width)]
        else:
            turned = turned_square([*some, *some[-1:] * (width - len(some))])
            lines = [line.shuffle(range(len(some))) for line in turned]
        with f.when(fresh) as put:
            for line, target in zip(lines, targets, strict=True):
                target.store(line)
        with put.otherwise():
            for line, target in zip(lines, targets, strict=True):
                target.store(line + target.load(line.type))


def _gathered(f: Function, lanes: Lanes, lines: list[Value], at: int) -> Value:
    """One element of each line."""
    if len(lines) == 1:
        return lines[0].load(lanes.element, at)
    kind = wide(lanes.element, len(lines))
    vector = Value(f, kind, "poison")
    for i, line in enumerate(lines):
        one = line.load(lanes.element, at)
        vector = f.new(kind, f"insertelement {kind} {vector.name}, {lanes.element} {one.name}, "
                             f"i64 {i}")
    return vector


def _blocks(element: str, side: int) -> Function:
    """Blocks of columns `begin` to `end`, of all outer loops; (out, source, words)."""
    f = Function("turn_blocks", "ptr context, i64 begin, i64 end", local=True)
    out, source, words = (f.context.load("ptr", i) for i in range(3))
    (second, columns, rows, out_1, out_2, source_1, source_2, across, down) = TURN.read(
        f, words, "second columns rows out_first out_second source_first source_second out source")
    kind = wide(element, side)
    blocks = (columns + BLOCK - 1) / BLOCK
    last_row, last_column = rows - side, columns - side
    with f.each(f.begin, f.end) as task:
        outer, first = task / blocks, task % blocks * BLOCK
        i, j = outer / second, outer % second
        to = out.at("i8", i * out_1 + j * out_2)
        start = source.at("i8", i * source_1 + j * source_2)
        with f.each(0, rows, 2 * side) as y, f.each(
                first, smaller(first + BLOCK, columns), 2 * side) as x:
            for right in (0, side):
                column = smaller(x + right, last_column)
                for below in (0, side):
                    row = smaller(y + below, last_row)
                    square = start.at("i8", row * down).at(element, column)
                    place = to.at("i8", column * across).at(element, row)
                    lines = [square.at("i8", down * k).load(kind) for k in range(side)]
                    for k, line in enumerate(turned_square(lines)):
                        place.at("i8", across * k).store(line)
    return f


def build(element: str, side: int) -> list[Function]:
    blocks = _blocks(element, side)
    f = Function("transposed_copy", "ptr out, ptr source, i64 words")
    words = f.new("ptr", f"inttoptr i64 {f.words.name} to ptr")
    context = f.room("ptr", 3)
    for i, value in enumerate((f.out, f.source, words)):
        context.store(value, i)
    first, second, columns, grain = TURN.read(f, words, "first second columns grain")
    tasks = first * second * ((columns + BLOCK - 1) / BLOCK)
    parallel(f, blocks, context, tasks, grain)
    return [blocks, f]
