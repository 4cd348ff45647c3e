"""What a script does, one after the other, when a call is made again without Python.

    Run      a segment's program, once
    Again    the op calls of a segment that no program can stand for, one by one
    Call     something that ran by itself: an optimizer's step, a way back, an op that is a break
    Switch   inference mode goes on or off
"""

from __future__ import annotations

from functools import cached_property
from types import EllipsisType, FunctionType, MethodType
from typing import Any

from ..core.device import device
from ..core.dtype import dtype
from ..engine.modes import mark_inferred, modes
from ..engine.tensor import Size, Tensor, make, new
from .again import call, made_again
from .casting import recast, within
from .gradients import all_have_gradients, gradient_of
from .graph_steps import attach_reverse
from .names import SCALARS, is_ours
from .phantom import plain, state_of
from .replay import CHANGED, Replay
from .segment import tie
from .sources import SOURCES, Fixed, Held, Player


class Unscripted(Exception):
    """Why a call cannot be made again without Python."""


def flatten(value, out: list):
    """Leaves of an argument, in order; the structure that is left."""
    if isinstance(value, (list, tuple)) and type(value) is not Size:
        return (type(value), *[flatten(v, out) for v in value])
    if isinstance(value, dict):
        return (dict, *[(k, flatten(v, out)) for k, v in value.items()])
    out.append(value)
    return 0


def unflatten(shape, values):
    """What `flatten` took apart, of other leaves."""
    if shape == 0:
        return next(values)
    kind, *parts = shape
    if kind is dict:
        return {k: unflatten(v, values) for k, v in parts}
    made = [unflatten(p, values) for p in parts]
    return kind(*made) if hasattr(kind, "_fields") else kind(made)


