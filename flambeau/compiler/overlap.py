"""Memory that is written to, under several names: how those lie to each other."""

from __future__ import annotations


def overlapping(rows, written) -> list:
    """Names of memory that is written to, by what they share: [[(number, distance), ...], ...].

    rows: for each name whose memory it is, and an address in it; written: numbers of names.
    A program that changes memory is right only as long as this is what it was.
    """
    homes: dict = {}
    for k, (owner, at) in enumerate(rows):
        homes.setdefault(owner, []).append((k, at))
    if len(homes) == len(rows):
        return []
    return [[(k, at - home[0][1]) for k, at in home] for home in homes.values()
            if len(home) > 1 and any(k in written for k, _ in home)]


def homes_of(tensors) -> list:
    """Whose memory tensors are in, and where."""
    return [(id(x.mem), x.ptr) for x in tensors]
