"""Going back through a program later: the gradient of a segment is a program of its own.

It is recorded once, when the segment is: a walk back through the real graph, from stand-ins for the
gradients of its results. What it reads of the way forward is kept by every run.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..core.dtype import uint8
from ..engine import backward as bw
from ..engine.eager import engine
from ..engine.fresh import empty
from ..engine.node import Edge, Hooked, Node, edge_of, kept_values, new_node
from ..engine.storage import nowhere
from ..engine.tensor import LEAF, Signature, Tensor, make, signature
from .again import call, made_again
from .epilogue import finished
from .fuse import fused
from .launch import Launch, Place
from .program import Program
from .simplify import needed


class Reverse:
    """How gradients of some values of a segment reach the tensors from outside.

    Every value that outlives the segment has a step of its own in the graph, as it has in eager: so
    it may be asked for its gradient, have hooks, or be gone back from while others are not.
    """

    def __init__(self, outputs: list[int], consumed: dict[int, Signature]):
        self.outputs: list[int] = outputs       # values
        self.consumed: set[int] = {*consumed}   # values whose graph has been walked already
        self.parts: list[Part] = []             # in the order in which values were made
        #: and the step that each of them is given
        self.walked = {k: new_node(Consumed(), (), (), (sig,)) for k, sig in consumed.items()}
        self.gone: dict = {}                    # steps that were walked -> what stands for them

    def ended(self, edge):
        """What stands for a result of a step that was walked, and that nobody holds."""
        node, number = _result_of(edge)
        if (node, number) not in self.gone:
            self.gone[node, number] = new_node(Consumed(), (), (), (node.sigs[number],))
        return self.gone[node, number]

    def keep(self, plans: list) -> None:
        """Hold plans as long as there is a way back that may run what they have planned."""
        for part in self.parts:
            part.keep = plans

    def serves(self, wanting) -> bool:
        return {*wanting} <= {*self.outputs} | self.consumed

    @property
    def saved(self) -> list[int]:
        """Buffers of the way forward that are read on the way back."""
        return sorted({b for part in self.parts for b in part.saved})

    @property
    def recorded(self) -> list:
        return [step for part in self.parts for step in part.steps]


class Part:
    """One step: from the gradients of a value, or of several that one op made, to those before."""

    def __init__(self, outputs: list[int], alike: list[tuple[int, int]]):
        self.outputs, self.alike = outputs, alike   # values; (value, output that it is the same as)
        self.parents: list[tuple[str, Any]] = []    # values, tensors from outside, walked steps
        self.grads: list = []                       # for each of those (signature, place)
        self.expects: list = []                     # signatures of the gradients that are given
        self.sources: list[set] = []                # for each parent the outputs it depends on
        self.saved: list[int] = []                  # buffers of the way forward that are read
        self.read: list[int] = []                   # tensors from outside that are read
        self.steps: list = []
        self.memory: tuple = ()                     # buffers, constants, first contents, results
        self.keep: list = []                        # plans whose addresses its launches know

    @cached_property
    def program(self) -> Program:
        """What the step runs; made when somebody goes back."""
        buffers, constants, filled, ends = self.memory
        launches = finished(fused(self.steps, ends), ends)
        return Program(launches, buffers, constants, filled, sorted(ends), self.keep)


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


def graph_is_ours(twin: Tensor, tracer) -> bool:
    """Whether everything a tensor was computed from lies in this segment, without hooks."""
    return _walk(twin, tracer) is not None


def has_hooks(x: Tensor) -> bool:
    """Whether somebody wants to see, or change, the gradient that a leaf is given."""
    return Hooked.leaves and bool(x.__dict__.get("_hooks") or x.__dict__.get("_accumulated"))


def _walk(twin: Tensor, tracer) -> set | None:
    """The steps behind a tensor, or None if some belong to others."""
    ours = {id(t): k for k, t in enumerate(tracer.outside)}
    seen: set = set()
    stack = [edge_of(twin)]
    while stack:
        edge = stack.pop()
        if edge is None:
            continue
        if isinstance(edge, Tensor):
            if id(edge) not in ours or has_hooks(edge):
                return None
            continue
        node = edge.node if type(edge) is Edge else edge
        if id(node) in seen:
            continue
        if not isinstance(node, Node) or node.kept is None or (
                node.extra is not None and node.extra.keys() != {"attributes"}):
            return None
        if node.seq <= tracer.chain.first:
            return None
        seen.add(id(node))
        stack.extend(node.parents)
    return seen


def rehearse(tracer, wanting) -> Reverse | None:
    """Record the way back from some values of a segment, if that can be done."""
    recorder, twins = tracer.recorder, tracer.twins
    consumed = {k: twins[k].sig for k in wanting if _is_consumed(twins[k])}
    outputs = _with_siblings(twins, [k for k in wanting if k not in consumed])
    reverse = Reverse(outputs, consumed)
    if not outputs:
        return reverse
    if any(map(has_hooks, tracer.outside)):
        return None
    ends = [(boundary, boundary.parents) for _, _, boundary in tracer.boundaries]
    for boundary, _ in ends:
        boundary.parents = ()
    first = recorder.outside
    given = {k: _stand_in(twins[k], recorder) for k in outputs}
    try:
        for node, group in _groups(twins, outputs):
            part = _part(tracer, reverse, node, group, given, first)
            if part is None:
                return None
            reverse.parts.append(part)
    except RuntimeError:
        return None
    finally:
        for boundary, parents in ends:
            boundary.parents = parents
    return reverse


def _with_siblings(twins, outputs: list[int]) -> list[int]:
    """Values, and one for each other result of the steps that made them: a way back ends at such a
    step for all of its results or for none."""
    known = {_result_of(twins[k].node) for k in outputs}
    steps = {step for step, _ in known if len(step.sigs) > 1}
    found = [*outputs]
    for k, twin in twins.items() if steps else ():
        if twin.node is not None and twin.node is not LEAF:
            one = _result_of(twin.node)
            if one[0] in steps and one not in known:
                known.add(one)
                found.append(k)
    return sorted(found)


def _groups(twins, outputs) -> list[tuple[Node, list[int]]]:
    """Values by the step that made them, in the order of those steps."""
    found: dict = {}
    for k in outputs:
        found.setdefault(step_of(twins[k]), []).append(k)
    return sorted(found.items(), key=lambda item: item[0].seq)


def step_of(x: Tensor):
    """The step of the graph that made a tensor."""
    return x.node.node if type(x.node) is Edge else x.node


def _part(tracer, reverse: Reverse, node: Node, group: list[int], stand_ins: dict,
          first: int) -> Part | None:
    """Record the way back from what one step made to values made before, and to outside.

    Where the graph has been walked already it ends as well: who comes there is told so. Gradients
    that stand in for those of values are outside memory from `first` on.
    """
    recorder, twins = tracer.recorder, tracer.twins
    results: dict = {}
    for k in group:
        results.setdefault(twins[k].node.number if type(twins[k].node) is Edge else 0, []).append(k)
    part = Part([same[0] for same in results.values()],
                [(k, same[0]) for same in results.values() for k in same[1:]])
    sooner = {(step_of(twins[k]), twins[k].node.number if type(twins[k].node) is Edge else 0): k
              for k in reversed(stand_ins) if step_of(twins[k]).seq < node.seq}
    walked = _walked(node, sooner)
    if walked is None:
        return None
    ours = {_result_of(twins[k].node): reverse.walked[k] for k in reverse.consumed}
    wanted: list[tuple] = [
        *(("value", k) for k in sorted(sooner.values())),
        *(("outside", k) for k, x in enumerate(tracer.outside) if x.node is not None),
        *(("walked", ours.get(_result_of(edge)) or reverse.ended(edge)) for edge in walked)]
    targets = [twins[k] if kind == "value" else tracer.outside[k]
               for kind, k in wanted if kind != "walked"] + [_at(edge) for edge in walked]
    forward = len(recorder.buffers)
    given = [stand_ins[k] for k in part.outputs]
    cut = {step: step.parents for step in (*(step for step, _ in sooner),
                                           *(_result_of(edge)[0] for edge in walked))}
    for step in cut:
        step.parents = ()
    recorder.check_anew()  # a program of its own
    recorder.start()
    try:
        grads = bw.grad([twins[k] for k in part.outputs], targets, given, retain_graph=True,
                        allow_unused=True)
    finally:
        recorder.stop()
        for step, parents in cut.items():
            step.parents = parents
    if recorder.reason is not None:
        tracer.report.broke(None, f"the way back: {recorder.reason}")
        return None
    reached = [(parent, g) for parent, g in zip(wanted, grads, strict=True) if g is not None]
    if any(type(g) is not Tensor for _, g in reached):
        return None  # a sparse one
    part.parents, part.expects = [parent for parent, _ in reached], [g.sig for g in given]
    entries = [first + [*stand_ins].index(k) for k in part.outputs]
    return _finished(part, recorder, [g for _, g in reached], forward, first, entries)


def _walked(node: Node, sooner) -> list | None:
    """Where a way back comes to steps that were walked already, before it comes to values.

    None if it comes to a result that is no value, of a step that made values as well.
    """
    ends = {step for step, _ in sooner}
    found: dict = {}
    seen, stack = {node}, [*node.parents]
    while stack:
        edge = stack.pop()
        if edge is None or isinstance(edge, Tensor):
            continue
        step, number = _result_of(edge)
        if step in ends:
            if (step, number) not in sooner:
                return None
        elif isinstance(step, Node) and step.kept is None:
            found[step, number] = edge
        elif step not in seen:
            seen.add(step)
            stack.extend(step.parents)
    return [*found.values()]


def _result_of(edge) -> tuple:
    """A step, and which of its results."""
    return (edge.node, edge.number) if type(edge) is Edge else (edge, 0)


def _at(edge) -> Tensor:
    """A tensor at a place of the graph, to ask for its gradient."""
    node, number = _result_of(edge)
    x = make(node.sigs[number], nowhere())
    x.node = edge
    return x


def _stand_in(x: Tensor, recorder) -> Tensor:
    """A gradient to go back with."""
    sig = signature(x.sig.dtype, tuple(x.sig.shape))
    g = empty(sig)
    engine.fill(g, 1)
    recorder.add_outside(g.ptr, g.ptr + max(1, sig.nbytes), g.ptr)
    return g


def _finished(part: Part, recorder, grads, forward: int, first: int, entries) -> Part | None:
    """The launches, with buffers of the way forward as memory from outside."""
    places = [(g.sig, recorder.find(g.ptr)) for g in grads]
    if any(place is None for _, place in places):
        return None
    for _, place in places:
        recorder.seen(place)
    ends = {p.root[1] for _, p in places if p.root[0] == "buffer" and p.root[1] >= forward}
    launches = needed(recorder.launches, ends)
    met = {p.root for step in launches for _, p in step.places()} | {p.root for _, p in places}
    part.saved = sorted(n for kind, n in met if kind == "buffer" and n < forward)
    part.read = sorted(n for kind, n in met if kind == "outside" and n < first)
    order = [*(("outside", n) for n in part.read), *(("buffer", n) for n in part.saved),
             *(("outside", n) for n in entries)]
    roots = {root: ("outside", k) for k, root in enumerate(order)}

    def moved(place):
        return Place(roots.get(place.root, place.root), place.offset)

    for step in launches:
        if isinstance(step, Launch):
            step = step.moved(tuple(moved(a) if isinstance(a, Place) else a for a in step.args))
        part.steps.append(step)  # a check of an index reads what was found just before it
    if any(kind == "outside" for step in part.steps for kind, _ in step.writes):
        return None
    part.grads = [(sig, moved(place)) for sig, place in places]
    part.sources = _sources(part, len(order) - len(part.outputs))
    filled = {b: raw for b, raw in recorder.filled.items() if b >= forward}
    part.memory = recorder.buffers, recorder.constants, filled, ends
    return part


def _sources(part: Part, first: int) -> list[set]:
    """For each gradient the results it comes from: without any of theirs it is missing too."""
    reached: dict = {("outside", first + k): {k} for k in range(len(part.outputs))}
    for step in part.steps:
        found = set().union(*[reached.get(root, ()) for root in step.reads])
        for root in step.writes:
            reached[root] = reached.get(root, set()) | found
    return [reached.get(place.root, set()) for _, place in part.grads]


def _is_consumed(x: Tensor) -> bool:
    node = x.node.node if type(x.node) is Edge else x.node
    return isinstance(node, Node) and node.kept is None


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
    """Runs the program that goes back."""

    def __init__(self, part: Part, step, outside: list[Tensor], numbers: list[float], values):
        self.part, self.step, self.outside, self.numbers = part, step, outside, numbers
        self.values = values  # those that are parents: what is computed from them starts there
        self.versions = [x.mem.version for x in outside]

    def name(self) -> str:
        return "CompiledBackward"

    def pull(self, node, g):
        if bw.modes.grad:
            return self.carefully(node, g)
        part = self.part
        given = g if len(part.outputs) > 1 else [g]
        kept = kept_values(node)
        if bw.modes.walk is not None and not bw.modes.walk.retain:
            self.outside, self.values = [], {}
        pointers = [t.ptr for t in kept]
        hold = []
        for one, sig in zip(given, part.expects, strict=True):
            if one is None:
                one = engine.full(sig.shape, 0, dtype=sig.dtype)
            elif one.sig is not sig:
                one = engine.contiguous(engine.cast(one, sig.dtype))
            hold.append(one)
            pointers.append(one.ptr)
        program = part.program
        made = dict(zip(program.results, program.run(pointers, self.numbers), strict=True))
        missing = {k for k, one in enumerate(given) if one is None}
        return [None if sources and sources <= missing else _gradient(found, made, kept, hold)
                for found, sources in zip(part.grads, part.sources, strict=True)]


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

        def take(found) -> None:
            twins.extend([self.values.get(len(twins) + k, t) for k, t in enumerate(found)])

        made_again(self.step, self.outside, self.numbers, twins, call, take)
        given = g if len(self.part.outputs) > 1 else [g]
        pairs = [(twins[k], one) for k, one in zip(self.part.outputs, given, strict=True)
                 if one is not None]
        parents = [(twins if kind == "value" else self.outside)[k] for kind, k in self.part.parents]
        return bw.grad([t for t, _ in pairs], parents, [one for _, one in pairs],
                       create_graph=True, allow_unused=True)


def can_repeat(step) -> bool:
    """Whether the calls of a path may be made again later, to go back through gradients."""
    return not any(launch.effect and isinstance(launch, Launch)
                   for launch in step.chain.launches.first(step.end)) and not any(
        each.backward or each.writes for each in step.path())


def _gradient(found, made: dict, kept, hold) -> Tensor:
    sig, place = found
    kind, number = place.root
    if kind == "buffer":
        return make(sig, made[number], made[number].address + place.offset)
    source = [*kept, *hold][number]
    return make(sig, source.mem, source.ptr + place.offset)


def attach_reverse(tracer, step, variant, results: list) -> None:
    """Put the values of a run into the graph; `results` are the storages that it filled."""
    reverse = step.stop.reverse
    for k in variant.wanting:
        if k in reverse.consumed:
            tracer.values[k].node = reverse.walked[k]
    if not reverse.parts:
        return
    memory = dict(zip(variant.program.results, results, strict=True))
    live = {k: tracer.values[k] for k in variant.wanting}
    made: dict = {}
    for part in reverse.parts:
        kept = (*[tracer.outside[k] for k in part.read],
                *[make(signature(uint8, (memory[b].nbytes,)), memory[b]) for b in part.saved])
        parents = tuple([made[k] if kind == "value" else k if kind == "walked"
                         else edge_of(tracer.outside[k]) for kind, k in part.parents])
        node = new_node(CompiledBack(part, step, tracer.outside, tracer.numbers, {
            k: tracer.values[k] for kind, k in part.parents if kind == "value" and k in live}),
            parents, kept, tuple(part.expects))
        for number, k in enumerate(part.outputs):
            made[k] = node if len(part.outputs) == 1 else Edge(node, number)
        for k, same in part.alike:
            made[k] = made[same]
    for k, node in made.items():
        if k in live:
            live[k].node = node
