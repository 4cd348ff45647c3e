"""Paths through a compiled function: op calls up to a point where Python needs a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.launch import Place
from ..engine.packed import Packed
from ..engine.tensor import Signature
from ..engine.views import remember
from .fewer import fewer
from .overlap import overlapping
from .phantom import GRAPH, traced
from .program import Program
from .reorder import in_order
from .repeated import multiplied_once
from .shown import shown
from .simplify import needed

_ROOTS = ("buffer", "outside", "constant")
_WAYS = 7   # other calls that are tried where the one expected is not made


class Result:
    """A tensor that an op made: its signature, where it lies, whether it wants a gradient.

    Of a view also what it was taken from, a value or -1 - a tensor from outside, and whether that
    knows of it.
    """

    __slots__ = ("_offset", "_root", "base", "known", "node", "sig", "traced", "wants")

    def __init__(self, sig: Signature, place: Place, wants: bool, base: int | None = None,
                 known: bool = False):
        self.sig, self.traced, self.wants = sig, traced(sig), wants
        # A number in place of objects: there is a result for almost every call.
        kind, number = place.root
        self._root, self._offset = len(_ROOTS) * number + _ROOTS.index(kind), place.offset
        self.node = GRAPH if wants else None
        self.base, self.known = base, known

    @property
    def place(self) -> Place:
        number, kind = divmod(self._root, len(_ROOTS))
        return Place((_ROOTS[kind], number), self._offset)


class Same:
    """A result, or an argument, that is a tensor known already."""

    __slots__ = ("code",)

    def __init__(self, code: int):
        self.code = code


#: the same objects for all paths: there are many calls, and few numbers
_values: list[Same] = []
_others: list[Same] = []  # from -1 on


def same(code: int) -> Same:
    """What stands for a tensor that is known already."""
    known, number = (_values, code) if code >= 0 else (_others, -1 - code)
    while len(known) <= number:
        known.append(Same(len(known) if code >= 0 else -1 - len(known)))
    return known[number]


class Several:
    """A tuple, list or named tuple of results."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind, parts: tuple):
        self.kind, self.parts = kind, parts


class Chain:
    """All launches that were recorded from one start, and the memory they work on."""

    def __init__(self, first: int, recorder) -> None:
        self.first = first                  # steps of the graph made since then are its own
        self.launches: Packed = recorder.packed
        self.numbers: list[float] = []      # that calls were given
        self.results: list[Result] = []
        self.buffers: list[int] = recorder.buffers
        self.constants: list[bytes] = recorder.constants
        self.filled: dict[int, bytes] = recorder.filled
        self.keep: list = []
        self.homes: list = []               # where tensors from outside lay, see overlap.py
        self.expected = False               # whether calls are remembered, to be told at a glance
        self.rewrites = False               # whether an op changes what another one made


class Variant:
    """A program for one set of tensors that outlive the segment."""

    __slots__ = ("bases", "eagerly", "held", "kept", "live", "program", "saved", "shares",
                 "wanting", "written")

    def __init__(self, program: Any, live: list, written: list[int], wanting: list[int],
                 saved: list[int], eagerly: bool = False, shares: tuple | list = (),
                 bases: tuple | list = (), held: tuple = ()):
        self.program = program      # a Program, or None
        self.live = live            # (value, Result), with what others among them are views of
        self.written = written      # tensors from outside that it changes
        self.wanting = wanting      # values that want a gradient
        self.saved = saved          # buffers kept for going back
        self.eagerly = eagerly
        self.shares = shares        # how others lie in memory that it changes
        self.bases = bases          # (value, what it is a view of, whether that knows of it)
        self.held = held            # values that somebody besides the trace holds
        self.kept: list | None = None   # which results ways back read, see graph_steps.py


