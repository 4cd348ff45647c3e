"""Where a script finds a tensor when it is played again."""

from __future__ import annotations

import ctypes

from ..devices.cpu.memory import allocate
from ..engine.modes import INFERENCE, inferring, infers
from ..engine.tensor import LEAF, Tensor, make
from .overlap import homes_of, overlapping
from .phantom import plain, state_of


class Player:
    """One time a script is played."""

    __slots__ = ("created", "given", "held", "made", "numbers", "outside", "values")

    def __init__(self, given, held):
        self.given, self.held, self.made = given, held, []

    created: dict  # tensors of known numbers, once there are any
    # What the program under way leaves and was given, for the way back from there.
    values: dict
    outside: list
    numbers: list


class Given:
    """A tensor among the arguments."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number

    def get(self, player: Player):
        return player.given[self.number]


class Made:
    """A tensor that was made earlier in the call."""

    __slots__ = ("action", "value")

    def __init__(self, action: int, value: int):
        self.action, self.value = action, value

    def get(self, player: Player):
        return player.made[self.action][self.value]


class Fixed:
    """A tensor that is always the same one: a parameter, a buffer."""

    __slots__ = ("node", "sig", "state", "tensor")

    def __init__(self, x: Tensor):
        self.tensor, self.sig, self.node, self.state = x, plain(x.sig), x.node, state_of(x)

    def get(self, player: Player):
        return self.tensor


class Held:
    """The gradient that a leaf had when the call began."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number

    def get(self, player: Player):
        return player.held[self.number]


class Fresh:
    """A tensor of numbers that Python knew: each call has one of its own."""

    __slots__ = ("leaf", "raw", "sig", "tensor")

    def __init__(self, x: Tensor):
        self.tensor, self.sig, self.leaf = x, plain(x.sig), x.node is LEAF
        self.raw = ctypes.string_at(x.mem.address, x.mem.nbytes) if x.mem.nbytes else b""

    def get(self, player: Player):
        try:
            created = player.created
        except AttributeError:
            created = player.created = {}
        x = created.get(id(self))
        if x is None:
            x = created[id(self)] = self._made()
        return x

    def _made(self) -> Tensor:
        old = self.tensor.mem
        mem = allocate(old.nbytes)
        ctypes.memmove(mem.address, self.raw, len(self.raw))
        x = make(self.sig, mem)
        if inferring and infers():
            mem.version = INFERENCE
        if self.leaf:
            x.node = LEAF
        return x


SOURCES = (Given, Made, Fixed, Held, Fresh)


class Overlaps:
    """How tensors that a script is played on lie in memory that it writes to."""

    def __init__(self, runs, player: Player):
        written = {id(run.sources[k]) for run in runs for k in run.variant.written}
        found = {id(s): s for run in runs for s in run.sources
                 if type(s) not in (Made, Fresh)}
        moving = any(type(s) is not Fixed for s in found.values())
        self.sources = [*found.values()] if moving and written & found.keys() else []
        self.written = {k for k, s in enumerate(self.sources) if id(s) in written}
        self.known = self._found(player)
        self.strangers = self._strangers()

    def _strangers(self) -> list | None:
        """(a source, tensors that none of its memory may be of), if that is all there is to it."""
        rows = []
        for k, source in enumerate(self.sources):
            if type(source) is not Fixed:
                if k in self.written:
                    return None
                rows.append((source, [s.tensor for n, s in enumerate(self.sources)
                                      if n in self.written and type(s) is Fixed]))
        return None if self.known else rows

    def hold(self, player: Player) -> bool:
        """Whether they lie as they did."""
        if self.strangers is None:
            return self._found(player) == self.known
        for source, others in self.strangers:
            mem = source.get(player).mem
            for x in others:
                if x.mem is mem:
                    return False
        return True

    def _found(self, player: Player) -> list:
        return overlapping(homes_of([s.get(player) for s in self.sources]), self.written)
