"""Rows that several places of a batch share are multiplied once.

Words of a text repeat, and so do the rows that an embedding fetches for them. A product of rows
fetched by number is computed for the distinct ones and spread to all places; on the way back what
comes for the same row is added up before the products, not after:

    fetch(x, table, ids)           repeats(rows, kinds, count, ids); fetch(x, table, rows)
    product(y, x, w)               product(y, x, w) of count rows; expand(y, kinds)
    ...                            ...
    product(dw, dy', x)            fold(dy, kinds); product(dw, dy', x) over count rows
    product(dx, dy, w)             product(dx, dy, w) of count rows
    add(dtable, dx at ids)         add(dtable, dx at rows)

How many there are is found when the program runs; where they are too many nothing is moved.
"""

from __future__ import annotations

import ctypes

from ..devices.cpu.matmul.block import WORDS
from ..devices.cpu.matmul.front import product_function
from ..devices.cpu.repeated import routines
from ..engine.launch import Check, Launch, Place
from ..engine.tape import UPDATES, WRITES, positions
from .epilogue import words_at
from .passing import Uses, is_seen, may_pass
from .rows import SIZES, Rows, added, fetched, turned

#: rows, and multiply-adds of a product, from which it pays
_ROWS, _WORK = 64, 1 << 20


def multiplied_once(launches: list, buffers: list[int], results: set[int]) -> tuple[list, list]:
    """Launches that work on distinct rows where that can be, and the buffers they need."""
    for number, step in enumerate(launches):
        rows = fetched(step)
        if rows is None:
            continue
        found = _Search(launches, rows, results).found(number)
        if found is not None:
            launches, buffers = _rewritten(launches, buffers, found)
            return multiplied_once(launches, buffers, results)
    return launches, buffers


# -- what becomes of them ------------------------------------------------------------------------


class Found:
    """All that has to do with rows that were fetched, by numbers of launches."""

    def __init__(self, rows: Rows, fetch: int, high: int):
        self.rows, self.fetch = rows, fetch
        self.high = high                # numbers are from 0 to before this
        self.forward: list[int] = []    # products of the rows
        self.back: list[Back] = []      # and sums over them


class Back:
    """A way back: what came for the rows, and what is made of it."""

    def __init__(self, given: Place, width: int, weights: int):
        self.given, self.width = given, width
        self.weights = weights              # the product over the rows
        self.carried: int | None = None     # the product that gives what comes to the rows,
        self.added: int | None = None       # and the launch that adds that to the table
        self.after = 0                      # all of it is done after this

    @property
    def steps(self) -> list[int]:
        return [k for k in (self.weights, self.carried, self.added) if k is not None]


