"""The kernel of a group of launches on the same rows: see row_groups.py."""

from __future__ import annotations

from typing import Any

from ..core import expr as ex
from ..core.kernel import Fold, Kernel, Operand, Store, stage_exprs
from ..engine.launch import Launch
from .epilogue import QUICK
from .fuse import launch_of
from .row_loops import Member, Walk, coalesced

#: steps of arithmetic that are rather done twice than stored and read
_SOON = QUICK | {"div"}


def steps_of(kernel: Kernel) -> int:
    """Steps of arithmetic."""
    return sum(bool(e.args) for e in ex.nodes(*_exprs(kernel)))


def _is_dear(kernel: Kernel) -> bool:
    """Whether an element takes more than a moment."""
    return any(e.args and e.head not in _SOON for e in ex.nodes(*map(ex.expand, _exprs(kernel))))


def _exprs(kernel: Kernel) -> list[ex.Expr]:
    return [e for stage in kernel.stages for e in stage_exprs(*stage)]


class RowKernel:
    """Writes the kernel of a group."""

    def __init__(self, group: Any):
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
        places = {(a.root, a.offset): a for m in self.members for _, a in m.step.places()}
        words = (group.places, *kept, *row, *[
            n for a, b in zip(strides, others, strict=True) for n in (*a, *b)])
        return launch_of(kernel, [places[w.root, w.offset] for w in walks], self.numbers,
                         first.args[-1], words)

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
