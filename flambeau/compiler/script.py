"""A call that can be made again without Python: with fullgraph=True, or where nobody would miss it.

A script is written down while a call follows known paths from its start to its end: the programs
it ran, the calls in between (see actions.py), which tensors came from where, and what was
returned. It is played again as long as its guards hold: signatures of all tensors, other arguments
by equality, modules unchanged, scalars that the function's code reads, grad mode.
"""

from __future__ import annotations

from types import CellType
from typing import Any

from ..core import device as places
from ..engine.interception import module_changes
from ..engine.modes import modes
from ..engine.node import Hooked
from ..engine.tensor import Tensor
from .actions import (
    Again,
    Call,
    Run,
    Switch,
    Unscripted,
    flatten,
    modes_now,
    shaped_by_values,
    unflatten,
)
from .casting import casting
from .dice import Dice
from .gradients import Gradients, Presence, Regrade, gradient_of
from .names import SCALARS, changed, changed_name, differ
from .overlap import homes_of, overlapping
from .phantom import IS_LEAF, plain, state_of
from .report import where
from .reverse import has_hooks
from .search import everything
from .shortcut import shortcut
from .sources import SOURCES, Fixed, Fresh, Given, Made, Overlaps, Player
from .witness import Witness
from .worth import played

__all__ = ["Given", "Made", "Run", "Script", "flatten"]

_KINDS = (bool, int, str, bytes, tuple)


