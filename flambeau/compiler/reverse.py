"""Going back through a program later: the gradient of a segment is a program of its own.

It is recorded once, when the segment is: a walk back through the real graph, from stand-ins for the
gradients of its results. What it reads of the way forward is kept by every run.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..core.dtype import uint8
from ..devices.cpu.memory import size_class
from ..engine import backward as bw
from ..engine.eager import engine
from ..engine.fresh import empty
from ..engine.launch import Launch, Place
from ..engine.node import Hooked, Node, edge_of, new_node
from ..engine.storage import nowhere
from ..engine.tensor import LEAF, Signature, Tensor, make, signature
from .fewer import fewer
from .graph_steps import Consumed, ending_at, result_of, step_of
from .joint import joined
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
        node, number = result_of(edge)
        if (node, number) not in self.gone:
            self.gone[node, number] = new_node(Consumed(), (), (), (node.sigs[number],))
        return self.gone[node, number]

    def keep(self, plans: list) -> None:
        """Hold plans as long as there is a way back that may run what they have planned."""
        for way in self._ways:
            way.keep = plans

    def serves(self, wanting) -> bool:
        return {*wanting} <= {*self.outputs} | self.consumed

    @property
    def saved(self) -> list[int]:
        """Buffers of the way forward that are read on the way back."""
        return sorted({b for part in self.parts for b in part.saved})

    @property
    def recorded(self) -> list:
        return [step for way in self._ways for step in way.steps]

    @property
    def _ways(self) -> list[Way]:
        return [way for part in self.parts for way in part.ways]


class Part:
    """One step in the graph: from the gradients of some values to those before.

    Where what made several values is much the same, as the trunk is that has two heads, they have a
    step in common, so that nothing is gone back through twice. That needs all their gradients: if
    some are missing, there is a way for the others alone, as there would be in eager.
    """

    def __init__(self, outputs: list[int], alike: list[tuple[int, int]], ways: list[Way],
                 expects: list[Signature]):
        self.outputs, self.alike = outputs, alike   # values; (value, output that it is the same as)
        self.expects = tuple(expects)               # signatures of the gradients that are given
        self.ways = ways                            # all together; then, of several, each alone
        #: values, tensors from outside, walked steps
        self.parents: list[tuple[str, Any]] = [
            *dict.fromkeys(parent for way in ways for parent in way.parents)]
        self.before = [k for kind, k in self.parents if kind == "value"]
        self.read = sorted({n for way in ways for n in way.read})     # tensors from outside
        self.saved = sorted({n for way in ways for n in way.saved})   # buffers of the way forward
        places, parents = _positions(outputs), _positions(self.parents)
        kept = _positions(_roots(self))
        for way in ways:
            way.takes = [places[k] for k in way.outputs]
            way.expects = [expects[k] for k in way.takes]
            way.gives = [parents[parent] for parent in way.parents]
            way.needs = [kept[root] for root in _roots(way)]

    @cached_property
    def room(self) -> list[Signature]:
        """Signatures of what is saved; blocks of memory are larger than what is asked of them."""
        sizes = self.ways[0].memory[0]
        return [signature(uint8, (size_class(sizes[b]),)) for b in self.saved]


def _roots(one: Part | Way) -> list[tuple[str, int]]:
    """What is read on the way back, in the order in which it is kept."""
    return [*(("outside", n) for n in one.read), *(("buffer", n) for n in one.saved)]


def _positions(things: list) -> dict:
    return {thing: at for at, thing in enumerate(things)}


class Way:
    """A program that takes gradients of some values to those before."""

    takes: list[int]            # positions of its values in the part's,
    gives: list[int]            # of its parents,
    needs: list[int]            # and of what it reads in what is kept
    expects: list[Signature]    # of the gradients that are given

    def __init__(self, outputs: list[int]):
        self.outputs = outputs
        self.parents: list[tuple[str, Any]] = []
        self.grads: list = []                       # for each of those (signature, place)
        self.sources: list[set] = []                # and the outputs it depends on
        self.saved: list[int] = []                  # buffers of the way forward that are read
        self.read: list[int] = []                   # tensors from outside that are read
        self.steps: list = []
        self.memory: tuple = ()                     # buffers, constants, first contents, results
        self.keep: list = []                        # plans whose addresses its launches know

    @cached_property
    def program(self) -> Program:
        """What runs; made when somebody goes back."""
        buffers, constants, filled, ends = self.memory
        launches, buffers, words = fewer(self.steps, buffers, ends, filled)
        return Program(launches, buffers, constants, filled, sorted(ends), [*self.keep, *words])

    @cached_property
    def rows(self) -> list[tuple[Signature, int, int]]:
        """Of each gradient its signature and where it lies: in a result of the program, or (-1 and
        before) in what that read, and how many bytes into it."""
        at = {("buffer", b): k for k, b in enumerate(self.program.results)}
        return [(sig, at[place.root] if place.root in at else -1 - place.root[1], place.offset)
                for sig, place in self.grads]


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
        node = result_of(edge)[0]
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
    first = recorder.outside
    given = {k: _stand_in(twins[k], recorder) for k in outputs}
    with ending_at(boundary for _, _, boundary in tracer.boundaries):
        try:
            for groups in joined(_groups(twins, outputs)):
                part = _part(tracer, reverse, groups, given, first)
                if part is None:
                    return None
                reverse.parts.append(part)
        except RuntimeError:
            return None
    return reverse


def _with_siblings(twins, outputs: list[int]) -> list[int]:
    """Values, and one for each other result of the steps that made them: a way back ends at such a
    step for all of its results or for none."""
    known = {result_of(twins[k].node) for k in outputs}
    steps = {step for step, _ in known if len(step.sigs) > 1}
    found = [*outputs]
    for k, twin in twins.items() if steps else ():
        if twin.node is not None and twin.node is not LEAF:
            one = result_of(twin.node)
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


def _part(tracer, reverse: Reverse, groups: list, stand_ins: dict, first: int) -> Part | None:
    """Record the way back from what some steps made, together and each by itself."""
    alike: list[tuple[int, int]] = []
    made: dict[Node, list[int]] = {}
    for node, group in groups:
        results: dict = {}
        for k in group:
            results.setdefault(result_of(tracer.twins[k].node), []).append(k)
        made[node] = [same[0] for same in results.values()]
        alike += [(k, same[0]) for same in results.values() for k in same[1:]]
    outputs = [k for each in made.values() for k in each]
    apart = [([node], each) for node, each in made.items()]
    ways = []
    for nodes, each in [([*made], outputs), *apart] if len(apart) > 1 else apart:
        way = _way(tracer, reverse, nodes, each, stand_ins, first)
        if way is None:
            return None
        ways.append(way)
    return Part(outputs, alike, ways, [stand_ins[k].sig for k in outputs])


def _way(tracer, reverse: Reverse, nodes: list[Node], outputs: list[int], stand_ins: dict,
         first: int) -> Way | None:
    """Record the way back from what steps made to values made before, and to outside.

    Where the graph has been walked already it ends as well: who comes there is told so. Gradients
    that stand in for those of values are outside memory from `first` on.
    """
    recorder, twins = tracer.recorder, tracer.twins
    last = max(node.seq for node in nodes)
    sooner = {result_of(twins[k].node): k for k in reversed(stand_ins)
              if step_of(twins[k]).seq < last and step_of(twins[k]) not in nodes}
    walked = _walked(nodes, sooner)
    if walked is None:
        return None
    ours = {result_of(twins[k].node): reverse.walked[k] for k in reverse.consumed}
    wanted: list[tuple] = [
        *(("value", k) for k in sorted(sooner.values())),
        *(("outside", k) for k, x in enumerate(tracer.outside) if x.node is not None),
        *(("walked", ours.get(result_of(edge)) or reverse.ended(edge)) for edge in walked)]
    targets = [twins[k] if kind == "value" else tracer.outside[k]
               for kind, k in wanted if kind != "walked"] + [_at(edge) for edge in walked]
    forward = len(recorder.buffers)
    given = [stand_ins[k] for k in outputs]
    recorder.check_anew()  # a program of its own
    with ending_at(step for step, _ in (*sooner, *map(result_of, walked))):
        recorder.start()
        try:
            grads = bw.grad([twins[k] for k in outputs], targets, given, retain_graph=True,
                            allow_unused=True)
        finally:
            recorder.stop()
    if recorder.reason is not None:
        tracer.report.broke(None, f"the way back: {recorder.reason}")
        return None
    reached = [(parent, g) for parent, g in zip(wanted, grads, strict=True) if g is not None]
    if any(type(g) is not Tensor for _, g in reached):
        return None  # a sparse one
    way = Way(outputs)
    way.parents = [parent for parent, _ in reached]
    entries = [first + [*stand_ins].index(k) for k in outputs]
    return _finished(way, recorder, [g for _, g in reached], forward, first, entries)


def _walked(nodes: list[Node], sooner) -> list | None:
    """Where a way back comes to steps that were walked already, before it comes to values.

    None if it comes to a result that is no value, of a step that made values as well.
    """
    ends = {step for step, _ in sooner}
    found: dict = {}
    seen, stack = {*nodes}, [parent for node in nodes for parent in node.parents]
    while stack:
        edge = stack.pop()
        if edge is None or isinstance(edge, Tensor):
            continue
        step, number = result_of(edge)
        if step in ends:
            if (step, number) not in sooner:
                return None
        elif isinstance(step, Node) and step.kept is None:
            found[step, number] = edge
        elif step not in seen:
            seen.add(step)
            stack.extend(step.parents)
    return [*found.values()]


def _at(edge) -> Tensor:
    """A tensor at a place of the graph, to ask for its gradient."""
    node, number = result_of(edge)
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


def _finished(way: Way, recorder, grads, forward: int, first: int, entries) -> Way | None:
    """The launches, with buffers of the way forward as memory from outside."""
    places = [(g.sig, recorder.find(g.ptr)) for g in grads]
    if any(place is None for _, place in places):
        return None
    for _, place in places:
        recorder.seen(place)
    ends = {p.root[1] for _, p in places if p.root[0] == "buffer" and p.root[1] >= forward}
    launches = needed(recorder.launches, ends)
    met = {p.root for step in launches for _, p in step.places()} | {p.root for _, p in places}
    way.saved = sorted(n for kind, n in met if kind == "buffer" and n < forward)
    way.read = sorted(n for kind, n in met if kind == "outside" and n < first)
    order = [*_roots(way), *(("outside", n) for n in entries)]
    roots = {root: ("outside", k) for k, root in enumerate(order)}

    def moved(place):
        return Place(roots.get(place.root, place.root), place.offset)

    for step in launches:
        if isinstance(step, Launch):
            step = step.moved(tuple(moved(a) if isinstance(a, Place) else a for a in step.args))
        way.steps.append(step)  # a check of an index reads what was found just before it
    if any(kind == "outside" for step in way.steps for kind, _ in step.writes):
        return None
    way.grads = [(sig, moved(place)) for sig, place in places]
    way.sources = _sources(way, len(order) - len(way.outputs))
    filled = {b: raw for b, raw in recorder.filled.items() if b >= forward}
    way.memory = recorder.buffers, recorder.constants, filled, ends
    return way


def _sources(way: Way, first: int) -> list[set]:
    """For each gradient the results it comes from: without any of theirs it is missing too."""
    reached: dict = {("outside", first + k): {k} for k in range(len(way.outputs))}
    for step in way.steps:
        found = set().union(*[reached.get(root, ()) for root in step.reads])
        for root in step.writes:
            reached[root] = reached.get(root, set()) | found
    return [reached.get(place.root, set()) for _, place in way.grads]


def _is_consumed(x: Tensor) -> bool:
    node = step_of(x)
    return isinstance(node, Node) and node.kept is None
