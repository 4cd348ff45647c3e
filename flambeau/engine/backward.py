"""The entry to going back: backward, grad, accumulation into leaves, anomalies."""

from __future__ import annotations

import sys

from ..core.device import META
from ..core.lazily import np
from .eager import engine
from .fresh import empty
from .interception import lazily_traced, plainly, tracers
from .modes import modes
from .node import Node, Walk, edge_of, key_of
from .storage import nowhere
from .tensor import LEAF, Tensor, make, signature
from .writing import extent


def run_backward(tensors, gradients, retain: bool, create: bool, wanted=None):
    """Walk back from tensors with gradients; returns the Walk."""
    walk = Walk(_Ops, retain, create, wanted)
    roots = walk.roots = [edge_of(t) for t in tensors]
    if wanted is not None:
        walk.restrict(roots)
    before, modes.grad = modes.grad, create
    own = modes.__dict__
    outer, own["walk"] = own.get("walk"), walk
    try:
        for root, g in zip(roots, gradients, strict=True):
            walk.give(root, g)
        del gradients, g
        walk.run()
    finally:
        modes.grad, own["walk"] = before, outer
    return walk


def go_back(x: Tensor, gradient, retain: bool) -> bool:
    """backward() of one tensor in the plainest case; False if this is not it."""
    node, sig = x.node, x.sig
    if type(node) is not Node:
        return False
    if gradient is None:
        if sig.numel != 1 or sig.dtype.kind != "f":
            return False
        g = ones(sig)
    elif isinstance(gradient, Tensor) and gradient.sig is sig and gradient.node is None:
        g = make(sig, gradient.mem, gradient.ptr)
    else:
        return False
    walk = Walk(_Ops, retain, False)
    walk.roots = [node]
    walk.pending[node] = g
    walk.heap.append((0, 0, node))
    del g
    own, before = modes.__dict__, modes.grad
    outer, own["walk"] = own.get("walk"), walk
    modes.grad = False
    try:
        walk.run()
    finally:
        modes.grad, own["walk"] = before, outer
    return True


def first_gradients(tensors, gradients, name: str) -> list:
    """One gradient per root: those given, or 1 for scalars, or torch's error."""
    if gradients is None:
        gradients = [None] * len(tensors)
    elif isinstance(gradients, Tensor):
        gradients = [gradients]
    if len(gradients) != len(tensors):
        raise RuntimeError(f"{name}: got {len(tensors)} tensors and {len(gradients)} gradients")
    found = []
    for t, g in zip(tensors, gradients, strict=True):
        if t.node is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a "
                               "grad_fn")
        if g is None:
            if t.sig.numel != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs; this "
                                   f"one has shape {tuple(t.sig.shape)}. Give backward() a "
                                   "gradient of that shape, or reduce it first, for example "
                                   "with .sum()")
            if t.sig.dtype.kind == "c":
                raise RuntimeError("grad can be implicitly created only for real scalar outputs "
                                   f"but got {t.sig.dtype}")
            g = ones(t.sig)
        elif tuple(g.sig.shape) != tuple(t.sig.shape):
            raise RuntimeError(f"Mismatch in shape: grad_output[0] has a shape of {g.sig.shape} "
                               f"and output[0] has a shape of {t.sig.shape}.")
        else:
            if g.sig.dtype is not t.sig.dtype:
                g = engine.cast(g, t.sig.dtype)
            g = _same_place(g)
        found.append(g)
    return found


def _same_place(g: Tensor) -> Tensor:
    """Another tensor over the same bytes: what the caller holds is never taken as a gradient."""
    if not g._has_memory or g.node is LEAF or g.is_sparse:
        return g
    again = make(g.sig, g.mem, g.ptr)
    again.node = g.node
    return again


_ones: dict = {}


def ones(sig) -> Tensor:
    """One element that is 1. Its bytes are shared and held here: nobody takes them for its own."""
    found = _ones.get(sig.dtype)
    if found is None:
        found = _ones[sig.dtype] = empty(signature(sig.dtype, ()))
        engine.fill(found, 1)
    return make(sig, found.mem if sig.device is not META else nowhere())


