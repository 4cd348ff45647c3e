"""Batched tensors: what a function under vmap sees as one example, all examples being computed.

A batched tensor has the shape of one example and stands for `whole`, which has one more dimension
in front. Its signature is in no plan, so every op asks here: a rule says how the op is applied to
all examples at once (rules.py), and where there is none it is applied to one after the other.
Steps are recorded for the wholes, so going back knows nothing of batches.

It has no memory and no value that Python could know, and refuses to be asked for one as torch's do.
What else needs memory, a write in place or a custom Function, is refused with Unbatched, and vmap
starts again with the examples one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor

from ..engine import subclass
from ..engine.formula import bind
from ..engine.tensor import signature
from ..ops.declare import Op
from . import tree

#: how calls are applied to all examples at once, by the name of an op, and by its kind
RULES: dict[str, Callable] = {}
KINDS: dict[str, Callable] = {}


class Unbatched(Exception):
    """The value of one example is needed."""


class NoRule(Exception):
    """A call that a rule does not cover."""


class Level:
    """One vmap at work: how many examples it has, and how many others are around it."""

    def __init__(self, size: int, depth: int):
        self.size, self.depth = size, depth

    def __enter__(self) -> Level:
        _open.levels.append(self)
        return self

    def __exit__(self, *failure: Any) -> None:
        _open.levels.pop()

    def batched(self, whole: Any) -> Batched:
        """The tensor that stands for a whole, which has the examples in front."""
        x = object.__new__(Batched)
        sig = whole.sig
        x.sig = signature(sig.dtype, tuple(sig.shape[1:]), tuple(sig.strides[1:]), sig.device,
                          Batched)
        x.whole, x.level = whole, self
        for fill, value in _BLANK:
            fill(x, value)
        return x

    def owns(self, x: Any) -> bool:
        return isinstance(x, Batched) and x.level is self

    def whole(self, x: Any) -> Any:
        """All examples of a tensor, which are the same if it is not batched."""
        return x.whole if self.owns(x) else x.unsqueeze(0).expand(self.size, *x.shape)


class _Open(threading.local):
    """The levels that are open in a thread, the outermost first."""

    def __init__(self) -> None:
        self.levels: list[Level] = []


_open = _Open()


def new_level(size: int) -> Level:
    return Level(size, len(_open.levels))


def under_way() -> bool:
    """Whether a function is being run for all examples at once."""
    return bool(_open.levels)


def apart(x: Any) -> Any:
    """The same tensor with examples of its own at every open level, so that they can differ."""
    return _apart(x, len(_open.levels))


def _apart(x: Any, depth: int) -> Any:
    if not depth:
        return x
    level = _open.levels[depth - 1]
    return level.batched(_apart(level.whole(x), depth - 1))


def bare(x: Any) -> Any:
    """What a tensor stands for at all levels together: a tensor with memory and a graph."""
    while isinstance(x, Batched):
        x = x.whole
    return x


def like(x: Any, found: Any) -> Any:
    """The bare tensor `found` as batched as x is."""
    return x.level.batched(like(x.whole, found)) if isinstance(x, Batched) else found


def _refusing(message: str) -> Callable:
    """A method for what no example has alone: a number, or memory."""
    def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(message)
    return refused


class Batched(Tensor):
    """One example in shape, all of them in `whole`."""

    __slots__ = ("level", "whole")
    __module__ = "torch"

    _has_memory = False

    level: Level
    sig: Any
    whole: Any

    def _needs_memory(self) -> Any:
        raise Unbatched

    mem = ptr = node = property(_needs_memory)
    item = __int__ = __float__ = __complex__ = __index__ = _refusing(
        "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
        "calling .item() on a Tensor, please try to rewrite what you're doing with other "
        "operations.")
    __bool__ = is_nonzero = _refusing(
        "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
        "flow. We don't support that; torch.where chooses for each example.")
    tolist = numpy = __array__ = _refusing(
        "Cannot access data pointer of Tensor that doesn't have storage")
    requires_grad = property(lambda self: self.whole.requires_grad)
    is_leaf = property(lambda self: self.whole.is_leaf)
    grad_fn = property(lambda self: self.whole.grad_fn)

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (),
                           kwargs: dict | None = None) -> Any:
        return Call(func, args, kwargs or {}).answer()


#: what native fronts find where a tensor with memory says where that is
_BLANK = ((Tensor.__dict__["ptr"].__set__, 0), (Tensor.__dict__["mem"].__set__, None),
          (Tensor.__dict__["node"].__set__, None))


class Call:
    """An op that is called on batched tensors, at the innermost of their levels."""

    def __init__(self, func: Callable, args: tuple, kwargs: dict):
        self.func, self.args, self.kwargs = func, args, kwargs
        self.op: Any = _op_of(func)
        levels = [x.level for x in self.tensors() if isinstance(x, Batched)]
        self.level = levels[0] if len(levels) == 1 else max(levels, key=_depth)

    def tensors(self) -> list[Any]:
        """The tensors among the arguments."""
        found: list[Any] = []
        for a in (*self.args, *self.kwargs.values()) if self.kwargs else self.args:
            if isinstance(a, Tensor):
                found.append(a)
            elif type(a) in (list, tuple):
                found += [x for x in tree.leaves(a) if isinstance(x, Tensor)]
        return found

    def bound(self) -> dict:
        """Arguments by parameter name."""
        if self.op is None or not self.op.names:
            raise NoRule
        args = self.args
        if getattr(self.op, "variadic", False) and len(args) > 2:
            args = (args[0], args[1:])
        return bind(self.op, args, self.kwargs)

    def on(self, **changed: Any) -> Any:
        """The same call with some arguments changed; those that are defaults are not given."""
        given = {**self.bound(), **changed}
        first, *others = self.op.names
        defaults = self.op.defaults
        return self.func(given[first], **{
            name: given[name] for name in others
            if name in changed or name not in defaults or given[name] is not defaults[name]})

    def replaced(self, change: Callable[[Any], Any]) -> Any:
        """The same call on what becomes of the tensors."""
        args = [_replaced(a, change) for a in self.args]
        if not self.kwargs:
            return self.func(*args)
        return self.func(*args, **{k: _replaced(v, change) for k, v in self.kwargs.items()})

    def wholes(self) -> Any:
        """The same call on wholes, other tensors being as they are."""
        return self.replaced(lambda x: x.whole if self.level.owns(x) else x)

    def rule(self) -> Callable | None:
        """The rule of the op by its name, else by its kind; None if there is neither."""
        if self.op is None:
            return RULES.get(getattr(self.func, "__name__", ""))
        return RULES.get(self.op.name) or KINDS.get(self.op.kind)

    def answer(self) -> Any:
        rule = self.rule()
        if rule is None:
            return self.each()
        try:
            return rule(self)
        except (NoRule, Unbatched, RuntimeError, ValueError, TypeError, IndexError,
                NotImplementedError):
            return self.each()  # which says what is wrong, if something is, of one example

    def wrapped(self, result: Any) -> Any:
        """Wholes among results, as batched tensors."""
        if isinstance(result, Tensor):
            return self.level.batched(result)
        return tree.mapped(lambda x: self.level.batched(x) if isinstance(x, Tensor) else x, result)

    def each(self) -> Any:
        """The call for one example after the other."""
        slices = {id(x): x.whole.unbind(0) for x in self.tensors() if self.level.owns(x)}

        def example(k: int) -> Any:
            return self.replaced(lambda x: slices[id(x)][k] if id(x) in slices else x)

        results = [example(k) for k in range(self.level.size)]
        columns = list(zip(*map(tree.leaves, results), strict=True))
        if not all(isinstance(x, Tensor) for x in next(zip(*columns), ())) or not columns:
            raise Unbatched  # a number that Python would know of one example
        return tree.filled(results[0], [self.level.batched(flambeau.stack(column))
                                        for column in columns])


def _replaced(a: Any, change: Callable[[Any], Any]) -> Any:
    """An argument with what becomes of the tensors in it.

    A function of its own: one inside a method that calls itself would keep all it knows alive.
    """
    if isinstance(a, Tensor):
        return change(a)
    return tree.mapped(lambda x: _replaced(x, change), a) if type(a) in (list, tuple) else a


def _depth(level: Level) -> int:
    return level.depth


_ops: dict[Callable, Op | None] = {}


def _op_of(func: Callable) -> Op | None:
    """The op that a public function stands for, if it is one."""
    if func not in _ops:
        _ops.update({f: op for op, f in subclass.functions.items() if isinstance(op, Op)})
    return _ops.setdefault(func, None)
