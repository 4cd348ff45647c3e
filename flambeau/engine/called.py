"""Composites that are one step of torch's graph: the last of their own steps goes by its name.

`print(loss)` shows the name, so it is one that people know: MseLossBackward0, not the mean that
the loss ends in.
"""

from __future__ import annotations

from ..ops.declare import Composite
from .node import Node
from .tensor import Tensor


class Called:
    """A way back under another name."""

    __slots__ = ("back", "label")

    def __init__(self, back, label: str):
        self.back, self.label = back, label

    def name(self) -> str:
        return self.label

    def __getattr__(self, name):
        return getattr(self.back, name)


def called_front(op: Composite, run):
    """A front whose result, where it was recorded in the call, is called as torch calls it."""
    label = op.backward_name

    def front(*args, **kwargs):
        out = run(*args, **kwargs)
        if type(out) is Tensor and type(out.node) is Node and _is_new(out, args, kwargs):
            node = out.node
            node.back = Called(node.back, label)
        return out

    front.__name__ = front.__qualname__ = op.name
    front.__doc__ = op.doc
    return front


def _is_new(out: Tensor, args: tuple, kwargs: dict) -> bool:
    """Whether the step is of this call: some hand on what they were given."""
    node = out.node
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.node is node:
            return False
    return True
