"""A graph that serves as many sizes as it can: axes are tried one by one, and kept if they vary."""

from __future__ import annotations

import time
from collections.abc import Callable

from .graph import Extent, Graph, mapped
from .record import every_op, recorded, tensors_of
from .varying import record_varying

#: how many axes are tried, and for how many seconds at most
_AXES, _SECONDS = 4, 60.0


def record_general(function: Callable, args: tuple, kwargs: dict, names: list[str]) -> Graph:
    """The graph of a call. Batches come first: the first axis of every input of one size."""
    recorded(function, args, kwargs, names, every_op)  # kernels are compiled before time counts
    start = time.perf_counter()
    graph = recorded(function, args, kwargs, names, every_op)
    once = time.perf_counter() - start
    kept: dict[str, list[tuple[int, int]]] = {}
    for symbol, places in _candidates(args, kwargs)[:_AXES]:
        trials = 2 + 3 * (len(kept) + 1)
        if time.perf_counter() - start + trials * once > _SECONDS:
            break
        try:
            found = record_varying(function, args, kwargs, names, {**kept, symbol: places})
        except Exception:  # whatever a model says to another size: it is not made for it
            continue
        if _all_explained(found):
            graph, kept[symbol] = found, places
    return graph


def _candidates(args, kwargs) -> list[tuple[str, list[tuple[int, int]]]]:
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, x in enumerate(tensors_of((args, kwargs))):
        for axis, n in enumerate(x.shape):
            groups.setdefault((axis, n), []).append((number, axis))
    return [(f"size{axis}_{places[0][0]}", places)
            for (axis, _), places in sorted(groups.items(), key=lambda item: item[0][0])]


def _all_explained(graph: Graph) -> bool:
    unknown: list[Extent] = []
    for node in graph.nodes:
        mapped((node.args, node.kwargs), lambda a: unknown.append(a)
               if isinstance(a, Extent) and a.seen else None)
    return not unknown
