"""fullgraph: a call that can be made again without Python.

A script is written down while a call follows known paths from its start to its end: the programs
it ran, the calls in between (an optimizer's step), which tensors came from where, and what was
returned. It is played again as long as its guards hold: signatures of all tensors, other arguments
by equality, modules unchanged, scalars that the function's code reads, grad mode.
"""

from __future__ import annotations

import types

from ..engine import autocast
from ..engine.eager import module_changes
from ..engine.modes import INFERENCE, inferring, infers, modes
from ..engine.tensor import Size, Tensor, make, new
from .phantom import IS_LEAF, plain, state_of
from .reverse import attach_reverse

_SCALARS = (bool, int, float, str, bytes, complex, type(None))


class Unscripted(Exception):
    """Why a call cannot be made again without Python."""


def casting() -> tuple:
    """What autocast does in this thread."""
    state = autocast.state
    return state.cpu, state.dtypes.get("cpu") if state.cpu else None


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
        place = {b: n for n, b in enumerate(self.program.results)}
        reverse = step.reverse
        self.walked = reverse.walked if variant.wanting and not reverse.outputs else None
        #: of each value: its number, signature, whose memory it is in, and where
        self.inner = [(k, r.sig, place[r.place.root[1]], r.place.offset)
                      for k, r in variant.live if r.place.root[0] == "buffer"]
        self.views = [(k, r.sig, r.place.root[1], r.place.offset)
                      for k, r in variant.live if r.place.root[0] != "buffer"]

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
            player.values, player.outside = values, outside
            attach_reverse(player, self.step, variant,
                           dict(zip(program.results, made, strict=True)))
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

    __slots__ = ("given", "made", "outside", "values")

    def __init__(self, given):
        self.given, self.made = given, []
        self.values: dict = {}
        self.outside: list = []


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
        self.scalars = _scalars(function)
        self.actions: list = []
        self.fixed: dict[int, Fixed] = {}
        self.sources: dict[int, object] = {}
        self.reason: str | None = None
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
        return self.reason is None

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
        for x, sig, node in self.guarded:
            if x.sig is not sig or x.node is not node:
                return None
        for read, value in self.scalars:
            if read() != value:
                return None
        for x in self.needs_none:
            if getattr(x, "_grad", None) is not None:
                return None
        player = Player(leaves)
        for action in self.actions:
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


def _scalars(function) -> list:
    """Readers of the scalars that a function's code takes from its closure and globals."""
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    found: list = []
    if code is None:
        return found
    for cell in inner.__closure__ or ():
        value = _contents(cell)
        if isinstance(value, _SCALARS):
            found.append((lambda c=cell: _contents(c), value))
    for name in _names(code):
        value = inner.__globals__.get(name)
        if name in inner.__globals__ and isinstance(value, _SCALARS):
            found.append((lambda n=name, g=inner.__globals__: g.get(n), value))
    return found


def modules_of(function) -> list:
    """Modules in a function's closure, among the globals it names, or that it is a method of."""
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    found = [getattr(function, "__self__", None), function]
    if code is not None:
        found += [_contents(cell) for cell in inner.__closure__ or ()]
        found += [inner.__globals__.get(name) for name in _names(code)]
    return [m for m in found if hasattr(m, "_registered") and hasattr(m, "parameters")]


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
