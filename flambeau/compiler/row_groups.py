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

from collections.abc import Callable
from math import prod

from ..core import expr as ex
from ..core.kernel import Kernel, stage_exprs
from ..engine.launch import Launch
from .fuse import OPERANDS, STEPS, Access, is_pointwise
from .passing import is_seen, may_pass, touched
from .row_kernel import RowKernel, steps_of
from .row_loops import Member, Walk, ends, refined, split

#: elements of a row from which it pays: lanes run along it
SHORTEST = 32
#: rows of which all threads have enough; fewer are one kernel only if that takes but a moment
ROWS, MOMENT = 32, 1 << 15
#: launches that are looked at before and after a fold, and loops of a kernel
_NEAR, _LOOPS = 24, 4


def in_rows(launches: list, results: set[int]) -> list:
    """The launches, those that work on the same rows as one."""
    at = 0
    while at < len(launches):
        group = _around(launches, at, results) if _is_fold(launches[at]) else None
        if group is not None:
            whole = RowKernel(group).launch()
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
                self.row not in ends(fine)):
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
        strides: list[tuple[int, ...]]
        if step.words is None:
            sizes: tuple[int, ...] = (step.args[-1],)
            strides = [(o.dtype.itemsize * (o.step == "1"),) for o in kernel.operands]
        else:
            sizes = step.words[1:1 + kernel.kept + kernel.reduced]
            strides = [Access(step, k).strides for k in range(len(kernel.operands))]
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
        return len(self.sizes) - ends(self.sizes).index(self.row)

    def _adds(self, number: int, member: Member) -> bool:
        kernel = member.step.kernel
        size, operands = self.size + steps_of(kernel), self.operands + len(kernel.operands)
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
