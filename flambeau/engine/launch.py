"""What a program is made of: launches of native code on places in memory, and checks of indices.

There are thousands of them while a path is learnt: plain classes with slots, which nobody changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Place:
    """A byte in a buffer ("buffer"), in outside memory ("outside") or in a constant."""

    __slots__ = ("offset", "root")

    def __init__(self, root: tuple[str, int], offset: int):
        self.root, self.offset = root, offset

    def __eq__(self, other) -> bool:
        return other.__class__ is Place and (
            self.root == other.root and self.offset == other.offset)

    def __hash__(self) -> int:
        return hash((self.root, self.offset))

    def __str__(self) -> str:
        kind, number = self.root
        return f"{kind[0]}{number}" + (f"+{self.offset}" if self.offset else "")

    __repr__ = __str__


class Live:
    """A number that is given anew on every run."""

    __slots__ = ("index",)

    def __init__(self, index: int):
        self.index = index

    def __eq__(self, other) -> bool:
        return other.__class__ is Live and self.index == other.index

    def __hash__(self) -> int:
        return hash(("number", self.index))

    def __str__(self) -> str:
        return f"n{self.index}"

    __repr__ = __str__


class Launch:
    """One call of native code: its arguments, and which of them it writes."""

    __slots__ = ("args", "effect", "function", "kernel", "name", "updates", "words", "written")

    def __init__(self, name: str, function: Any, kernel: Any, args: tuple,
                 words: tuple[int, ...] | None, written: tuple[int, ...],
                 updates: tuple[int, ...] = (), effect: bool = False):
        self.name, self.function, self.args = name, function, args
        self.kernel = kernel        # a Kernel, or None of code that is none
        self.words = words          # of a kernel's layout, if it has one
        self.written = written      # positions of arguments
        self.updates = updates      # of what it writes, what it reads before
        self.effect = effect        # it changes more than memory we know: a generator's state

    def places(self):
        return [(i, a) for i, a in enumerate(self.args) if isinstance(a, Place)]

    @property
    def reads(self) -> set:
        combining = self.kernel is not None and any(
            store.combine or store.coordinates is not None
            for kind, p in self.kernel.stages if kind != "fold" for store in p)
        return {a.root for i, a in self.places()
                if combining or i not in self.written or i in self.updates}

    @property
    def writes(self) -> set:
        return {self.args[i].root for i in self.written}

    def moved(self, args: tuple) -> Launch:
        """The same launch on other arguments."""
        return Launch(self.name, self.function, self.kernel, args, self.words, self.written,
                      self.updates, self.effect)

    def by(self, name: str, function: Any) -> Launch:
        """The same launch of other code."""
        return Launch(name, function, self.kernel, self.args, self.words, self.written,
                      self.updates, self.effect)

    def __str__(self) -> str:
        shown = ", ".join(str(a) for a in self.args)
        return f"{self.name[:14]}({shown})"


class Check:
    """Stop the program unless the least and the greatest of an index, just found, are in bounds."""

    __slots__ = ("high", "least", "low", "most", "refuse")

    writes: frozenset = frozenset()
    args: tuple = ()
    effect = True

    def __init__(self, least: Place, most: Place, low: int, high: int,
                 refuse: Callable[[int], Exception]):
        self.least, self.most, self.low, self.high = least, most, low, high
        self.refuse = refuse

    @property
    def reads(self) -> set:
        return {self.least.root, self.most.root}

    def places(self):
        return [(0, self.least), (1, self.most)]

    def __str__(self) -> str:
        return f"check {self.low} <= {self.least}, {self.most} < {self.high}"


class Output(NamedTuple):
    """What a routine makes, piece by piece, and how it is told to have pieces finished."""

    size: int       # of an element, in bytes
    elements: int   # side by side
    argument: int   # which of the routine's arguments is the address of its words
    room: int       # bytes of those words
    finish: int     # the byte of them where a function goes; the next word is what it is given
    patient: bool   # whether a kernel that computes much may finish it


class Finished:
    """A routine, and a pointwise kernel that runs on every piece of what it makes."""

    __slots__ = ("first", "output", "then")

    effect = False

    def __init__(self, first: Launch, then: Launch, output: Output):
        self.first, self.then, self.output = first, then, output

    @property
    def args(self) -> tuple:
        return (*self.first.args, *self.then.args)

    def places(self):
        return [(i, a) for i, a in enumerate(self.args) if isinstance(a, Place)]

    @property
    def reads(self) -> set:
        return self.first.reads | self.then.reads - self.first.writes

    @property
    def writes(self) -> set:
        return self.first.writes | self.then.writes

    def __str__(self) -> str:
        return f"{self.first} then {self.then}"


def parts(step) -> tuple:
    """The launches that a step of a program is made of."""
    return (step.first, step.then) if isinstance(step, Finished) else (step,)
