"""What a change of a tensor does to the graph.

A tensor that is changed gets a new step in the graph, whose parent is the step before. A view that
is changed changes its base too: the base gets a step that goes back through the view's place in it,
and every view of it is recorded anew.
"""

from __future__ import annotations

from .eager import engine
from .interception import tracers
from .modes import modes
from .node import attach, edge_of, kept_values, new_node
from .tensor import Tensor, base_of, make


def is_free(x: Tensor) -> bool:
    """Whether what x is a view of is no part of a graph."""
    base = base_of(x)
    return base is None or base.node is None


def replace_history(x: Tensor, node) -> None:
    """x was changed by this step; if it is a view, so was its base."""
    base = base_of(x)
    if base is None:
        x.node = node
        _refresh_views(x, x)
        return
    first = edge_of(base) if base.node is not None else None
    slices = new_node(ChangedSlice(node, x.sig, x.ptr - base.ptr), (first, *node.parents[1:]),
                      (base.sig,), (base.sig,))
    base.node = slices
    _record_as_view(x, base)
    _refresh_views(base, base, but=x)


class ChangedSlice:
    """Goes back through a change of a view: the change's own gradient where the view is."""

    def __init__(self, step, sig, offset: int):
        self.step, self.sig, self.offset = step, sig, offset

    def name(self) -> str:
        return "torch::autograd::CopySlices"

    def pull(self, node, g):
        base_sig = node.kept[0] if node.kept else kept_values(node)[0]
        whole = engine.laid_out(g, base_sig)
        part = engine.strided_part(whole, self.sig, self.offset)
        grads = self.step.back.pull(self.step, engine.clone(part))
        inner = grads[0]
        if inner is None:
            inner = engine.zeros_like(part)
        first = None
        if node.parents[0] is not None:
            first = engine.with_part(whole, self.sig, self.offset, inner)
        return [first, *grads[1:]]


def _record_as_view(x: Tensor, base: Tensor) -> None:
    """x recorded anew, as a view of its base."""
    attach(x, SliceOf(x.sig, x.ptr - base.ptr), (edge_of(base),), (base.sig,))


class SliceOf:
    """Goes back through a view given by strides."""

    def __init__(self, sig, offset: int):
        self.sig, self.offset = sig, offset

    def name(self) -> str:
        return "AsStridedBackward0"

    def pull(self, node, g):
        (base_sig,) = kept_values(node)
        zeros = engine.zeros_laid_out(base_sig)
        if modes.grad or tracers:
            return [engine.with_part(zeros, self.sig, self.offset, g)]
        engine.copy_into(make(self.sig, zeros.mem, zeros.ptr + self.offset), g)
        return [zeros]


def _refresh_views(x: Tensor, base: Tensor, but: Tensor | None = None) -> None:
    """Record the views of x, and theirs, anew as views of a base that has changed."""
    for reference in list(getattr(x, "views", ())):
        view = reference()
        if view is None:
            continue
        if view is not but and view.sig.dtype.kind in "fc":
            _record_as_view(view, base)
        _refresh_views(view, base, but)
