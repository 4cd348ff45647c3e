"""A call of a compiled function: real Python on traced tensors.

Every op call on a traced tensor is a hop in a tree of known sequences. On a known path nothing is
computed: results are phantoms, tensors with a signature and no memory. Where Python needs a value,
the segment so far runs as one program and phantoms become real.
"""

from __future__ import annotations

import functools
import time
from sys import getrefcount
from threading import get_ident

from ..devices.cpu.anatomy import NAMED
from ..engine import autocast, interception, storage, subclass
from ..engine import backward as bw
from ..engine.modes import modes
from ..engine.node import Hooked
from ..engine.tensor import Tensor
from .capture import Unkeyed
from .casting import casting
from .ending import ANOTHER_PATH, Ending
from .hop import Outside, State, hop
from .knowing import Knowing
from .names import changed
from .phantom import IS_LEAF, TRACE, Phantom, state_of, traced
from .reverse import has_hooks
from .segment import Refused, Result, Same, Several, Step
from .settle import PLAIN, TRACED, Promise, Reach, Tags


def _uncommon(op, args, kwargs) -> bool:
    """Whether a call depends on what is in no key: hooks, or where a storage begins."""
    return bool(modes.pack) or modes.anomaly or (
        getattr(op, "name", "").startswith("as_strided") and len(args) + len(kwargs) > 3)


def tensors_in(values) -> list[Tensor]:
    """The tensors among some arguments, and in lists and tuples of them."""
    found: list[Tensor] = []
    for v in values:
        if isinstance(v, Tensor):
            found.append(v)
        elif v.__class__ is list or v.__class__ is tuple:
            found += tensors_in(v)
    return found


def is_traced(args, kwargs) -> bool:
    """Whether a call is given a traced tensor, and none that answers calls itself, as vmap's do."""
    tensors = tensors_in(args)
    if kwargs:
        tensors += tensors_in(kwargs.values())
    return any([x.sig.tag is TRACE for x in tensors]) and all([x._has_memory for x in tensors])


def is_float_of_numpy(a) -> bool:
    """Whether a number is one of Python's in all but its type, as np.log(2) is."""
    return a.__class__ is not float and isinstance(a, float)


#: where a way back is told whether it can be walked twice
_WAYS_BACK = {bw.grad: 4, bw.backward: 3}

#: seconds that other threads wait for what a trace has not computed yet, and between two looks
_PATIENCE, _PAUSE = 0.2, 1e-5

#: references to a list that nobody has but a trace and its state, seen through a name
_OUR_OWN = 2 + NAMED


def _recast() -> None:
    if interception.lazily_traced():
        interception.tracers[-1].recast()


autocast.watchers.append(_recast)


def _read() -> None:
    if interception.tracers and interception.tracers[-1].lazy:
        interception.tracers[-1].read()


storage.readers.append(_read)


def load_code() -> None:
    """Load the machine code that traces need, all of them the same."""
    hop()
    Tags()