class _Search(Uses):
    """Looks for everything that reads rows that were fetched."""

    def __init__(self, launches: list, rows: Rows, results: set[int]):
        super().__init__(launches, results)
        self.rows = rows

    def found(self, fetch: int) -> Found | None:
        rows = self.rows
        high = self._bound(fetch)
        if rows.many < _ROWS or high is None or 4 * high > self._bytes() or (
                not self.is_own(rows.batch)) or (
                self.writers(rows.batch.root) != [fetch]
                or any(k > fetch for k in self.writers(rows.numbers.root))):
            return None
        found = Found(rows, fetch, high)
        for k in self.readers(rows.batch.root):
            if self._is_product_of(k, rows.batch, rows.width):
                found.forward.append(k)
                continue
            back = self._back(k)
            if back is None:
                return None
            found.back.append(back)
        alone = len({back.given for back in found.back}) == len(found.back)  # it is folded once
        return found if alone and (found.forward or found.back) else None

    def _bytes(self) -> int:
        """Those of the rows, which marks for all of the table should not exceed."""
        return self.rows.many * self.rows.width * SIZES[self.rows.dtype]

    def _bound(self, fetch: int) -> int | None:
        """What the numbers are known to be below, if they were found to be 0 or more by then."""
        numbers = self.rows.numbers
        for maker in self.writers(numbers.root):
            turn = turned(self.launches[maker])
            if turn is None or turn.target != numbers:
                return None
            numbers = turn.source
        for check in self.launches[:fetch]:
            if isinstance(check, Check) and check.low == 0:
                (maker,) = self.writers(check.least.root)
                if self.launches[maker].args[2] == numbers:
                    return check.high
        return None

    # -- products --------------------------------------------------------------------------------

    def _words(self, k: int) -> dict[str, int] | None:
        """Those of a launch that is one large product of this dtype."""
        step = self.launches[k]
        if not isinstance(step, Launch) or step.name not in _PRODUCTS[self.rows.dtype]:
            return None
        words = words_at(step.args[-1], WORDS)
        plain = (words["batch"], words["turned"], words["c_size"]) == (
            1, 0, SIZES[self.rows.dtype]) and not any(
            (ctypes.c_int64 * 4).from_address(words["offsets"]))
        large = words["m"] * words["n"] * words["k"] >= _WORK
        return words if plain and large and not step.args[0].offset else None

    def _is_product_of(self, k: int, batch: Place, width: int) -> bool:
        """Whether a launch multiplies the rows of a batch, each as any other."""
        words, args = self._words(k), self.launches[k].args
        if words is None or args[1] != batch or batch in args[2:]:
            return False
        size = words["c_size"]
        return (words["m"], words["k"]) == (self.rows.many, width) and words["d_row"] == 0 and (
            (words["a_row"], words["a_step"], words["c_row"])
            == (width * size, size, words["n"] * size))

    def _back(self, k: int) -> Back | None:
        """A product over the rows, and what else becomes of the same that came for them."""
        words, args, rows = self._words(k), self.launches[k].args, self.rows
        if words is None or args[2] != rows.batch or not self.is_own(args[1]):
            return None
        given, width, size = args[1], words["m"], words["c_size"]
        if (words["k"], words["a_row"], words["a_step"], words["b_step"], words["b_lane"]) != (
                rows.many, size, width * size, rows.width * size, size) or rows.batch in args[3:]:
            return None
        back = Back(given, width, k)
        others = {*self.readers(given.root)} - {k}
        for carried in others:
            back.added = self._added(carried, given, width)
            if back.added is not None:
                back.carried = carried
                break
        back.after = max({*back.steps, *others})
        return back if self._may_wait(back) else None

    def _added(self, k: int, given: Place, width: int) -> int | None:
        """The launch that adds a product of what came for the rows to their table."""
        if not self._is_product_of(k, given, width):
            return None
        out, rows = self.launches[k].args[0], self.rows
        if not self.is_own(out) or self.writers(out.root) != [k] or (
                self.launches[k].name != _PRODUCTS[rows.dtype][0]):  # all else it adds is per place
            return None
        readers = self.readers(out.root)
        put = added(self.launches[readers[0]]) if len(readers) == 1 else None
        if put is None or put._replace(table=rows.table, pitch=rows.pitch) != (
                rows._replace(batch=out)):
            return None
        return readers[0]

    def _may_wait(self, back: Back) -> bool:
        """Whether all of it can be done when nobody else needs what came for the rows."""
        if any(n > back.after for n in self.writers(back.given.root)):
            return False
        for k in back.steps:
            between = [n for n in range(k + 1, back.after + 1) if n not in back.steps]
            if not may_pass(self.touched[k], [self.touched[n] for n in between]) or (
                    is_seen(self.launches[k]) and any(self.launches[n].effect for n in between)):
                return False
        return True


_PRODUCTS = {dtype: (f"product_{dtype}", f"product_{dtype}_added") for dtype in SIZES}


# -- the launches instead ------------------------------------------------------------------------


def _rewritten(launches: list, buffers: list[int], found: Found) -> tuple[list, list]:
    rows, first = found.rows, len(buffers)
    ids, kinds, count, marks = (Place(("buffer", first + k), 0) for k in range(4))
    buffers = [*buffers, 8 * rows.many, 8 * rows.many, 8, 4 * found.high]
    code = routines(rows.dtype)
    fetch = launches[found.fetch]
    instead: dict[int, list] = {found.fetch: [
        _launch(code.repeats, ids, kinds, count, marks, rows.numbers, found.high, rows.many),
        fetch.moved((*fetch.args[:2], ids, *fetch.args[3:]))]}
    for k in found.forward:
        wide = words_at(launches[k].args[-1], WORDS)["n"]
        instead[k] = [_sized(launches[k], rows.dtype, "m", count), _launch(
            code.expand_rows, launches[k].args[0], kinds, rows.many, wide)]
    for back in found.back:
        done = [_launch(code.fold_rows, back.given, kinds, rows.many, back.width),
                _sized(launches[back.weights], rows.dtype, "k", count)]
        if back.carried is not None and back.added is not None:
            put = added(launches[back.added])
            assert put is not None
            done += [_sized(launches[back.carried], rows.dtype, "m", count), _launch(
                code.add_rows, put.table, put.batch, ids, count,
                put.pitch // SIZES[rows.dtype], rows.many, rows.width)]
        instead |= {k: [] for k in back.steps}
        instead[back.after] = [*instead.get(back.after, [launches[back.after]]), *done]
    return [new for k, step in enumerate(launches) for new in instead.get(k, [step])], buffers


def _launch(function, *args) -> Launch:
    name = function.__name__
    return Launch(name, function, None, args, None, positions(WRITES, name),
                  positions(UPDATES, name))


def _sized(product: Launch, dtype: str, sized: str, count: Place) -> Launch:
    """A product whose rows, or what it sums over, are as many as are found."""
    added = len(product.args) == 5
    code = product_function(dtype, added, sized=sized)
    return _launch(code, *product.args[:-1], count, product.args[-1])
