"""Buffers in one arena: two share bytes if they are never needed at the same time."""

from __future__ import annotations

_ALIGN = 64


class Placement:
    """Offsets of buffers, by when they are first and last used."""

    def __init__(self, launches, buffers: list[int], results: set[int], filled: dict[int, bytes]):
        self.first: dict[int, int] = {}
        first = self.first
        last: dict[int, int] = {}
        written: set[int] = set()
        for when, step in enumerate(launches):
            for _, place in step.places():
                if place.root[0] == "buffer":
                    first.setdefault(place.root[1], when)
                    last[place.root[1]] = when
            written |= {number for kind, number in step.writes if kind == "buffer"}
        #: buffers that hold what Python put there and nothing else
        self.constant = {b for b in filled if b not in written and b not in results}
        movable = [b for b in first if b not in results and b not in self.constant]
        self.offsets: dict[int, int] = {}
        placed: list[tuple[int, int, int, int]] = []
        for b in sorted(movable, key=lambda b: (-buffers[b], b)):
            size = -(-buffers[b] // _ALIGN) * _ALIGN
            beside = sorted((o, o + n) for o, n, begin, end in placed
                            if begin <= last[b] and first[b] <= end)
            offset = 0
            for low, high in beside:
                if offset + size <= low:
                    break
                offset = max(offset, high)
            self.offsets[b] = offset
            placed.append((offset, size, first[b], last[b]))
        self.size = max((o + n for o, n, _, _ in placed), default=0)
