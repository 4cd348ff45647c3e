"""Steps that compiled segments have in the graph, and what they do when somebody goes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from ..engine import backward as bw
from ..engine.eager import engine
from ..engine.launch import Launch
from ..engine.node import Edge, Node, edge_of, kept_values, new_node
from ..engine.tensor import LEAF, Tensor, make, new
from .again import call, made_again


def result_of(edge) -> tuple:
    """A step, and which of its results."""
    return (edge.node, edge.number) if type(edge) is Edge else (edge, 0)


def step_of(x: Tensor):
    """The step of the graph that made a tensor."""
    return result_of(x.node)[0]


@contextlib.contextmanager
def ending_at(steps: Iterable) -> Iterator[None]:
    """Walks end at these steps: what is behind them is gone back through another time."""
    cut = {step: step.parents for step in steps if isinstance(step, Node)}
    for step in cut:
        step.parents = ()
    try:
        yield
    finally:
        for step, parents in cut.items():
            step.parents = parents


class Boundary:
    """The step at which a graph enters a segment."""

    def name(self) -> str:
        return "CompiledBackward"

    def pull(self, node, g):
        return [g]


def boundary_of(x: Tensor):
    """Give a tensor from outside a step of its own, so that a walk can end there."""
    x.node = new_node(Boundary(), (edge_of(x),), (), (x.sig,))
    return x.node


class Consumed:
    """The graph behind a value has been walked: it cannot be walked again."""

    def name(self) -> str:
        return "CompiledBackward"

    def pull(self, node, g):
        raise RuntimeError("Trying to backward through the graph a second time (or directly access "
                           "saved tensors after they have already been freed). Saved intermediate "
                           "values of the graph are freed when you call .backward() or "
                           "autograd.grad(). Specify retain_graph=True if you need to backward "
                           "through the graph a second time.")


class CompiledBack:
    """Runs the programs that go back."""

    __slots__ = ("numbers", "outside", "part", "step", "values", "versions")

    def __init__(self, part, step, outside: list[Tensor], numbers: list[float], values):
        self.part, self.step, self.outside, self.numbers = part, step, outside, numbers
        self.values = values  # those that are parents: what is computed from them starts there
        self.versions = [x.mem.version for x in outside]

    def name(self) -> str:
        return "CompiledBackward"

    def pull(self, node, g):
        now = bw.modes
        if now.grad:
            return self.carefully(node, g)
        part, kept = self.part, kept_values(node)
        given = g if len(part.outputs) > 1 else [g]
        walk = now.walk
        if walk is not None and not walk.retain:
            self.outside, self.values = [], {}
        whole, *alone = part.ways
        if not alone:
            return self._gradients(whole, kept, given)
        sums: list = [None] * len(part.parents)
        for way in alone if None in given else [whole]:
            own = [given[k] for k in way.takes]
            if any([one is not None for one in own]):
                for k, found in zip(way.gives, self._gradients(way, kept, own), strict=True):
                    before = sums[k]
                    sums[k] = found if before is None else (
                        before if found is None else engine.add(before, found))
        return sums

    def _gradients(self, way, kept, given) -> list:
        """What one program makes of gradients; those that are missing are zeros to it."""
        pointers = [kept[k].ptr for k in way.needs]
        hold = []
        for one, sig in zip(given, way.expects, strict=True):
            if one is None:
                one = engine.full(sig.shape, 0, dtype=sig.dtype)
            elif one.sig is not sig:
                one = engine.contiguous(engine.cast(one, sig.dtype))
            hold.append(one)
            pointers.append(one.ptr)
        made = way.program.run(pointers, self.numbers)
        found: list = []
        for sig, at, offset in way.rows:
            if at >= 0:
                x = new(Tensor)
                x.sig, x.mem, x.node = sig, made[at], None
                x.ptr = x.mem.address + offset
                found.append(x)
            else:  # what was kept, or given
                k = -1 - at
                source = kept[way.needs[k]] if k < len(way.needs) else hold[k - len(way.needs)]
                found.append(make(sig, source.mem, source.ptr + offset))
        if None in given:
            missing = {k for k, one in enumerate(given) if one is None}
            found = [None if sources and sources <= missing else g
                     for g, sources in zip(found, way.sources, strict=True)]
        return found

    def carefully(self, node, g):
        """Gradients that can be differentiated in turn: by way of the calls, made again."""
        if not bw.modes.grad:
            return self.pull(node, g)
        if [x.mem.version for x in self.outside] != self.versions or not can_repeat(self.step):
            raise RuntimeError("a compiled function that draws random numbers, or changes tensors "
                               "in place, can be differentiated once: call the original one where "
                               "create_graph=True is needed")
        kept_values(node)  # or they say that they are gone
        twins: list[Tensor] = []
        # What was changed in place must not be changed again, and a gradient taken on the way asks
        # how values came from each other: then all of them are made anew.
        anew = self.step.chain.rewrites or any(each.op is bw.GRAD for each in self.step.path())
        values = {} if anew else self.values

        def take(found) -> None:
            twins.extend([values.get(len(twins) + k, t) for k, t in enumerate(found)])

        made_again(self.step, self.outside, self.numbers, twins, call, take)
        given = g if len(self.part.outputs) > 1 else [g]
        pairs = [(twins[k], one) for k, one in zip(self.part.outputs, given, strict=True)
                 if one is not None]
        parents = [(twins if kind == "value" else self.outside)[k] for kind, k in self.part.parents]
        with ending_at(map(step_of, (*[twins[k] for k in self.values], *self.outside))):
            return bw.grad([t for t, _ in pairs], parents, [one for _, one in pairs],
                           create_graph=True, allow_unused=True)


def can_repeat(step) -> bool:
    """Whether the calls of a path may be made again later, to go back through gradients."""
    return not any(launch.effect and isinstance(launch, Launch)
                   for launch in step.chain.launches.first(step.end)) and not any(
        each.backward or each.writes for each in step.path())


def attach_reverse(tracer, step, variant, results: list) -> None:
    """Put the values of a run into the graph; `results` are the storages that it filled."""
    reverse, values, outside = step.stop.reverse, tracer.values, tracer.outside
    if reverse.consumed:
        for k in variant.wanting:
            if k in reverse.consumed:
                values[k].node = reverse.walked[k]
    if variant.kept is None:
        at = {b: k for k, b in enumerate(variant.program.results)}
        variant.kept = [[(at[b], sig) for b, sig in zip(part.saved, part.room, strict=True)]
                        for part in reverse.parts]
    live = variant.wanting
    made: dict = {}
    for part, saved in zip(reverse.parts, variant.kept, strict=True):
        kept = [outside[k] for k in part.read]
        for k, sig in saved:
            x = new(Tensor)
            x.sig, x.mem, x.node = sig, results[k], None
            x.ptr = x.mem.address
            kept.append(x)
        parents = []
        for kind, k in part.parents:
            if kind == "outside":
                x = outside[k]
                parents.append(x if x.node is LEAF else edge_of(x))
            else:
                parents.append(made[k] if kind == "value" else k)
        before = {k: values[k] for k in part.before if k in live} if part.before else {}
        node = new_node(CompiledBack(part, step, outside, tracer.numbers, before),
                        tuple(parents), tuple(kept), part.expects)
        outputs = part.outputs
        if len(outputs) == 1:
            made[outputs[0]] = node
        else:
            for number, k in enumerate(outputs):
                made[k] = Edge(node, number)
        for k, same in part.alike:
            made[k] = made[same]
    for k, node in made.items():
        if k in live:
            values[k].node = node
