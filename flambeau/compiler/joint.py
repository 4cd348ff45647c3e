"""Which values of a segment are gone back from together.

Two heads on one trunk: each has a way back of its own through the trunk, and both gradients are
mostly there at once. Then one way takes both, and goes through the trunk once, as eager does.
"""

from __future__ import annotations

from ..engine.node import Node
from ..engine.tensor import Tensor
from .graph_steps import result_of

Group = tuple[Node, list[int]]  # a step, and values that it made


def joined(groups: list[Group]) -> list[list[Group]]:
    """Groups of values, in the order of their steps, by those that share steps behind them.

    What others are computed from comes first. It is not joined with them: its gradient is known
    only when they have been gone back from.
    """
    ends = {node for node, _ in groups}
    behind = {node: _behind(node, ends) for node in ends}
    depth = dict.fromkeys(ends, 0)  # how many others, one behind the other, come from it
    for node, _ in reversed(groups):
        for other in behind[node] & ends:
            depth[other] = max(depth[other], depth[node] + 1)
    found: list[tuple[int, set, list[Group]]] = []
    for group in groups:
        node = group[0]
        steps, together = {step for step in behind[node] - ends if _keeps(step)}, [group]
        apart = []
        for other in found:
            if other[0] == depth[node] and other[1] & steps:
                steps, together = steps | other[1], other[2] + together
            else:
                apart.append(other)
        found = [*apart, (depth[node], steps, together)]
    return [together for _, _, together in sorted(found, key=lambda each: -each[0])]


def _behind(node: Node, ends: set[Node]) -> set:
    """The steps behind one, up to those where other values were made."""
    seen: set = set()
    stack = [*node.parents]
    while stack:
        edge = stack.pop()
        if edge is None or isinstance(edge, Tensor):
            continue
        step, _ = result_of(edge)
        if step not in seen:
            seen.add(step)
            if step not in ends and isinstance(step, Node):
                stack.extend(step.parents)
    return seen


def _keeps(step) -> bool:
    """Whether a step can be walked only once: who comes second would be told so in eager too."""
    return isinstance(step, Node) and any([isinstance(t, Tensor) for t in step.kept or ()])
