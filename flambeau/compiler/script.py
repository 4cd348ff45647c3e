"""fullgraph: a call that can be made again without Python.

A script is written down while a call follows known paths from its start to its end: the programs
it ran, the calls in between (an optimizer's step), which tensors came from where, and what was
returned. It is played again as long as its guards hold: signatures of all tensors, other arguments
by equality, modules unchanged, scalars that the function's code reads, grad mode.
"""

from __future__ import annotations

from types import CellType
from typing import Any

from ..core.device import default
from ..devices.cpu.bridge import GIL_THRESHOLD
from ..engine.eager import module_changes
from ..engine.modes import INFERENCE, inferring, infers, modes
from ..engine.node import Hooked
from ..engine.tensor import Size, Tensor, make, new
from .casting import casting
from .gradients import Gradients, Presence, Regrade, all_have_gradients, gradient_of
from .names import SCALARS, changed, everything, now
from .overlap import homes_of, overlapping
from .phantom import IS_LEAF, plain, state_of
from .replay import CHANGED, Replay
from .reverse import attach_reverse, has_hooks
from .segment import tie
from .sources import SOURCES, Fixed, Given, Made, Overlaps, Player

_KINDS = (bool, int, str, bytes, tuple)


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


class Run:
    """A program, and where the tensors it reads come from."""

    def __init__(self, step, variant, sources, numbers, grads):
        self.step, self.variant, self.sources = step, variant, sources
        self.numbers, self.grads = numbers, grads
        self.program = variant.program
        self.replay: Any = None
        place = {b: n for n, b in enumerate(self.program.results)}
        reverse = step.reverse
        self.walked = reverse.walked if variant.wanting and not reverse.outputs else None
        #: of each value: its number, signature, whose memory it is in, and where
        self.inner = [(k, r.sig, place[r.place.root[1]], r.place.offset)
                      for k, r in variant.live if r.place.root[0] == "buffer"]
        self.views = [(k, r.sig, r.place.root[1], r.place.offset)
                      for k, r in variant.live if r.place.root[0] != "buffer"]

    def prepare(self, guarded, cells, wanted: set[int]) -> None:
        """Let it be played in one native call, if it is short and hands out only `wanted`."""
        fixed = {k: s.tensor for k, s in enumerate(self.sources) if type(s) is Fixed}
        place = {b: n for n, b in enumerate(self.program.results)}
        results = dict(self.variant.live)
        known = {k: r for k, r in results.items() if r.place.root[0] == "buffer"}
        trained = {value: k for k, value in self.grads}
        handed = wanted & results.keys()
        homes = [place[known[v].place.root[1]] for v in trained if v in known]
        if (self.program.prepare().work > GIL_THRESHOLD or handed - known.keys()
                or len(trained) < len(self.grads) or self.variant.bases
                or handed & trained.keys() or trained.keys() - known.keys()
                or any(k not in fixed for k in trained.values())
                or any(known[v].place.offset for v in trained) or len(set(homes)) < len(homes)
                or any(place[known[v].place.root[1]] in homes for v in handed)
                or (self.variant.wanting and self.walked is None)):
            return
        grads = [(fixed[k], known[v].sig, place[known[v].place.root[1]])
                 for v, k in trained.items()]
        kept = [row for row in self.inner if row[0] in handed]
        # After the tensors that the program reads comes something else in its table.
        self.moving = [(k, s) for k, s in enumerate(self.sources[:self.program.outside])
                       if type(s) is not Fixed]
        self.wanting = [k for k in self.variant.wanting if k in handed]
        self.replay = Replay(self.program, guarded, cells, fixed, grads, kept, self.numbers)

    @property
    def trained(self) -> list[Tensor]:
        """Leaves, always the same ones, that it gives gradients."""
        return [s.tensor for s in (self.sources[k] for k, _ in self.grads) if type(s) is Fixed]

    def play_again(self, player: Player, trained: list[Tensor]) -> bool:
        """Play it in one native call; False, and nothing done, if a tensor is another, or if one of
        the leaves that it trains has lost its gradient."""
        if inferring:
            return (self.replay.guards_hold() and all_have_gradients(trained)
                    and self._played(player))
        found = self.replay.run([(k, s.get(player)) for k, s in self.moving])
        if type(found) is not dict:
            return found != CHANGED and all_have_gradients(trained) and self._played(player)
        for k in self.variant.written:
            self.sources[k].get(player).mem.version += 1
        for k in self.wanting:
            found[k].node = self.walked
        player.made.append(found)
        return True

    def _played(self, player: Player) -> bool:
        self.play(player)
        return True

    def play(self, player: Player) -> None:
        outside = [source.tensor if source.__class__ is Fixed else source.get(player)
                   for source in self.sources]
        program, variant = self.program, self.variant
        made = program.run([x.ptr for x in outside], self.numbers)
        for k in variant.written:
            outside[k].mem.version += 1
        if inferring and infers():
            for mem in made:
                mem.version = INFERENCE
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
                values[k].node = self.walked
        elif variant.wanting:
            player.values, player.outside, player.numbers = values, outside, self.numbers
            attach_reverse(player, self.step, variant, made)
        if variant.bases:
            tie(variant.bases, values, outside)
        for k, value in self.grads:
            outside[k]._grad = values[value]
        player.made.append(values)