class Run:
    """A program, and where the tensors it reads come from."""

    def __init__(self, step, variant, sources, numbers, grads):
        self.step, self.variant, self.sources = step, variant, sources
        self.numbers, self.grads = numbers, grads
        self.program = variant.program
        self.replay: Any = None
        self.adds = any(type(s) is Held for s in sources)   # to gradients that there are
        place = {b: n for n, b in enumerate(self.program.results)}
        reverse = step.stop.reverse
        self.walked = reverse.walked if variant.wanting and not reverse.outputs else None
        self.rejoins = bool(variant.wanting) and self.walked is None    # the graph, see `rejoin`
        #: of each value: its number, signature, whose memory it is in, and where
        self.inner = [(k, r.sig, place[r.place.root[1]], r.place.offset)
                      for k, r in variant.live if r.place.root[0] == "buffer"]
        self.views = [(k, r.sig, r.place.root[1], r.place.offset)
                      for k, r in variant.live if r.place.root[0] != "buffer"]

    def prepare(self, guarded, cells, wanted: set[int]) -> None:
        """Let it be played in one native call, if it hands out only `wanted`."""
        fixed = {k: s.tensor for k, s in enumerate(self.sources) if type(s) is Fixed}
        place = {b: n for n, b in enumerate(self.program.results)}
        results = dict(self.variant.live)
        known = {k: r for k, r in results.items() if r.place.root[0] == "buffer"}
        trained = {value: k for k, value in self.grads}
        handed = wanted & results.keys()
        homes = [place[known[v].place.root[1]] for v in trained if v in known]
        self.program.prepare()
        if (handed - known.keys() or len(trained) < len(self.grads) or self.variant.bases
                or handed & trained.keys() or trained.keys() - known.keys()
                or any(k not in fixed for k in trained.values())
                or any(known[v].place.offset for v in trained) or len(set(homes)) < len(homes)
                or any(place[known[v].place.root[1]] in homes for v in handed)
                or (self.rejoins and (trained or handed != {*self.variant.wanting}))):
            return
        grads = [(fixed[k], known[v].sig, place[known[v].place.root[1]])
                 for v, k in trained.items()]
        wanting = {*self.variant.wanting}
        kept = [(k, sig, self.walked[k] if k in wanting and not self.rejoins else None, n, offset)
                for k, sig, n, offset in self.inner if k in handed]
        # After the tensors that the program reads comes something else in its table.
        self.moving = [(k, s) for k, s in enumerate(self.sources[:self.program.outside])
                       if type(s) is not Fixed]
        self.replay = Replay(self.program, guarded, cells, fixed, grads, kept, self.numbers)

    @property
    def trained(self) -> list[Tensor]:
        """Leaves, always the same ones, that it gives gradients."""
        return [s.tensor for s in (self.sources[k] for k, _ in self.grads) if type(s) is Fixed]

    def play_again(self, player: Player, trained: list[Tensor]) -> bool:
        """Play it in one native call; False, and nothing done, if a tensor is another, or if one of
        the leaves that it trains has lost its gradient."""
        made: list = []
        found = self.replay.run(
            [(k, s.get(player)) for k, s in self.moving] if self.moving else (), made)
        if type(found) is not dict:
            return found != CHANGED and all_have_gradients(trained) and self._played(player)
        for k in self.variant.written:
            self.sources[k].get(player).mem.version += 1
        mark_inferred(made)
        if self.rejoins:
            self.rejoin(player, found, [s.get(player) for s in self.sources], made)
        player.made.append(found)
        return True

    def rejoin(self, player: Player, values: dict, outside: list, made: list) -> None:
        """Put values into the graph whose way back has not been walked; made: all results."""
        player.values, player.outside, player.numbers = values, outside, self.numbers
        attach_reverse(player, self.step, self.variant, made)

    def _played(self, player: Player) -> bool:
        self.play(player)
        return True

    def play(self, player: Player) -> None:
        outside = [source.tensor if source.__class__ is Fixed else source.get(player)
                   for source in self.sources]
        program, variant = self.program, self.variant
        if not self.adds:  # the memory of old gradients is there for the new ones
            for k, _ in self.grads:
                outside[k]._grad = None
        made = program.run([x.ptr for x in outside], self.numbers)
        for k in variant.written:
            outside[k].mem.version += 1
        mark_inferred(made)
        values = {}
        for k, sig, n, offset in self.inner:
            x = new(Tensor)
            x.sig, x.mem, x.node = sig, made[n], None
            x.ptr = x.mem.address + offset
            values[k] = x
        for k, sig, n, offset in self.views:
            values[k] = make(sig, outside[n].mem, outside[n].ptr + offset)
        if self.walked is not None:  # the way back has been walked in the call itself
            for k in variant.wanting:
                values[k].node = self.walked[k]
        elif variant.wanting:
            self.rejoin(player, values, outside, made)
        if variant.bases:
            tie(variant.bases, values, outside)
        for k, value in self.grads:
            outside[k]._grad = values[value]
        player.made.append(values)


class Again:
    """The op calls of a segment, made one by one."""

    def __init__(self, step, live: list[int], sources, numbers, grads):
        self.step, self.live, self.sources = step, live, sources
        self.numbers, self.grads = numbers, grads

    def play(self, player: Player) -> None:
        outside = [source.get(player) for source in self.sources]
        twins: list[Tensor] = []
        made_again(self.step, outside, self.numbers, twins, call, twins.extend)
        values = {k: twins[k] for k in self.live}
        for k, value in self.grads:
            outside[k]._grad = values[value]
        player.made.append(values)


#: ops whose results have as many elements as their arguments' values say
_COUNTING = frozenset(("argwhere", "bincount", "masked_select", "nonzero", "repeat_interleave",
                       "tensor_split", "unique", "unique_consecutive"))


def shaped_by_values(name: str, args) -> bool:
    """Whether the shape of an op's result depends on the values of its arguments."""
    if name == "where":
        return len(args) == 1
    if name != "__getitem__":
        return name in _COUNTING
    leaves: list = []
    flatten(args[1:], leaves)
    return any(isinstance(v, Tensor) and v.sig.dtype.kind == "b" for v in leaves)


#: arguments that are what they were, whenever a call is made again
_LASTING = (*SCALARS, EllipsisType, Size, slice, dtype, device, type)


