"""What a mask holds of: how many, which elements, which places."""

from __future__ import annotations

from .twister import copy
from .writer import Function, Value, wide

LANES = 32


def _holds(f: Function, i: Value) -> Value:
    return (f.mask.load("i8", i) != 0).to("i64")


def count() -> Function:
    f = Function("mask_count", "ptr mask, i64 n", "i64")
    total, whole = f.var("i64", 0), f.n & -LANES
    with f.each(0, whole, LANES) as i:
        holds = f.mask.load(wide("i8", LANES), i) != 0
        total.add(f.calls("llvm.ctpop.i32", "i32", holds.mask()).to("i64"))
    with f.each(whole, f.n) as i:
        total.add(_holds(f, i))
    f.give(total())
    return f


def take(size: int) -> Function:
    """Elements of so many bytes where the mask holds, of which there are `count`.

    Every element is written where the next that is wanted belongs, so that nothing is guessed.
    """
    kind = f"i{8 * size}"
    f = Function(f"mask_take_{size}", "ptr mask, ptr x, ptr out, i64 count, i64 n")
    i, j = f.var("i64", 0), f.var("i64", 0)
    with f.repeat() as loop:
        loop.leave_if(j() >= f.count)
        f.out.store(f.x.load(kind, i()), j())
        j.add(_holds(f, i()))
        i.add(1)
    return f


def put(size: int) -> Function:
    """x with the elements of so many bytes where the mask holds replaced by a source's, in order.

    Where an element comes from is chosen, not what it is: a source may end with the last of them.
    """
    kind = f"i{8 * size}"
    f = Function(f"mask_put_{size}", "ptr mask, ptr x, ptr source, ptr out, i64 n")
    j = f.var("i64", 0)
    with f.each(0, f.n) as i:
        holds = _holds(f, i)
        place = (holds != 0).pick(f.source.at(kind, j()), f.x.at(kind, i), foretold=False)
        f.out.store(place.load(kind), i)
        j.add(holds)
    return f


def take_rows() -> Function:
    """The same of rows of `width` bytes."""
    f = Function("mask_take_rows", "ptr mask, ptr x, ptr out, i64 width, i64 n")
    j = f.var("i64", 0)
    with f.each(0, f.n) as i, f.when(_holds(f, i) != 0):
        copy(f, f.out.at("i8", j() * f.width), f.x.at("i8", i * f.width), f.width)
        j.add(1)
    return f


def places() -> Function:
    """Coordinates of where the mask holds, `count` rows of `rank` numbers."""
    f = Function("mask_places", "ptr mask, ptr out, ptr shape, i64 rank, i64 count, i64 n")
    with f.when(f.rank == 1):
        at, found = f.var("i64", 0), f.var("i64", 0)
        with f.repeat() as loop:
            loop.leave_if(found() >= f.count)
            f.out.store(at(), found())
            found.add(_holds(f, at()))
            at.add(1)
        f.give()
    width, j = f.shape.load("i64", f.rank - 1), f.var("i64", 0)
    with f.when(f.rank == 2):
        with f.each(0, f.n / width) as r:
            c = f.var("i64", 0)
            with f.repeat() as loop:
                loop.leave_if((c() >= width) | (j() >= f.count))
                f.out.store(r, j() * 2)
                f.out.store(c(), j() * 2 + 1)
                j.add(_holds(f, r * width + c()))
                c.add(1)
        f.give()
    with f.each(0, f.n) as i, f.when(_holds(f, i) != 0):
        rest, d = f.var("i64", i), f.var("i64", f.rank - 1)
        with f.repeat() as loop:
            loop.leave_if(d() < 0)
            size = f.shape.load("i64", d())
            f.out.store(rest() % size, j() * f.rank + d())
            rest.set(rest() / size)
            d.add(-1)
        j.add(1)
    return f


def build() -> list[Function]:
    return [count(), *(take(size) for size in (1, 2, 4, 8, 16)), take_rows(), places(),
            *(put(size) for size in (1, 2, 4, 8, 16))]
