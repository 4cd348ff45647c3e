"""Folds of rows share their loops with what is made of the same elements before and after them.

A norm written by hand is a pointwise kernel, a sum of each row, and a pointwise kernel of both: its
elements go to memory and back in between. Here all of them become the stages of one kernel, which
does one row after the other while that is in the nearest cache.

    b0 = square(x)                          for i in rows:
    b1 = sum of each row of b0                  s = sum of square(x[i, j])
    b2 = x / sqrt(b1)                           for j: b2[i, j] = x[i, j] / sqrt(s)

What nobody else reads is not stored. What is dear to compute, and needed in several walks along a
row, is put where it would have been, and read from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from ..core import expr as ex
from ..core.kernel import Fold, Kernel, Operand, Store, stage_exprs, verify
from ..devices.cpu.compile import KERNELS, compile_kernel
from ..engine.launch import Launch
from .fuse import OPERANDS, STEPS, is_pointwise
from .passing import is_seen, may_pass, touched

#: elements of a row from which it pays: lanes run along it
SHORTEST = 32
#: rows of which all threads have enough; fewer are one kernel only if that takes but a moment
ROWS, MOMENT = 32, 1 << 15
#: launches that are looked at before and after a fold, and loops of a kernel
_NEAR, _LOOPS = 24, 4
#: steps of arithmetic that are rather done twice than stored and read
_QUICK = frozenset(("add", "sub", "mul", "div", "neg", "abs", "lt", "le", "gt", "ge", "eq", "ne",
                    "and", "or", "xor", "not", "select", "cast"))


def in_rows(launches: list, results: set[int]) -> list:
    """The launches, those that work on the same rows as one."""
    at = 0
    while at < len(launches):
        group = _around(launches, at, results) if _is_fold(launches[at]) else None
        if group is not None:
            whole = _Writer(group).launch()
            launches = [whole if k == at else step for k, step in enumerate(launches)
                        if k == at or k not in group.members]
            at = launches.index(whole)
        at += 1
    return launches


# -- what may be a member ------------------------------------------------------------------------


def _is_plain(kernel: Kernel | None) -> bool:
    """Whether a kernel's exprs mean the same in other loops, and are as exact there."""
    if kernel is None or any(kernel.indirect) or any(
            o.dtype.compute is not o.dtype or o.step == "-1" for o in kernel.operands):
        return False
    written = {k for k, o in enumerate(kernel.operands) if o.written}
    for kind, payload in kernel.stages:
        if payload.running if kind == "fold" else any(
                s.coordinates is not None or s.combine for s in payload):
            return False
        if any(ex.leaves(e, "index") or ex.leaves(e, "load") or ex.leaves(e, "input") & written
               for e in stage_exprs(kind, payload)):
            return False
    return True


def _is_fold(step) -> bool:
    """Whether a launch folds rows, with lanes along them."""
    if not isinstance(step, Launch) or not _is_plain(step.kernel) or step.words is None:
        return False
    kernel = step.kernel
    if kernel.lanes != "reduced" or not kernel.kept or not kernel.reduced:
        return False
    sizes = step.words[1:1 + kernel.kept + kernel.reduced]
    rows, row = prod(sizes[:kernel.kept]), prod(sizes[kernel.kept:])
    return sizes[-1] >= SHORTEST and rows > 1 and (rows >= ROWS or rows * row <= MOMENT)


def _steps_of(kernel: Kernel) -> int:
    """Steps of arithmetic."""
    return sum(bool(e.args) for e in _nodes(
        [e for stage in kernel.stages for e in stage_exprs(*stage)]))


def _is_dear(kernel: Kernel) -> bool:
    """Whether an element takes more than a moment."""
    return any(e.args and e.head not in _QUICK for e in _nodes(
        [ex.expand(e) for stage in kernel.stages for e in stage_exprs(*stage)]))


def _nodes(waiting: list) -> set:
    """All that exprs are made of."""
    seen: set = set()
    while waiting:
        e = waiting.pop()
        if e not in seen:
            seen.add(e)
            waiting += e.args
    return seen


class Walk(NamedTuple):
    """Where an operand is: its memory, its dtype, strides in bytes of the loops."""

    root: tuple
    offset: int
    dtype: Any
    strides: tuple[int, ...]

    def among(self, sizes: tuple[int, ...], fine: tuple[int, ...]) -> Walk:
        """The same in finer loops."""
        return self._replace(strides=split(sizes, self.strides, fine))


