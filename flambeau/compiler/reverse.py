"""Going back through a program later: the gradient of a segment is a program of its own.

It is recorded once, when the segment is: a walk back through the real graph, from stand-ins for the
gradients of its results. What it reads of the way forward is kept by every run.
"""

from __future__ import annotations

from ..core.dtype import uint8
from ..engine import backward as bw
from ..engine.eager import engine
from ..engine.node import Edge, Hooked, Node, edge_of, kept_values, new_node
from ..engine.tensor import Tensor, empty, make, signature
from .fuse import fused
from .program import Program
from .simplify import needed
from .tape import Launch, Place


class Reverse:
    """How gradients of some values of a segment reach the tensors from outside."""

    def __init__(self, outputs: list[int], consumed: set[int]):
        self.outputs: list[int] = outputs       # values
        self.consumed: set[int] = consumed      # values whose graph has been walked already
        self.inputs: list[int] = []             # tensors from outside that want a gradient
        self.grads: list = []                   # for each of those None, or (signature, place)
        self.expects: list = []                 # signatures of the gradients that are given
        self.sources: list[set] = []            # for each of those the results it comes from
        self.saved: list[int] = []              # buffers of the way forward
        self.read: list[int] = []               # tensors from outside that are read
        self.program: Program | None = None
        self.walked = new_node(Consumed(), (), (), (signature(uint8, ()),))

    def serves(self, wanting) -> bool:
        return {*wanting} <= {*self.outputs} | self.consumed


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


def _has_hooks(x: Tensor) -> bool:
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
            if id(edge) not in ours or _has_hooks(edge):
                return None
            continue
        node = edge.node if type(edge) is Edge else edge
        if id(node) in seen:
            continue
        if not isinstance(node, Node) or node.extra is not None or node.kept is None:
            return None
        if node.seq <= tracer.chain.first:
            return None
        seen.add(id(node))
        stack.extend(node.parents)
    return seen


def rehearse(tracer, wanting) -> Reverse | None:
    """Record the way back from some values of a segment, if that can be done."""
    recorder, twins = tracer.recorder, tracer.twins
    consumed = {k for k in wanting if _is_consumed(twins[k])}
    outputs = [k for k in wanting if k not in consumed]
    reverse = Reverse(outputs, consumed)
    if not outputs:
        return reverse
    if any(map(_has_hooks, tracer.outside)):
        return None
    inputs = [k for k, x in enumerate(tracer.outside) if x.node is not None]
    forward = len(recorder.buffers)
    given = []
    for k in outputs:
        sig = signature(twins[k].sig.dtype, tuple(twins[k].sig.shape))
        g = empty(sig)
        engine.fill(g, 1)
        given.append(g)
        recorder.add_outside(g.ptr, g.ptr + max(1, sig.nbytes), g.ptr)
    first = recorder.outside - len(given)
    ends = [(boundary, boundary.parents) for _, _, boundary in tracer.boundaries]
    for boundary, _ in ends:
        boundary.parents = ()
    recorder.start([])
    try:
        grads = bw.grad([twins[k] for k in outputs], [tracer.outside[k] for k in inputs],
                        given, retain_graph=True, allow_unused=True)
    except RuntimeError:
        return None
    finally:
        recorder.stop()
        for boundary, parents in ends:
            boundary.parents = parents
    if recorder.reason is not None:
        tracer.report.broke(None, f"the way back: {recorder.reason}")
        return None
    reverse.inputs, reverse.expects = inputs, [g.sig for g in given]
    return _finished(reverse, recorder, grads, forward, first)


