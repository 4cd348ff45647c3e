"""Buffers in one arena: two share bytes if they are never needed at the same time.

A result has memory of its own. Until it is written, that holds buffers too: what the way forward
leaves for the way back lies where gradients will be. And a pointwise kernel may write where it
reads, if nobody reads that afterwards.
"""

from __future__ import annotations

from .fuse import Access, is_pointwise
from .tape import Launch

_ALIGN = 64
#: smaller buffers always lie in the arena: there they are near each other
HOSTED = 1 << 14


class Placement:
    """Offsets of buffers, by when they are first and last used."""

    def __init__(self, launches, buffers: list[int], results: set[int], filled: dict[int, bytes]):
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        written: set[int] = set()
        for when, step in enumerate(launches):
            for _, place in step.places():
                if place.root[0] == "buffer":
                    self.first.setdefault(place.root[1], when)
                    self.last[place.root[1]] = when
            written |= {number for kind, number in step.writes if kind == "buffer"}
        #: buffers that hold what Python put there and nothing else
        self.constant = {b for b in filled if b not in written and b not in results}
        #: where a buffer is, in the arena or in the result that hosts it
        self.offsets: dict[int, int] = {}
        self.hosts: dict[int, int] = {}
        movable = [b for b in self.first if b not in results and b not in self.constant]
        instead = self._in_place(launches, {*movable} - filled.keys(), buffers)
        # The memory of a result is first used in this order.
        hosts = sorted((self.first[r], r) for r in results if r in self.first)
        arena: list[tuple[int, int, int]] = []
        rooms: dict[int, list] = {r: [] for _, r in hosts}
        for b in sorted(movable, key=lambda b: (-buffers[b], b)):
            size = -(-buffers[b] // _ALIGN) * _ALIGN
            if size >= HOSTED and self._hosted(b, size, hosts, rooms, buffers):
                continue
            self.offsets[b] = self._gap(b, size, arena, instead.get(b, ()))
            arena.append((self.offsets[b], size, b))
        self.size = max((o + n for o, n, _ in arena), default=0)

    def _hosted(self, b: int, size: int, hosts, rooms: dict[int, list], buffers) -> bool:
        """Put a buffer into the result that is written next after it was needed, if it fits."""
        for when, r in hosts:
            if when > self.last[b] and size <= buffers[r]:
                offset = self._gap(b, size, rooms[r])
                if offset + size <= buffers[r]:
                    self.offsets[b], self.hosts[b] = offset, r
                    rooms[r].append((offset, size, b))
                    return True
        return False

    def _gap(self, b: int, size: int, placed, instead=()) -> int:
        """The first offset where a buffer is in nobody's way; that of one it may overwrite if
        possible."""
        first, last = self.first, self.last
        beside = sorted((o, o + n, other) for o, n, other in placed
                        if first[other] <= last[b] and first[b] <= last[other])
        for low, _, other in beside:
            if other in instead and all(o >= low + size or end <= low
                                        for o, end, third in beside if third != other):
                return low
        offset = 0
        for low, high, _ in beside:
            if offset + size <= low:
                break
            offset = max(offset, high)
        return offset

    def _in_place(self, launches, movable: set[int], buffers) -> dict[int, set[int]]:
        """For buffers those whose place they may take in the launch that begins the one and ends
        the other, and the other way round."""
        found: dict[int, set[int]] = {}
        for when, step in enumerate(launches):
            if not isinstance(step, Launch) or not is_pointwise(step.kernel):
                continue
            accesses = [Access(step, k) for k in range(len(step.kernel.operands))]
            walks: dict[tuple, set] = {}
            for a in accesses:
                walks.setdefault(a.place.root, set()).add(
                    (a.place.offset, a.step, a.strides, a.dtype.itemsize))
            ends = {root[1]: walk for root, walk in walks.items()
                    if root[0] == "buffer" and root[1] in movable and len(walk) == 1}
            for new in [b for b in ends if self.first[b] == when]:
                for old in [b for b in ends if self.last[b] == when and self.first[b] < when]:
                    if ends[new] == ends[old] and buffers[new] == buffers[old]:
                        found.setdefault(new, set()).add(old)
                        found.setdefault(old, set()).add(new)
        return found