class _Ops:
    """What the walk needs of arithmetic."""

    @staticmethod
    def add(a: Tensor, b: Tensor) -> Tensor:
        # What is sparse can be added to what is not, but not the reverse.
        return engine.add(a, b) if a.sig.tag is None else engine.add(b, a)

    @staticmethod
    def accumulate(leaf: Tensor, g: Tensor, create: bool) -> None:
        """Add to a leaf's gradient, or make it that gradient."""
        if g.sig.dtype is not leaf.sig.dtype:
            g = engine.cast(g, leaf.sig.dtype)
        try:
            have = leaf._grad
        except AttributeError:
            have = None
        if have is not None:
            if create or modes.grad or have.sig.tag is not None:
                leaf._grad = _Ops.add(have, g)
            else:
                engine.accumulate_into(have, g)
            return
        # Steal the gradient's memory only if nobody else can see it.
        shared = sys.getrefcount(g.mem) > 2
        if shared or g.sig is not leaf.sig:
            kept = create or g.is_sparse
            g = engine.clone(g) if kept else engine.copy_like(g, leaf.sig)
        leaf._grad = g

    @staticmethod
    def check_anomaly(node: Node, grads) -> None:
        if not modes.anomaly_check_nan:
            return
        for i, g in enumerate(grads):
            if isinstance(g, Tensor) and g.sig.dtype.kind == "f" and np.isnan(
                    engine.to_array(g)).any():
                trace = (node.extra or {}).get("trace", "")
                raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th "
                                   f"output. The forward call that recorded it:\n{trace}")


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False,
             inputs=None) -> None:
    """Accumulate into every leaf that `tensors` were computed from its gradient."""
    if lazily_traced():
        return plainly(backward, tensors, grad_tensors, retain_graph, create_graph, inputs)
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    gradients = first_gradients(tensors, grad_tensors, "backward")
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run_backward(tensors, gradients, retain, create_graph)
        return
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    walk = run_backward(tensors, gradients, retain, create_graph, inputs)
    for x in inputs:
        g = walk.found.get(key_of(edge_of(x)))
        if g is not None:
            _Ops.accumulate(x, g, create_graph)


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False,
         only_inputs=True, allow_unused=None, is_grads_batched=False, materialize_grads=False):
    """Gradients of outputs with respect to inputs, returned and not accumulated."""
    if lazily_traced():
        found = None if is_grads_batched else tracers[-1].grad(GRAD, (
            _tuple(outputs), _tuple(inputs), None if grad_outputs is None else _tuple(grad_outputs),
            retain_graph, create_graph, only_inputs, allow_unused, False, materialize_grads))
        if found is not None:
            return found[0]
        return plainly(grad, outputs, inputs, grad_outputs, retain_graph, create_graph,
                       only_inputs, allow_unused, is_grads_batched, materialize_grads)
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when "
                         "materialize_grads=True, but got: allow_unused=False.")
    if is_grads_batched:
        return _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
    gradients = first_gradients(outputs, grad_outputs, "grad")
    for x in inputs:
        if x.node is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    retain = create_graph if retain_graph is None else retain_graph
    walk = run_backward(outputs, gradients, retain, create_graph, inputs)
    found = []
    for i, x in enumerate(inputs):
        g = walk.found.get(key_of(edge_of(x)))
        if g is None:
            if materialize_grads:
                g = engine.zeros_of(x.sig)
            elif not allow_unused:
                raise RuntimeError(
                    "One of the differentiated Tensors appears to not have been used in the graph. "
                    f"Set allow_unused=True if this is the desired behavior. (input {i}, of shape "
                    f"{tuple(x.sig.shape)})")
        elif x.node is LEAF:
            for hook in list(x.__dict__.get("_hooks", {}).values()):
                changed = hook(g)
                g = g if changed is None else changed
        found.append(g)
    return tuple(found)


def _tuple(tensors) -> tuple:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


class _Grad:
    """`grad` as traces see it: a call like that of an op."""

    name, run = "grad", staticmethod(grad)


GRAD = _Grad()


def _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused):
    """One walk for each slice of the given gradients, stacked."""
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = given[0].sig.shape[0]
    rows = [grad(outputs, inputs, [g[k] for g in given],
                 retain_graph if k == count - 1 else True, create_graph,
                 allow_unused=allow_unused) for k in range(count)]
    return tuple(None if column[0] is None else engine.stack(list(column))
                 for column in zip(*rows, strict=True))


__all__ = ["backward", "extent", "grad", "run_backward"]


def differentiable_gradients(outputs, inputs, gradients) -> tuple:
    """Gradients that can be differentiated again, for formulas that go back through parts."""
    return grad(outputs, inputs, gradients, create_graph=True, allow_unused=True)


engine.gradients = differentiable_gradients
