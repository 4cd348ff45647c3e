"""The order of launches: of two that do not depend on each other, first the one that leaves more
room.

A layer's way back makes the gradient of its weights, which is a result, and that of its input. Once
the former is done, what the layer kept for it is needed no more, and the latter may lie there.
"""

from __future__ import annotations

#: programs on fewer bytes are left as they are
_LEAST = 1 << 20


def arranged(launches: list, buffers: list[int], results: set[int]) -> list:
    """The same launches, so that less memory is needed at once."""
    touched = [tuple({p.root[1] for _, p in step.places() if p.root[0] == "buffer"} - results)
               for step in launches]
    if sum(buffers[b] for b in {b for used in touched for b in used}) < _LEAST:
        return launches
    order = _Order(launches, touched, buffers)
    for end in range(1, len(launches)):
        at = end
        while at and order.is_better_swapped(at - 1):
            order.swap(at - 1)
            at -= 1
    return [launches[k] for k in order.numbers]


class _Order:
    """Launches by their numbers, and when buffers are first and last used.

    What each has to do with is in tuples: a set of two takes three times as much.
    """

    def __init__(self, launches: list, touched: list[tuple[int, ...]], buffers: list[int]):
        self.numbers = [*range(len(launches))]
        self.touched, self.buffers = touched, buffers
        self.fixed = [step.effect for step in launches]
        self.reads = [tuple(step.reads) for step in launches]
        self.writes = [tuple(step.writes) for step in launches]
        self.first: dict[int, int] = {}     # buffer -> a launch
        self.last: dict[int, int] = {}
        for k, used in enumerate(touched):
            for b in used:
                self.first.setdefault(b, k)
                self.last[b] = k

    def is_better_swapped(self, at: int) -> bool:
        """Whether the launch at a place and the next may change places, and less is needed then."""
        one, two = self.numbers[at:at + 2]
        if self.fixed[one] or self.fixed[two] or any(
                root in self.reads[two] or root in self.writes[two] for root in self.writes[one]
        ) or any(root in self.reads[one] for root in self.writes[two]):
            return False
        both = {*self.touched[one]}.intersection(self.touched[two])
        if any(self.first[b] == one for b in both):
            return False
        taken, given = self._changes(one, both)
        also_taken, also_given = self._changes(two, both)
        return max(also_taken, also_taken - also_given + taken) < max(
            taken, taken - given + also_taken)

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