def _finished(reverse: Reverse, recorder, grads, forward: int, first: int) -> Reverse | None:
    """The program, with buffers of the way forward as memory from outside."""
    places: list = []
    for g in grads:
        place = None if g is None else recorder.find(g.ptr)
        if g is not None and place is None:
            return None
        places.append(None if g is None else (g.sig, place))
    ends = {p.root[1] for _, p in filter(None, places)
            if p.root[0] == "buffer" and p.root[1] >= forward}
    launches = needed(recorder.launches, ends)
    met = {p.root for step in launches for _, p in step.places()} | {
        p.root for _, p in filter(None, places)}
    reverse.saved = sorted(n for kind, n in met if kind == "buffer" and n < forward)
    reverse.read = sorted(n for kind, n in met if kind == "outside" and n < first)
    order = [*(("outside", n) for n in reverse.read), *(("buffer", n) for n in reverse.saved),
             *(("outside", first + k) for k in range(len(reverse.outputs)))]
    roots = {root: ("outside", k) for k, root in enumerate(order)}

    def moved(place):
        return Place(roots.get(place.root, place.root), place.offset)

    steps = []
    for step in launches:
        if not isinstance(step, Launch):
            return None
        args = tuple(moved(a) if isinstance(a, Place) else a for a in step.args)
        steps.append(step.moved(args))
    if any(kind == "outside" for step in steps for kind, _ in step.writes):
        return None
    reverse.grads = [None if p is None else (p[0], moved(p[1])) for p in places]
    reverse.sources = _sources(reverse, steps, len(order) - len(reverse.outputs))
    filled = {b: raw for b, raw in recorder.filled.items() if b >= forward}
    steps = fused(steps, ends)
    reverse.program = Program(steps, recorder.buffers, recorder.constants, filled, sorted(ends), [])
    return reverse


def _sources(reverse: Reverse, steps, first: int) -> list[set]:
    """For each gradient the results it comes from: without any of theirs it is missing too."""
    reached: dict = {("outside", first + k): {k} for k in range(len(reverse.outputs))}
    for step in steps:
        found = set().union(*[reached.get(root, ()) for root in step.reads])
        for root in step.writes:
            reached[root] = reached.get(root, set()) | found
    return [set() if g is None else reached.get(g[1].root, set()) for g in reverse.grads]


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

    def __init__(self, reverse: Reverse):
        self.reverse = reverse

    def name(self) -> str:
        return "CompiledBackward"

    def pull(self, node, g):
        if bw.modes.grad:
            raise RuntimeError("a compiled function can be differentiated once: call the original "
                               "one where create_graph=True is needed")
        reverse = self.reverse
        given = g if len(reverse.outputs) > 1 else [g]
        kept = kept_values(node)
        pointers = [t.ptr for t in kept]
        hold = []
        for one, sig in zip(given, reverse.expects, strict=True):
            if one is None:
                one = engine.full(sig.shape, 0, dtype=sig.dtype)
            elif one.sig is not sig:
                one = engine.contiguous(engine.cast(one, sig.dtype))
            hold.append(one)
            pointers.append(one.ptr)
        made = dict(zip(reverse.program.results, reverse.program.run(pointers, []), strict=True))
        missing = {k for k, one in enumerate(given) if one is None}
        return [None if found is None or sources <= missing else _gradient(found, made, kept, hold)
                for found, sources in zip(reverse.grads, reverse.sources, strict=True)]


def _gradient(found, made: dict, kept, hold) -> Tensor:
    sig, place = found
    kind, number = place.root
    if kind == "buffer":
        return make(sig, made[number], made[number].address + place.offset)
    source = [*kept, *hold][number]
    return make(sig, source.mem, source.ptr + place.offset)


def attach_reverse(tracer, step, variant, memory: dict) -> None:
    """Put the values of a run into the graph."""
    reverse = step.reverse
    live = {k: tracer.values[k] for k in variant.wanting}
    for k in reverse.consumed:
        if k in live:
            live[k].node = reverse.walked
    if not reverse.outputs:
        return
    bytes_ = [make(signature(uint8, (memory[b].nbytes,)), memory[b]) for b in reverse.saved]
    kept = (*[tracer.outside[k] for k in reverse.read], *bytes_)
    parents = tuple(edge_of(tracer.outside[k]) for k in reverse.inputs)
    sigs = tuple(reverse.expects)
    node = new_node(CompiledBack(reverse), parents, kept, sigs)
    for number, k in enumerate(reverse.outputs):
        if k in live:
            live[k].node = node if len(sigs) == 1 else Edge(node, number)

