"""Forward mode: tensors that carry a tangent, and ops that carry it on.

A dual tensor has a signature that is in no plan, so every op asks the level it belongs to, as ops
ask a trace, and ops on other tensors never know. The level finds the tangent of each result by
going back twice through that one op: its gradient is linear in the cotangent, and the transpose of
that is the product that is wanted. So whatever can be differentiated has a forward mode, nothing is
kept beyond one op, and neither `no_grad` nor writing in place gets in the way.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor
from flambeau.utils._pytree import tree_leaves, tree_map

from ..compiler.phantom import TRACE, plain, traced
from ..engine import backward as going_back
from ..engine import interception, subclass
from ..engine.assignment import setitem_op
from ..ops.declare import View, registry
from .function import _FunctionBase

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual",
           "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """A dual tensor in its two parts."""

    primal: Tensor
    tangent: Tensor | None


class _Enabled(threading.local):
    """Whether ops of this thread carry tangents on."""

    now = True


_enabled = _Enabled()
_levels: list[_Level] = []


def enter_dual_level() -> int:
    """Open a level: inside, tensors may be dual. There can be one at a time."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    interception.settle("a level of forward mode is opened")
    _levels.append(_Level())
    interception.trace_with(_levels[-1])
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: the tangents in it are gone."""
    current = len(_levels) - 1
    if level is not None and level != current:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was "
                           "created. This is not supported.")
    if not _levels:
        raise RuntimeError("Dual level must be a positive number.")
    closed = _levels.pop()
    interception.trace_no_more(closed)
    closed.forget()


class dual_level(contextlib.ContextDecorator):
    """A level of forward mode, as a context.

    >>> import flambeau as torch
    >>> import flambeau.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(torch.tensor(3.0), torch.tensor(1.0))
    ...     print(fwAD.unpack_dual(x * x).tangent)
    tensor(6.)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *failure: Any) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor over the same memory that carries a tangent."""
    if not _levels:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, "
                           "make sure to enter_dual_level() first.")
    for part, x in (("primal", tensor), ("tangent", tangent)):
        if not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"Expected {part} to be floating point or complex, but got: {x.dtype}")
    if tangent_of(tensor) is not None:
        raise RuntimeError("Making a dual Tensor based on a Tensor that already has a forward "
                           "gradient at the same level 0 is not supported.")
    if tensor.shape != tangent.shape:
        raise RuntimeError("Trying to set a forward gradient that has a different size than that "
                           "of the original Tensor, this is not supported. Tensor is of size "
                           f"{list(tensor.shape)} while the given forward gradient is of size "
                           f"{list(tangent.shape)}.")
    return _levels[-1].tag(tensor.view_as(tensor), tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(the tensor without its tangent, its tangent or None)."""
    tangent = tangent_of(tensor)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    with _levels[-1].untagged([tensor]):
        return UnpackedDualTensor(tensor.view_as(tensor), tangent)


def tangent_of(x: Any) -> Any:
    """What a tensor carries in the open level."""
    return x.__dict__.get("_tangent")


def _is_fwd_grad_enabled() -> bool:
    return _enabled.now


class _set_fwd_grad_enabled(contextlib.ContextDecorator):
    """Whether ops carry tangents on, from here or in a context."""

    def __init__(self, mode: bool):
        self.before, _enabled.now = _enabled.now, mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failure: Any) -> None:
        _enabled.now = self.before


