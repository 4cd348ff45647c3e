"""An unknown path: ops run for real, on twins of the phantoms Python sees, and are recorded."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

from ..engine import subclass
from ..engine.modes import modes
from ..engine.node import next_sequence
from ..engine.tape import Recorder
from ..engine.tensor import LEAF, Size, Tensor
from ..engine.views import remember
from .again import another, made_again
from .casting import within
from .graph_steps import boundary_of, step_of
from .overlap import homes_of
from .phantom import GRAPH, HAS_NODE, extent_of, plain, state_of, traced
from .reverse import graph_is_ours, rehearse
from .segment import Chain, Refused, Result, Same, Several, Step, WayBack, same, with_bases


class Unkeyed(Exception):
    """Something that a path cannot be known by, or made again from."""


class Capture:
    """The part of a trace that is at work on unknown paths."""

    # What the trace has, see trace.py.
    recorder: Any
    chain: Any
    report: Any
    root: Step
    step: Step
    inside: bool
    captured: bool
    added: int
    known: dict[int, int]
    memory: dict[int, int]
    values: list[Tensor]
    twins: dict[int, Tensor]    # of values that Python may use again
    outside: list[Tensor]
    seen: list[tuple]
    numbers: list[float]
    tagged: list[Tensor]
    boundaries: list[tuple]
    nodes: dict[int, Any]
    phantom: Callable
    flush: Callable
    live: Callable
    trace_on: Callable
    _untag: Callable
    _retag: Callable
    _catch_up: Callable

    # -- one op ----------------------------------------------------------------------------------

    def capture(self, op, args, kwargs, key, numbers):
        """Run an op call for real, and add it to the tree."""
        self._begin()
        self._catch_up()
        self._let_go()
        fresh = [another(v) for v in numbers]
        self.recorder.know(fresh, len(self.numbers))
        swap = iter(fresh)
        real = [self._real(a, swap) for a in args]
        named = {k: self._real(v, swap) for k, v in kwargs.items()}
        before = self._states()
        nodes = {k: t.node for k, t in self.twins.items()}
        try:
            result = self._recorded(subclass.function_of(op), real, named)
        except BaseException:
            if self.step is self.root or self.step.child is not None:
                self.flush("an error")  # nothing of this path is new yet
            raise
        reason, made, template = self.recorder.reason or self._beyond(), None, None
        if reason is None:
            first = len(self.values)
            try:
                made, template = self._wrapped(result)
            except Unkeyed as why:
                reason = str(why)
                for k in range(first, len(self.values)):
                    del self.twins[k]
                del self.values[first:], self.chain.results[first:]
                self.known.clear()
                self.seen.clear()
                self._catch_up()
        if reason is not None:
            return self._broken(op, key, reason, result, nodes)
        self._catch_up()
        self.step = self._new_step(Step, op, args, kwargs, key, numbers, template, before)
        return made

    def _begin(self) -> None:
        if self.recorder is None:
            self.recorder = Recorder()
            self.chain = Chain(next_sequence(), self.recorder)
            self.captured = True
        for x in self.outside[self.added:]:
            sig, x.sig = x.sig, plain(x.sig)
            self.recorder.add_outside(*extent_of(x), x.ptr)
            x.sig = sig
            if state_of(x) == HAS_NODE:
                self.boundaries.append((x, x.node, boundary_of(x)))
        self.chain.homes += homes_of(self.outside[self.added:])
        self.added = len(self.outside)
        self.seen = [(x.sig, x.node) for x in self.outside]

    def _let_go(self) -> None:
        """Forget the twins in memory that Python has no tensor of any more.

        Nobody can use them, or change them by way of a view; what the way back needs of them is
        kept by the graph, as it is in eager. Only of a step that Python has a result of all results
        are needed, see reverse.py.
        """
        values, twins = self.values, self.twins
        held = {id(t.mem) for k, t in twins.items()
                if getrefcount(values[k]) > 2 or getweakrefcount(values[k])} | self.memory.keys()
        steps = {step_of(t) for t in twins.values() if t.node is not None and id(t.mem) in held}
        for k in [k for k, t in twins.items()
                  if id(t.mem) not in held and (t.node is None or step_of(t) not in steps)]:
            del twins[k]

    def _states(self) -> dict[int, tuple]:
        """What an op that changes a value in place may change of it."""
        return {k: (t.sig, t.node is not None) for k, t in self.twins.items()}

    def _recorded(self, function, real, named):
        self._untag()
        before, self.inside = self.inside, True
        self.recorder.start()
        try:
            return function(*real, **named)
        finally:
            self.recorder.stop()
            self.inside = before
            self._retag()

    def _real(self, a, swap):
        """An argument with twins for phantoms, and floats as objects of their own."""
        if isinstance(a, Tensor):
            code = self.known.get(id(a))
            return a if code is None or code < 0 else self.twins[code]
        kind = type(a)
        if kind is float:
            return next(swap)
        if kind is list or kind is tuple or kind is Size:
            return kind([self._real(v, swap) for v in a])
        if kind is slice:
            return slice(*(self._real(v, swap) for v in (a.start, a.stop, a.step)))
        return a

    # -- results ---------------------------------------------------------------------------------

    def _wrapped(self, result):
        """(what Python gets, the template it is made from next time)."""
        if isinstance(result, Tensor):
            known = self._known_result(result)
            return known if known is not None else self._new_result(result)
        kind = type(result)
        if isinstance(result, (tuple, list)) and kind is not Size:
            pairs = [self._wrapped(r) for r in result]
            parts = [p for p, _ in pairs]
            made = kind(*parts) if hasattr(result, "_fields") else kind(parts)
            return made, Several(kind, tuple(t for _, t in pairs))
        if result is None or isinstance(result, (bool, int, float, complex, str, Size)):
            return result, result
        raise Unkeyed(f"a result of type {kind.__name__}")

    def _known_result(self, result: Tensor):
        for number, twin in self.twins.items():
            if twin is result:
                return self.values[number], Same(number)
        code = self.known.get(id(result))
        return (result, Same(code)) if code is not None and code < 0 else None

    def _new_result(self, result: Tensor):
        if type(result) is not Tensor:
            raise Unkeyed(f"a result of type {type(result).__name__}")
        if result.node is LEAF:
            raise Unkeyed("a new leaf")
        place = self.recorder.find(result.ptr) if result.sig.nbytes else None
        if place is None:
            raise Unkeyed("a result in memory nobody named")
        self.recorder.seen(place)
        made = self._result(result, place)
        self.twins[len(self.values)] = result
        self.chain.results.append(made)
        return self.phantom(made), made

    def _result(self, twin: Tensor, place) -> Result:
        """What is to be made of a tensor next time."""
        made = Result(twin.sig, place, twin.node is not None)
        if hasattr(twin, "base"):
            known = {id(t): k for k, t in self.twins.items()}
            known |= {id(x): -1 - k for k, x in enumerate(self.outside)}
            made.base, made.known = known.get(id(twin.base)), _knows(twin.base, twin)
        return made

    def _beyond(self) -> str | None:
        """Why an op that has run changed more than a path can express, if it did."""
        for x, (sig, node) in zip(self.outside, self.seen, strict=True):
            if x.sig is not sig or x.node is not node:
                return "it gives a tensor from outside another place in the graph"
        return None

    def _broken(self, op, key, reason: str, result, nodes: dict | None = None):
        """The op has run; the path goes on after it with a new segment.

        nodes: what values were in the graph before it, which is where the segment ends.
        """
        self.step.grow(key, Refused(reason))
        self.report.broke(op, reason)
        given = self._given_back(result)
        self.nodes = nodes or {}
        self.flush(f"{getattr(op, 'name', op)}: {reason}")
        self.nodes = {}
        self.trace_on(given)
        return given

    def _given_back(self, result):
        """A real result, with phantoms in place of their twins."""
        if isinstance(result, Tensor):
            known = self._known_result(result)
            return result if known is None else known[0]
        if isinstance(result, (tuple, list)) and type(result) is not Size:
            parts = [self._given_back(r) for r in result]
            kind = type(result)
            return kind(*parts) if hasattr(result, "_fields") else kind(parts)
        return result

    # -- steps -----------------------------------------------------------------------------------

    def _new_step(self, kind: type[Step], op, args, kwargs, key, numbers, template,
                  before) -> Any:
        chain, recorder = self.chain, self.recorder
        recorder.keep()
        chain.rewrites = chain.rewrites or recorder.rewrites
        own = range(len(self.numbers), len(self.numbers) + len(numbers))
        self.numbers += numbers
        chain.numbers += numbers
        step = kind()
        step.chain, step.end, step.result = chain, chain.launches.count, template
        cast = within()
        step.grad, step.cast = modes.grad, self.step.cast if self.step.cast == cast else cast
        step.baked = None if recorder.met.issuperset(own) else tuple(numbers)
        step.writes = tuple(sorted(recorder.changed))
        step.op, step.names = op, tuple(kwargs)
        step.args = tuple([self._coded(a) for a in (*args, *kwargs.values())])
        step.numbers = len(self.numbers)
        step.values, step.outside = len(self.values), len(self.outside)
        now = self._states()
        step.changes = tuple([(k, now[k]) for k, was in before.items() if now[k] != was])
        for k, change in step.changes:
            self.change(k, change)
        step.parent = self.step
        return self.step.grow(recorder.shared(key), step)

    def _coded(self, a):
        if isinstance(a, Tensor):
            return same(self.known[id(a)])
        if type(a) in (list, tuple, Size):
            return Several(type(a), tuple(self._coded(v) for v in a))
        if type(a) is slice:
            return Several(slice, tuple(self._coded(v) for v in (a.start, a.stop, a.step)))
        return a

    def capture_backward(self, op, key, x, gradient, retain: bool, leaves) -> None:
        """Go back for real; gradients that leaves are given are results of this step."""
        before = [self._real(getattr(self.outside[k], "_grad", None), iter(())) for k in leaves]
        coded = [(k, self._coded(getattr(self.outside[k], "_grad", None))) for k in leaves]
        phantoms = [(self.outside[k], self.outside[k]._grad, was)
                    for k, was in zip(leaves, before, strict=True)
                    if was is not None and was is not self.outside[k]._grad]
        for leaf, _, twin in phantoms:
            leaf._grad = twin
        self._begin()
        self._let_go()
        states = self._states()
        real = [self._real(a, iter(())) for a in (x, gradient)]
        self._recorded(op.run, [*real, retain], {})
        reason = self.recorder.reason
        changed = []
        for k, was in zip(leaves, before, strict=True):
            g: Any = getattr(self.outside[k], "_grad", None)
            if g is was:
                continue
            place = self.recorder.find(g.ptr) if type(g) is Tensor else None
            if place is None or g.node is not None:
                reason = reason or "a gradient in memory nobody named"
                break
            changed.append((k, Result(g.sig, place, False), g))
        for leaf, phantom, twin in phantoms:
            if leaf._grad is twin:
                leaf._grad = phantom
        if reason is not None:
            end = self.step
            self._broken(op, key, reason, None)
            # The graph has been walked: the way back is learnt another time.
            end.stopped().reverse = None
            return
        step = self._new_step(WayBack, op, (x, gradient, retain), {}, key, [],
                              [(k, result) for k, result, _ in changed], states)
        step.grads = coded
        for k, result, g in changed:
            self.recorder.seen(result.place)
            self.twins[len(self.values)] = g
            self.chain.results.append(result)
            self.outside[k]._grad = self.phantom(result)
        step.values = len(self.values)
        self.step = step

    def can_go_back(self, code: int) -> bool:
        return graph_is_ours(self.twins[code], self)

    def learn_again(self, step: Step) -> None:
        """Record a path anew, with the way back from where it ends this time."""
        stop = step.stopped()
        before = step.chain.launches.first(step.end), stop.reverse, stop.learnt
        reason = self._recorded_anew(step)
        if reason is None:
            step.chain, step.end = self.chain, self.chain.launches.count
            stop.learnt = list(self.numbers)
        self.end_capture(step)
        if stop.proven is None and before[2] != stop.learnt:
            stop.proven = _same_code(
                (before[0], step.chain.launches.first(step.end)),
                [r.recorded if r is not None else () for r in (before[1], stop.reverse)])
        stop.programs.clear()
        stop.settling = None
        stop.hopeless = reason is not None or stop.reverse is None

    def _recorded_anew(self, step: Step) -> str | None:
        """Make the calls of a path for real, on twins; a reason if they cannot be recorded."""
        self.recorder, self.added = Recorder(), 0
        self.chain = Chain(next_sequence(), self.recorder)
        self.captured = True
        self._begin()
        reasons = []

        def take(found) -> None:
            reasons.append(self.recorder.reason)
            for twin in found:
                place = self.recorder.find(twin.ptr)
                if place is None:
                    reasons.append("a result in memory nobody named")
                else:
                    self.recorder.seen(place)
                    self.chain.results.append(self._result(twin, place))
                self.twins[len(self.twins)] = twin
            self.recorder.keep()
            self.chain.rewrites = self.chain.rewrites or self.recorder.rewrites

        numbers = [another(v) for v in self.numbers]
        self.recorder.know(numbers, 0)
        made_again(step, self.outside, numbers, self.twins, self._recorded, take)
        return next(filter(None, reasons), None)

    def goes_on(self) -> bool:
        """Record a known path anew where a new one parts from it; False if there is no need to.

        A graph that has not been walked should not be torn apart: where it ends in the middle no
        way back is part of a program, now or ever after.
        """
        step = self.step
        if any(each.backward for each in step.path()) or not any(r.wants for r in step.final()):
            return False
        numbers, before, self.inside = list(self.numbers), self.inside, True
        try:
            reason = self._recorded_anew(step)
        finally:
            self.inside = before
        if reason is None:
            self.chain.numbers = numbers
            step.chain, step.end = self.chain, self.chain.launches.count
        else:
            self.flush(reason)
        stop = step.stop
        if stop is not None:  # what is known of segments that end here was told by the old chain
            stop.programs.clear()
            stop.settling = stop.reverse = None
            stop.learnt = list(numbers)
        return reason is None

    # -- the end ---------------------------------------------------------------------------------

    def end_capture(self, step: Step) -> None:
        """What was computed on the way becomes what phantoms are."""
        live, stop = self.live(), step.stopped()
        self._untag()
        nodes = self.nodes
        self._swap_nodes(nodes)
        try:
            wanting = [k for k in with_bases(live, self.chain.results)
                       if self.twins[k].node is not None]
            if wanting:
                stop.reverse = rehearse(self, wanting)
        finally:
            self._swap_nodes(nodes)
            self._retag()
            self.chain.keep = self.recorder.plans()
            self.recorder.close()
            if stop.reverse is not None:
                stop.reverse.keep(self.chain.keep)
        self.become_all(self.twins)
        self.restore_boundaries()
        self.twins.clear()

    def _swap_nodes(self, nodes) -> None:
        for k, node in nodes.items():
            twin = self.twins[k]
            twin.node, nodes[k] = node, twin.node

    def restore_boundaries(self) -> None:
        """Tensors from outside are again where they were in the graph."""
        for x, node, boundary in self.boundaries:
            if x.node is boundary:
                x.node = node

    def become_all(self, twins: dict[int, Tensor]) -> None:
        """Make phantoms what their twins are, views of one another as those are."""
        pairs = [(self.values[k], twin) for k, twin in twins.items()]
        known = {id(twin): x for x, twin in pairs}
        for x, twin in pairs:
            self.become(x, twin)
            if hasattr(twin, "base"):
                x.base = known.get(id(twin.base), twin.base)
                if _knows(twin.base, twin):
                    remember(x.base, x)

    def become(self, x: Tensor, twin: Tensor) -> None:
        """Make a phantom what its twin is."""
        x.__class__ = Tensor
        x.sig, x.mem, x.ptr, x.node = traced(twin.sig), twin.mem, twin.ptr, twin.node
        self.tagged.append(x)

    def change(self, number: int, change) -> None:
        """An op changed a value in place: its signature, or whether it wants a gradient."""
        sig, wants = change
        x = self.values[number]
        x.sig, x.node = traced(sig), GRAPH if wants else None


def _knows(base: Tensor, view: Tensor) -> bool:
    """Whether a view is recorded anew when its base changes."""
    return any(reference() is view for reference in getattr(base, "views", ()))


def _same_code(*pairs) -> bool | None:
    """Whether two recordings of a path, and of its way back, have the same numbers in the same
    places; None if they are of other launches, as where something was made for the first time."""
    def numbers(launches):
        return [[a for a in step.args if type(a) is float] for step in launches]

    if any(len(one) != len(two) for one, two in pairs):
        return None
    return all(str(numbers(one)) == str(numbers(two)) for one, two in pairs)
