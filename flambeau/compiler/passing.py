"""Whether a step of a program may as well come before, or after, others."""

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
