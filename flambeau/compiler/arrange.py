"""The order of launches: of two that do not depend on each other, first the one that leaves more
room.

A layer's way back makes the gradient of its weights, which is a result, and that of its input. Once
the former is done, what the layer kept for it is needed no more, and the latter may lie there.
"""

from __future__ import annotations

from array import array

#: programs on fewer bytes are left as they are
_LEAST = 1 << 20


def arranged(launches: list, buffers: list[int], results: set[int]) -> list:
    """The same launches, so that less memory is needed at once."""
    if _bytes(launches, buffers, results) < _LEAST:
        return launches
    order = _Order(launches, [tuple(_touched(step) - results) for step in launches], buffers)
    for end in range(1, len(launches)):
        at = end
        while at and order.is_better_swapped(at - 1):
            order.swap(at - 1)
            at -= 1
    return [launches[k] for k in order.numbers]


def _bytes(launches: list, buffers: list[int], results: set[int]) -> int:
    """Bytes of all buffers but the results that launches have to do with."""
    used = bytearray(len(buffers))
    for step in launches:
        for b in _touched(step):
            used[b] = b not in results
    return sum(size for size, counts in zip(buffers, used, strict=True) if counts)


def _may_swap(one, two) -> bool:
    """Whether two launches that follow each other may do so the other way round."""
    if one.effect or two.effect:
        return False
    writes, also = one.writes, two.writes
    return writes.isdisjoint(two.reads | also) and also.isdisjoint(one.reads)


def _touched(step) -> set[int]:
    """The buffers that a launch has to do with."""
    return {p.root[1] for _, p in step.places() if p.root[0] == "buffer"}


class _Order:
    """Launches by their numbers, and by which of them buffers are first and last used.

    What each has to do with is in tuples: a set of two takes three times as much. What it reads and
    writes is asked where that matters: few of them are better swapped.
    """

    def __init__(self, launches: list, touched: list[tuple[int, ...]], buffers: list[int]):
        self.numbers = [*range(len(launches))]
        self.launches, self.touched, self.buffers = launches, touched, buffers
        self.first = array("q", bytes(8 * len(buffers)))
        self.last = self.first[:]
        for k in reversed(self.numbers):
            for b in touched[k]:
                self.first[b] = k
        for k in self.numbers:
            for b in touched[k]:
                self.last[b] = k

    def is_better_swapped(self, at: int) -> bool:
        """Whether the launch at a place and the next may change places, and less is needed then."""
        one, two = self.numbers[at:at + 2]
        both = {*self.touched[one]}.intersection(self.touched[two])
        if any(self.first[b] == one for b in both):
            return False
        taken, given = self._changes(one, both)
        also_taken, also_given = self._changes(two, both)
        return max(also_taken, also_taken - also_given + taken) < max(
            taken, taken - given + also_taken) and _may_swap(self.launches[one], self.launches[two])

    def _changes(self, k: int, both: set[int]) -> tuple[int, int]:
        """Bytes that a launch is the first to use, and those that are free after it."""
        used = self.touched[k]
        return (sum(self.buffers[b] for b in used if self.first[b] == k),
                sum(self.buffers[b] for b in used if self.last[b] == k and b not in both))

    def swap(self, at: int) -> None:
        one, two = self.numbers[at:at + 2]
        self.numbers[at:at + 2] = two, one
        for b in self.touched[one]:
            if self.last[b] == two:
                self.last[b] = one
