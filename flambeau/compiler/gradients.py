"""Gradients of leaves in a call that is to be made again: how it finds them and how it leaves them.

Python sets and forgets gradients without an op call, so a script looks at every leaf that a way
back may reach, or whose gradient Python changes, where programs end and calls begin.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import Any

from ..devices.cpu.anatomy import NAMED
from ..engine.tensor import Tensor
from .phantom import plain
from .sources import Fixed, Given, Held, Player


def gradient_of(leaf: Tensor):
    """The gradient that a leaf has, or None."""
    return getattr(leaf, "_grad", None)


def all_have_gradients(leaves: Iterable[Tensor]) -> bool:
    return all(gradient_of(leaf) is not None for leaf in leaves)


#: in place of a gradient that there was
_GONE = object()
#: references to one that only the table of first ones has, seen through a name
_OURS = 1 + NAMED


class Gradients:
    """What gradients were when a call began, and what a script has made of them so far."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.leaves: dict[int, Tensor] = {}
        self.first: dict[int, Any] = {}     # id of a leaf -> its gradient when the call began
        self.now: dict[int, Any] = {}       # and the one that the script leaves so far
        self.held: list[tuple] = []         # (leaf, signature) of first gradients that are used
        self.reached: dict[int, tuple] = {} # id of a gradient -> its leaf, not looked at so far
        self._sources: dict[int, Held] = {}

    def reach(self, tensors: list[Tensor]) -> list[Tensor]:
        """Whose gradients Python may take without saying so; those that there are."""
        self.reached = {id(g): (leaf, g) for leaf in tensors
                        if (g := gradient_of(leaf)) is not None}
        return [g for _, g in self.reached.values()]

    def watch(self, leaves: Iterable[Tensor]) -> None:
        """Look at these as well; none of them has another gradient than when the call began."""
        if threading.get_ident() != self.thread:
            return
        for leaf in leaves:
            if id(leaf) not in self.leaves:
                self.leaves[id(leaf)] = leaf
                self.first[id(leaf)] = self.now[id(leaf)] = gradient_of(leaf)

    def source(self, x: Tensor) -> Held | None:
        """How a tensor is found again that was the gradient of a leaf."""
        if id(x) not in self._sources:
            if id(x) in self.reached:
                self.watch(self.reached[id(x)][:1])
            leaf = next((k for k, g in self.first.items() if g is x), None)
            if leaf is None:
                return None
            self._sources[id(x)] = Held(len(self.held))
            self.held.append((self.leaves[leaf], plain(x.sig)))
        return self._sources[id(x)]

    def let_go(self, tagged: list[Tensor]) -> None:
        """Forget gradients that leaves had and that nobody can use any more: their memory is there
        for new ones. tagged: traced tensors, which a trace holds as well."""
        traced = Counter(map(id, tagged))
        gone = set()
        for k in [k for k, g in self.first.items() if g is not None and g is not self.now[k]]:
            g = self.first[k]
            if id(g) not in self._sources and getrefcount(g) == (
                    _OURS + traced[id(g)] + (id(g) in self.reached)):
                self.first[k] = _GONE
                self.reached.pop(id(g), None)
                gone.add(id(g))
        tagged[:] = [x for x in tagged if id(x) not in gone]

    def release(self) -> None:
        """Let go of gradients as they were."""
        for table in (self.leaves, self.first, self.now, self.reached):
            table.clear()

    def changes(self) -> list[tuple[Tensor, Any]]:
        """Leaves whose gradients are not what the script leaves so far, with those they have."""
        found = [(leaf, gradient_of(leaf)) for k, leaf in self.leaves.items()
                 if gradient_of(leaf) is not self.now[k]]
        self.now.update({id(leaf): g for leaf, g in found})
        return found


class Regrade:
    """Leaves are given gradients by Python, or lose them."""

    def __init__(self, rows: list[tuple]):
        self.rows = rows    # (source of the leaf, source of its gradient or None)

    def play(self, player: Player) -> None:
        for leaf, source in self.rows:
            leaf.get(player)._grad = None if source is None else source.get(player)
        player.made.append({})


class Presence:
    """Which leaves must have a gradient for a script to be played, and which must have none."""

    def __init__(self, gradients: Gradients, source: Callable):
        rows = [(source(leaf), gradients.first[k] is not None)
                for k, leaf in gradients.leaves.items()]
        rows = [row for row in rows if type(row[0]) in (Given, Fixed)]  # others are not there yet
        self.given = [(s.number, there) for s, there in rows if type(s) is not Fixed]
        self.missing = [s.tensor for s, there in rows if type(s) is Fixed and not there]
        self.there = [s.tensor for s, there in rows if type(s) is Fixed and there]
        self.held = [(source(leaf), sig) for leaf, sig in gradients.held]
        self.left: list[Tensor] = []    # of those that must be there: native code looks at them
        self.idle = not (rows or self.held)

    def leave(self, leaves: Iterable[Tensor]) -> None:
        """Native code sees whether these have gradients."""
        known = {id(leaf) for leaf in leaves}
        self.left = [leaf for leaf in self.there if id(leaf) in known]
        self.there = [leaf for leaf in self.there if id(leaf) not in known]
        self.idle = not (self.given or self.missing or self.there or self.held)

    def find(self, given) -> list[Tensor] | None:
        """The gradients that are used, or None if something is not as it was."""
        for leaf in self.missing:
            if gradient_of(leaf) is not None:
                return None
        for leaf in self.there:
            if gradient_of(leaf) is None:
                return None
        for number, there in self.given:
            if (gradient_of(given[number]) is not None) is not there:
                return None
        if len({id(given[number]) for number, _ in self.given}) < len(self.given):
            return None
        found = []
        for source, sig in self.held:
            g = gradient_of(source.tensor if type(source) is Fixed else given[source.number])
            if g is None or g.sig is not sig or g.node is not None:
                return None
            found.append(g)
        return found
