"""Where the boxes of a small graph stand: in layers from left to right, with few crossings.

Edges that pass over layers are given a place in each of them, so that no box hides a line.
"""

from __future__ import annotations

from itertools import pairwise

SWEEPS = 8


def place(count: int, edges: list[tuple[int, int]]) -> tuple[list[tuple[int, float]], list]:
    """(layer and height of each node; for each edge the points between its ends)."""
    layer = _layers(count, edges)
    chains, below, above = _chains(layer, edges)
    whole = layer + [level for chain in chains for level, _ in chain]
    columns: list[list[int]] = [[] for _ in range(max(whole, default=0) + 1)]
    for node, level in enumerate(whole):
        columns[level].append(node)
    height = {node: float(k) for column in columns for k, node in enumerate(column)}
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        near = below if forward else above
        for column in columns if forward else columns[::-1]:
            _order(column, near, height)
    for column in [*columns, *columns[::-1], *columns]:
        _settle(column, below, above, height)
    low = min(height.values(), default=0.0)
    points = [[(level, height[node] - low) for level, node in chain] for chain in chains]
    return [(layer[k], height[k] - low) for k in range(count)], points


def _layers(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """The longest way to each node from where nothing comes before; inputs move up to their use."""
    layer = [0] * count
    for _ in range(count):
        for a, b in edges:
            layer[b] = max(layer[b], layer[a] + 1)
    fed = {b for _, b in edges}
    for node in range(count):
        after = [layer[b] for a, b in edges if a == node]
        if node not in fed and after:
            layer[node] = min(after) - 1
    return layer


def _chains(layer: list[int], edges: list[tuple[int, int]]) -> tuple[list, dict, dict]:
    """Stand-ins for the edges in the layers they pass, and who is beside whom."""
    below: dict[int, list[int]] = {}
    above: dict[int, list[int]] = {}
    chains, fresh = [], len(layer)
    for a, b in edges:
        chain = [(level, fresh + k) for k, level in enumerate(range(layer[a] + 1, layer[b]))]
        fresh += len(chain)
        chains.append(chain)
        way = [a, *[node for _, node in chain], b]
        for left, right in pairwise(way):
            below.setdefault(right, []).append(left)
            above.setdefault(left, []).append(right)
    return chains, below, above


def _order(column: list[int], near: dict[int, list[int]], height: dict[int, float]) -> None:
    """Sort a layer by the middle of what its nodes hang on; those that hang on nothing stay."""
    def middle(node: int) -> float:
        beside = near.get(node)
        return sum(height[n] for n in beside) / len(beside) if beside else height[node]

    column.sort(key=middle)
    for k, node in enumerate(column):
        height[node] = float(k)


def _settle(column: list[int], below: dict, above: dict, height: dict[int, float]) -> None:
    """Pull nodes towards their neighbours, keeping their order and one step between them."""
    wanted = []
    for node in column:
        beside = [height[n] for n in (*below.get(node, ()), *above.get(node, ()))]
        wanted.append(sum(beside) / len(beside) if beside else height[node])
    placed: list[float] = []
    for want in wanted:
        placed.append(max(want, placed[-1] + 1) if placed else want)
    shift = sum(w - p for w, p in zip(wanted, placed)) / max(1, len(placed))
    for node, at in zip(column, placed):
        height[node] = at + shift
