"""Rows that are fetched and put into another order are fetched in that order.

A layer that walks along sequences, which are given one below the other, turns what an embedding
fetched for them; it is less work to turn the numbers of rows.

    fetch(x, table, ids); turn(y, x)          turn(turned, ids); fetch(y, table, turned)
    ...                                       ...
    turn(dx, dy); add(dtable, dx at ids)      add(dtable, dy at turned)
"""

from __future__ import annotations

import functools
import sys

from ..core import dtype as dt
from ..core import expr as ex
from ..core.kernel import Kernel, Operand, Store
from ..devices.cpu.compile import compile_kernel
from ..engine.launch import Launch, Place
from .passing import Uses
from .rows import Rows, Turned, added, fetched, turned


def in_order(launches: list, buffers: list[int], results: set[int]) -> tuple[list, list]:
    """Launches that fetch rows as they are needed, and the buffers they need."""
    found = [k for k, step in enumerate(launches) if fetched(step) or added(step)]
    if not found:
        return launches, buffers
    work = _Work(Uses(launches, results), [*buffers])
    for k in found:
        work.fetch(k) if fetched(launches[k]) else work.add(k)
    return [new for k, step in enumerate(launches) for new in work.instead.get(k, [step])], (
        work.buffers)


class _Work:
    """Collects launches that take the place of others, by their numbers."""

    def __init__(self, uses: Uses, buffers: list[int]):
        self.uses, self.buffers = uses, buffers
        self.instead: dict[int, list] = {}
        self.orders: dict[tuple, Place] = {}    # numbers, and how they are turned -> where they are

    def fetch(self, k: int) -> None:
        """Fetch rows to where they are turned to, by numbers turned before."""
        uses, step, rows = self.uses, self.uses.launches[k], fetched(self.uses.launches[k])
        assert rows is not None
        at = self._only(uses.readers(rows.batch.root))
        turn = self._turn(at, rows)
        if turn is None or turn.source != rows.batch or turn.target.offset or (
                uses.writers(rows.batch.root) != [k]) or any(
                turn.target.root in (*reads, *writes) for reads, writes in uses.touched[:at]):
            return
        self._replace(k, at, rows.numbers, (turn.down, turn.across),
                      lambda numbers: (turn.target, step.args[1], numbers, step.args[3]))

    def add(self, k: int) -> None:
        """Add rows from where they are turned from, by numbers turned before."""
        uses, step, rows = self.uses, self.uses.launches[k], added(self.uses.launches[k])
        assert rows is not None
        at = self._only(uses.writers(rows.batch.root))
        turn = self._turn(at, rows)
        if turn is None or turn.target != rows.batch or (
                uses.readers(rows.batch.root) != [k]) or any(
                turn.source.root in writes for _, writes in uses.touched[at + 1:k]):
            return
        self._replace(k, at, rows.numbers, (turn.across, turn.down),
                      lambda numbers: (step.args[0], turn.source, numbers, step.args[3]))

    @staticmethod
    def _only(found: list[int]) -> int:
        """The number of a launch that is the only one, or -1."""
        return found[0] if len(found) == 1 else -1

    def _turn(self, at: int, rows: Rows) -> Turned | None:
        """How a launch turns all rows of a batch that nobody else sees."""
        uses = self.uses
        turn = turned(uses.launches[at]) if at >= 0 and uses.is_own(rows.batch) else None
        fits = turn is not None and (turn.down * turn.across, turn.width) == (rows.many, rows.width)
        return turn if fits and not uses.writers(rows.numbers.root) else None

    def _replace(self, k: int, at: int, numbers: Place, grid: tuple[int, int], args) -> None:
        """Let a launch work on other arguments, and the one that turns rows be gone."""
        turned_numbers, before = self._ordered(numbers, *grid)
        self.instead[k] = [*before, self.uses.launches[k].moved(args(turned_numbers))]
        self.instead[at] = []

    def _ordered(self, numbers: Place, down: int, across: int) -> tuple[Place, list]:
        """Where numbers of rows are in another order, and what puts them there if nothing did."""
        key = numbers, down, across
        if key in self.orders:
            return self.orders[key], []
        place = self.orders[key] = Place(("buffer", len(self.buffers)), 0)
        self.buffers.append(8 * down * across)
        code, kernel = _turn()
        words = (down * across, down, across, 8 * across, 8, 8, 8 * down)
        return place, [Launch(sys.intern(code.__name__), code, kernel, (place, numbers, 0), words,
                              (0,))]


@functools.cache
def _turn():
    """The code that turns a grid of numbers, and its kernel."""
    store = Store(0, ex.input(1, dt.int64))
    kernel = Kernel((Operand(dt.int64, "1", True), Operand(dt.int64, "s")), (), 2, 0, "kept",
                    (("row", (store,)),))
    return compile_kernel(kernel), kernel
