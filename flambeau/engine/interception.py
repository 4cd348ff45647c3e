"""Whom a call is told of before it runs: a trace that is under way, then subclasses and modes."""

from __future__ import annotations

import functools
from typing import Any

from ..core import dtype as dt
from ..core.device import device
from ..core.formats import layout, memory_format
from .modes import modes, watchers
from .node import fronts
from .onlookers import notice, onlookers
from .tensor import Size, Tensor

#: asked, in order, whether a call is theirs: traces, tensor subclasses, modes
interceptors: list = []


class Named:
    """What interceptors see of a function that is no op."""

    def __init__(self, name: str, run):
        self.name, self.run = name, run

    def __eq__(self, other):
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


@functools.cache
def named(name: str, run) -> Named:
    """One and the same for every call: native code tells calls by what they are calls of."""
    return Named(name, run)


#: types of arguments that are known to let every call be
PLAIN: set[type] = {Tensor, int, float, bool, complex, str, type(None), dt.dtype, Size, device,
                    layout, memory_format}
#: calls of compiled functions that are under way: asked before all others
tracers: list = []
#: how often anything was set on a module (the only element): a compiled call may depend on it
module_changes = [0]
#: tensors that factories made in compiled calls and that always hold the same numbers
constants: list = []
_follow = fronts.word("follow")
_followers: list = []


def trace_with(tracer) -> None:
    """Ask this one before all others, until `trace_no_more`."""
    tracers.append(tracer)
    _followers.append(tracer.follow)
    _follow.value = id(_followers[-1])


def trace_no_more(tracer) -> None:
    at = -1 if tracers[-1] is tracer else tracers.index(tracer)
    del _followers[at], tracers[at]
    _follow.value = id(_followers[-1]) if _followers else 0


def same_every_time(x: Tensor) -> Tensor:
    """Say of a new tensor that its numbers follow from Python's: shape, dtype, numbers given."""
    if tracers and tracers[-1].lazy:
        tracers[-1].created(x)
    return x


def tracing() -> bool:
    """Whether a compiled function is at work in this thread."""
    return bool(tracers) and tracers[-1].traces()


def settle(reason: str) -> None:
    """Before the graph, or what a tensor is, changes: what was asked for so far is computed."""
    if tracing():
        tracers[-1].settle(reason)


watchers.append(settle)


def plainly(work, *args, **kwargs):
    """Call something that reads and writes memory itself: on real tensors, nothing traced."""
    if tracing():
        return tracers[-1].run_plainly(work, *args, **kwargs)
    return work(*args, **kwargs)


def lazily_traced() -> bool:
    """Whether tensors of this thread may be promises: what looks at the graph needs real ones."""
    return tracing() and tracers[-1].lazy


def follow_nothing(op, args, kwargs, grad) -> None:
    """What a trace says that knows no path yet."""


def intercepted(op: Any, args, kwargs):
    """A 1-tuple with the result if somebody else answers this call, else None."""
    if tracers:
        followed = tracers[-1].follow(op, args, kwargs, modes.grad)
        if followed is not None:
            return (followed,)
        found = tracers[-1](op, args, kwargs)
        if found is not None:
            return found
    if PLAIN.issuperset(map(type, args)) and (
            not kwargs or PLAIN.issuperset(map(type, kwargs.values()))):
        return None
    for ask in interceptors:
        found = ask(op, args, kwargs)
        if found is not None:
            return found
    return None


# -- functions that make tensors -------------------------------------------------------------------


def in_trace(name: str, run, args, kwargs):
    """(result,) of a draw that is part of a compiled call, else None."""
    if onlookers:
        notice()
    given = {k: v for k, v in kwargs.items() if v is not None and v is not False}
    return tracers[-1].factory(named(name, run), args, given)


def in_words(name: str, run, args, kwargs):
    """(result,) of a call that an argument answers which is no plain tensor, else None."""
    given = {k: v for k, v in kwargs.items() if v is not None and v is not False}
    return intercepted(named(name, run), args, given)


def drawing(draw):
    """A function that draws numbers, as part of a compiled call where it is in one."""
    name = draw.__name__

    @functools.wraps(draw)
    def drawn(*args, **kwargs):
        if tracers:
            found = in_trace(name, drawn, args, kwargs)
            if found is not None:
                return found[0]
        try:
            return draw(*args, **kwargs)
        except TypeError:  # what is no tensor may answer for itself
            found = intercepted(named(name, drawn), args, kwargs)
            if found is None:
                raise
            return found[0]

    return drawn
