"""What is added up over many calls of a layer is computed over all of them, once.

A cell that is called for every word of a text, or node of a tree, gives its weights a gradient
with each call: a product of few rows, and a matrix as large as the weights that is written, read
and added. Rows are laid one below the other instead, and multiplied in the end. And rows that were
added to a table of zeros, which then is added to a sum, are added to the sum itself.

    product(p1, g1, x1); add(sum, p1)                product(sum, g, x), where rows of g and x
    product(p2, g2, x2); add(sum, p2)                are g1, g2 and x1, x2

    zeros(p); add(p, x at ids); add(sum, p)          add(sum, x at ids)

A buffer that is nothing but such rows is made where they are to lie; others are copied there.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple

from ..core import dtype as dt
from ..core import expr as ex
from ..core.kernel import Kernel, Operand, Store
from ..devices.cpu.compile import compile_kernel
from ..devices.cpu.matmul.block import WORDS
from ..devices.cpu.matmul.front import product_function
from ..devices.cpu.matmul.product import Matrix, Product
from ..engine.launch import Launch, Place
from .epilogue import words_at
from .passing import Uses
from .rows import SIZES

#: products of more rows are large enough by themselves; so many rows are multiplied together;
#: and as many products at least
FEW_ROWS, TOGETHER, LEAST = 32, 128, 3
#: what is multiplied together is called, until it is known where its rows lie
_SUM = "sum_of_products"


class Summed(NamedTuple):
    """Launches that add up less, and what they need."""

    launches: list
    buffers: list[int]
    homes: dict[int, Place]     # buffers that are a part of others
    keep: list                  # words that launches have addresses of


def summed(launches: list, buffers: list[int], results: set[int], filled) -> Summed:
    """Sums of many products as products of many rows, and sums of tables without the tables."""
    if sum(_addition(step) is not None for step in launches) == 0:
        return Summed(launches, buffers, {}, [])
    launches = _without_tables(launches, results)
    work = _Work(launches, [*buffers], results, filled)
    for total, adds in work.sums().items():
        for terms in work.together(total, adds):
            work.multiply(total, terms)
    return Summed([new for k, step in enumerate(launches) for new in work.instead.get(k, [step])],
                  work.buffers, work.homes, work.keep)


def settled(launches: list, homes: dict[int, Place]) -> list:
    """The launches once it need not be known any more which buffers are parts of others."""
    if not homes and not any(_is_sum(step) for step in launches):
        return launches
    return [_settled(step, homes) if isinstance(step, Launch) else step for step in launches]


def _is_sum(step) -> bool:
    return isinstance(step, Launch) and step.name == _SUM


def _settled(step: Launch, homes: dict[int, Place]) -> Launch:
    args = tuple([_at_home(a, homes) if isinstance(a, Place) else a for a in step.args])
    if not _is_sum(step):
        return step.moved(args)
    total, *rows, words = args
    code = step.function
    return Launch(code.__name__, code, None, (total, rows[0], rows[len(rows) // 2], words), None,
                  (0,))


def _at_home(place: Place, homes: dict[int, Place]) -> Place:
    kind, number = place.root
    home = homes.get(number) if kind == "buffer" else None
    return place if home is None else Place(home.root, home.offset + place.offset)


# -- what launches do ------------------------------------------------------------------------------


def _addition(step) -> tuple[Place, Place] | None:
    """(a sum, what is added to it), if that is all that a launch does."""
    if not _is_dense(step, 3) or step.args[0] != step.args[1] or step.args[0].offset or (
            step.args[0].root[0] != "buffer"):
        return None
    kind = step.kernel.operands[0].dtype
    one, other = ex.input(1, kind), ex.input(2, kind)
    value = ex.expand(step.kernel.stages[0][1][0].value)
    scaled = value is one + ex.param(0, kind) * other and step.args[3] == 1
    return (step.args[0], step.args[2]) if scaled or value is one + other else None


def _is_zeros(step) -> bool:
    """Whether a launch fills a buffer with zeros."""
    if not _is_dense(step, 1):
        return False
    value = ex.expand(step.kernel.stages[0][1][0].value)
    return value.head == "param" and step.args[1] == 0


def _is_dense(step, operands: int) -> bool:
    """Whether a launch makes one tensor of so many operands, element by element as they lie."""
    if not isinstance(step, Launch) or step.kernel is None or not step.kernel.dense:
        return False
    kernel = step.kernel
    return len(kernel.operands) == operands and step.written == (0,) and not kernel.reduced and (
        kernel.operands[0].dtype.name in SIZES
        and all(o.step == "1" and o.dtype is kernel.operands[0].dtype for o in kernel.operands))


def _adds_at_places(step) -> bool:
    """Whether a launch adds to elements of its first operand, wherever its others say."""
    if not isinstance(step, Launch) or step.kernel is None or step.written != (0,):
        return False
    stores = [store for kind, stage in step.kernel.stages if kind != "fold" for store in stage]
    return all(store.combine == "add" for store in stores) and all(
        a.root != step.args[0].root for i, a in step.places() if i)


def _without_tables(launches: list, results: set[int]) -> list:
    """Rows added to sums, not to tables of zeros that are then added to sums."""
    uses = Uses(launches, results)
    instead: dict[int, list] = {}
    for k, step in enumerate(launches):
        addition = _addition(step)
        if addition is None or not uses.is_own(addition[1]):
            continue
        total, table = addition
        zeros, *others = uses.writers(table.root)
        if len(others) != 1 or uses.readers(table.root) != [*others, k]:
            continue
        rows = launches[others[0]]
        if not (_is_zeros(launches[zeros]) and _adds_at_places(rows)) or any(
                uses.is_changed(root, others[0], k) or root == total.root
                for root in rows.reads - {table.root}):
            continue
        instead |= {zeros: [], others[0]: [], k: [rows.moved((total, *rows.args[1:]))]}
    return [new for k, step in enumerate(launches) for new in instead.get(k, [step])]


class Side(NamedTuple):
    """Rows of one operand of a product: where they are, and the bytes between them."""

    place: Place
    rows: int
    width: int      # elements
    down: int       # bytes from row to row,
    right: int      # and from element to element


class Term(NamedTuple):
    """A product of few rows, and the launch that adds it to a sum: none if that starts with it."""

    product: int
    add: int | None
    given: Side     # what came to the rows
    taken: Side     # and the rows
    dtype: str

    def goes_with(self, others: list[Term]) -> bool:
        """Whether it is of the same size as others."""
        return not others or (self.given.width, self.taken.width, self.dtype) == (
            others[0].given.width, others[0].taken.width, others[0].dtype)


class _Work(Uses):
    """Finds products that are added up, and collects launches that take the place of others."""

    def __init__(self, launches: list, buffers: list[int], results: set[int], filled):
        super().__init__(launches, results)
        self.buffers, self.filled = buffers, filled
        self.instead: dict[int, list] = {}
        self.homes: dict[int, Place] = {}
        self.keep: list = []
        #: rows, and who wrote them last -> where they lie below each other, and after which launch
        self.laid: dict[tuple, tuple[list[Place], int]] = {}

    def sums(self) -> dict[Place, list[int]]:
        """What is added to again and again, and by which launches."""
        found: dict[Place, list[int]] = {}
        for k, step in enumerate(self.launches):
            addition = _addition(step)
            if addition is not None:
                found.setdefault(addition[0], []).append(k)
        return {total: adds for total, adds in found.items() if len(adds) + 1 >= LEAST}

    def together(self, total: Place, adds: list[int]) -> list[list[Term]]:
        """Products that are added to a sum while nobody looks at it, in parts of not too many."""
        first = self.writers(total.root)[0]
        found: list[list[Term]] = [[]]
        rows, before = 0, first
        for k in [first, *adds]:
            term = self._term(first, None, total) if k == first else self._added(k)
            if term is None or self.is_met(total.root, before, k) or not (
                    term.goes_with(found[-1]) and rows + term.given.rows <= TOGETHER):
                found.append([])
                rows = 0
            if term is not None:
                found[-1].append(term)
                rows += term.given.rows
            before = k
        return [terms for terms in found if len(terms) >= LEAST and self._may_wait(terms)]

    def _added(self, k: int) -> Term | None:
        """What a launch adds to a sum, if it is a product that nobody else sees."""
        addition = _addition(self.launches[k])
        assert addition is not None
        part = addition[1]
        if not self.is_own(part) or self.readers(part.root) != [k] or (
                len(self.writers(part.root)) != 1):
            return None
        return self._term(self.writers(part.root)[0], k, part)

    def _term(self, k: int, add: int | None, target: Place) -> Term | None:
        """A product of few rows, each as any other."""
        step = self.launches[k]
        dtype = next((d for d in SIZES if getattr(step, "name", "") == f"product_{d}"), None)
        if dtype is None or step.args[0] != target or len(step.args) != 4:
            return None
        words, size = words_at(step.args[3], WORDS), SIZES[dtype]
        m, n, rows = words["m"], words["n"], words["k"]
        if (words["batch"], words["turned"], words["c_size"], words["kind"], words["c_row"]) != (
                1, 0, size, 0, n * size) or rows > FEW_ROWS or any(
                (ctypes.c_int64 * 4).from_address(words["offsets"])):
            return None
        given = Side(step.args[1], rows, m, words["a_step"] if rows > 1 else m * size,
                     words["a_row"] if m > 1 else size)
        taken = Side(step.args[2], rows, n, words["b_step"] if rows > 1 else n * size,
                     words["b_lane"])
        return Term(k, add, given, taken, dtype)

    def _may_wait(self, terms: list[Term]) -> bool:
        """Whether rows are still what they were when the last of them are there."""
        end = terms[-1].add
        assert end is not None  # a sum starts with one of them at most
        return not any(self.is_changed(side.place.root, term.product, end)
                       for term in terms for side in (term.given, term.taken))

    # -- the launches instead --------------------------------------------------------------------

    def multiply(self, total: Place, terms: list[Term]) -> None:
        """One product in place of several."""
        last = terms[-1]
        assert last.add is not None
        dtype, m, n = last.dtype, last.given.width, last.taken.width
        rows = sum(term.given.rows for term in terms)
        words = Product(dtype, m, n, rows, Matrix(1, m), Matrix(n, 1), n, [(0, 0, 0, 0)])
        self.keep.append(words)
        self.instead |= {k: [] for term in terms for k in (term.product, term.add)
                         if k is not None}
        given = self._laid([(term.product, term.given) for term in terms], dtype, last.add)
        taken = self._laid([(term.product, term.taken) for term in terms], dtype, last.add)
        starts = terms[0].add is None
        target = total if starts else self.launches[last.product].args[0]
        whole = Launch(_SUM, product_function(dtype, False), None,
                       (target, *given, *taken, words.address), None, (0,))
        self.instead[last.add] = [whole] if starts else [whole, self.launches[last.add]]

    def _laid(self, sides: list[tuple[int, Side]], dtype: str, end: int) -> list[Place]:
        """Where rows lie that are below each other, after they were put there.

        sides: the products that they are rows of, which know them last, and what they are; end: the
        launch that needs them. Another sum may have laid the same rows before then.
        """
        key = tuple([(side, self._written_before(product, side)) for product, side in sides])
        known, ready = self.laid.get(key, ([], end))
        if known and ready < end:
            return known
        size, ready, found = SIZES[dtype], -1, []
        home, at = len(self.buffers), 0
        self.buffers.append(0)
        for product, side in sides:
            nbytes = side.rows * side.width * size
            place, lies = Place(("buffer", home), at), side.place
            if self._can_move(side, nbytes, size):
                self.homes[lies.root[1]] = place
            else:
                lies = Place(("buffer", len(self.buffers)), 0)
                self.buffers.append(nbytes)
                self.homes[lies.root[1]] = place
                self.instead[product].append(_copy(dtype, lies, side))
                ready = max(ready, product)
            found.append(lies)
            at += nbytes
        self.buffers[home] = at
        self.laid[key] = found, ready
        return found

    def _written_before(self, product: int, side: Side) -> int:
        """The launch that wrote rows last when a product reads them."""
        return max((k for k in self.writers(side.place.root) if k < product), default=-1)

    def _can_move(self, side: Side, nbytes: int, size: int) -> bool:
        """Whether a buffer is nothing but these rows, and may lie elsewhere."""
        number = side.place.root[1]
        return self.is_own(side.place) and number not in self.homes and (
            number not in self.filled and self.buffers[number] == nbytes
            and (side.down, side.right) == (side.width * size, size))


def _copy(dtype: str, to: Place, side: Side) -> Launch:
    """A launch that copies rows to where they are side by side."""
    size = SIZES[dtype]
    code, kernel = _copying(dtype, side.right == size)
    words = (side.rows * side.width, side.rows, side.width, side.width * size, size,
             side.down, side.right)
    return Launch(sys.intern(code.__name__), code, kernel, (to, side.place, 0), words, (0,))


@functools.cache
def _copying(dtype: str, beside: bool) -> tuple[Any, Kernel]:
    """The code that copies rows, and its kernel."""
    kind = getattr(dt, dtype)
    kernel = Kernel((Operand(kind, "1", True), Operand(kind, "1" if beside else "s")), (), 2, 0,
                    "kept", (("row", (Store(0, ex.input(1, kind)),)),))
    return compile_kernel(kernel), kernel
