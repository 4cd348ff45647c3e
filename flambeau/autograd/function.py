"""Functions of one's own: a forward, and a backward that says how gradients go back."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from ..engine import history
from ..engine.eager import engine
from ..engine.interception import lazily_traced, plainly
from ..engine.modes import modes
from ..engine.node import Edge, edge_of, kept_values, new_node
from ..engine.tensor import Tensor, make
from ..engine.way_back import reattached
from ..engine.writing import changed, check_writable


class FunctionCtx:
    """What forward leaves for backward."""

    _function: Any    # the Function whose call this is
    _results: dict    # which of the kept tensors are results: place -> number

    def __init__(self):
        self._to_save: tuple = ()
        self._dirty: tuple = ()
        self._constant: frozenset = frozenset()
        self._materialize = True
        self._node = None
        self.needs_input_grad: tuple = ()

    def save_for_backward(self, *tensors) -> None:
        """Keep inputs or results, checked to be unchanged when they are asked for."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError("save_for_backward can only save variables, but argument is of "
                                f"type {type(t).__name__}")
        self._to_save = tensors

    def save_for_forward(self, *tensors) -> None:
        """Keep tensors for a forward-mode derivative."""
        self.saved_for_forward = tensors

    @property
    def saved_tensors(self) -> tuple:
        """What save_for_backward kept."""
        if self._node is None:
            return self._to_save
        node = self._node()
        if node is None:
            raise RuntimeError("saved_tensors: the graph this context belongs to is gone")
        kept = kept_values(node)
        return tuple(_reattached_result(node, t, self._results.get(k))
                     for k, t in enumerate(kept))

    def mark_dirty(self, *tensors) -> None:
        """Tell which inputs forward changed in place."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors) -> None:
        """Tell which results have no gradient."""
        self._constant = frozenset(map(id, tensors))

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros, or None, for results that were not used."""
        self._materialize = value

    def name(self) -> str:
        return f"{self._function.__name__}Backward"


def _reattached_result(node, t, number):
    """A kept result as part of the graph; other tensors as they are."""
    if number is None or not modes.grad:
        return t
    return reattached(t, node if len(node.sigs) == 1 else Edge(node, number))


class CustomBack:
    """Goes back by a Function's own backward."""

    def __init__(self, ctx: FunctionCtx, places: list, sigs: list, count: int):
        self.ctx, self.places, self.sigs, self.count = ctx, places, sigs, count

    def name(self) -> str:
        return self.ctx.name()

    def saved(self, node, name):
        return getattr(self.ctx, name)

    def pull(self, node, g):
        ctx = self.ctx
        given = list(g) if len(node.sigs) > 1 else [g]
        if ctx._materialize:
            given = [engine.zeros_of(sig) if part is None else part
                     for part, sig in zip(given, node.sigs, strict=True)]
        kept_values(node)
        found = ctx._function.backward(ctx, *given)
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        while len(found) > self.count and found[-1] is None:
            found.pop()
        if len(found) != self.count:
            raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients "
                               f"(expected {self.count}, got {len(found)})")
        return [self._fitting(found[place], place, sig) if parent is not None else None
                for place, sig, parent in zip(self.places, self.sigs, node.parents, strict=True)]

    def _fitting(self, g, place: int, sig):
        """A gradient of the shape and dtype of what it is for."""
        if g is None:
            return None
        if not isinstance(g, Tensor):
            raise TypeError(f"{self.name()}.backward: expected Tensor or None for gradient "
                            f"{place}, got {type(g).__name__}")
        if g.sig.shape != sig.shape:
            lead = g.sig.rank - sig.rank
            wide = lead >= 0 and all(n in (1, g.sig.shape[d + lead])
                                     for d, n in enumerate(sig.shape))
            if not wide:
                raise RuntimeError(f"Function {self.name()} returned an invalid gradient at index "
                                   f"{place} - got {list(g.sig.shape)} but expected shape "
                                   f"compatible with {list(sig.shape)}")
            g = engine.sum_to(g, sig.shape)
        if g.sig.dtype is not sig.dtype:
            g = engine.cast(_real_part(g) if sig.dtype.kind != "c" else g, sig.dtype)
        return g


def _real_part(g: Tensor) -> Tensor:
    return engine.real(g) if g.sig.dtype.kind == "c" else g


