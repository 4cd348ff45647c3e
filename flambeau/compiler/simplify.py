"""Launches that matter: what nobody reads afterwards is not computed."""

from __future__ import annotations


def needed(launches, results: set[int]) -> list:
    """The launches that results, or memory outside, depend on."""
    wanted = {("buffer", b) for b in results}
    kept = []
    for step in reversed(launches):
        writes = step.writes
        if step.effect or writes & wanted or any(kind == "outside" for kind, _ in writes):
            kept.append(step)
            wanted |= step.reads
    return kept[::-1]
