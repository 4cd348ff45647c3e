"""fullgraph: a call that can be made again without Python.

A script is written down while a call follows known paths from its start to its end: the programs
it ran, the calls in between (an optimizer's step), which tensors came from where, and what was
returned. It is played again as long as its guards hold: signatures of all tensors, other arguments
by equality, modules unchanged, scalars that the function's code reads, grad mode.
"""

from __future__ import annotations

import copy
import types
from types import CellType
from typing import Any

from ..core.dtype import default_float
from ..devices.cpu.bridge import GIL_THRESHOLD
from ..engine import autocast
from ..engine.eager import module_changes
from ..engine.modes import INFERENCE, inferring, infers, modes
from ..engine.tensor import Size, Tensor, make, new
from .phantom import IS_LEAF, plain, state_of
from .replay import CHANGED, Replay
from .reverse import attach_reverse

_SCALARS = (bool, int, float, str, bytes, complex, type(None))
_MANY = 10_000  # scalars in a list, or a list of lists, that are still compared


class Unscripted(Exception):
    """Why a call cannot be made again without Python."""


def casting() -> tuple:
    """What autocast does in this thread, and the dtype of new tensors."""
    state = autocast.state
    return state.cpu, state.dtypes.get("cpu") if state.cpu else None, default_float()


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
                or handed & trained.keys() or trained.keys() - known.keys()
                or any(k not in fixed for k in trained.values())
                or any(known[v].place.offset for v in trained) or len(set(homes)) < len(homes)
                or any(place[known[v].place.root[1]] in homes for v in handed)
                or (self.variant.wanting and self.walked is None)):
            return
        grads = [(fixed[k], known[v].sig, place[known[v].place.root[1]])
                 for v, k in trained.items()]
        kept = [row for row in self.inner if row[0] in handed]
        self.moving = [(k, s) for k, s in enumerate(self.sources) if type(s) is not Fixed]
        self.wanting = [k for k in self.variant.wanting if k in handed]
        self.replay = Replay(self.program, guarded, cells, fixed, grads, kept, self.numbers)

    def play_again(self, player: Player) -> bool:
        """Play it in one native call; False, and nothing done, if a tensor is another."""
        if inferring:
            return self.replay.guards_hold() and self._played(player)
        found = self.replay.run([(k, s.get(player)) for k, s in self.moving])
        if type(found) is not dict:
            return found != CHANGED and self._played(player)
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
        for k, value in self.grads:
            outside[k]._grad = values[value]
        player.made.append(values)


class Call:
    """Something that runs by itself."""

    def __init__(self, work, args, kwargs):
        self.work, self.args, self.kwargs = work, args, kwargs

    def play(self, player: Player) -> None:
        player.made.append({0: self.work(*self.args, **self.kwargs)})


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

    __slots__ = ("sig", "state", "tensor")

    def __init__(self, x: Tensor):
        self.tensor, self.sig, self.state = x, plain(x.sig), state_of(x)

    def get(self, player: Player):
        return self.tensor


class Player:
    """One time a script is played."""

    __slots__ = ("given", "made", "numbers", "outside", "values")

    def __init__(self, given):
        self.given, self.made = given, []
        self.values: dict = {}
        self.outside: list = []
        self.numbers: list = []