class Stop:
    """What is known of the segments that end with a call: their programs, and what follows them."""

    __slots__ = ("after", "hopeless", "learnt", "programs", "proven", "reverse", "settling")

    def __init__(self, learnt: list[float]):
        self.learnt = learnt                # the numbers of the path when it was recorded
        self.proven: bool | None = None     # whether others may take their place, if that is known
        self.programs: dict[tuple[int, ...], Variant] = {}
        self.settling: Any = None           # the Variant that ended here last, and its Settling
        self.after = Step()                 # the segment that starts when one ends here
        self.reverse: Any = None            # how to go back from here
        self.hopeless = False               # learning it again did not help


class Step:
    """One op call on a path: what it makes, and what follows it.

    There is one for every call that was ever learnt, so it has nothing that only some need.
    """

    __slots__ = ("args", "baked", "branches", "cast", "chain", "changes", "child", "end",
                 "expects", "grad", "key", "leads", "names", "next", "numbers", "op", "outside",
                 "parent", "record", "result", "stop", "values", "writes")

    backward = False
    grads: Sequence = ()                    # gradients of leaves before going back
    reason: str | None = None               # why this call is no part of a program

    def __init__(self) -> None:
        self.key: tuple | None = None       # of the first call that was made after this one
        self.child: Step | None = None      # and that call
        self.branches: dict[tuple | None, Step] | None = None  # all of them, if there are several
        self.stop: Stop | None = None       # what is known of segments that end here
        self.parent: Step | None = None
        self.chain: Any = None              # the Chain it is part of
        self.end = 0                        # launches of the chain up to here,
        self.numbers = self.values = self.outside = 0   # and all else that was met by then
        self.result: Any = None             # how what it returns is made again
        self.baked: tuple | None = None     # numbers that are part of the code
        self.writes: Sequence[int] = ()     # tensors from outside whose memory it changes
        self.changes: Sequence = ()         # (value, (signature, wants)) changed in place
        self.op: Any = None                 # the call itself; none if autocast was switched
        self.args: tuple = ()
        self.names: tuple[str, ...] = ()    # of the last of them
        self.grad = True
        self.cast: tuple = ()               # what autocast did
        self.next: Step | None = None       # the call that followed last time
        self.expects: Any = None            # what the arguments were last time
        self.record: Any = None             # the call as native code knows it, if it can
        self.leads = 0                      # where the record of the call after it is

    def find(self, key: tuple) -> Step | None:
        """The call that is known by this key, if it has been made here."""
        if self.branches is not None:
            return self.branches.get(key)
        return self.child if self.key == key else None

    def grow(self, key: tuple, step: Step) -> Step:
        """Another call may follow; mostly there is only one."""
        if self.child is None or self.key == key:
            self.key, self.child = key, step
        elif self.branches is None:
            self.branches = {self.key: self.child}
        if self.branches is not None:
            self.branches[key] = step
        return step

    def stopped(self) -> Stop:
        """What is known of segments that end here, from when the first of them does."""
        if self.stop is None:
            self.stop = Stop([] if self.chain is None else self.chain.numbers[:self.numbers])
        return self.stop

    def lead_to(self, step: Step | None) -> None:
        """What is expected after this call: this one, or else one of the others made here."""
        self.next = step
        others = () if self.branches is None else self.branches.values()
        records = [s.record for s in (step, *[s for s in others if s is not step][:_WAYS])
                   if s is not None and s.record is not None]
        after = 0
        for record in reversed(records):
            record.or_else(after)
            after = record.address
        self.leads = after
        if self.record is not None:
            self.record.lead_to(after)

    def final(self) -> list[Result]:
        """Every value on the path, as it is at the end of it."""
        found = list(self.chain.results[:self.values])
        for step in self.path():
            for k, (sig, wants) in step.changes:
                found[k] = Result(sig, found[k].place, wants, found[k].base, found[k].known)
        return found

    def path(self) -> list[Step]:
        """The calls that lead here, in order."""
        found, step = [], self
        while step.parent is not None:
            if step.op is not None:
                found.append(step)
            step = step.parent
        return found[::-1]

    def under(self, cast) -> Step:
        """The same place on the path, once autocast has been switched."""
        key = ("autocast", cast)
        found = self.find(key)
        if found is None:
            found = self.grow(key, Step())
            if self.chain is not None:
                found.parent = self
                for name in ("chain", "end", "numbers", "values", "outside"):
                    setattr(found, name, getattr(self, name))
        return found

    def build(self, live: tuple[int, ...], report) -> Variant:
        """The program that ends here and leaves these values."""
        chain, values, stop = self.chain, self.final(), self.stopped()
        for step in self.path():  # from the next call on: until now there was enough to remember
            step.chain.expected = True
        kept = [(k, values[k]) for k in with_bases(live, values)]
        wanting = [k for k, r in kept if r.wants]
        saved: list[int] = []
        if wanting:
            if stop.hopeless or stop.reverse is None or not stop.reverse.serves(wanting):
                report.built(self, None)
                return Variant(None, kept, [], wanting, [], True, held=live)
            saved = stop.reverse.saved
        results = sorted({r.place.root[1] for _, r in kept if r.place.root[0] == "buffer"}
                         | {*saved})
        launches = shown("recorded", chain.launches.first(self.end))
        launches = shown("needed", needed(launches, {*results}))
        launches, buffers = in_order(launches, chain.buffers, {*results})
        launches, buffers = multiplied_once(shown("in_order", launches), buffers, {*results})
        shown("multiplied_once", launches)
        launches, buffers, words = fewer(launches, buffers, {*results}, chain.filled)
        program = Program(launches, buffers, chain.constants,
                          _used(chain.filled, launches, results), results,
                          [*chain.keep, *words])
        written = sorted({number for step in launches for kind, number in step.writes
                          if kind == "outside"})
        report.built(self, program)
        return Variant(program, kept, written, wanting, saved, False,
                       overlapping(chain.homes[:self.outside], written), _bases(kept, values),
                       live)