class Call:
    """Something that runs by itself."""

    def __init__(self, work, args, kwargs):
        self.work, self.args, self.kwargs = work, args, kwargs

    def play(self, player: Player) -> None:
        player.made.append({0: self.work(*self.args, **self.kwargs)})


class Script:
    """What a call did, and under which conditions it would do so again."""

    def __init__(self, function, args, kwargs, before):
        leaves: list = []
        self.before = before            # tensors that the last call met
        self.met: list[Tensor] = []     # and this one
        self.gradients = Gradients()
        self.structure = flatten((args, kwargs), leaves)
        self.leaves = [(plain(v.sig), state_of(v)) if isinstance(v, Tensor) else v for v in leaves]
        self.given = {id(v): k for k, v in enumerate(leaves) if isinstance(v, Tensor)}
        self.arguments = leaves         # until it is finished
        #: where a tensor is given that is given before as well
        self.again = [(k, self.given[id(v)]) for k, v in enumerate(leaves)
                      if isinstance(v, Tensor) and self.given[id(v)] != k]
        self.simple = not kwargs and all(isinstance(a, Tensor) for a in args)
        self.grad, self.casting, self.device = modes.grad, casting(), default()
        self.scalars, self.bound = everything(function)
        self.actions: list = []
        self.fixed: dict[int, Fixed] = {}
        self.sources: dict[int, object] = {}
        self.reason: str | None = None
        self.first: Any = None  # the program that is played in one native call
        self.hold: list = []  # tensors whose ids are known here

    def kind(self, trained) -> tuple:
        """What calls that most likely take the same path have in common: their arguments but for
        numbers, how those lie in memory, and which of some leaves have gradients."""
        given = [v for v in self.arguments if isinstance(v, Tensor)]
        return (self.grad, self.casting, self.structure,
                [v if isinstance(v, _KINDS) else type(v) for v in self.leaves],
                overlapping(homes_of(given), range(len(given))),
                [gradient_of(v) is None for v in given],
                [gradient_of(leaf) is None for leaf in trained])

    @property
    def trained(self) -> list[Tensor]:
        """Leaves, but for arguments, whose gradients the call had to do with."""
        return [x for k, x in self.gradients.leaves.items() if k not in self.given]

    # -- writing it down -------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        self.reason = self.reason or reason

    def ran(self, tracer, step, variant) -> None:
        if variant.eagerly:
            self.refuse("a segment without a program")
            return
        sources = [self._source(x) for x in tracer.outside]
        values = {}
        for k, _ in variant.live:
            x = tracer.values[k]
            self.hold.append(x)
            self.sources[id(x)] = Made(len(self.actions), k)
            values[id(x)] = k
        numbers = {id(x): k for k, x in enumerate(tracer.outside)}
        grads, others = [], []
        for leaf, g in self.gradients.changes():
            if id(leaf) in numbers and id(g) in values:
                grads.append((numbers[id(leaf)], values[id(g)]))
            else:
                others.append((leaf, g))
        self.actions.append(Run(step, variant, sources, list(tracer.numbers), grads))
        self._regrade(others)

    def _regrade(self, changes) -> None:
        """Leaves have other gradients than programs gave them."""
        if changes:
            self.actions.append(Regrade([(self._leaf(leaf), None if g is None else self._source(g))
                                         for leaf, g in changes]))

    def calling(self) -> None:
        """Something is about to run by itself, on gradients as they are now."""
        self._regrade(self.gradients.changes())

    def called(self, work, args, kwargs, result) -> None:
        self.gradients.changes()  # it makes them again by itself
        leaves: list = []
        flatten((args, kwargs), leaves)
        if any(isinstance(v, Tensor) and (id(v) in self.given or id(v) in self.sources)
               for v in leaves):
            self.refuse(f"{getattr(work, '__name__', 'a call')} runs by itself on tensors")
        self.actions.append(Call(work, args, kwargs))
        if isinstance(result, Tensor):
            self.hold.append(result)
            self.sources[id(result)] = Made(len(self.actions) - 1, 0)

    def _source(self, x: Tensor):
        if id(x) in self.sources:
            return self.sources[id(x)]
        held = self.gradients.source(x)
        if id(x) in self.given:
            if held is not None:
                self.refuse("an argument is the gradient of a leaf")
            return self._argument(x)
        if held is not None:
            return held
        found = self.fixed.get(id(x))
        if found is None:
            found = self.fixed[id(x)] = Fixed(x)
        return found

    def _leaf(self, x: Tensor):
        """Where to find a leaf, or a tensor that is treated like one."""
        if type(self.sources.get(id(x))) is Made:
            self.refuse("a tensor that the call makes is given a gradient")
        return self._argument(x) if id(x) in self.given else Fixed(x)

    def _argument(self, x: Tensor) -> object:
        return self.sources.setdefault(id(x), Given(self.given[id(x)]))

    def finish(self, result, constants) -> bool:
        """Remember what was returned; whether the call can be made again."""
        self._regrade(self.gradients.changes())
        if self.gradients.leaves:  # then Python may have looked for the others as well
            self.gradients.watch(x for x in constants if state_of(x) == IS_LEAF)
        leaves: list = []
        shape = flatten(result, leaves)
        found = []
        for v in leaves:
            if isinstance(v, Tensor):
                found.append(self._source(v))
            elif isinstance(v, SCALARS):
                found.append(v)
            else:
                self.refuse(f"it returns a {type(v).__name__}")
        self.result = (shape, found)
        self.changes = module_changes[0]
        there = {id(x) for x in (*self.before, *constants)}
        for one in self.fixed.values():
            if id(one.tensor) not in there and one.state != IS_LEAF:
                self.refuse(f"a tensor of shape {tuple(one.sig.shape)} is made anew by every "
                            "call, outside its program")
        self.guarded = [(x.tensor, x.sig, x.tensor.node) for x in self.fixed.values()]
        self.fixed_leaves = [one.tensor for one in self.fixed.values() if one.state == IS_LEAF]
        self.goes_back = any(step.backward for run in self.actions if type(run) is Run
                             for step in run.step.path())
        self.presence = Presence(self.gradients, self._leaf)
        held = [self.gradients.first[id(leaf)] for leaf, _ in self.gradients.held]
        self.overlaps = Overlaps([run for run in self.actions if type(run) is Run],
                                 Player(self.arguments, held))
        self.hold.clear()
        self.gradients.release()
        del self.arguments
        if self.reason is None:
            self._prepare()
        return self.reason is None

    def _prepare(self) -> None:
        """The first program checks the guards, if it can be played in one native call."""
        self.first = self.actions[0] if self.actions and type(self.actions[0]) is Run else None
        if self.first is None:
            return
        used = [s for s in self.result[1] if type(s) is Made]
        used += [s for run in self.actions if type(run) is Run for s in run.sources
                 if type(s) is Made]
        used += [s for action in self.actions if type(action) is Regrade for _, s in action.rows
                 if type(s) is Made]
        cells = [(owner, value) for owner, _, value in self.bound if type(owner) is CellType]
        self.first.prepare(self.guarded, cells, {s.value for s in used if s.action == 0})
        if self.first.replay is None:
            self.first = None
        else:
            self.bound = [row for row in self.bound if type(row[0]) is not CellType]
            self.presence.leave(self.first.trained)

    def _leaves(self, args, kwargs) -> list | None:
        """The leaves of arguments that are built like those the script was written for."""
        leaves: list = []
        if flatten((args, kwargs), leaves) != self.structure:
            return None
        for v, known in zip(leaves, self.leaves, strict=True):
            if isinstance(v, Tensor):
                if type(known) is not tuple or v.sig is not known[0] or state_of(v) != known[1]:
                    return None
            elif type(v) is not type(known) or v != known:
                return None
        return leaves

    # -- playing it ------------------------------------------------------------------------------

    def play(self, args, kwargs):
        """(result,) if the guards hold, else None."""
        if modes.grad is not self.grad or module_changes[0] != self.changes or (
                casting() != self.casting or default() is not self.device):
            return None
        if self.simple:
            if kwargs or len(args) != len(self.leaves):
                return None
            leaves = args
            for v, known in zip(args, self.leaves, strict=True):
                if not isinstance(v, Tensor) or v.sig is not known[0] or (
                        state_of(v) != known[1]):
                    return None
        else:
            leaves = self._leaves(args, kwargs)
            if leaves is None:
                return None
        first = self.first
        if first is None:
            for x, sig, node in self.guarded:
                if x.sig is not sig or x.node is not node:
                    return None
        if changed(self.bound):
            return None
        for owner, name, value in self.scalars:
            if now(owner, name) != value:
                return None
        for k, n in self.again:
            if leaves[k] is not leaves[n]:
                return None
        if Hooked.leaves and self.goes_back and any(
                has_hooks(x) for x in (*leaves, *self.fixed_leaves) if isinstance(x, Tensor)):
            return None
        held: Any = () if self.presence.idle else self.presence.find(leaves)
        if held is None:
            return None
        player = Player(leaves, held)
        if self.overlaps.sources and not self.overlaps.hold(player):
            return None
        if first is None:
            for action in self.actions:
                action.play(player)
        else:
            if not first.play_again(player, self.presence.left):
                return None
            for action in self.actions[1:]:
                action.play(player)
        shape, found = self.result
        if shape == 0:
            return (found[0].get(player) if type(found[0]) in SOURCES else found[0],)
        values = iter([v.get(player) if type(v) in SOURCES else v for v in found])
        return (_unflatten(shape, values),)


def _unflatten(shape, values):
    if shape == 0:
        return next(values)
    kind, *parts = shape
    if kind is dict:
        return {k: _unflatten(v, values) for k, v in parts}
    made = [_unflatten(p, values) for p in parts]
    return kind(*made) if hasattr(kind, "_fields") else kind(made)