class Call:
    """Something that runs by itself, and what it makes."""

    def __init__(self, work, args, kwargs, source, modes_before):
        self.work, self.args, self.kwargs = work, args, kwargs
        self.modes = modes_now()
        self.switches = self.modes != modes_before
        leaves: list = []
        self.form = flatten((args, kwargs), leaves)
        self.given = [source(v) if isinstance(v, Tensor) else self._lasting(v) for v in leaves]
        self.moving = any(type(v) in SOURCES and type(v) is not Fixed for v in self.given)
        self.results: list[tuple] = []      # (place among its results, signature, state)
        self.leaves: list = []              # sources of leaves that it gives new gradients

    def _lasting(self, value):
        """An argument that is no tensor, if it is sure to mean the same another time."""
        if isinstance(value, _LASTING) or hasattr(value, "param_groups") or (
                isinstance(value, FunctionType) and is_ours(value.__module__)):
            return value
        raise Unscripted(f"{self.name} runs by itself on a {type(value).__name__}, which no replay "
                         "can make again")

    @property
    def name(self) -> str:
        owner = getattr(self.work, "__self__", None)
        own = getattr(self.work, "__name__", "a call")
        return f"{owner.__name__}.{own}" if isinstance(owner, type) else own

    def check(self) -> None:
        """Refuse what is the user's own code, and may depend on what it finds around it."""
        work = self.work.__func__ if isinstance(self.work, MethodType) else self.work
        if not (is_ours(getattr(work, "__module__", None) or "builtins") or any(
                hasattr(v, "param_groups") for v in self.args)):
            raise Unscripted(f"{self.name} runs by itself (compiler.disable)")

    def take(self, result) -> list[tuple[Any, Tensor]]:
        """(key, tensor) of what it made; what else it gives to Python must not be a number."""
        leaves: list = []
        flatten(result, leaves)
        found = []
        for k, x in enumerate(leaves):
            if isinstance(x, Tensor):
                self.results.append((k, plain(x.sig), state_of(x)))
                found.append((k, x))
            elif type(x) in (int, float, complex, str, bytes):
                raise Unscripted(f"{self.name} gives Python a {type(x).__name__}")
        return found

    @cached_property
    def plain(self) -> bool:
        """Whether it depends on nothing that a call is given, and makes nothing."""
        return not (self.moving or self.switches or self.results or self.leaves)

    def train(self, leaf) -> tuple:
        """Under which key the gradient is found that it gave to a leaf."""
        self.leaves.append(leaf)
        return "gradient", len(self.leaves) - 1

    def play(self, player: Player) -> None:
        args, kwargs = self.args, self.kwargs
        if self.plain:
            self.work(*args, **kwargs)
            player.made.append(None)
            return
        if self.moving:
            args, kwargs = unflatten(self.form, iter(
                [v.get(player) if type(v) in SOURCES else v for v in self.given]))
        result = (self._switched if self.switches else self.work)(*args, **kwargs)
        values: dict = {}
        if self.results:
            leaves: list = []
            flatten(result, leaves)
            for k, sig, state in self.results:
                values[k] = x = leaves[k]
                if x.sig is not sig or state_of(x) != state:
                    raise RuntimeError(
                        f"compile: {self.name} made a tensor of shape {tuple(x.sig.shape)} where "
                        f"one of shape {tuple(sig.shape)} was made when the function was learnt: "
                        "what depends on values cannot be part of a program with fullgraph=True")
        for k, leaf in enumerate(self.leaves):
            values["gradient", k] = gradient_of(leaf.get(player))
        player.made.append(values)

    def _switched(self, *args, **kwargs):
        """In the modes in which it ran."""
        grad, cast = modes_now()
        modes.grad = self.modes[0]
        recast(self.modes[1])
        try:
            return self.work(*args, **kwargs)
        finally:
            modes.grad = grad
            recast(cast)


def modes_now() -> tuple:
    """What ops depend on besides their arguments: whether they are recorded, and autocast."""
    return modes.grad, within()


class Switch:
    """Inference mode goes on or off."""

    def __init__(self, on: bool):
        self.on = on

    def play(self, player: Player) -> None:
        modes.inference = self.on
        player.made.append({})