class _FunctionBase(FunctionCtx):
    """apply, for Function and what imitates it."""

    @classmethod
    def apply(cls, *args, **kwargs):
        """Run forward, and record the step."""
        if kwargs:
            raise TypeError(f"{cls.__name__}.apply() takes no keyword arguments")
        if lazily_traced():
            return plainly(cls.apply, *args)
        return cls._applied(cls._context(), args)

    @classmethod
    def _applied(cls, ctx, args):
        wanted = tuple(isinstance(a, Tensor) and a.node is not None for a in args)
        ctx.needs_input_grad = wanted if modes.grad else (False,) * len(args)
        recording = modes.grad and any(wanted)
        edges = [edge_of(a) if w else None for a, w in zip(args, wanted, strict=True)]
        before, modes.grad = modes.grad, False
        try:
            outputs = cls._forward(ctx, args)
        finally:
            modes.grad = before
        single = not isinstance(outputs, (tuple, list))
        results = [outputs] if single else list(outputs)
        results = _finish(ctx, args, edges, results, recording)
        return results[0] if single else tuple(results)

    @classmethod
    def _context(cls):
        ctx = FunctionCtx()
        ctx._function = cls
        return ctx

    @classmethod
    def _forward(cls, ctx, args):
        if cls.setup_context is not Function.setup_context:
            outputs = cls.forward(*args)
            cls.setup_context(ctx, args, outputs)
            return outputs
        return cls.forward(ctx, *args)


def _finish(ctx: FunctionCtx, args, edges, results, recording: bool) -> list:
    """Results with their place in the graph."""
    dirty = {id(t) for t in ctx._dirty}
    for t in ctx._dirty:
        if recording:
            check_writable(t, ctx._function.__name__)
        changed(t)
    given = {id(a) for a in args if isinstance(a, Tensor)}
    results = [make(r.sig, r.mem, r.ptr) if isinstance(r, Tensor) and id(r) in given
               and id(r) not in dirty else r for r in results]
    if not recording:
        return results
    tensors = [(k, r) for k, r in enumerate(results) if isinstance(r, Tensor)]
    numbers = {id(r): k for k, (_, r) in enumerate(tensors)}
    places = [k for k, a in enumerate(args) if isinstance(a, Tensor)]
    kept = tuple(make(t.sig, t.mem, t.ptr) if id(t) in numbers else t for t in ctx._to_save)
    ctx._results = {k: numbers[id(t)] for k, t in enumerate(ctx._to_save) if id(t) in numbers}
    back = CustomBack(ctx, places, [args[k].sig for k in places], len(args))
    node = new_node(back, tuple(edges[k] for k in places), kept, tuple(r.sig for _, r in tensors))
    ctx._node, ctx._to_save, ctx._dirty = weakref.ref(node), (), ()
    for number, (_, r) in enumerate(tensors):
        if id(r) in ctx._constant or r.sig.dtype.kind not in "fc":
            continue
        if id(r) in dirty and len(tensors) == 1:
            history.replace_history(r, node)
        else:
            r.node = node if len(tensors) == 1 else Edge(node, number)
    return results


class Function(_FunctionBase):
    """Base of functions with a backward of their own.

    >>> class Double(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g * 2
    """

    generate_vmap_rule = False

    def __init__(self, *args, **kwargs):
        raise RuntimeError(f"{type(self).__name__}: an instance cannot be made; write static "
                           "forward and backward methods and call .apply(...)")

    @staticmethod
    def forward(*args, **kwargs):
        """Compute the result; overridden."""
        raise NotImplementedError("You must implement the forward function for custom "
                                  "autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keep what backward needs, when forward does not take ctx; overridden."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """The gradient of each input; overridden."""
        raise NotImplementedError("You must implement either the backward or vjp method for your "
                                  "custom autograd.Function to use it with backward mode AD.")

    @staticmethod
    def jvp(ctx, *grad_inputs):
        """The forward-mode derivative; overridden."""
        raise NotImplementedError("You must implement the jvp function for custom "
                                  "autograd.Function to use it with forward mode AD.")

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "vjp" in cls.__dict__ and "backward" not in cls.__dict__:
            cls.backward = cls.__dict__["vjp"]


class NestedIOFunction(Function):
    """Kept for isinstance checks of older programs."""


class InplaceFunction(Function):
    """Kept for older programs."""


BackwardCFunction = FunctionCtx


class _Refusing:
    """Goes back from what once_differentiable computed: it does not."""

    def name(self) -> str:
        return "DelayedErrorBackward"

    def pull(self, node, g):
        raise RuntimeError("trying to differentiate twice a function that was marked with "
                           "@once_differentiable")


def once_differentiable(backward):
    """Decorator of a backward whose own steps are not to be differentiated."""

    @functools.wraps(backward)
    def once(ctx, *grads):
        before, modes.grad = modes.grad, False
        try:
            found = backward(ctx, *grads)
        finally:
            modes.grad = before
        again = modes.grad and any(isinstance(g, Tensor) and g.node is not None
                                   for g in (*grads, *ctx.saved_tensors))
        if not again:
            return found
        several = isinstance(found, tuple)
        parts = [_refusing(part) for part in (found if several else (found,))]
        return tuple(parts) if several else parts[0]

    return once


def _refusing(part):
    if not isinstance(part, Tensor):
        return part
    out = make(part.sig, part.mem, part.ptr)
    out.node = new_node(_Refusing(), (), (), (part.sig,))
    return out


__all__ = ["BackwardCFunction", "Function", "FunctionCtx", "InplaceFunction", "NestedIOFunction",
           "once_differentiable"]
