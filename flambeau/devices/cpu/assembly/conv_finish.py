"""What is done to pieces of a result once they are computed, while they are in the cache.

    void finish(ptr at, i64 rows, i64 columns, i64 bytes from row to row, ptr given)

is called, if there is such a function, on channels of a result that lies in one piece: as many as
were computed together, of each the positions that were.
"""

from __future__ import annotations

from .conv_words import PHASE
from .lanes import Lanes, smaller
from .writer import Function, Value

#: where a context holds the function and what it is given: see conv_result
FINISH, GIVEN = 7, 8

_ARGUMENTS = "ptr context, i64 group, i64 row, i64 rows, i64 first, i64 width"


class _Walk:
    """Goes through columns from `first` on, which are positions, or squares, of all samples."""

    def __init__(self, name: str, lanes: Lanes):
        self.f = f = Function(name, _ARGUMENTS, local=True)
        self.lanes = lanes
        out, words = f.context.load("ptr"), f.context.load("ptr", 3)
        (od, oh, self.ow, self.out_n, out_g, self.out_m, self.out_h) = PHASE.read(
            f, words, "od oh ow out_n out_g out_m out_h")
        self.plane = od * oh * self.ow
        self.start = out.at(lanes.element, f.group * out_g + f.row * self.out_m)

    def write(self, some) -> Function:
        """some(results of a sample, its next column, how many are left in it) -> those done."""
        f = self.f
        at, end = f.var("i64", f.first), f.first + f.width
        with f.repeat() as loop:
            loop.leave_if(at() >= end)
            sample, inside = at() / self.plane, at() % self.plane
            left = smaller(self.plane - inside, end - at())
            at.add(some(self.start.at(self.lanes.element, sample * self.out_n), inside, left))
        return f

    def call(self, at: Value, columns: Value) -> None:
        call_finish(self.f, at, self.f.rows, columns, self.out_m * self.lanes.bytes)


def call_finish(f: Function, at: Value, rows: Value, columns: Value, pitch: Value) -> None:
    """Call the function, which there is, on a piece."""
    finish, given = f.context.load("ptr", FINISH), f.context.load("ptr", GIVEN)
    passed = ", ".join(f"{v.type} {v.name}" for v in (at, rows, columns, pitch, given))
    f.do(f"call void {finish.name}({passed})")


def is_wanted(f: Function) -> Value:
    return f.context.load("ptr", FINISH) != f.const("ptr", 0)


def finish_columns(lanes: Lanes) -> Function:
    """Finish the results of some columns, which are positions one after the other."""
    walk = _Walk("finish_columns", lanes)

    def some(results: Value, inside: Value, left: Value) -> Value:
        walk.call(results.at(lanes.element, inside), left)
        return left

    return walk.write(some)


def finish_squares(lanes: Lanes) -> Function:
    """Finish the results of some squares: whole pairs of lines together, parts line by line."""
    walk = _Walk("finish_squares", lanes)
    f, ow, out_h = walk.f, walk.ow, walk.out_h

    def some(results: Value, inside: Value, left: Value) -> Value:
        line, x = inside / ow, inside % ow
        place = results.at(lanes.element, line * out_h + x * 2)
        done = f.var("i64", smaller(ow - x, left))
        with f.when((x == 0) & (left >= ow)) as whole:
            lines = left / ow
            walk.call(place, lines * out_h)
            done.set(lines * ow)
        with whole.otherwise():
            for y in (0, 1):
                walk.call(place.at(lanes.element, out_h / 2 * y), done() * 2)
        return done()

    return walk.write(some)