class WayBack(Step):
    """A call of `backward`."""

    __slots__ = ("grads",)

    backward = True


class Refused(Step):
    """A call that is no part of a program."""

    __slots__ = ("reason",)

    def __init__(self, reason: str):
        super().__init__()
        self.reason = reason


def with_bases(live, values: list[Result]) -> list[int]:
    """Values that outlive a segment, and those that several of them are views of.

    Who changes one of those views in place gives the others another place in the graph, by way of
    what all are views of: so that has to be there, though nobody holds it.
    """
    homes: dict = {}
    for k in live:
        homes.setdefault(values[k].place.root, []).append(k)
    found = {*live}
    for home in homes.values():
        if len(home) > 1:
            found |= {base for k in home if values[k].known and (
                base := _whole(k, values)) is not None}
    return sorted(found)


def _whole(k: int, values: list[Result]) -> int | None:
    """The value at the beginning of a chain of views, or None if that is no value."""
    base: int | None = k
    while base is not None and values[base].base is not None:
        base = values[base].base
        if base is not None and base < 0:
            return None
    return base


def _bases(kept, values: list[Result]) -> list[tuple[int, int, bool]]:
    """What values that outlive a segment are views of, of values that do so and what was there."""
    live, found = {k for k, _ in kept}, []
    for k, result in kept:
        base, known = result.base, result.known
        while base is not None and base >= 0 and base not in live:
            base, known = values[base].base, known and values[base].known
        if base is not None:
            found.append((k, base, known))
    return found


def tie(bases, values, outside) -> None:
    """Let views of a run hold what they are taken from: who changes one in place changes both."""
    for k, base, known in bases:
        x, whole = values[k], values[base] if base >= 0 else outside[-1 - base]
        x.base = whole
        if known:
            remember(whole, x)


def _used(filled: dict[int, bytes], launches, results) -> dict[int, bytes]:
    met = {p.root[1] for step in launches for _, p in step.places() if p.root[0] == "buffer"}
    return {b: raw for b, raw in filled.items() if b in met or b in results}