class _Level:
    """Answers the ops that dual tensors have a part in."""

    lazy = True  # so that whatever reads memory or walks the graph by itself asks too
    follow = staticmethod(interception.follow_nothing)

    def __init__(self) -> None:
        self.duals: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self.thread, self.inside = threading.get_ident(), False

    # -- dual tensors ----------------------------------------------------------------------------

    def tag(self, x: Any, tangent: Tensor) -> Tensor:
        """Give a tensor its tangent, laid out as the tensor is, so that views of both match."""
        if tangent.stride() != x.stride():
            with self.untagged([x]), flambeau.no_grad():
                same = flambeau.empty_like(x, dtype=tangent.dtype)
            tangent = same.copy_(tangent)
        x.__dict__["_tangent"] = tangent
        x.sig = traced(x.sig)
        self.duals[id(x)] = x
        return x

    def forget(self) -> None:
        for x in list(self.duals.values()):
            x.__dict__.pop("_tangent", None)
            x.sig = plain(x.sig)

    @contextlib.contextmanager
    def untagged(self, tensors: list):
        """Inside, these are tensors like any other, and nothing asks."""
        outer, self.inside = self.inside, True
        others = [x for x in tensors if tangent_of(x) is None]  # of a compiled call around
        for x in tensors:
            x.sig = plain(x.sig)
        try:
            yield
        finally:
            self.inside = outer
            for x in tensors:
                if tangent_of(x) is not None or any(x is y for y in others):
                    x.sig = traced(x.sig)

    # -- what the engine asks --------------------------------------------------------------------

    def __call__(self, op: Any, args: tuple, kwargs: dict):
        """(result,) of an op on dual tensors, else None."""
        duals = _duals((args, kwargs))
        if not duals:
            return None
        run = subclass.function_of(op)
        with self.untagged(duals):
            if not _enabled.now or op.name == "detach" or all(
                    tangent_of(x) is None for x in duals):
                return (run(*args, **kwargs),)
            if op is setitem_op or _writes(op.name):
                return (self._change(op, run, args, kwargs),)
            return (self._carry(run, args, kwargs, duals),)

    def grad(self, op: Any, args: tuple) -> None:
        """`grad` runs by itself."""

    def run_plainly(self, work: Any, *args: Any, **kwargs: Any):
        """Work that is no op, on tensors like any other."""
        duals = _duals((args, kwargs))
        if work in (going_back.backward, going_back.grad):
            for x in duals:
                self.backward(None, x, None, False)
        with self.untagged(duals):
            cls = getattr(work, "__self__", None)
            if duals and _enabled.now and isinstance(cls, type) and issubclass(cls, _FunctionBase):
                return self._apply(cls, args)
            return work(*args, **kwargs)

    def traces(self) -> bool:
        return not self.inside and threading.get_ident() == self.thread

    def backward(self, op: Any, x: Tensor, gradient: Any, retain: bool) -> bool:
        """Going back from a dual tensor: what steps have kept carries no tangents."""
        if tangent_of(x) is None:
            return False
        raise RuntimeError("forward mode over reverse mode: going back from a dual tensor would "
                           "lose tangents. torch.func.jvp(torch.func.grad(f), ...) computes it; "
                           "unpack_dual(x).primal.backward() goes back without them.")

    def factory(self, op: Any, args: tuple, kwargs: dict):
        """Numbers that are drawn carry nothing; a dual tensor filled with them carries zeros."""
        duals = _duals(args)
        if not duals:
            return None
        with self.untagged(duals):
            if _writes(op.name) and tangent_of(args[0]) is not None:
                tangent_of(args[0]).zero_()
            return (op.run(*args, **kwargs),)

    def created(self, x: Tensor) -> None:
        """New tensors carry nothing."""

    def read(self) -> None:
        """All is computed at once."""

    def recast(self) -> None:
        """All is computed at once."""

    def draws(self) -> None:
        """All is computed at once."""

    def settle(self, reason: str) -> None:
        """All is computed at once."""

    def writes(self, x: Tensor, name: str) -> None:
        """All is computed at once."""

    # -- carrying tangents on --------------------------------------------------------------------

    def _carry(self, run: Any, args: tuple, kwargs: dict, duals: list):
        """The results of an op, dual where they depend on dual tensors."""
        step = _Step(run, args, kwargs, duals)
        for x in duals:
            if tangent_of(x) is not None and step.shows(x):
                return self._view(run, args, kwargs, x)
        tangents = iter(step.tangents())
        return _mapped(step.result, lambda r: self._result(r, step, tangents))

    def _result(self, r: Any, step: _Step, tangents: Any):
        if id(r) in step.originals:
            return step.originals[id(r)]
        tangent = next(tangents)
        r = r if step.recorded else r.detach()
        return r if tangent is None else self.tag(r, tangent)

    def _view(self, run: Any, args: tuple, kwargs: dict, x: Tensor):
        """Part of a dual tensor: the same part of its tangent goes with it."""
        result = run(*args, **kwargs)
        shown = tree_map(lambda a: tangent_of(x) if a is x else a, (args, kwargs))
        parts = iter(_tensors(run(*shown[0], **shown[1])))
        return _mapped(result, lambda r: self.tag(r, next(parts)))

    def _change(self, op: Any, run: Any, args: tuple, kwargs: dict):
        """A form that writes into its first argument, which changes the tangent too."""
        x, *rest = args
        if isinstance(registry.get(op.name.removesuffix("_")), View):
            shown = tangent_of(x)
            run(x, *rest, **kwargs)
            x.__dict__["_tangent"] = run(shown.view_as(shown), *rest, **kwargs)
            return x
        state = flambeau.get_rng_state()
        duals = _duals_by_tangent((args, kwargs))

        def changed(y: Tensor, *others: Any, **named: Any) -> Tensor:
            copy = y.clone()
            run(copy, *others, **named)
            return copy

        with self.untagged(duals):
            step = _Step(changed, args, kwargs, duals)
            if step.keep:  # what is kept of the tangent is about to change
                step.given = [t.clone() for t in step.given]
            tangent = step.tangents()[0]
            flambeau.set_rng_state(state)
            result = run(*args, **kwargs)
            self._replace(x, flambeau.zeros_like(x) if tangent is None else tangent)
        return x if result is None else result

    def _replace(self, x: Any, tangent: Tensor) -> None:
        """The tangent of what was changed, in place, so that views share the change."""
        have, base = tangent_of(x), x._base
        if have is None and base is not None and tangent_of(base) is None:
            whole = flambeau.zeros_like(base)
            self.tag(base, whole)
            have = whole.as_strided(x.shape, x.stride(), (x.data_ptr() - base.data_ptr())
                                    // x.element_size())
            self.tag(x, have)
            x.sig = plain(x.sig)  # until the caller is done with it
        if have is None:
            self.tag(x, tangent)
        else:
            have.copy_(tangent)

    def _apply(self, cls: type[_FunctionBase], args: tuple):
        """A custom Function, by its own `jvp`."""
        duals = _duals_by_tangent(args)
        with self.untagged(duals):
            ctx = cls._context()
            outputs = cls._applied(ctx, args)
            tangents = [_materialized(a) for a in args]
            node, kept = ctx._node, ctx._to_save
            ctx._node, ctx._to_save = None, getattr(ctx, "saved_for_forward", ())
            try:
                found = cls.jvp(ctx, *tangents)  # type: ignore[attr-defined]
            finally:
                ctx._node, ctx._to_save = node, kept
        single = isinstance(outputs, Tensor)
        pairs = zip((outputs,) if single else outputs, (found,) if single else found, strict=True)
        results = [out if t is None or not isinstance(out, Tensor) else self.tag(out, t)
                   for out, t in pairs]
        return results[0] if single else tuple(results)


def _writes(name: str) -> bool:
    """Whether a name is that of a form that works in place."""
    return name.endswith("_") and not name.endswith("__") and name != "T_"  # which is x.T


def _materialized(a: Any) -> Tensor | None:
    """What `jvp` is told of an argument."""
    if not isinstance(a, Tensor):
        return None
    found = tangent_of(a)
    return flambeau.zeros_like(a) if found is None else found


def _duals(structure: Any) -> list[Tensor]:
    """The tensors that ask, each once."""
    leaves: list[Any] = [x for x in tree_leaves(structure) if isinstance(x, Tensor)]
    return list({id(x): x for x in leaves if x.sig.tag is TRACE}.values())


def _duals_by_tangent(structure: Any) -> list[Tensor]:
    """The dual tensors, when they do not ask."""
    return list({id(x): x for x in tree_leaves(structure)
                 if isinstance(x, Tensor) and tangent_of(x) is not None}.values())


def _mapped(result: Any, change: Any) -> Any:
    """What an op returned, with every tensor in it changed."""
    if isinstance(result, Tensor):
        return change(result)
    if not isinstance(result, (tuple, list)):
        return result
    return type(result)([_mapped(r, change) for r in result])


def _tensors(result: Any) -> list[Any]:
    found: list[Any] = []
    _mapped(result, found.append)
    return found


class _Step:
    """One op, run on tensors that stand in for the dual ones, and differentiated there."""

    def __init__(self, run: Any, args: tuple, kwargs: dict, duals: list):
        recording = flambeau.is_grad_enabled()
        self.recorded = recording and any(isinstance(a, Tensor) and a.requires_grad
                                          for a in tree_leaves((args, kwargs)))
        carrying = [x for x in duals if tangent_of(x) is not None]
        self.given = [tangent_of(x) for x in carrying]
        with flambeau.enable_grad():
            self.inputs = [x.view_as(x) if recording and x.requires_grad else
                           x.detach().requires_grad_() for x in carrying]
            places = {id(x): p for x, p in zip(carrying, self.inputs, strict=True)}
            args, kwargs = tree_map(lambda a: places.get(id(a), a), (args, kwargs))
            self.result = run(*args, **kwargs)
        self.originals = {id(p): x for x, p in zip(carrying, self.inputs, strict=True)}
        self.keep = recording and (self.recorded or any(t.requires_grad for t in self.given))

    def shows(self, x: Any) -> bool:
        """Whether a result is a part of x, in x's own memory."""
        return any(r.mem is x.mem and id(r) not in self.originals for r in _tensors(self.result))

    def tangents(self) -> list:
        """For each tensor among the results its tangent, or None."""
        outs = [r for r in _tensors(self.result) if id(r) not in self.originals]
        chosen = [o for o in outs if o.requires_grad]
        found = dict(zip(map(id, chosen), self._products(chosen), strict=True))
        return [found.get(id(o)) for o in outs]

    def _products(self, outs: list) -> list:
        if not outs:
            return []
        with flambeau.enable_grad():
            seeds = [flambeau.zeros_like(o).requires_grad_() for o in outs]
            back = going_back.grad(outs, self.inputs, seeds, create_graph=True, allow_unused=True)
            pairs = [(b, t.to(b.dtype)) for b, t in zip(back, self.given, strict=True)
                     if b is not None and b.requires_grad]
            if not pairs:
                return [None] * len(outs)
            pushed = going_back.grad([b for b, _ in pairs], seeds, [t for _, t in pairs],
                                     create_graph=self.keep, allow_unused=True)
        return [flambeau.zeros_like(o.detach()) if p is None else p if self.keep else p.detach()
                for o, p in zip(outs, pushed, strict=True)]
