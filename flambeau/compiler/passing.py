"""What steps of a program read and write, and so which of them may change places."""

from __future__ import annotations


def touched(step) -> tuple[tuple, tuple]:
    """What a step reads and writes; tuples take less than sets."""
    return (tuple(step.reads), tuple(step.writes)) if step is not None else ((), ())


def may_pass(own: tuple[tuple, tuple], others: list[tuple[tuple, tuple]]) -> bool:
    """Whether a step that touches this may change places with those that touch that."""
    met, written = {*own[0], *own[1]}, {*own[1]}
    return all(met.isdisjoint(writes) and written.isdisjoint(reads) for reads, writes in others)


def is_seen(step) -> bool:
    """Whether what a step writes is there for others even if the program stops after it."""
    return any(kind == "outside" for kind, _ in step.writes)


class Uses:
    """Who reads and writes what, by numbers of launches."""

    def __init__(self, launches: list, results: set[int]):
        self.launches, self.results = launches, results
        self.touched = [touched(step) for step in launches]
        self._readers: dict[tuple, list[int]] = {}
        self._writers: dict[tuple, list[int]] = {}
        for k, (reads, writes) in enumerate(self.touched):
            for root in reads:
                self._readers.setdefault(root, []).append(k)
            for root in writes:
                self._writers.setdefault(root, []).append(k)

    def readers(self, root) -> list[int]:
        return self._readers.get(root, [])

    def writers(self, root) -> list[int]:
        return self._writers.get(root, [])

    def is_changed(self, root, after: int, until: int) -> bool:
        """Whether a launch after one writes it, up to another."""
        return any(after < k <= until for k in self.writers(root))

    def is_met(self, root, after: int, before: int) -> bool:
        """Whether a launch between two others has to do with it."""
        return any(after < k < before for k in (*self.readers(root), *self.writers(root)))

    def is_own(self, place) -> bool:
        """Whether this is the beginning of a buffer that nobody sees but launches."""
        return place.root[0] == "buffer" and place.root[1] not in self.results and not place.offset
