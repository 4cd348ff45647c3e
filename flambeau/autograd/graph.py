"""The graph as an object: steps, hooks on what is kept, hooks on several gradients at once."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import NamedTuple

from ..engine.eager import engine
from ..engine.modes import modes
from ..engine.node import AccumulateGrad, Edge, Handle, Node
from ..engine.tensor import LEAF, Tensor


class GradientEdge(NamedTuple):
    """Where a gradient goes: a step, and which of its results."""

    node: object
    output_nr: int
    ownership_token: object = None


def get_gradient_edge(tensor) -> GradientEdge:
    """The place in the graph of a tensor that requires grad."""
    if tensor.node is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not "
                           "require gradients")
    if tensor.node is LEAF:
        return GradientEdge(AccumulateGrad(tensor), 0)
    number = tensor.node.number if type(tensor.node) is Edge else 0
    return GradientEdge(tensor.grad_fn, number)


class saved_tensors_hooks:
    """Inside, kept tensors go through pack when they are kept, and unpack when they are needed."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        if modes.hooks_refused is not None:
            raise RuntimeError(modes.hooks_refused)
        modes.pack = (*modes.pack, (self._pack, self.unpack_hook))

    def _pack(self, tensor):
        before, modes.pack = modes.pack, ()  # what the hook itself keeps is not packed
        try:
            return self.pack_hook(tensor)
        finally:
            modes.pack = before

    def __exit__(self, *_):
        modes.pack = modes.pack[:-1]


class save_on_cpu(saved_tensors_hooks):
    """Keep tensors in the CPU's memory; the CPU's own are kept as a copy."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__(lambda t: engine.without_grad(engine.clone, t.detach()), lambda t: t)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message, is_tracing=False):
    """Inside, saved_tensors_hooks raises with this message."""
    if modes.pack:
        raise RuntimeError(error_message)
    before, modes.hooks_refused = modes.hooks_refused, error_message
    try:
        yield
    finally:
        modes.hooks_refused = before


class _MultiHandle:
    """The handles of one hook on several tensors."""

    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Call fn once per backward: with all gradients when the last is known, or with the first."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    if mode == "any":
        hook = _first_only(fn, lock)
        return _MultiHandle([t.register_hook(hook) for t in tensors])
    pending = _Gathered(tensors, fn, lock)
    return _MultiHandle([t.register_hook(pending.hook(k)) for k, t in enumerate(tensors)])


def _first_only(fn, lock):
    last: list = [None]

    def hook(grad):
        with lock:
            walk = modes.walk
            first = last[0] is None or last[0]() is not walk
            last[0] = weakref.ref(walk)
        if first:
            fn(grad)

    return hook


class _Gathered:
    """Gradients of several tensors until the last one that will come is there."""

    def __init__(self, tensors, fn, lock):
        self.tensors, self.fn, self.lock = list(tensors), fn, lock
        self.walk, self.grads, self.expected = None, {}, 0

    def hook(self, place):
        def gather(grad):
            with self.lock:
                self._begin(modes.walk)
                self.grads[place] = grad
                complete = len(self.grads) == self.expected
                grads = self.grads
            if complete:
                self.fn([grads.get(k) for k in range(len(self.tensors))])
        return gather

    def _begin(self, walk) -> None:
        """The first gradient of a walk: find out how many will come."""
        if self.walk is not None and self.walk() is walk:
            return
        self.walk, self.grads = weakref.ref(walk), {}
        reached = _reached(walk.roots)
        self.expected = sum(1 for t in self.tensors if id(edge_of_step(t)) in reached)


def edge_of_step(tensor):
    """The step that made a tensor, or a leaf itself."""
    return tensor if tensor.node is LEAF else tensor.grad_fn


def _reached(roots) -> set[int]:
    """Everything that a walk back from these edges comes through."""
    seen, stack = set(), list(roots)
    while stack:
        step = stack.pop()
        step = step.node if type(step) is Edge else step
        if step is None or id(step) in seen:
            continue
        seen.add(id(step))
        stack.extend(getattr(step, "parents", ()) if isinstance(step, Node) else ())
    return seen


def increment_version(tensor):
    """Count a change that was made behind the library's back."""
    for each in [tensor] if isinstance(tensor, Tensor) else tensor:
        each.mem.version += 1


class allow_mutation_on_saved_tensors:
    """Inside, kept tensors may be changed in place: what was kept is a copy."""

    def __enter__(self):
        self.hooks = saved_tensors_hooks(
            lambda t: engine.without_grad(engine.clone, t.detach()), lambda t: t)
        self.hooks.__enter__()
        return self

    def __exit__(self, *error):
        self.hooks.__exit__(*error)


__all__ = ["GradientEdge", "Handle", "Node", "allow_mutation_on_saved_tensors",
           "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
           "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]
