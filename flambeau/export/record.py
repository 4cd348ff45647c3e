"""Running a model and writing down its op calls.

Tensors of the call are traced, so every op asks here first. An op that the exporter knows is one
node; of one it does not know, the ops that it is made of are.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import threading
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import nn
from flambeau.nn.parameter import is_lazy
from flambeau.nn.utils import rnn

from ..compiler.phantom import plain, traced
from ..engine import eager, inplace, interception, storage, subclass
from ..engine.assignment import setitem_op
from ..engine.create import Named
from ..engine.indexing import getitem_op
from ..engine.tensor import Tensor
from ..ops.declare import Composite, registry
from .graph import Graph, Node, Value, mapped

#: functions that make tensors of a given size: calls of them are nodes, so that sizes may vary
FACTORIES = ("arange", "zeros", "ones", "full", "eye", "linspace", "zeros_like", "ones_like",
             "full_like", "empty_like", "tril_indices", "triu_indices")
#: functions that are no ops, but nodes: Python reads lengths in them
SEQUENCES = {"pack_padded_sequence": "_packed", "pad_packed_sequence": "_padded"}
METHODS = ("new_zeros", "new_ones", "new_full", "type_as", "copy_")

_keys = {id(op): key for key, op in registry.items()}


class NotRecorded(RuntimeError):
    """Why a call cannot be part of a graph."""


def key_of(op) -> str:
    """The name an op has in a graph."""
    if op is getitem_op:
        return "getitem"
    if op is setitem_op:
        return "setitem"
    return _keys.get(id(op)) or op.name


def function_named(key: str) -> Callable:
    """The function that a node of this name calls."""
    if key in _BY_NAME:
        return _BY_NAME[key]
    if key in registry:
        return subclass.function_of(registry[key])
    if hasattr(flambeau, key):
        return getattr(flambeau, key)
    raise NotRecorded(f"no function is known by the name of {key}")


def _set_item(x, index, value):
    x[index] = value
    return x


_BY_NAME: dict[str, Callable] = {
    "getitem": lambda x, index: x[index],
    "setitem": _set_item,
    **{name: getattr(rnn, inner) for name, inner in SEQUENCES.items()},
    **{name: (lambda x, *args, _name=name, **kwargs: getattr(x, _name)(*args, **kwargs))
       for name in METHODS},
}


def every_op(key: str) -> bool:
    """Every op is one node."""
    return True


class Recorder:
    """Listens to one call of a model. `knows` says which ops are nodes of their own."""

    def __init__(self, knows: Callable[[str], bool] = every_op):
        self.knows = knows
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []
        self.weights: dict[str, Value] = {}
        self.constants: dict[str, Value] = {}
        self.parameters: set[str] = set()
        self.aliases: dict[str, str] = {}   # other names of weights
        self.inside = False
        self.opened = "the model"           # the op whose parts were met last
        self.thread = threading.get_ident()
        self._known: dict[int, Value] = {}
        self._versions: dict[int, int] = {}  # id of memory -> its version when it was last seen
        self._tagged: list[Tensor] = []     # held, so that an id stays one tensor's
        self._plain_inplace = inplace.pointwise_inplace
        self._plain_overwrite = eager.engine.overwrite

    # -- tensors ---------------------------------------------------------------------------------

    def add(self, x: Tensor, name: str, data: bool = False) -> Value:
        """Know a tensor by a name from here on."""
        value = Value(name, x.dtype, tuple(x.shape), x.detach() if data else None)
        self._known[id(x)] = value
        self._versions[id(x.mem)] = x.mem.version
        self._tagged.append(x)
        if x.sig.tag is None:
            x.sig = traced(x.sig)
        return value

    def add_module(self, module: nn.Module) -> None:
        kept = set(module.state_dict())
        for name, p in module.named_parameters(remove_duplicate=False):
            if id(p) in self._known:
                self.aliases[name] = self._known[id(p)].name
                continue
            self.weights[name] = self.add(p, name, True)
            self.parameters.add(name)
        for name, b in module.named_buffers(remove_duplicate=False):
            if id(b) in self._known:
                self.aliases[name] = self._known[id(b)].name
            elif name in kept:
                self.weights[name] = self.add(b, name, True)

    def add_input(self, x: Tensor, name: str) -> None:
        self.inputs.append(self.add(x, name))

    def value(self, x: Tensor) -> Value:
        """What a tensor is known by; one that nobody named is a constant."""
        found = self._known.get(id(x))
        if found is not None and self._versions[id(x.mem)] != x.mem.version:
            raise NotRecorded(f"{self.opened}: a tensor was changed by code that is no op, so it "
                              "has to be exported as one op, and has no lowering")
        if found is None:
            if x.sig.tag is not None:
                raise NotRecorded(f"{self.opened}: part of it is computed by code that is no op, "
                                  "so it has to be exported as one op, and has no lowering")
            copy = self.plainly(lambda: x.detach().clone())
            found = self.add(x, f"constant_{len(self.constants)}")
            found.data = copy
            self.constants[found.name] = found
        return found

    def _coded(self, structure):
        return mapped(structure, lambda a: self.value(a) if isinstance(a, Tensor) else a)

    # -- calls -----------------------------------------------------------------------------------

    def traces(self) -> bool:
        return not self.inside and threading.get_ident() == self.thread

    def __call__(self, op, args, kwargs):
        """(result,) of an op call that is ours, else None."""
        if not self.traces() or all(x.sig.tag is None for x in tensors_of((args, kwargs))):
            return None
        if isinstance(op, Named) and op.name.endswith("_"):
            return None  # a form that works in place: met again below, as the op it is a form of
        key = key_of(op)
        if isinstance(op, Composite) and not (self.knows(key) or op.keeps or op.rows):
            self.opened = key
            return None
        return (self.record(key, subclass.function_of(op), args, kwargs),)

    def record(self, key: str, function: Callable, args, kwargs, into: Tensor | None = None):
        """Call for real, and write it down."""
        coded, named = self._coded(tuple(args)), self._coded(dict(kwargs))
        target = None if into is None else self.value(into)
        versions = [(x, x.mem.version) for x in tensors_of((args, kwargs))]
        result = self.plainly(function, *args, **kwargs)
        for x, _ in versions:
            self._versions[id(x.mem)] = x.mem.version
        if into is None:
            into = next((x for x, version in versions if x.mem.version != version and (
                result is x or key == "setitem")), None)
            target = None if into is None else self._known[id(into)]
        if key == "setitem":
            result = into
        if into is None and isinstance(result, Tensor) and any(result is a for a in args):
            return result
        shares = () if into is None else self._other_names(into)
        if into is not None:
            self._known.pop(id(into))
        made = mapped(result, self._result)
        self.nodes.append(Node(key, coded, named, made, target, shares))
        return result

    def _result(self, r):
        if not isinstance(r, Tensor):
            return r
        found = self._known.get(id(r))
        return found if found is not None else self.add(r, f"v{self._count()}")

    def _count(self) -> int:
        self._made = getattr(self, "_made", -1) + 1
        return self._made

    def _other_names(self, x: Tensor) -> tuple[Value, ...]:
        return tuple(self._known[id(y)] for y in self._tagged
                     if y is not x and y.mem is x.mem and id(y) in self._known)

    def plainly(self, function: Callable, *args, **kwargs):
        """Call on real tensors with nothing traced."""
        given = [x for x in tensors_of((args, kwargs)) if x.sig.tag is not None]
        for x in given:
            x.sig = plain(x.sig)
        self.inside = True
        try:
            return function(*args, **kwargs)
        finally:
            self.inside = False
            for x in given:
                if id(x) in self._known:
                    x.sig = traced(x.sig)

    def run_plainly(self, work: Callable, *args, **kwargs):
        """What the engine asks of whoever traces, for work that is no op."""
        return self.plainly(work, *args, **kwargs)

    lazy = False  # every call is made at once
    follow = staticmethod(interception.follow_nothing)

    def factory(self, op, args, kwargs) -> None:
        """Tensors that are drawn are constants here."""

    def draws(self) -> None:
        """Random numbers are drawn: nothing has to come first, as all is real."""

    def settle(self, reason: str) -> None:
        """The graph changes: nothing has to come first, as all is real."""

    def writes(self, x: Tensor, name: str) -> None:
        """A tensor is changed: nothing has to come first, as all is real."""

    def backward(self, op, x: Tensor, gradient, retain: bool) -> bool:
        """Going back is no call of ours: it is done as ever, and no part of what is exported."""
        return False

    # -- changes in place ------------------------------------------------------------------------

    def _pointwise_inplace(self, op, x, *others, **attributes):
        if not self.traces():
            return self._plain_inplace(op, x, *others, **attributes)
        key = key_of(op)
        run = self._plain_inplace
        return self.record(key, lambda x, *rest, **named: run(op, x, *rest, **named),
                           (x, *others), attributes, into=x)

    def _overwrite(self, x, name, run, args, kwargs):
        if not self.traces():
            return self._plain_overwrite(x, name, run, args, kwargs)
        key = next((k for k, op in registry.items() if op.run is run), name.removesuffix("_"))
        plain_form = self._plain_overwrite
        return self.record(key, lambda x, *rest, **named: plain_form(x, name, run, rest, named),
                           (x, *args), kwargs, into=x)

    # -- the session -----------------------------------------------------------------------------

    def _recording(self, name: str, function: Callable) -> Callable:
        def recorded(*args, **kwargs):
            if not self.traces():
                return function(*args, **kwargs)
            return self.record(name, function, args, kwargs)

        recorded.__name__ = name
        return recorded

    @contextlib.contextmanager
    def listening(self):
        """Everything that happens inside is written down."""
        named = [(flambeau, n, n) for n in FACTORIES] + [(Tensor, n, n) for n in METHODS]
        named += [(rnn, inner, n) for n, inner in SEQUENCES.items()]
        before = [(owner, inner, getattr(owner, inner)) for owner, inner, _ in named]
        before += [(inplace, "pointwise_inplace", self._plain_inplace),
                   (eager.engine, "overwrite", self._plain_overwrite)]
        for (owner, inner, name), (_, _, function) in zip(named, before, strict=False):
            setattr(owner, inner, self._recording(name, function))
        inplace.pointwise_inplace = self._pointwise_inplace
        eager.engine.overwrite = self._overwrite
        interception.trace_with(self)
        try:
            yield self
        finally:
            interception.trace_no_more(self)
            interception.constants.clear()
            for owner, name, function in before:
                setattr(owner, name, function)
            for x in self._tagged:
                x.sig = plain(x.sig)


def with_sizes(function, args: tuple, kwargs: dict) -> None:
    """Lazy modules take their sizes from a call, so that they have parameters to record."""
    if isinstance(function, nn.Module) and any(
            map(is_lazy, itertools.chain(function.parameters(), function.buffers()))):
        with flambeau.no_grad():
            function(*args, **kwargs)


@contextlib.contextmanager
def undisturbed(function):
    """However often a model is run inside, its buffers and the random numbers are as before."""
    state = flambeau.get_rng_state()
    buffers = list(function.buffers()) if isinstance(function, nn.Module) else []
    before = [(b, b.mem.version, b.detach().clone()) for b in buffers]
    try:
        yield
    finally:
        flambeau.set_rng_state(state)
        with flambeau.no_grad():
            for b, version, was in before:
                if b.mem.version != version:
                    b.copy_(was)


def tensors_of(structure) -> list[Tensor]:
    """The tensors in nested arguments, in order."""
    found: list[Tensor] = []
    mapped(structure, lambda a: found.append(a) if isinstance(a, Tensor) else None)
    return found


def names_of_tensors(function: Callable, args, kwargs) -> list[str]:
    """One name for each tensor among the arguments: those of the function's parameters."""
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = [p.name for p in inspect.signature(called).parameters.values()
                      if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        parameters = []
    parameters += [f"input_{k}" for k in range(len(parameters), len(args))]
    found: list[str] = []
    for name, given in (*zip(parameters, args, strict=False), *kwargs.items()):
        count = len(tensors_of(given))
        found += [name] if count == 1 else [f"{name}_{n}" for n in range(count)]
    return found


def recorded(function: Callable, args: tuple, kwargs: dict, names: list[str],
             knows: Callable[[str], bool] = every_op) -> Graph:
    """The graph of one call of a module or function. `names` are of the tensors in it, in order."""
    given = [x.detach() for x in tensors_of((args, kwargs))]
    replacing = iter(given)
    args, kwargs = mapped((args, kwargs), lambda a: next(replacing) if isinstance(a, Tensor) else a)
    places = iter(range(len(given)))
    structure = mapped((args, kwargs),
                       lambda a: Input(next(places)) if isinstance(a, Tensor) else a)
    recorder = Recorder(knows)
    with flambeau.no_grad(), recorder.listening():
        if isinstance(function, nn.Module):
            recorder.add_module(function)
        for x, name in zip(given, names, strict=True):
            recorder.add_input(x, name)
        result: Any = function(*args, **kwargs)
        outputs = _opened(result, recorder)
    title = type(function).__name__ if isinstance(function, nn.Module) else getattr(
        function, "__name__", "function")
    return Graph(title, recorder.inputs, outputs, recorder.nodes, recorder.weights,
                 recorder.constants, structure, parameters=frozenset(recorder.parameters),
                 aliases=recorder.aliases)


def _opened(result, recorder: Recorder):
    """What was returned, with Values for tensors."""
    if isinstance(result, Tensor):
        return recorder.value(result)
    if isinstance(result, tuple):
        return tuple([_opened(r, recorder) for r in result])
    if isinstance(result, list):
        return [_opened(r, recorder) for r in result]
    if isinstance(result, dict):
        return {k: _opened(r, recorder) for k, r in result.items()}
    if result is None or isinstance(result, (bool, int, float, str)):
        return result
    raise NotRecorded(f"the model returns a {type(result).__name__}; tensors, and tuples, lists "
                      "and dicts of tensors, can be exported")


class Input:
    """Stands for an input in the structure of the arguments."""

    def __init__(self, number: int):
        self.number = number


@contextlib.contextmanager
def refusing_reads():
    """Inside, a model that reads a value is refused: another value might lead elsewhere."""
    def refuse() -> None:
        if recording():
            raise NotRecorded("the model reads the value of a tensor, and a program that is "
                              "recorded from one call cannot decide by others")

    storage.readers.append(refuse)
    try:
        yield
    finally:
        storage.readers.remove(refuse)


def recording() -> bool:
    """Whether a model is being written down in this thread."""
    return any(isinstance(t, Recorder) and t.traces() for t in interception.tracers)