class Tracer(Knowing, Ending):
    """What one call knows: where in the tree it is, and which tensors stand for what."""

    lazy = True  # tensors may be phantoms
    ends: list | None = None  # where segments ended, and None for calls by themselves, if asked for

    def __init__(self) -> None:
        self.tagged: list[Tensor] = []
        self.reached: list[Tensor] = []      # traced as well: what the function's code can reach
        self.tags = Tags()
        self.thread = 0
        self.state = State(self.tagged)
        #: what a call made here returns, by a glance at it in native code, or None: (op, arguments,
        #: keyword arguments, grad mode)
        self.follow = functools.partial(hop(), self.state.address)
        self._forget()
        self._lists(Step())

    def begin(self, root: Step, report, script=None, verify: int = 0, cast=None) -> None:
        """Be at work for a call of the thread that calls this; `close` ends it."""
        state = self.state
        self.report, self.script, self.verify, self.cast = report, script, verify, cast
        self.captured = state.paused = False
        thread = get_ident()
        if self.thread != thread:
            self.thread = thread
            state.belong(thread)
        self.root = root  # all lists are empty: the call before has ended its last segment
        state.at[0], state.words[0] = root, root.leads

    @property
    def step(self) -> Step:
        """Where in the tree it is; native code goes on by itself."""
        return self.state.at[0]

    @step.setter
    def step(self, step: Step) -> None:
        self.state.go(step)

    @property
    def inside(self) -> bool:
        """Whether what is called now is not part of the trace."""
        return self.state.paused

    @inside.setter
    def inside(self, inside: bool) -> None:
        self.state.pause(inside)

    def _segment(self, root: Step) -> None:
        self.root = root
        recorder = self.recorder
        if self.known or recorder is not None:  # otherwise the path was known and is over
            self._forget()
        outside, numbers = self.outside, self.numbers
        if not (self.values or outside or numbers):  # cleared where the last one was settled
            self.state.go(root)
        elif getrefcount(outside) == getrefcount(numbers) == _OUR_OWN:
            self.values.clear()
            outside.clear()
            numbers.clear()
            self.state.go(root)
        else:  # the way back remembers them
            self._lists(root)
        if recorder is not None:
            recorder.end()

    def _lists(self, root: Step) -> None:
        self.values: list[Tensor] = []
        self.outside: list[Tensor] = []
        self.numbers: list[float] = []
        self.state.begin(root, self.values, self.outside, self.numbers)

    def _forget(self) -> None:
        """Nothing is known of what a new path is learnt from."""
        self.recorder = self.chain = None
        self.nodes = {}
        self.known: dict[int, int] = {}      # id of a tensor -> value, or -1 - outside
        self.twins: dict[int, Tensor] = {}   # the real tensors that values stand for
        self.seen: list[tuple] = []          # signature and node of what came from outside
        self.memory: dict[int, int] = {}     # its storages
        self.met: dict[int, Outside] = {}    # what it is known by
        self.added = self.caught = 0
        self.given: list[float] = []
        self.boundaries: list[tuple] = []    # where the graph goes on beyond this segment

    def traces(self) -> bool:
        """Whether this call is at work in the calling thread."""
        return not self.state.paused and get_ident() == self.thread

    def __call__(self, op, args, kwargs):
        """(result,) of an op call that is ours, else None."""
        if self.state.paused or get_ident() != self.thread:
            return None
        found = self.follow(op, args, kwargs, modes.grad)
        if found is not None:
            return (found,)
        expected = self.step.next
        if expected is not None and expected.op is op and self._follows(expected, args, kwargs):
            return (self._hop(expected, self.given),)
        return self._answer(op, args, kwargs) if is_traced(args, kwargs) else None

    def factory(self, op, args, kwargs):
        """(result,) of a call that makes a tensor from nothing, else None."""
        if not self.traces():
            return None
        found = self.follow(op, args, kwargs, modes.grad)
        return self._answer(op, args, kwargs) if found is None else (found,)

    def created(self, x: Tensor) -> None:
        """A tensor was made of numbers that Python knows."""
        if self.traces() and x.__class__ is Tensor:
            if self.script is not None:
                interception.constants.append(x)
                self.script.created(x)
            self.trace_on(x)

    def draws(self) -> None:
        """Random numbers are drawn outside the trace: those before them come first."""
        if self.traces():
            self.flush("random numbers are drawn")

    def settle(self, reason: str) -> None:
        """The graph, or a mode, is about to change: all that was asked for comes first."""
        self.flush(reason)
        self.root = self.step = Step() if modes.pack or modes.anomaly else self.step
        if self.script is not None:
            self.script.settled(reason)

    def recast(self) -> None:
        """Autocast has been switched: calls from here on may mean something else."""
        now = casting()
        if not self.traces() or now == self.cast:
            return
        self.cast = now
        step = self.step.under(now)
        if self.step is self.root:
            self.root = step
        self.step = step

    def writes(self, x: Tensor, name: str) -> None:
        """A traced tensor is changed outside the trace: all that reads it as it is comes first."""
        if self.traces() and (x.sig.tag is TRACE or any([x.mem is y.mem for y in self.outside])):
            self.flush(f"{name} runs by itself")
            if self.script is not None:
                self.script.refuse(f"{name} runs by itself")

    def _answer(self, op, args, kwargs):
        self._catch_up()
        args = [float(a) if is_float_of_numpy(a) else a for a in args]
        for _ in range(2):
            numbers: list[float] = []
            try:
                key = self._key(op, args, kwargs, numbers)
            except Unkeyed as why:
                return (self._break(op, args, kwargs, str(why)),)
            if _uncommon(op, args, kwargs):
                return (self._break(op, args, kwargs, "it depends on more than its arguments"),)
            step = self.step.find(key)
            if step is not None:
                if step.reason is not None:
                    return (self._break(op, args, kwargs, step.reason),)
                if step.baked is None or step.baked == tuple(numbers):
                    if step.chain.expected:
                        self._expect(step, args, kwargs)
                    return (self._hop(step, numbers),)
            if self.recorder is not None or self.step is self.root or (
                    self._is_at_leisure() and self.goes_on()):
                break
            if self.step not in self.report.ends:
                self.report.parted(self.step, key)
            self.flush(ANOTHER_PATH)  # and look again: this path may be known from here
            self._catch_up()
        if self.step.child is not None:
            self.report.parted(self.step, key)
        return (self.capture(op, args, kwargs, key, numbers),)

    # -- a known path ----------------------------------------------------------------------------

    def _hop(self, step: Step, numbers: list):
        self.step = step
        if numbers:
            self.numbers += numbers
        for change in step.changes:
            self.change(*change)
        result = step.result
        made = self.phantom(result) if type(result) is Result else self._made(result)
        if step.writes:
            self._wrote(step)
        return made

    def _wrote(self, step: Step) -> None:
        """Memory from outside is to change: whoever else can see it must not see it too late."""
        self.state.write()
        for k in step.writes:
            mem = self.outside[k].mem
            if getrefcount(mem) > NAMED + 1:  # the tensor has it too
                known = {id(x): x for x in (
                    *self.outside, *self.tagged, *self.reached)}.values()
                if getrefcount(mem) - NAMED > sum([x.mem is mem for x in known]):
                    self.flush("others see memory that changes")
                    return

    def read(self) -> None:
        """Python reads memory, perhaps that of a tensor from outside that is to change."""
        if self.state.wrote and self.traces():
            self.flush("Python needs a value")

    def make_real(self, x: Tensor) -> None:
        """Compute what stands for a tensor, as Python needs its memory.

        Another thread waits until this one has done so, since it is in the middle of something;
        but not for ever, as that may wait for the other.
        """
        if get_ident() != self.thread:
            until = time.monotonic() + _PATIENCE
            while x.__class__ is Phantom and self in interception.tracers and (
                    self.state.paused or time.monotonic() < until):
                time.sleep(_PAUSE)
            if x.__class__ is not Phantom:
                return
        self.flush("Python needs a value")

    def phantom(self, result: Result) -> Tensor:
        x = object.__new__(Phantom)
        x.sig, x.node = result.traced, result.node
        self.values.append(x)
        return x

    def _made(self, template):
        """What an op returned, from its template."""
        kind = type(template)
        if kind is Result:
            return self.phantom(template)
        if kind is Same:
            code = template.code
            return self.values[code] if code >= 0 else self.outside[-1 - code]
        if kind is Several:
            parts = [self._made(t) for t in template.parts]
            made = template.kind
            return made(*parts) if hasattr(made, "_fields") else made(parts)
        return template

    def backward(self, op, x: Tensor, gradient, retain: bool) -> bool:
        """x.backward() on a traced tensor: part of the program where the graph is ours alone.

        False, and nothing done, if it is none of our calls.
        """
        state = self.state
        if state.paused or get_ident() != self.thread:
            return False
        if self.script is not None:
            self.script.gradients.watch(
                v for v in self.outside if state_of(v) == IS_LEAF)
        if Hooked.leaves and any(map(has_hooks, self.outside)):
            self.run_plainly(op.run, x, gradient, retain)
            return True
        values, outside = self.values, self.outside
        expected = state.at[0].next
        if expected is not None and expected.backward and gradient is None:
            code, retained, promise = expected.expects
            if values[code] is x and retained is retain and not promise.native(
                    state.address, promise.rows, promise.count, 0):
                state.go(expected)
                if expected.writes:
                    self._wrote(expected)
                return True
        self._catch_up()
        code = self.known.get(id(x))
        if code is None or code < 0:
            self.run_plainly(op.run, x, gradient, retain)
            return True
        numbers: list[float] = []
        leaves = [k for k in range(len(outside)) if state_of(outside[k]) == IS_LEAF]
        key = (op, retain, code, self._part(gradient, numbers),
               *[self._part(getattr(outside[k], "_grad", None), numbers) for k in leaves])
        step = self.step.find(key)
        if step is not None and step.reason is None:
            if gradient is None and all(map(self._grad_is_none, leaves)):
                step.expects = (code, retain, Promise(leaves, step.result))
                step.record = None
                self.step.lead_to(step)
            self._go_back(step)
        elif step is None and self._learns_on() and self.can_go_back(code):
            self.capture_backward(op, key, x, gradient, retain, leaves)
        else:
            self._beyond_us(step, key)
            self.run_plainly(op.run, x, gradient, retain)
        return True

    def _learns_on(self) -> bool:
        """Whether what is called now can be recorded after what led here, recorded anew if need be.

        Not where nothing did: then the graph was made before.
        """
        return self.recorder is not None or (
            self._is_at_leisure() and self.step is not self.root and self.goes_on())

    def _is_at_leisure(self) -> bool:
        """Whether nothing has to be written down; what nobody asked for is given up."""
        if self.script is not None and not self.script.is_wanted:
            self.script.refuse("a path is new")
            self.script = None
        return self.script is None

    def _beyond_us(self, step: Step | None, key: tuple) -> None:
        """A way back that is no part of a program runs by itself."""
        if self.recorder is not None:
            self.step.grow(key, Refused("the graph reaches beyond this segment"))
        elif step is None and self.script is not None:
            self.script.refuse(ANOTHER_PATH)

    def grad(self, op, args) -> tuple | None:
        """(gradients,) of tensors whose graph is ours alone; None if they are none of our calls."""
        if not self.traces():
            return None
        found = self.follow(op, args, {}, modes.grad)
        if found is not None:
            return (found,)
        expected = self.step.next
        if expected is not None and expected.op is op and self._follows(expected, args, {}):
            return (self._hop(expected, self.given),)
        self._catch_up()
        numbers: list[float] = []
        try:
            key = self._key(op, args, {}, numbers)
        except Unkeyed:
            return None
        step = self.step.find(key)
        if step is not None and step.reason is None:
            if step.chain.expected:
                self._expect(step, args, {})
            return (self._hop(step, numbers),)
        codes = [self.known.get(id(x), -1) for x in args[0]]
        if step is None and min(codes, default=-1) >= 0 and self._learns_on() and all(
                [self.twins[k].node is not None and self.can_go_back(k) for k in codes]):
            return (self.capture(op, args, {}, key, numbers),)
        self._beyond_us(step, key)
        return None

    def _go_back(self, step: Step) -> None:
        """A way back that is known: leaves have gradients, promised or added to."""
        self.step = step
        for k, result in step.result:
            self.outside[k]._grad = self.phantom(result)
        if step.writes:
            self._wrote(step)

    def _grad_is_none(self, k: int) -> bool:
        try:
            return self.outside[k]._grad is None
        except AttributeError:
            return True

    # -- what is no part of a program --------------------------------------------------------------

    def _break(self, op, args, kwargs, reason: str):
        """An op that is no part of a program: everything before it is real, then it runs."""
        self.flush(f"{getattr(op, 'name', op)}: {reason}")
        if self.script is not None:
            self.script.breaks(op, args)
        return self._real_call(subclass.function_of(op), args, kwargs, True)

    def run_plainly(self, work, *args, **kwargs):
        """Run on real tensors with nothing traced; what comes after starts from its results."""
        if work in _WAYS_BACK and args[_WAYS_BACK[work]]:
            self.report.twice += 1
        self.flush(work)
        return self._real_call(work, args, kwargs, False)

    def _real_call(self, work, args, kwargs, trace_on: bool):
        if self.script is not None:
            self.script.calling(self, work, args, kwargs)
        state = self.state
        if self.ends is not None:
            self.ends.append(None)
        self._untag()
        following = state.words[0]
        state.paused, state.words[0] = True, 0
        try:
            result = work(*args, **kwargs)
        finally:
            state.paused, state.words[0] = False, following
            if not trace_on and self.script is None and self.root in self.report.last:
                self.reached = []  # so was it in calls before: nothing is computed from them now
            self._retag()
        if self.script is not None:
            self.trace_on(self.script.called(result, trace_on))
        if result is not None:
            self.trace_on(result)
        return result

    def _untag(self) -> None:
        """All traced tensors as they are, for the time of a real op."""
        native = self.tags.native
        native(id(self.tagged), PLAIN, 0)
        if self.reached:
            native(id(self.reached), PLAIN, 0)

    def _retag(self) -> None:
        if self.tags.native(id(self.tagged), TRACED, 0) < len(self.tagged):
            self.tags.retag(self.tagged)
        if self.reached:
            self.tags.retag(self.reached)

    def trace_all(self, reach: Reach) -> bool:
        """Ops on all tensors that can be reached are part of the trace from here on.

        False, and nothing done, if a name has another meaning than when they were looked for.
        """
        if reach.others and changed(reach.others):
            return False
        found = reach.enter(*reach.told)
        if found < 0:
            return False
        self.reached = tensors = reach.tensors
        if found < len(tensors):
            self.tags.retag(tensors)
        return True

    def trace_on(self, value) -> None:
        """Ops on the tensors in here are part of the trace from here on."""
        if isinstance(value, Tensor):
            if value.sig.tag is None:
                value.sig = traced(value.sig)
                self.tagged.append(value)
        elif isinstance(value, (tuple, list)):
            for v in value:
                self.trace_on(v)
        elif isinstance(value, dict):
            for v in value.values():
                self.trace_on(v)

    # -- the end -----------------------------------------------------------------------------------

    def close(self, finished: bool = True) -> None:
        """The end of the call: nothing is traced any more."""
        try:
            if self.values or self.outside or self.recorder is not None or (
                    self.state.at[0] is not self.root):
                self.flush("the end")
            elif self.root.child is None:
                self.report.last.add(self.root)
        except Exception:
            if finished:
                raise  # else what the function raised is what counts
        finally:
            native = self.tags.native
            if self.tagged:
                native(id(self.tagged), PLAIN, 0)
                self.tagged.clear()
            if self.reached:
                native(id(self.reached), PLAIN, 0)
                self.reached = []
