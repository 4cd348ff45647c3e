"""A call of a compiled function: real Python on traced tensors.

Every op call on a traced tensor is a hop in a tree of known sequences. On a known path nothing is
computed: results are phantoms, tensors with a signature and no memory. Where Python needs a value,
the segment so far runs as one program and phantoms become real.
"""

from __future__ import annotations

import copy
import functools
from sys import getrefcount
from threading import get_ident

from ..core.dtype import dtype
from ..engine import autocast, eager, storage, subclass
from ..engine import backward as bw
from ..engine.modes import INFERENCE, inferring, infers, modes
from ..engine.node import Hooked
from ..engine.tensor import Size, Tensor
from .again import call, made_again
from .capture import Capture, Unkeyed
from .casting import casting
from .hop import Constant, Listed, Outside, Record, State, hop
from .names import changed
from .overlap import homes_of, overlapping
from .phantom import IS_LEAF, TRACE, Phantom, plain, state_of, traced
from .reverse import attach_reverse, can_repeat, has_hooks
from .segment import Result, Same, Several, Step, Variant, tie
from .settle import PLAIN, TRACED, Promise, Reach, Settling, Tags


def _uncommon(op, args, kwargs) -> bool:
    """Whether a call depends on what is in no key: hooks, or where a storage begins."""
    return bool(modes.pack) or modes.anomaly or (
        getattr(op, "name", "").startswith("as_strided") and len(args) + len(kwargs) > 3)


def is_traced(values) -> bool:
    """Whether there is a traced tensor among some arguments."""
    for v in values:
        if isinstance(v, Tensor):
            if v.sig.tag is TRACE:
                return True
        elif (v.__class__ is list or v.__class__ is tuple) and is_traced(v):
            return True
    return False


#: reasons to end a segment that no replay without Python can follow
ANOTHER_PATH = "another path"
_HOST_READS = ("Python needs a value", ANOTHER_PATH)

#: where a way back is told whether it can be walked twice
_WAYS_BACK = {bw.grad: 4, bw.backward: 3}

#: references to a list that nobody has but a trace and its state, seen through a name
_OUR_OWN = 4

#: arguments that are known by their value
_VALUES = (bool, int, str, bytes, complex, type(None), type(Ellipsis), type)


def is_plain(value) -> bool:
    """Whether an argument is known by its value, and has no number in it that may change."""
    if type(value) in (list, tuple, Size):
        return all([isinstance(v, _VALUES) for v in value])
    return isinstance(value, (*_VALUES, dtype))


def _recast() -> None:
    if eager.lazily_traced():
        eager.tracers[-1].recast()


autocast.watchers.append(_recast)


def _read() -> None:
    if eager.tracers and eager.tracers[-1].lazy:
        eager.tracers[-1].read()


storage.readers.append(_read)


