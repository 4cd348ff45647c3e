"""What calls on a path are known by: at a glance, if they are as last time, or else by a key."""

from __future__ import annotations

import copy

from ..core.dtype import dtype
from ..engine.modes import modes
from ..engine.tensor import Size, Tensor
from .capture import Unkeyed
from .hop import Constant, Listed, Outside, Record, constant, side_by_side
from .phantom import Phantom, plain, state_of, traced
from .segment import Step

#: arguments that are known by their value
_VALUES = (bool, int, str, bytes, complex, type(None), type(Ellipsis), type)

#: and are given to many calls
_SHARED = (bool, int, str, type(None))


def is_plain(value) -> bool:
    """Whether an argument is known by its value, and has no number in it that may change."""
    kind = type(value)
    if kind is list or kind is tuple or kind is Size:
        return all([isinstance(v, _VALUES) or (type(v) is slice and is_plain(v)) for v in value])
    if kind is slice:
        return all([isinstance(v, _VALUES) for v in (value.start, value.stop, value.step)])
    return isinstance(value, (*_VALUES, dtype))


class Knowing:
    """The part of a trace that tells calls from one another."""

    # What the trace has, see trace.py.
    step: Step
    known: dict[int, int]
    memory: dict[int, int]
    met: dict[int, Outside]
    seen: list[tuple]
    given: list[float]
    caught: int
    values: list[Tensor]
    outside: list[Tensor]
    tagged: list[Tensor]

    # -- the path that was taken last time ---------------------------------------------------------

    def _follows(self, step: Step, args, kwargs) -> bool:
        """Whether a call is the one that was made here last time, by a glance at its arguments.

        Native code has found that it is not quite: a tensor may stand for another.
        """
        expects = step.expects
        if kwargs or step.names:
            if tuple(kwargs) != step.names:
                return False
            args = (*args, *kwargs.values())
        if expects is None or len(args) != len(expects) or modes.grad is not step.grad:
            return False
        pairs = side_by_side(args, expects)
        if pairs is None:
            return False
        values, outside = self.values, self.outside
        numbers: list[float] = []
        fresh: list[Tensor] = []
        before = len(outside)
        for a, e in pairs:
            kind = e.__class__
            if kind is int:
                if values[e] is not a:
                    return False
            elif kind is Outside:
                if e.number < before + len(fresh):
                    if (outside[e.number] if e.number < before else
                            fresh[e.number - before]) is not a:
                        return False
                elif isinstance(a, Tensor) and e.is_like(a) and (
                        e.stands_for(a, (*outside, *fresh))):
                    fresh.append(a)
                else:
                    return False
            elif e is float:
                if a.__class__ is not float:
                    return False
                numbers.append(a)
            elif a is not e.value and (a.__class__ is not e.value.__class__ or a != e.value):
                return False
            elif a.__class__ is float:
                numbers.append(a)  # it is part of the code, and of the list of numbers as well
        for x in fresh:
            if x.sig.tag is None:
                x.sig = traced(x.sig)
                self.tagged.append(x)
            outside.append(x)
        self.given = numbers
        return True

    def _expect(self, step: Step, args, kwargs) -> None:
        """Remember a call that went this way; only plain arguments can be told at a glance."""
        found: list = []
        for a in (*args, *kwargs.values()):
            one = self._expected(step, a)
            if one is None:
                found = []
                break
            found.append(one)
        step.expects = tuple(found) if found else None
        step.record = None
        if step.expects is not None and Record.possible(step):
            step.record = Record(step)
        self.step.lead_to(step if step.expects is not None else None)

    def _expected(self, step: Step, a):
        """What an argument is known by at a glance; None if that is not enough."""
        if isinstance(a, Tensor):
            code = self.known[id(a)]
            return code if code >= 0 else self._met(-1 - code, a)
        if type(a) is float:
            return float if step.baked is None else Constant(a)
        if a.__class__ in _SHARED:
            return constant(a)
        if is_plain(a):
            return Constant(copy.copy(a))
        if type(a) in (list, tuple) and not any([type(v) in (list, tuple) for v in a]):
            parts = [self._expected(step, v) for v in a]
            return None if None in parts else Listed(type(a), parts)
        return None

    def _met(self, number: int, x: Tensor) -> Outside:
        """What a tensor from outside is known by: the same for all calls that it is given to."""
        found = self.met.get(number)
        if found is None or found.state != state_of(x) or found.sig is not traced(x.sig) or (
                found.tensor is not None and found.tensor is not x):
            found = self.met[number] = Outside(number, x)
        return found

    def _catch_up(self) -> None:
        """Fill in what is not looked at on the way that is expected."""
        known = self.known
        if len(known) == len(self.values) + len(self.outside):
            return
        if not known or self.caught > len(self.values):
            self.caught = 0
        for code in range(self.caught, len(self.values)):
            known[id(self.values[code])] = code
        self.caught = len(self.values)
        for number in range(len(self.seen), len(self.outside)):
            x = self.outside[number]
            known[id(x)] = -1 - number
            self.seen.append((x.sig, x.node))
            self.memory.setdefault(id(x.mem), number)

    # -- keys ------------------------------------------------------------------------------------

    def _key(self, op, args, kwargs, numbers: list) -> tuple:
        known = self.known
        parts: list = [op, modes.grad]
        for a in args:
            code = known.get(id(a))
            if code is not None and code >= 0:
                parts.append(code)
            else:
                parts.append(self._part(a, numbers))
        for name in kwargs:
            parts.append(name)
            parts.append(self._part(kwargs[name], numbers))
        return tuple(parts)

    def _part(self, a, numbers: list):
        """What an argument is known by."""
        if isinstance(a, Tensor):
            return self._tensor(a)
        kind = type(a)
        if kind is float:
            numbers.append(a)
            return float
        if kind is list or kind is tuple or kind is Size:
            return (kind, *[self._part(v, numbers) for v in a])
        if kind is slice:
            return (slice, self._part(a.start, numbers), self._part(a.stop, numbers),
                    self._part(a.step, numbers))
        if isinstance(a, _VALUES):
            return kind, a
        if kind.__module__.startswith(("flambeau", "torch")) and kind.__hash__ is not None and (
                not callable(a)):
            return a
        raise Unkeyed(f"an argument of type {kind.__name__}")

    def _tensor(self, x: Tensor):
        code = self.known.get(id(x))
        if code is not None:
            if code >= 0:
                return code
            sig, node = self.seen[-1 - code]
            if x.sig is sig and x.node is node:
                return code
            del self.known[id(x)]  # it is not what it was
        if x.__class__ is Phantom:
            raise Unkeyed("a tensor of another trace")
        if x.__class__ is not Tensor and x.sig.tag is not None and plain(x.sig) is x.sig:
            raise Unkeyed(f"a {type(x).__name__}")
        return self._from_outside(x)

    def _from_outside(self, x: Tensor):
        number = len(self.outside)
        if x.sig.tag is None:
            x.sig = traced(x.sig)
            self.tagged.append(x)
        self.outside.append(x)
        self.known[id(x)] = -1 - number
        self.seen.append((x.sig, x.node))
        first = self.memory.setdefault(id(x.mem), number)
        part: tuple = (x.sig, state_of(x))
        if first != number:  # by two names: how they lie to each other is part of the path
            part = (*part, first, x.ptr - self.outside[first].ptr)
        return part