class Script:
    """What a call did, and under which conditions it would do so again."""

    def __init__(self, function, args, kwargs, trained, before):
        leaves: list = []
        self.before = before            # tensors that the last call met
        self.met: list[Tensor] = []     # and this one
        self.had = {id(x) for x in trained if getattr(x, "_grad", None) is not None}
        self.structure = flatten((args, kwargs), leaves)
        self.leaves = [(plain(v.sig), state_of(v)) if isinstance(v, Tensor) else v for v in leaves]
        self.given = {id(v): k for k, v in enumerate(leaves) if isinstance(v, Tensor)}
        self.simple = not kwargs and all(isinstance(a, Tensor) for a in args)
        self.grad, self.casting = modes.grad, casting()
        self.scalars, self.bound = names_of(function)
        self.actions: list = []
        self.fixed: dict[int, Fixed] = {}
        self.sources: dict[int, object] = {}
        self.reason: str | None = None
        self.first: Any = None  # the program that is played in one native call
        self.hold: list = []  # tensors whose ids are known here

    # -- writing it down -------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        self.reason = self.reason or reason

    def ran(self, tracer, step, variant) -> None:
        if variant.eagerly:
            self.refuse("a segment without a program")
            return
        sources = [self._source(x) for x in tracer.outside]
        grads = []
        for each in step.path():
            if each.backward:
                for n, (k, _) in enumerate(each.result):
                    grads.append((k, each.values - len(each.result) + n))
        self.actions.append(Run(step, variant, sources, list(tracer.numbers), grads))
        for k, _ in variant.live:
            x = tracer.values[k]
            self.hold.append(x)
            self.sources[id(x)] = Made(len(self.actions) - 1, k)

    def called(self, work, args, kwargs, result) -> None:
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
        if id(x) in self.given:
            return Given(self.given[id(x)])
        found = self.fixed.get(id(x))
        if found is None:
            found = self.fixed[id(x)] = Fixed(x)
        return found

    def finish(self, result, constants) -> bool:
        """Remember what was returned; whether the call can be made again."""
        leaves: list = []
        shape = flatten(result, leaves)
        found = []
        for v in leaves:
            if isinstance(v, Tensor):
                found.append(self._source(v))
            elif isinstance(v, _SCALARS):
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
        given_grads = [run.sources[k].tensor for run in self.actions if type(run) is Run
                       for k, _ in run.grads if type(run.sources[k]) is Fixed]
        self.trained = given_grads
        # A gradient that was there and was missing when it was computed is cleared by the call
        # itself; one that was not there has to be missing again.
        self.needs_none = [x for x in given_grads if id(x) not in self.had]
        self.hold.clear()
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
        cells = [(owner, value) for owner, _, value in self.bound if type(owner) is CellType]
        self.first.prepare(self.guarded, cells, {s.value for s in used if s.action == 0})
        if self.first.replay is None:
            self.first = None
        else:
            self.bound = [row for row in self.bound if type(row[0]) is not CellType]

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
                casting() != self.casting):
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
            if _now(owner, name) != value:
                return None
        for x in self.needs_none:
            if getattr(x, "_grad", None) is not None:
                return None
        player = Player(leaves)
        if first is None:
            for action in self.actions:
                action.play(player)
        else:
            if not first.play_again(player):
                return None
            for action in self.actions[1:]:
                action.play(player)
        shape, found = self.result
        if shape == 0:
            return (found[0].get(player) if type(found[0]) in _SOURCES else found[0],)
        values = iter([v.get(player) if type(v) in _SOURCES else v for v in found])
        return (_unflatten(shape, values),)


_SOURCES = (Given, Made, Fixed)


def _unflatten(shape, values):
    if shape == 0:
        return next(values)
    kind, *parts = shape
    if kind is dict:
        return {k: _unflatten(v, values) for k, v in parts}
    made = [_unflatten(p, values) for p in parts]
    return kind(*made) if hasattr(kind, "_fields") else kind(made)


def names_of(function) -> tuple[list, list]:
    """What a function's code takes from its closure and globals: scalars, known by their value,
    and all else that may hold tensors, known by itself. Each with who can say what it is now."""
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    if code is None:
        return [], []
    found = [(cell, "cell_contents", _contents(cell)) for cell in inner.__closure__ or ()]
    there = inner.__globals__
    found += [(there, name, there[name]) for name in _names(code) if name in there]
    by_value, by_itself = [], []
    for owner, name, value in found:
        if 0 < _scalars_in(value) < _MANY:
            by_value.append((owner, name, copy.deepcopy(value)))
        elif not isinstance(value, (types.ModuleType, types.FunctionType, type)):
            by_itself.append((owner, name, value))
    return by_value, by_itself


def changed(bound) -> bool:
    """Whether any of these names stands for something else now."""
    return any([(owner.get(name, _NOTHING) if owner.__class__ is dict else _contents(owner))
                is not value for owner, name, value in bound])


def _now(owner, name: str):
    """What a cell, or globals, have under a name; `_NOTHING` if nothing."""
    if owner.__class__ is dict:
        return owner.get(name, _NOTHING)
    return _contents(owner)


_NOTHING = object()


def _scalars_in(value) -> int:
    """How many scalars a value consists of; 0 if there is anything else in it, or too much."""
    if isinstance(value, _SCALARS):
        return 1
    if type(value) not in (list, tuple) or len(value) > _MANY:
        return 0
    counts = [_scalars_in(v) for v in value]
    return sum(counts) if all(counts) else 0


def tensors_of(function, bound) -> list[Tensor]:
    """Tensors among what a function's code names, and those of modules there, or of the module
    that it is a method of."""
    found = [getattr(function, "__self__", None), function, *(value for _, _, value in bound)]
    tensors = [v for v in found if isinstance(v, Tensor)]
    for m in found:
        if hasattr(m, "_registered") and hasattr(m, "parameters"):
            tensors += [*m.parameters(), *m.buffers()]
    return tensors


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found