class Member(NamedTuple):
    """A launch of a group, how it walks through operands, and whether rows are elements to it."""

    step: Launch
    walks: list[Walk]
    once: bool

    @property
    def operands(self) -> list[tuple[Walk, Operand]]:
        return [*zip(self.walks, self.step.kernel.operands, strict=True)]

    @property
    def taken(self) -> list[Walk]:
        return [walk for walk, operand in self.operands if not operand.written]

    @property
    def made(self) -> list[Walk]:
        return [walk for walk, operand in self.operands if operand.written]


# -- loops ---------------------------------------------------------------------------------------


def _ends(sizes: tuple[int, ...]) -> list[int]:
    """How many places all loops have, all but the outermost, and so on."""
    return [prod(sizes[k:]) for k in range(len(sizes))]


def refined(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """Loops that both are made of; None if there are none. Both have as many places."""
    found, before = [], 1
    for end in sorted({*_ends(one), *_ends(other)} - {1}):
        if end % before:
            return None
        found.append(end // before)
        before = end
    return tuple(found[::-1])


def split(sizes: tuple[int, ...], strides: tuple[int, ...], fine: tuple[int, ...]) -> tuple:
    """Strides of loops, for those that they are made of."""
    found: list[int] = []
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        inner = 1
        while inner < size:
            found.append(stride * inner)
            inner *= fine[-len(found)]
    return tuple(found[::-1])


def coalesced(sizes: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple:
    """Loops, and strides of walks in them, with those as one that all walks go through as one:
    threads share the outermost."""
    found, rows = [sizes[-1]], [[s[-1]] for s in strides]
    for k in range(len(sizes) - 2, -1, -1):
        if all(s[k] == row[0] * found[0] for s, row in zip(strides, rows, strict=True)):
            found[0] *= sizes[k]
        else:
            found.insert(0, sizes[k])
            for s, row in zip(strides, rows, strict=True):
                row.insert(0, s[k])
    return tuple(found), rows


# -- groups --------------------------------------------------------------------------------------


def _around(launches: list, at: int, results: set[int]) -> _Group | None:
    """The group of a fold; None if there is no other member."""
    group = _Group(launches, at, results)
    if not group.takes(at):
        return None
    group.look_back()
    group.look_ahead()
    return group if len(group.members) > 1 else None


class _Group:
    """Launches around a fold of rows, by their numbers."""

    def __init__(self, launches: list, at: int, results: set[int]):
        self.launches, self.at, self.results = launches, at, results
        kernel, words = launches[at].kernel, launches[at].words
        self.sizes: tuple[int, ...] = tuple(words[1:1 + kernel.kept + kernel.reduced])
        self.places, self.row = prod(self.sizes), prod(self.sizes[kernel.kept:])
        self.members: dict[int, Member] = {}
        self.read: dict[tuple, set[Walk]] = {}      # root -> how members take it
        self.made: dict[tuple, Walk] = {}           # and how one makes it
        self.updated: set[tuple] = set()            # what another one makes anew
        self.size = self.operands = 0

    def look_back(self) -> None:
        """Take in what makes the elements of the group, if it may come so late."""
        first = max(0, self.at - _NEAR)
        self._look(range(self.at - 1, first - 1, -1),
                   lambda step: not step.writes.isdisjoint(self.read))

    def look_ahead(self) -> None:
        """Take in what is made of the group's elements, if it may come so early."""
        self._look(range(self.at + 1, min(len(self.launches), self.at + _NEAR)), lambda step: True)

    def _look(self, numbers: range, is_wanted: Callable[[Launch], bool]) -> None:
        """Take in launches, nearest first, that may change places with those that are left out.

        What a check of an index comes before or after stays so, where somebody sees it.
        """
        between: list = []
        checked = False
        for number in numbers:
            step = self.launches[number]
            if not (isinstance(step, Launch) and step.kernel is not None and is_wanted(step)
                    and may_pass(touched(step), between) and not (checked and is_seen(step))
                    and self.takes(number)):
                between.append(touched(step))
                checked |= step.effect

    def takes(self, number: int) -> bool:
        """Take a launch in, if its loops are the group's, and what they share is walked alike."""
        step = self.launches[number]
        found = self._loops(step) if _is_plain(step.kernel) else None
        if found is None:
            return False
        sizes, strides, once = found
        fine = refined(self.sizes, sizes)
        if fine is None or len(fine) > _LOOPS or fine[-1] < SHORTEST or (
                self.row not in _ends(fine)):
            return False
        member = Member(step, [
            Walk(step.args[k].root, step.args[k].offset, o.dtype, split(sizes, strides[k], fine))
            for k, o in enumerate(step.kernel.operands)], once)
        before, self.sizes = (self.sizes, self.members, self.read, self.made), fine
        self.members = {k: m._replace(walks=[w.among(before[0], fine) for w in m.walks])
                        for k, m in self.members.items()}
        self.read = {r: {w.among(before[0], fine) for w in ws} for r, ws in self.read.items()}
        self.made = {r: w.among(before[0], fine) for r, w in self.made.items()}
        if not (self._fits(number, member) and self._adds(number, member)):
            self.sizes, self.members, self.read, self.made = before
            return False
        return True

    def _loops(self, step: Launch) -> tuple | None:
        """A launch's loops, all operands' strides in these, and whether rows are elements to it."""
        kernel = step.kernel
        if kernel.reduced:
            if kernel.dense or kernel.lanes != "reduced":
                return None
        elif not is_pointwise(kernel):
            return None
        loops = kernel.kept + kernel.reduced
        if kernel.dense:
            sizes: tuple[int, ...] = (step.args[-1],)
            strides: list[tuple[int, ...]] = [
                (o.dtype.itemsize * (o.step == "1"),) for o in kernel.operands]
        else:
            words = step.words or ()
            sizes = tuple(words[1:1 + loops])
            strides = [tuple(words[1 + loops * (1 + k):1 + loops * (2 + k)])
                       for k in range(len(kernel.operands))]
        places = prod(sizes)
        if kernel.reduced and (places, prod(sizes[kernel.kept:])) != (self.places, self.row):
            return None
        if places == self.places:
            return sizes, strides, False
        if places == self.places // self.row:
            return (*sizes, self.row), [(*s, 0) for s in strides], True
        return None

    def _fits(self, number: int, member: Member) -> bool:
        """Whether a launch shares memory with the group, and walks through it as the group does."""
        taken = {walk.root for walk in member.taken}
        if not self.members or number < self.at:
            # It makes what others take, nobody has made that, and it takes nothing of theirs.
            return taken.isdisjoint(self.made) and not any(
                walk.root in taken or walk.root in self.made
                or self.read.get(walk.root, {walk}) != {walk} for walk in member.made)
        for walk in member.made:
            known = self.made.get(walk.root)
            if known != walk and (known is not None or walk.root in taken
                                  or walk.root in self.read):
                return False
        if any(self.made.get(walk.root, walk) != walk for walk in member.taken):
            return False
        return any(walk.root in self.made or (walk.root in self.read and any(walk.strides[
            -self.inner():])) for walk in member.taken)

    def inner(self) -> int:
        """How many of the loops are within a row."""
        return len(self.sizes) - _ends(self.sizes).index(self.row)

    def _adds(self, number: int, member: Member) -> bool:
        kernel = member.step.kernel
        size, operands = self.size + _steps_of(kernel), self.operands + len(kernel.operands)
        if size > STEPS or operands > OPERANDS:
            return False
        self.size, self.operands = size, operands
        self.members[number] = member
        self.updated |= {walk.root for walk in member.made if walk.root in self.made}
        self.made |= {walk.root: walk for walk in member.made}
        for walk in member.taken:
            self.read.setdefault(walk.root, set()).add(walk)
        return True

    def stored(self) -> list[tuple]:
        """What others read, or see in the end."""
        others = {place.root for k, step in enumerate(self.launches) if k not in self.members
                  for _, place in step.places()}
        return [root for root in self.made if root[0] != "buffer" or root[1] in self.results
                or root in others]


# -- their kernel --------------------------------------------------------------------------------


class _Writer:
    """Writes the kernel of a group."""

    def __init__(self, group: _Group):
        self.group = group
        self.members = [group.members[k] for k in sorted(group.members)]
        stored = group.stored()
        self.once = {w.root for m in self.members for w in m.made
                     if not any(w.strides[-group.inner():])}
        #: elements that are stored as soon as they are known, and read from there
        self.drafts = self._dear(stored)
        self.written = [*stored, *(root for root in self.drafts if root not in stored)]
        self.ends = [root for root in stored if root not in self.drafts]
        self.inputs: dict[Walk, int] = {}
        self.params: list = []
        self.numbers: list = []
        self.values: dict[tuple, ex.Expr] = {}
        self.stages: list[tuple] = []
        self.states = 0

    def _dear(self, stored: list[tuple]) -> list[tuple]:
        """Elements that several walks need, and that are dear to compute again."""
        walks: dict[tuple, set] = {root: {"the end"} for root in stored}
        for number, member in reversed([*enumerate(self.members)]):
            own: set = {(number, k) for k, (kind, _) in enumerate(member.step.kernel.stages)
                        if kind == "fold"}
            for walk in member.made:
                if walk.root not in self.once:
                    own |= walks.get(walk.root, set())
            for walk in member.taken:
                walks.setdefault(walk.root, set()).update(own)
        dear, drafts = set(), []
        for member in self.members:
            if _is_dear(member.step.kernel) or any(w.root in dear for w in member.taken):
                for root in [w.root for w in member.made if w.root not in self.once]:
                    if len(walks.get(root, ())) > 1 and root not in self.group.updated:
                        drafts.append(root)     # others read it, which is soon done
                    else:
                        dear.add(root)
        return drafts

    def launch(self) -> Launch:
        """All members as one."""
        for member in self.members:
            self._take(member)
        for kind, roots in (("map", [r for r in self.ends if r not in self.once]),
                            ("row", [r for r in self.ends if r in self.once])):
            if roots:
                self.stages.append((kind, tuple([
                    Store(self.written.index(root), self.values[root]) for root in roots])))
        group, first = self.group, self.members[0].step
        walks = [*(group.made[root] for root in self.written), *self.inputs]
        inner = group.inner()
        kept, strides = coalesced(group.sizes[:-inner], [w.strides[:-inner] for w in walks])
        row, others = coalesced(group.sizes[-inner:], [w.strides[-inner:] for w in walks])
        kernel = Kernel(
            tuple([Operand(w.dtype, _lanes(w), k < len(self.written))
                   for k, w in enumerate(walks)]),
            tuple(self.params), len(kept), len(row), "reduced",
            tuple(self.stages), blocks=all(m.step.kernel.blocks for m in self.members))
        verify(kernel)
        function = compile_kernel(kernel)
        kernel = KERNELS.get(function, kernel)  # that of the first of its kind
        places = {(a.root, a.offset): a for m in self.members for _, a in m.step.places()}
        return Launch(sys.intern(function.__name__), function, kernel,
                      (*[places[w.root, w.offset] for w in walks], *self.numbers, first.args[-1]),
                      (group.places, *kept, *row, *[
                          n for a, b in zip(strides, others, strict=True) for n in (*a, *b)]),
                      tuple(range(len(self.written))))

    def _take(self, member: Member) -> None:
        """A member's folds become stages, and what it makes of each element is known."""
        leaves, states = self._leaves(member), 0
        for kind, payload in member.step.kernel.stages:
            if kind == "fold":
                self._fold(payload, leaves)
                for e in payload.start:
                    leaves[ex.make("fold", (), states, e.dtype)] = ex.make(
                        "fold", (), self.states, e.dtype)
                    states, self.states = states + 1, self.states + 1
                continue
            for store in payload:
                walk = member.walks[store.operand]
                value = ex.cast(ex.substitute(store.value, leaves), walk.dtype)
                if walk.root in self.drafts:
                    number = self.written.index(walk.root)
                    self.stages.append(("map", (Store(number, value),)))
                    value = ex.input(number, walk.dtype)
                self.values[walk.root] = value

    def _fold(self, fold: Fold, leaves: dict) -> None:
        start, step, merge = (tuple([ex.substitute(e, leaves) for e in part])
                              for part in (fold.start, fold.step, fold.merge))
        element = None if fold.element is None else ex.substitute(fold.element, leaves)
        self.stages.append(("fold", Fold(start, step, merge, element=element)))

    def _leaves(self, member: Member) -> dict:
        """What stands in place of a launch's own inputs and parameters."""
        kernel, found = member.step.kernel, {}
        for k, (walk, operand) in enumerate(member.operands):
            if not operand.written:
                made = self.values.get(walk.root)
                found[ex.input(k, walk.dtype)] = self._input(walk) if made is None else made
        for k, dtype in enumerate(kernel.params):
            found[ex.param(k, dtype)] = ex.param(len(self.params) + k, dtype)
        self.params += kernel.params
        self.numbers += member.step.args[len(kernel.operands):-1]
        return found

    def _input(self, walk: Walk) -> ex.Expr:
        """An operand that is read."""
        number = self.inputs.setdefault(walk, len(self.inputs))
        return ex.input(len(self.written) + number, walk.dtype)


def _lanes(walk: Walk) -> str:
    """How an operand lies along lanes: see Operand."""
    inner = walk.strides[-1]
    return "0" if inner == 0 else "1" if inner == walk.dtype.itemsize else "s"
