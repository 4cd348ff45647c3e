"""Buffers in one arena: two share bytes if they are never needed at the same time.

A result has memory of its own. Until it is written, that holds buffers too: what the way forward
leaves for the way back lies where gradients will be. And a kernel may write where it reads, if it
is done with an element when it writes there and nobody reads that afterwards.
"""

from __future__ import annotations

import itertools
from array import array

from ..core import expr as ex
from ..core.kernel import Kernel, stage_exprs
from ..engine.launch import Launch
from ..engine.tape import REPLACES, positions
from .fuse import Access

_ALIGN = 64
#: smaller buffers always lie in the arena: there they are near each other
HOSTED = 1 << 14
#: of a buffer that no launch uses
UNUSED = -1


class Placement:
    """Offsets of buffers, by when they are first and last used; all by the buffers' numbers."""

    def __init__(self, launches, buffers: list[int], results: set[int], filled: dict[int, bytes]):
        unused = array("q", [UNUSED]) * len(buffers)
        self.first, self.last = unused[:], unused[:]
        written, movable = bytearray(len(buffers)), bytearray(len(buffers))
        for when, step in enumerate(launches):
            for _, place in step.places():
                kind, b = place.root
                if kind == "buffer":
                    if self.first[b] == UNUSED:
                        self.first[b] = when
                    self.last[b] = when
            for kind, b in step.writes:
                if kind == "buffer":
                    written[b] = True
        #: buffers that hold what Python put there and nothing else
        self.constant = {b for b in filled if not written[b] and b not in results}
        #: where a buffer is, in the arena or in the result that hosts it
        self.offsets = unused
        self.hosts: dict[int, int] = {}
        self.rooms = array("q", [-(-size // _ALIGN) * _ALIGN for size in buffers])
        for b, when in enumerate(self.first):
            movable[b] = when != UNUSED and b not in results and b not in self.constant
        instead = self._in_place(launches, movable, filled, buffers)
        # The memory of a result is first used in this order.
        hosts = sorted((self.first[r], r) for r in results if self.first[r] != UNUSED)
        arena: list[int] = []
        guests: dict[int, list[int]] = {r: [] for _, r in hosts}
        large_first = sorted(itertools.compress(itertools.count(), movable),
                             key=lambda b: -buffers[b])
        for b in large_first:
            if self.rooms[b] >= HOSTED and self._hosted(b, hosts, guests, buffers):
                continue
            self.offsets[b] = self._gap(b, arena, instead.get(b, ()))
            arena.append(b)
        self.size = max((self.offsets[b] + self.rooms[b] for b in arena), default=0)

    def _hosted(self, b: int, hosts, guests: dict[int, list[int]], buffers) -> bool:
        """Put a buffer into the result that is written next after it was needed, if it fits."""
        size = self.rooms[b]
        for when, r in hosts:
            if when > self.last[b] and size <= buffers[r]:
                offset = self._gap(b, guests[r])
                if offset + size <= buffers[r]:
                    self.offsets[b], self.hosts[b] = offset, r
                    guests[r].append(b)
                    return True
        return False

    def _gap(self, b: int, placed: list[int], instead=()) -> int:
        """The first offset where a buffer is in nobody's way; that of one it may overwrite if
        possible."""
        first, last, offsets, rooms = self.first, self.last, self.offsets, self.rooms
        begin, end, size = first[b], last[b], rooms[b]
        beside = sorted([(offsets[other], offsets[other] + rooms[other], other) for other in placed
                         if first[other] <= end and begin <= last[other]])
        for low, _, other in beside:
            if other in instead and all(o >= low + size or high <= low
                                        for o, high, third in beside if third != other):
                return low
        offset = 0
        for low, high, _ in beside:
            if offset + size <= low:
                break
            offset = max(offset, high)
        return offset

    def _in_place(self, launches, movable, filled, buffers) -> dict[int, tuple[int, ...]]:
        """For buffers those whose place they may take in the launch that begins the one and ends
        the other, and the other way round."""
        found: dict[int, tuple[int, ...]] = {}
        for when, step in enumerate(launches):
            if not isinstance(step, Launch):
                continue
            ends = {b: walk for b, walk in _walks(step).items() if movable[b] and b not in filled}
            for new in [b for b in ends if self.first[b] == when]:
                for old in [b for b in ends if self.last[b] == when and self.first[b] < when]:
                    if ends[new] == ends[old] and buffers[new] == buffers[old]:
                        found[new] = (*found.get(new, ()), old)
                        found[old] = (*found.get(old, ()), new)
        return found


def _walks(step: Launch) -> dict[int, tuple]:
    """How a launch walks through buffers. Of two that it walks through alike, it may write the one
    where it reads the other."""
    walks: dict[tuple, set] = {}
    if step.kernel is None:
        alike = positions(REPLACES, step.name)
        for i, place in step.places():
            walks.setdefault(place.root, set()).add((alike if i in alike else i, place.offset))
    elif _writes_behind(step.kernel):
        for a in [Access(step, k) for k in range(len(step.kernel.operands))]:
            walks.setdefault(a.place.root, set()).add(
                (a.place.offset, a.step, a.strides, a.dtype.itemsize))
    return {root[1]: walk.pop() for root, walk in walks.items()
            if root[0] == "buffer" and len(walk) == 1}


def _writes_behind(kernel: Kernel) -> bool:
    """Whether a kernel has read elements of one place for the last time when it writes there.

    Where lanes are rows of a fold, the last rows may be computed twice: see Loops.lanes.
    """
    *folds, (last, stores) = kernel.stages
    if last == "fold" or any(kind != "fold" or fold.running for kind, fold in folds):
        return False
    if any(kernel.indirect) or (kernel.reduced and kernel.lanes != "reduced"):
        return False
    return not any(s.coordinates is not None or s.combine for s in stores) and not any(
        ex.leaves(value, "load") for stage in kernel.stages for value in stage_exprs(*stage))
