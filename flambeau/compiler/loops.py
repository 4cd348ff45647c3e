"""A program as a person would write it: products, routines, and kernels as loops over buffers.

    program of 3 launches, 0 bytes of workspace
    b0 = o0 @ o1                                # 12x5 by 5x9: small_12x5x9_0e29ca63
    for i in range(108):                        # k_3399f6c380ad
        b1[i] = 0.0 if 0.0 > b0[i] else b0[i]

`b` are buffers that the program has, `o` tensors from outside, `c` constants, `n` numbers that are
given anew with every run; indices count elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..core import expr as ex
from ..core.kernel import Fold, Kernel, Store
from ..devices.cpu.matmul.block import WORDS
from ..engine.launch import Check, Finished, Launch, Place
from ..engine.tape import integers_at

_LETTERS = "ijklmnpqrstuvw"
_INDENT = "    "
#: integers from here on are addresses
_ADDRESS = 1 << 32
#: where what is said of a line begins
_ASIDE = 42


def program_text(program) -> str:
    """All launches in order."""
    launches = program.launches
    return "\n".join([f"program of {len(launches)} launches, {program.size} bytes of workspace",
                      *steps_text(launches)])


def steps_text(steps) -> list[str]:
    """Lines that say what launches and checks do."""
    return [line for step in steps for line in _lines(step)]


def _lines(step) -> list[str]:
    if isinstance(step, Check):
        return [str(step)]
    if isinstance(step, Finished):
        return [*_lines(step.first), f"{_INDENT}and then, to each piece while it is in the cache:",
                *(2 * _INDENT + line for line in _lines(step.then))]
    if step.kernel is not None:
        return _Loops(step).lines()
    is_product = step.name.startswith(("product_", "small_")) and len(step.args) in (4, 5)
    return [_product(step) if is_product else _routine(step)]


def _beside(line: str, said: str) -> str:
    return f"{line:<{_ASIDE}}  # {said}"


def _product(step: Launch) -> str:
    """A product of matrices, by the words that describe it."""
    words = dict(zip(WORDS, integers_at(step.args[-1], len(WORDS)), strict=True))
    m, n, k, batch, size = (words[name] for name in ("m", "n", "k", "batch", "c_size"))
    (c, a, b), added = step.args[:3], step.args[3:-1]
    down, across = (words["a_row"], words["a_step"]), (words["b_step"], words["b_lane"])
    if words["turned"]:
        m, n, down, across = n, m, across[::-1], down[::-1]
    left, right = (f"{x}.T" if first == size != second else f"{x}"
                   for x, (first, second) in ((a, down), (b, across)))
    times = f"{batch} times " if batch > 1 else ""
    return _beside(f"{c} = {' + '.join([f'{left} @ {right}', *map(str, added)])}",
                   f"{times}{m}x{k} by {k}x{n}: {step.name}")


def _routine(step: Launch) -> str:
    """A call of code that is no kernel: what it writes, and what it is given."""
    made = [str(step.args[i]) for i in step.written]
    given = [str(a) for i, a in enumerate(step.args)
             if (i not in step.written or i in step.updates) and not (
                 type(a) is int and abs(a) >= _ADDRESS)]
    return f"{', '.join(made)}{' = ' if made else ''}{step.name}({', '.join(given)})"


class _Loops:
    """Writes a kernel's launch."""

    def __init__(self, step: Launch):
        kernel: Kernel = step.kernel
        self.step, self.kernel = step, kernel
        count = len(kernel.operands)
        self.places: list[Place] = list(step.args[:count])
        self.params = self._params(step.args[count:-1])
        self.sizes, self.strides, self.own = self._layout()
        letters = iter(_LETTERS)
        #: of each loop what counts it; of one that has a single place, where that is
        self.counts = ["0" if n == 1 else next(letters, f"i{k}")
                       for k, n in enumerate(self.sizes)]
        self.states = self.temporaries = 0

    def _params(self, given) -> list[str]:
        values = iter(given)
        return [f"complex({next(values)}, {next(values)})" if dtype.kind == "c" else
                str(next(values)) for dtype in self.kernel.params]

    def _layout(self) -> tuple[list[int], list[tuple], list[tuple]]:
        """Sizes of loops; strides of operands, and those of coordinates, in bytes."""
        kernel = self.kernel
        if kernel.dense:
            inner = [0 if o.step == "0" else o.dtype.itemsize for o in kernel.operands]
            if kernel.reduced:
                return [1, self.step.args[-1]], [(0, size) for size in inner], []
            return [self.step.args[-1]], [(size,) for size in inner], []
        loops, words = kernel.kept + kernel.reduced, iter((self.step.words or ())[1:])

        def some(n: int) -> tuple:
            return tuple(next(words, 0) for _ in range(n))

        sizes = list(some(loops))
        strides = [some(loops) for _ in kernel.operands]
        return sizes, strides, [some(n) for n in kernel.indirect]

    # -- loops -----------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        kept = range(self.kernel.kept)
        found = [*self._heads(kept)]
        inside = len(found) * _INDENT
        found += [inside + line for kind, payload in self.kernel.stages
                  for line in self._stage(kind, payload)]
        return [_beside(found[0], self.step.name[:14]), *found[1:]]

    def _heads(self, loops) -> Iterator[str]:
        """The line of each loop that has several places, inside those before it."""
        some = [k for k in loops if self.sizes[k] != 1]
        for depth, k in enumerate(some):
            yield f"{depth * _INDENT}for {self.counts[k]} in range({self.sizes[k]}):"

    def _stage(self, kind: str, payload) -> list[str]:
        if kind == "row":
            return self._stores(payload)
        heads = [*self._heads(range(self.kernel.kept, len(self.sizes)))]
        inside = len(heads) * _INDENT
        if kind == "map":
            return [*heads, *(inside + line for line in self._stores(payload))]
        return self._fold(payload, heads, inside)

    def _fold(self, fold: Fold, heads: list[str], inside: str) -> list[str]:
        names = [f"s{self.states + k}" for k in range(len(fold.start))]
        states = {ex.make("state", (), k, e.dtype): name
                  for k, (e, name) in enumerate(zip(fold.start, names, strict=True))}
        before, start = self._values(fold.start)
        lines, step = self._values(fold.step, states)
        self.states += len(names)
        moved = ", ".join(names)
        return [*before, f"{moved} = {', '.join(start)}", *heads,
                *(inside + line for line in lines), f"{inside}{moved} = {', '.join(step)}",
                *(inside + line for line in self._stores(fold.running, states))]

    def _stores(self, stores, states=None) -> list[str]:
        """A line for each, after those of what they share."""
        exprs = [e for store in stores for e in (store.value, *(store.coordinates or ()))]
        lines, texts = self._values(exprs, states)
        known = dict(zip(exprs, texts, strict=True))
        return [*lines, *(self._store(store, known) for store in stores)]

    def _store(self, store: Store, known: dict) -> str:
        target = self._element(store.operand, [known[c] for c in store.coordinates or ()])
        sign = {None: "=", "add": "+=", "mul": "*="}.get(store.combine)
        value = known[store.value]
        return f"{target} {sign} {value}" if sign else (
            f"{target} = {store.combine}({target}, {value})")

    # -- values ----------------------------------------------------------------------------------

    def _values(self, exprs, states=None) -> tuple[list[str], list[str]]:
        """Lines for what is used several times, and the text of each expr."""
        uses: Counter = Counter()
        waiting = list(exprs)
        while waiting:
            e = waiting.pop()
            uses[e] += 1
            if uses[e] == 1:
                waiting += e.args
        lines: list[str] = []
        known: dict[ex.Expr, str] = dict(states or {})

        def said(e: ex.Expr) -> str:
            if e not in known:
                text = self._said(e, [said(a) for a in e.args])
                if uses[e] > 1 and e.args:
                    name = f"t{self.temporaries}"
                    self.temporaries += 1
                    lines.append(f"{name} = {_bare(text)}")
                    text = name
                known[e] = text
            return known[e]

        return lines, [_bare(said(e)) for e in exprs]

    def _said(self, e: ex.Expr, args: list[str]) -> str:
        head = e.head
        if head == "input":
            return self._element(e.attr)
        if head == "load":
            return self._element(e.attr, args)
        if head == "param":
            return self.params[e.attr]
        if head == "index":
            return self.counts[e.attr]
        if head == "fold":
            return f"s{e.attr}"
        if head == "const":
            return repr(e.attr)
        if head in ex.INFIX:
            return f"({args[0]} {ex.INFIX[head]} {args[1]})"
        if head == "select":
            return f"({args[1]} if {_bare(args[0])} else {args[2]})"
        name = e.dtype.name if head == "cast" else head if isinstance(head, str) else head.name
        return f"{name}({', '.join(map(_bare, args))})"

    def _element(self, k: int, coordinates=()) -> str:
        """An element of an operand, where the loops and coordinates have taken it."""
        place, size = self.places[k], self.kernel.operands[k].dtype.itemsize
        steps = [*zip(self.counts, self.strides[k], strict=True),
                 *zip(coordinates, self.own[k] if coordinates else (), strict=True)]
        terms = [_scaled(count, stride, size) for count, stride in steps
                 if stride and count != "0"]
        if place.offset or not terms:
            terms.append(_scaled("1", place.offset, size))
        return f"{place.root[0][0]}{place.root[1]}[{' + '.join(terms)}]"


def _scaled(count: str, stride: int, size: int) -> str:
    """So many strides in elements, or in bytes where these are none."""
    number = str(stride // size) if stride % size == 0 else f"{stride}/{size}"
    return number if count == "1" else count if number == "1" else f"{count}*{number}"


def _bare(text: str) -> str:
    """Without the brackets around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and at < len(text) - 1:
            return text
    return text[1:-1]