class Tracer(Capture):
    """What one call knows: where in the tree it is, and which tensors stand for what."""

    lazy = True  # tensors may be phantoms

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
        self.report, self.script, self.verify, self.cast = report, script, verify, cast
        self.captured = self.state.paused = False
        if self.thread != get_ident():
            self.thread = get_ident()
            self.state.belong(self.thread)
        self.root = root  # all lists are empty: the call before has ended its last segment
        self.state.go(root)

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
        if not is_traced(args) and not is_traced(kwargs.values()):
            return None
        return self._answer(op, args, kwargs)

    def factory(self, op, args, kwargs):
        """(result,) of a call that makes a tensor from nothing, else None."""
        return self._answer(op, args, kwargs) if self.traces() else None

    def created(self, x: Tensor) -> None:
        """A tensor was made of numbers that Python knows."""
        if self.script is not None and self.traces() and x.__class__ is Tensor:
            eager.constants.append(x)
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
        for _ in range(2):
            numbers: list[float] = []
            try:
                key = self._key(op, args, kwargs, numbers)
            except Unkeyed as why:
                return (self._break(op, args, kwargs, str(why)),)
            if _uncommon(op, args, kwargs):
                return (self._break(op, args, kwargs, "it depends on more than its arguments"),)
            step = self.step.children.get(key)
            if step is not None:
                if step.reason is not None:
                    return (self._break(op, args, kwargs, step.reason),)
                if step.baked is None or step.baked == numbers:
                    self._expect(step, op, args, kwargs)
                    return (self._hop(step, numbers),)
            if self.recorder is not None or self.step is self.root:
                break
            self.flush(ANOTHER_PATH)  # and look again: this path may be known from here
            self._catch_up()
        return (self.capture(op, args, kwargs, key, numbers),)

    # -- the path that was taken last time ---------------------------------------------------------

    def _follows(self, step: Step, args, kwargs) -> bool:
        """Whether a call is the one that was made here last time, by a glance at its arguments.

        Native code has found that it is not quite: a tensor may stand for another.
        """
        expects = step.expects
        if kwargs or step.names:
            if tuple(kwargs) != step.names:
                return False
            args = (*args, *kwargs.values())
        if expects is None or len(args) != len(expects) or modes.grad is not step.grad:
            return False
        values, outside = self.values, self.outside
        numbers: list[float] = []
        fresh: list[Tensor] = []
        before = len(outside)
        for a, e in zip(args, expects, strict=True):
            kind = e.__class__
            if kind is int:
                if values[e] is not a:
                    return False
            elif kind is Outside:
                if e.number < before + len(fresh):
                    if (outside[e.number] if e.number < before else
                            fresh[e.number - before]) is not a:
                        return False
                elif e.stands_for(a, (*outside, *fresh)) and a.node is e.node and (
                        a.sig is e.sig or a.sig is e.plain):
                    fresh.append(a)
                else:
                    return False
            elif kind is Listed:
                return False  # native code has looked at it
            elif e is float:
                if a.__class__ is not float:
                    return False
                numbers.append(a)
            elif a is not e.value and (a.__class__ is not e.value.__class__ or a != e.value):
                return False
            elif a.__class__ is float:
                numbers.append(a)  # it is part of the code, and of the list of numbers as well
        for x in fresh:
            if x.sig.tag is None:
                x.sig = traced(x.sig)
                self.tagged.append(x)
            outside.append(x)
        self.given = numbers
        return True

    def _expect(self, step: Step, op, args, kwargs) -> None:
        """Remember a call that went this way; only plain arguments can be told at a glance."""
        found: list = []
        for a in (*args, *kwargs.values()):
            one = self._expected(step, a)
            if one is None:
                found = []
                break
            found.append(one)
        step.op, step.grad, step.names = op, modes.grad, tuple(kwargs)
        step.expects = tuple(found) if found else None
        step.record = None
        if step.expects is not None and Record.possible(step, step.names):
            step.record = Record(step, step.names)
            step.record.lead_to(None if step.next is None else step.next.record)
        self.step.lead_to(step if step.expects is not None else None)

    def _expected(self, step: Step, a):
        """What an argument is known by at a glance; None if that is not enough."""
        if isinstance(a, Tensor):
            code = self.known[id(a)]
            return code if code >= 0 else Outside(-1 - code, a)
        if type(a) is float:
            return float if step.baked is None else Constant(a)
        if is_plain(a):
            return Constant(copy.copy(a))
        if type(a) in (list, tuple) and not any([type(v) in (list, tuple) for v in a]):
            parts = [self._expected(step, v) for v in a]
            return None if None in parts else Listed(type(a), parts)
        return None

    def _catch_up(self) -> None:
        """Fill in what is not looked at on the way that is expected."""
        known = self.known
        if len(known) == len(self.values) + len(self.outside):
            return
        if not known or self.caught > len(self.values):
            self.caught = 0
        for code in range(self.caught, len(self.values)):
            known[id(self.values[code])] = code
        self.caught = len(self.values)
        for number in range(len(self.seen), len(self.outside)):
            x = self.outside[number]
            known[id(x)] = -1 - number
            self.seen.append((x.sig, x.node))
            self.memory.setdefault(id(x.mem), number)

    # -- keys ------------------------------------------------------------------------------------

    def _key(self, op, args, kwargs, numbers: list) -> tuple:
        known = self.known
        parts: list = [op, modes.grad]
        for a in args:
            code = known.get(id(a))
            if code is not None and code >= 0:
                parts.append(code)
            else:
                parts.append(self._part(a, numbers))
        for name in kwargs:
            parts.append(name)
            parts.append(self._part(kwargs[name], numbers))
        return tuple(parts)

    def _part(self, a, numbers: list):
        """What an argument is known by."""
        if isinstance(a, Tensor):
            return self._tensor(a)
        kind = type(a)
        if kind is float:
            numbers.append(a)
            return float
        if kind is list or kind is tuple or kind is Size:
            return (kind, *[self._part(v, numbers) for v in a])
        if kind is slice:
            return (slice, self._part(a.start, numbers), self._part(a.stop, numbers),
                    self._part(a.step, numbers))
        if isinstance(a, _VALUES):
            return kind, a
        if kind.__module__.startswith(("flambeau", "torch")) and kind.__hash__ is not None and (
                not callable(a)):
            return a
        raise Unkeyed(f"an argument of type {kind.__name__}")

    def _tensor(self, x: Tensor):
        code = self.known.get(id(x))
        if code is not None:
            if code >= 0:
                return code
            sig, node = self.seen[-1 - code]
            if x.sig is sig and x.node is node:
                return code
            del self.known[id(x)]  # it is not what it was
        if x.__class__ is Phantom:
            raise Unkeyed("a tensor of another trace")
        if x.__class__ is not Tensor and x.sig.tag is not None and plain(x.sig) is x.sig:
            raise Unkeyed(f"a {type(x).__name__}")
        return self._from_outside(x)

    def _from_outside(self, x: Tensor):
        number = len(self.outside)
        if x.sig.tag is None:
            x.sig = traced(x.sig)
            self.tagged.append(x)
        self.outside.append(x)
        self.known[id(x)] = -1 - number
        self.seen.append((x.sig, x.node))
        first = self.memory.setdefault(id(x.mem), number)
        part: tuple = (x.sig, state_of(x))
        if first != number:  # by two names: how they lie to each other is part of the path
            part = (*part, first, x.ptr - self.outside[first].ptr)
        return part

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
            if getrefcount(mem) > 3:  # this name, the argument, the tensor
                known = {id(x): x for x in (
                    *self.outside, *self.tagged, *self.reached)}.values()
                if getrefcount(mem) - 2 > sum([x.mem is mem for x in known]):
                    self.flush("others see memory that changes")
                    return

    def read(self) -> None:
        """Python reads memory, perhaps that of a tensor from outside that is to change."""
        if self.state.wrote and self.traces():
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
        step = self.step.children.get(key)
        if step is not None and step.reason is None:
            if gradient is None and all(map(self._grad_is_none, leaves)):
                step.expects = (code, retain, Promise(leaves, step.result))
                step.record = None
                self.step.lead_to(step)
            self._go_back(step)
        elif step is None and self.recorder is not None and self.can_go_back(code):
            self.capture_backward(op, key, x, gradient, retain, leaves)
        else:
            if self.recorder is not None:
                self.step.children[key] = Step(reason="the graph reaches beyond this segment")
            elif step is None and self.script is not None:
                self.script.refuse(ANOTHER_PATH)
            self.run_plainly(op.run, x, gradient, retain)
        return True

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
            self.report.twice = True
        self.flush(work)
        return self._real_call(work, args, kwargs, False)

    def _real_call(self, work, args, kwargs, trace_on: bool):
        if self.script is not None:
            self.script.calling(self, work, args, kwargs)
        state = self.state
        self._untag()
        following = state.words[0]
        state.paused, state.words[0] = True, 0
        try:
            result = work(*args, **kwargs)
        finally:
            state.paused, state.words[0] = False, following
            if not trace_on and self.script is None:
                self.reached = []  # parameters have most likely been used for the last time
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

    # -- the end of a segment --------------------------------------------------------------------

    def flush(self, reason) -> None:
        """Make every phantom real, and start a new segment; what runs by itself is a reason."""
        state = self.state
        step = state.at[0]
        if step is self.root and not self.values:
            if self.recorder is not None:  # an op was recorded in vain: its memory is real now
                self.restore_boundaries()
            if self.outside or self.recorder is not None:  # met by a call that is no part of it
                self._segment(self.root)
            return
        state.paused, state.words[0] = True, 0
        try:
            if self.recorder is not None:
                if self.script is not None:
                    self.script.refuse("a path is new")
                self.end_capture(step)
            elif not self._settled(step):
                self._run(step)
        finally:
            state.paused = False
            if step.after is None:
                step.after = Step()
            if self.script is not None:
                self.script.met += self.outside
                if reason in _HOST_READS:
                    self.script.refuse(reason)
            if step not in self.report.ends:
                self.report.flushed(step, reason if isinstance(reason, str) else
                                    getattr(reason, "__name__", "a call") + " runs by itself")
            self._segment(step.after)

    def live(self) -> tuple[int, ...]:
        """Phantoms that somebody besides this trace holds."""
        values = self.values
        return tuple([k for k in range(len(values)) if getrefcount(values[k]) > 2])

    def _run(self, step: Step) -> None:
        if not (step.proven or self.numbers == step.learnt):
            # Whether the code depends on these numbers otherwise than by reading them is seen when
            # they differ for the first time.
            if self.script is not None:
                self.script.learns(self, step)
            (self._call_by_call if step.hopeless else self.learn_again)(step)
            return
        live = self.live()
        found = step.programs.get(live)
        if found is None:
            found = step.programs[live] = step.build(live, self.report)
        if found.eagerly:
            if self.script is not None:
                self.script.learns(self, step)
            (self._call_by_call if step.hopeless else self.learn_again)(step)
            return
        if self.report.twice and found.wanting and not can_repeat(step):
            if self.script is not None:
                self.script.ran(self, step, None)
            self._call_by_call(step)
            return
        if self.script is not None:
            self.script.ran(self, step, found)
        if not self._lies_as_learnt(found):
            if self.script is not None:
                self.script.refuse(ANOTHER_PATH)  # memory that changes has other names
            self._call_by_call(step)
            return
        back = None
        if self.verify:
            from .verify import check  # which is rarely asked for

            back = check(self, step, found)
        outside, program = self.outside, found.program
        made = program.run([x.ptr for x in outside[:program.outside]], self.numbers)
        for k in found.written:
            outside[k].mem.version += 1
        if infers():
            for mem in made:
                mem.version = INFERENCE
        memory = dict(zip(program.results, made, strict=True))
        for k, result in found.live:
            x = self.values[k]
            x.__class__ = Tensor
            x.node = None
            (kind, number), offset = result.place.root, result.place.offset
            if kind == "buffer":
                x.mem = mem = memory[number]
                x.ptr = mem.address + offset
            else:
                x.mem, x.ptr = outside[number].mem, outside[number].ptr + offset
            self.tagged.append(x)
        if found.wanting:
            attach_reverse(self, step, found, made)
        if found.bases:
            tie(found.bases, self.values, outside)
        step.settling = found, Settling(found, len(self.values), step.reverse)
        if back is not None:
            back.compare(self)

    def _settled(self, step: Step) -> bool:
        """Whether the segment has ended as it did last time."""
        if step.settling is None or self.script is not None or self.verify or self.report.twice or (
                not step.proven and self.numbers != step.learnt):
            return False
        found, settling = step.settling
        if (inferring and infers()) or (found.written and not self._lies_as_learnt(found)):
            return False
        made = settling.run(self.state.address, self.numbers)
        if made is None:
            return False
        for k in found.written:
            self.outside[k].mem.version += 1
        if found.wanting and step.reverse.parts:
            attach_reverse(self, step, found, made)
        if found.bases:
            tie(found.bases, self.values, self.outside)
        return True

    def _lies_as_learnt(self, found: Variant) -> bool:
        """Whether memory that a program changes is known under the same names."""
        if not found.written:
            return True
        owners = {id(x.mem) for x in self.outside}
        if len(owners) == len(self.outside):
            return not found.shares
        return overlapping(homes_of(self.outside), found.written) == found.shares

    def _call_by_call(self, step: Step) -> None:
        """Run the calls of a path one by one: no program can stand for them."""
        self.become_all(dict(enumerate(self.twins_of(step))))

    def twins_of(self, step: Step) -> list[Tensor]:
        """What the values of a path are, computed call by call."""
        twins: list[Tensor] = []
        self._untag()
        try:
            made_again(step, self.outside, self.numbers, twins, call, twins.extend)
        finally:
            self._retag()
        return twins

    def close(self, finished: bool = True) -> None:
        """The end of the call: nothing is traced any more."""
        try:
            if self.values or self.outside or self.recorder is not None or (
                    self.state.at[0] is not self.root):
                self.flush("the end")
        except Exception:
            if finished:
                raise  # else what the function raised is what counts
        finally:
            self._untag()
            self.reached = []
            self.tagged.clear()