class Script:
    """What a call did, and under which conditions it would do so again."""

    def __init__(self, function, args, kwargs, before, ran: set | None = None):
        leaves: list = []
        self.is_wanted = ran is None    # or Python is left out only if nobody would miss it
        self.before = before            # tensors that the last call met
        self.met: list[Tensor] = []     # and this one
        self.gradients = Gradients()
        self.structure = flatten((args, kwargs), leaves)
        self.leaves = [(plain(v.sig), state_of(v)) if isinstance(v, Tensor) else v for v in leaves]
        self.given = {id(v): k for k, v in enumerate(leaves) if isinstance(v, Tensor)}
        self.arguments, self.called_with = leaves, (args, kwargs)   # until it is finished
        #: where a tensor is given that is given before as well
        self.again = [(k, self.given[id(v)]) for k, v in enumerate(leaves)
                      if isinstance(v, Tensor) and self.given[id(v)] != k]
        self.simple = not kwargs and all(isinstance(a, Tensor) for a in args)
        self.grad, self.casting, self.device = modes.grad, casting(), places.default()
        self.modes, self.changes = modes_now(), module_changes[0]
        self.inference = modes.inference
        self.scalars, self.bound, _, codes, unsure = everything(function, ran)
        self.witness = Witness(codes, unsure)
        self.dice = Dice(self.bound) if self.is_wanted else None    # else the witness sees to it
        self.actions: list = []
        self.fixed: dict[int, Fixed] = {}
        self.fresh: dict[int, Fresh] = {}
        self.sources: dict[int, object] = {}
        self.reason: str | None = None
        self.line = ""
        self.call: Call | None = None   # what runs by itself just now
        self.effect: str | None = None  # what Python changes, if nothing else is to be said
        self.switches = False
        self.first: Any = None  # the program that is played in one native call
        self.short: Any = None  # and all of it in one function, see shortcut.py
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
        if self.reason is None:
            self.reason, self.line = reason, f", at {where()}"

    def learns(self, tracer, step) -> None:
        """A segment has ended for which there is no program: it is learnt again, or never will."""
        if step.stopped().hopeless:
            self.ran(tracer, step, None)
        else:
            self.refuse("a path is new")

    def ran(self, tracer, step, variant) -> None:
        """A segment has ended, and its program is about to run, or its calls one by one."""
        sources = [self._source(x) for x in tracer.outside]
        values = {}
        for k in tracer.live() if variant is None else [k for k, _ in variant.live]:
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
        learnt = sources, list(tracer.numbers), grads
        self.actions.append(Run(step, variant, *learnt) if variant is not None else
                            Again(step, [*values.values()], *learnt))
        self._regrade(others)
        self.gradients.let_go(tracer.tagged)

    def created(self, x: Tensor) -> None:
        """Python has made a tensor of numbers that it knows."""
        self.fresh[id(x)] = Fresh(x)

    def settled(self, reason: str) -> None:
        """The graph, or a mode, is about to change, and all that was asked for has run."""
        if reason == "inference is switched":
            self.switches = True
            self.actions.append(Switch(not modes.inference))
        else:
            self.refuse(reason)

    def _regrade(self, changes) -> None:
        """Leaves have other gradients than programs gave them."""
        if changes:
            self.actions.append(Regrade([(self._leaf(leaf), None if g is None else self._source(g))
                                         for leaf, g in changes]))

    def breaks(self, op, args) -> None:
        """An op that is no part of a program is about to run by itself."""
        name = getattr(op, "name", "an op")
        if shaped_by_values(name, args):
            self.refuse(f"the shape of what {name} makes depends on values")

    def calling(self, tracer, work, args, kwargs) -> None:
        """Something is about to run by itself, on gradients as they are now."""
        self._refuse_errors()
        self.gradients.watch(x for x in (*self.met, *tracer.outside, *self.arguments)
                             if isinstance(x, Tensor) and state_of(x) == IS_LEAF)
        self._regrade(self.gradients.changes())
        try:
            self.call = Call(work, args, kwargs, self._source, self.modes)
        except Unscripted as why:
            self.call = None
            self.refuse(str(why))

    def called(self, result, is_op: bool) -> list:
        """It has run, and may have given gradients to leaves that were met before: those."""
        made, number, self.call = self.call, len(self.actions), None
        changes = self.gradients.changes()
        given = [g for _, g in changes if g is not None]
        if made is None:
            return given
        try:
            if not is_op:
                made.check()
            found = made.take(result)
        except Unscripted as why:
            self.refuse(str(why))
            return given
        for leaf, g in changes:
            if g is not None and id(g) not in self.sources:
                found.append((made.train(self._leaf(leaf)), g))
        self.actions.append(made)
        for key, x in found:
            if id(x) not in self.sources and id(x) not in self.given and id(x) not in self.fixed:
                self.hold.append(x)
                self.sources[id(x)] = Made(number, key)
        return given

    def _refuse_errors(self) -> None:
        """What ran by itself and never came to its end has raised an error, which Python caught."""
        if self.call is not None:
            self.refuse(f"{self.call.name} raised an error")

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
        if id(x) in self.fresh:
            return self.fresh[id(x)]
        return self._fixed(x)

    def _leaf(self, x: Tensor):
        """Where to find a leaf, or a tensor that is treated like one."""
        made = self.sources.get(id(x)) or self.fresh.get(id(x))
        if made is not None:
            return made
        return self._argument(x) if id(x) in self.given else Fixed(x)

    def _argument(self, x: Tensor) -> object:
        return self.sources.setdefault(id(x), Given(self.given[id(x)]))

    def finish(self, result, constants) -> bool:
        """Remember what was returned; whether the call can be made again."""
        self._refuse_errors()
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
                self._refuse_at_the_end(f"it returns a {type(v).__name__}")
        self.result = (shape, found)
        self._look_for_effects()
        there = {id(x) for x in (*self.before, *constants)}
        for one in self.fixed.values():
            if id(one.tensor) not in there and one.state != IS_LEAF:
                self._refuse_at_the_end(
                    f"a tensor of shape {tuple(one.sig.shape)} is made anew by every call, outside "
                    "its program, or was kept from the call before")
        if modes_now() != self.modes or modes.inference is not self.inference:
            self._refuse_at_the_end("it leaves a grad mode, or autocast, switched")
        self._share_constants()
        self.guarded = [(x.tensor, x.sig, x.node) for x in self.fixed.values()]
        self.fixed_leaves = [one.tensor for one in self.fixed.values() if one.state == IS_LEAF]
        self.goes_back = any(step.backward for run in self.actions if type(run) is Run
                             for step in run.step.path())
        self.presence = Presence(self.gradients, self._leaf)
        held = [self.gradients.first[id(leaf)] for leaf, _ in self.gradients.held]
        self.overlaps = Overlaps([run for run in self.actions if type(run) is Run],
                                 Player(self.arguments, held))
        self.hold.clear()
        self.fresh.clear()
        self.gradients.release()
        del self.arguments, self.called_with, self.dice
        if self.effect is not None or self.reason is not None:
            return False
        self._prepare()
        return self.is_wanted or self._fails_early()

    def is_worth_it(self) -> bool:
        """Whether it is likely to take less time to play it than to run eagerly."""
        steps = [action.step for action in self.actions if type(action) in (Run, Again)]
        calls = sum(type(action) is Call for action in self.actions)
        return played(steps, calls, self.witness.frames, self.short is not None) > 0

    def _fails_early(self) -> bool:
        """Whether an index that is out of bounds is seen while nothing has been done.

        Then the call is made with Python, and comes to its error the way that eager calls do.
        """
        checked = [run for run in self.actions if type(run) is Run and run.program.checks]
        if not checked:
            return True
        if checked == [self.first] and not self.first.variant.written:
            self.first.replay.is_patient = True
            return True
        self._refuse_at_the_end("an index is checked after something was changed")
        return False

    def _look_for_effects(self) -> None:
        """What Python has changed it would have to change again."""
        name = changed_name(self.scalars, self.bound)
        if self.changes != module_changes[0]:
            name = "an attribute of a module"
        leaves: list = []
        if flatten(self.called_with, leaves) != self.structure or any(
                a is not b for a, b in zip(leaves, self.arguments, strict=True)):
            name = "an argument"
        if self.dice is not None and self.dice.are_thrown():
            name = "the state of random numbers that are not torch's"
        if name is not None and self.reason is None:
            self.effect = name

    def _refuse_at_the_end(self, reason: str) -> None:
        """Without a line: the call is over."""
        self.reason = self.reason or reason

    def _share_constants(self) -> None:
        """Tensors of known numbers that nobody changes, or gets to see, are made once."""
        seen = {id(s) for s in self.result[1]}
        for action in self.actions:
            if type(action) is Run:
                seen |= {id(action.sources[k]) for k in (
                    *action.variant.written, *(n for _, _, n, _ in action.views))}
                seen |= {id(action.sources[k]) for k, _ in action.grads}
            elif type(action) is Again:
                seen |= {id(s) for s in action.sources}
            elif type(action) is Call:
                seen |= {id(s) for s in action.given}
            elif type(action) is Regrade:
                seen |= {id(s) for row in action.rows for s in row}
        shared = {id(one): one for one in self.fresh.values() if id(one) not in seen}
        for run in self.actions:
            if type(run) is Run:
                run.sources = [self._fixed(s.tensor) if id(s) in shared else s
                               for s in run.sources]

    def _fixed(self, x: Tensor) -> Fixed:
        return self.fixed.setdefault(id(x), Fixed(x))

    def _prepare(self) -> None:
        """The first program checks the guards, if it can be played in one native call."""
        self.first = self.actions[0] if self.actions and type(self.actions[0]) is Run else None
        self.others = self.actions[1:]
        if self.first is None or self.switches:
            self.first = None
            return
        used = [s for s in self.result[1] if type(s) is Made]
        used += [s for run in self.actions if type(run) in (Run, Again) for s in run.sources
                 if type(s) is Made]
        used += [s for call in self.actions if type(call) is Call
                 for s in (*call.given, *call.leaves) if type(s) is Made]
        used += [s for action in self.actions if type(action) is Regrade for row in action.rows
                 for s in row if type(s) is Made]
        cells = [(owner, value) for owner, _, value in self.bound if type(owner) is CellType]
        self.first.prepare(self.guarded, cells, {s.value for s in used if s.action == 0})
        if self.first.replay is None:
            self.first = None
        else:
            self.bound = [row for row in self.bound if type(row[0]) is not CellType]
            self.presence.leave(self.first.trained)
            self.short = shortcut(self)

    def arguments_like(self, args, kwargs) -> list | None:
        """The leaves of arguments, if they are built like those the script was written for."""
        leaves: list = []
        return leaves if flatten((args, kwargs), leaves) == self.structure else None

    def _leaves(self, args, kwargs) -> list | None:
        """The same, if they are also what those were."""
        leaves = self.arguments_like(args, kwargs)
        if leaves is None:
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
                casting() != self.casting or places._Default.value is not self.device):
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
        if self.scalars and differ(self.scalars):
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
        if self.switches:
            self._play_switching(player)
        elif first is None:
            for action in self.actions:
                action.play(player)
        else:
            if not first.play_again(player, self.presence.left):
                return None
            for action in self.others:
                action.play(player)
        shape, found = self.result
        if shape == 0:
            one = found[0]
            if type(one) is Made:
                return (player.made[one.action][one.value],)
            return (one.get(player) if type(one) in SOURCES else one,)
        values = iter([v.get(player) if type(v) in SOURCES else v for v in found])
        return (unflatten(shape, values),)

    def _play_switching(self, player: Player) -> None:
        """Play what switches modes, and leave them as they are found whatever happens."""
        before = modes.inference
        try:
            for action in self.actions:
                action.play(player)
        finally:
            modes.inference = before
