"""A compiled function: which of its calls are traced, played without Python, or run eagerly."""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from typing import Any

from ..devices.switches import switch
from ..engine import interception
from ..engine.modes import gradient_watchers, is_watched, odd_threads
from ..engine.tensor import Tensor
from .calm import Calm, scripts
from .casting import casting
from .ending import ANOTHER_PATH
from .habits import CALMLY, FREELY, FREELY_WHOLE, Habits, kind_of
from .names import around, tensors_of
from .phantom import traced
from .report import Report
from .search import everything
from .segment import Step
from .settle import Reach
from .trace import Tracer, load_code
from .worth import ENTRY, worth_of

#: so many ways through a function are remembered that are taken without Python
SCRIPTS = 8
#: after so many calls that none of them stood for, one is written only once in so many calls
UNPLAYED = 16
#: a function that was on so many more new paths than on known ones, whatever it was given, runs
#: eagerly
PATIENCE = 16
#: it is said once if so many calls ran eagerly since their arguments were new, and others did not
RARELY = 64
#: so many calls with branches on values are traced whatever they save: `explain` shows their paths
SEEN = 4
#: eager calls after one that was not worth to be traced, at first and at most
SMALLEST, LARGEST = 32, 4096
_WEIGHED = 64   # layouts of first arguments that are told apart
#: so many ops take no more time than it takes to find out that Python can be left out
FEW = 3
#: and so does one that differentiates gradients which are not its own, after so many times
TWICE = 8

#: all of them
all_compiled: weakref.WeakSet = weakref.WeakSet()


class Compiled:
    """A function whose op calls run as programs.

    >>> import flambeau
    >>> @flambeau.compile
    ... def f(x):
    ...     return (x * 2 + 1).relu().sum()
    >>> f(flambeau.tensor([1.0, -3.0]))
    tensor(3.)
    """

    stance = "default"  # of all of them, see api.py

    def __init__(self, function, fullgraph: bool = False, verify: int = 0):
        self.function, self.fullgraph, self.verify = function, fullgraph, verify
        functools.update_wrapper(self, function, updated=())
        turn = threading.Lock()  # held by the thread whose call is compiled
        self.claim, self.let_go = turn.acquire, turn.release
        load_code()  # now, for the first call has enough to do
        if fullgraph:
            scripts()
        self.reset()
        all_compiled.add(self)

    def reset(self) -> None:
        """Forget all paths."""
        self.roots: dict = {}    # paths, by what autocast does
        self.report = Report(getattr(self.function, "__name__", type(self.function).__name__))
        self.apart: list = []    # (kind of call, its paths) that parted from those on the way
        self.way: Any = None     # the kind of the call that is written down
        self.scripts: list[Any] = []  # the one played last comes first
        self.short: Any = None   # that one in a function, see shortcut.py
        self.calm = Calm()       # whether calls are to be made without Python that need not be
        if not self.fullgraph:
            self.report.calm = self.calm
        self.trained: list = []  # leaves whose gradients the last traced call had to do with
        self.met: list = []      # tensors from outside that the last traced call used
        self.reach: Any = None   # what the function's code takes from around it, see settle.py
        self.changes = -1
        self.idle: list[Tracer] = []
        self.freely = FREELY_WHOLE if self.fullgraph else FREELY
        self.habits = Habits()   # which arguments it has met how often, see habits.py
        self.kind: Any = None    # of the call under way, if it is asked for
        self.unplayed = 0        # calls since a script was played
        self.weighs = not self.fullgraph and switch("FLAMBEAU_SMALL") == "eager"
        self.looks = self.weighs and not self.verify  # whether the next traced call is weighed
        self.weighed: dict = {}  # layout of the first argument -> eager calls before the next look
        self.small: Any = None   # the same -> how many of them are left, once a call was small
        self.given_up = self.told = False
        self.aside = 0           # calls that run eagerly before any is looked at again

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args, **kwargs):
        small = self.small
        if small is not None:
            kind = args[0].sig if args and args[0].__class__ is Tensor else None
            left = small.get(kind)
            if left:  # it takes less time than it takes to trace it
                small[kind] = left - 1
                return self.function(*args, **kwargs)
        if interception.tracers or (self.aside and self._passes()) or (
                odd_threads and is_watched()) or (not self.claim(False)):  # another thread is in it
            return self.function(*args, **kwargs)
        try:
            short = self.short
            if short is not None and not kwargs:
                found = short(args)
                if found is not None:
                    self.calm.played += 1
                    return found[0]
            calm = self.calm
            if self.fullgraph or self.scripts or calm.calls >= calm.wait:
                return self._whole(args, kwargs)
            return self._traced(args, kwargs)
        finally:
            self.let_go()

    def _passes(self) -> bool:
        """One of the calls that run eagerly; there is no end to them once it is given up."""
        self.aside -= not self.given_up
        return True

    def _weigh(self, args, ends: list) -> None:
        """Look whether it was worth to trace a call, or the next ones should run eagerly.

        Not as long as there is hope that Python can be left out, and some of it to be saved.
        """
        paths = [end.path() for end in ends if end is not None]
        hopes = len(paths) == 1 and len(paths[0]) > FEW and self.calm.hopes()
        self.looks = not hopes and len(self.weighed) < _WEIGHED and (
            sum(map(worth_of, ends)) < ENTRY)
        if self.looks and (len(ends) == 1 or self.report.calls > SEEN):
            kind = args[0].sig if args and args[0].__class__ is Tensor else None
            calls = self.weighed[kind] = min(2 * self.weighed.get(kind, SMALLEST), LARGEST)
            self.small = {**(self.small or {}), kind: calls}

    def _whole(self, args, kwargs):
        """A call as others before it were made, or one that is written down."""
        calm = self.calm
        for k, script in enumerate(() if self.verify else self.scripts):
            found = script.play(args, kwargs)
            if found is not None:
                self.unplayed = 0
                if k:
                    self._lead([self.scripts.pop(k), *self.scripts])
                calm.played += 1
                return found[0]
        if self.scripts:
            self.report.failed(self.scripts, args, kwargs)
        if not self._is_due():
            return self._traced(args, kwargs)
        if self._puts_off(args, kwargs):
            return self._eagerly(args, kwargs)
        script = scripts()(self.function, args, kwargs, self.met,
                           None if self.fullgraph else calm.ran)
        return self._traced(args, kwargs, script)

    def _is_due(self) -> bool:
        """Whether a call is to be written down that is like none before."""
        calm = self.calm
        if self.fullgraph:
            self.unplayed += 1
            if self.unplayed > UNPLAYED and self.unplayed % UNPLAYED and not self.verify:
                self._lead([])
                return False
            return True
        if self.scripts and not calm.of_use():
            self._lead([])
        if calm.calls < calm.wait:
            return False
        if calm.tries == 1:  # now it is known which code counts, and what that can reach
            self.changes = -1
        return True

    def _lead(self, scripts: list) -> None:
        """Try the first of these before any other, once nothing is verified any more."""
        self.scripts = self.report.scripts = scripts
        self.short = scripts[0].short if scripts and not self.verify else None

    def _traced(self, args, kwargs, writing=None):
        """A call on traced tensors; `writing`: a script that it is written down as."""
        report = self.report
        if report.captured and writing is None and self._puts_off(args, kwargs):
            return self._eagerly(args, kwargs)
        report.calls += 1
        cast = casting()
        root = self.roots.get(cast)
        if root is None:
            root = self.roots[cast] = Step()
        if writing is not None:
            root = self._root_of(writing, root)
        tracer = self.idle.pop() if self.idle else Tracer()
        tracer.begin(root, report, writing, self.verify, cast)
        if self.looks:
            tracer.ends = []
        for x in args:
            if x.__class__ is not Tensor:
                tracer.trace_on(x)
            elif x.sig.tag is None:
                x.sig = traced(x.sig)
                tracer.tagged.append(x)
        if kwargs:
            tracer.trace_on(kwargs)
        closely = self._looks_closely(writing)
        moved = self.changes != interception.module_changes[0]
        if moved or (closely and not self.reach.closely) or not tracer.trace_all(self.reach):
            tracer.trace_all(self._reached(closely))
        if writing is not None:
            tracer.trace_on(writing.gradients.reach(self.reach.tensors))
            gradient_watchers.append(writing.gradients.watch)
        interception.trace_with(tracer)
        finished = False
        try:
            watched = writing is not None and not self.fullgraph
            result = writing.witness.watch(self.function, args, kwargs) if watched else (
                self.function(*args, **kwargs))
            finished = True
        finally:
            try:
                tracer.close(finished)
            finally:
                interception.trace_no_more(tracer)
                if writing is not None:
                    gradient_watchers.remove(writing.gradients.watch)
                held = interception.constants.copy() if interception.constants else ()
                if held:
                    interception.constants.clear()
        self.idle.append(tracer)
        if self.verify:
            self.verify -= 1
            self._lead(self.scripts)
        if tracer.captured or tracer.ends is not None or self.kind is not None or report.twice:
            self._learn(tracer, args, kwargs)
        if writing is not None:
            self._wrote(writing, tracer, result, held)
        elif not self.fullgraph:
            self.calm.went(tracer.captured)
        return result

    def _root_of(self, writing, root: Step) -> Step:
        """Where the paths begin that calls of this kind take, if they parted from others."""
        self.way = writing.kind(self.trained)
        return next((own for other, own in self.apart if other == self.way), root)

    def _learn(self, tracer: Tracer, args, kwargs) -> None:
        """How a call went decides how the next ones are made."""
        report, habits = self.report, self.habits
        if tracer.captured:
            report.captured += 1
            self.looks = self.weighs and not self.verify
        if tracer.ends is not None:
            self._weigh(args, tracer.ends)
            tracer.ends = None
        if tracer.captured or self.kind is not None:
            habits.took(self.kind or kind_of(args, kwargs, habits.closely), tracer.captured)
        if tracer.captured or report.twice:
            self._lose_patience()

    def _wrote(self, script, tracer: Tracer, result, held) -> None:
        """A call was written down; `held`: tensors of known numbers that it made."""
        calm = self.calm
        self.met = [*script.met, *held]
        self.trained = script.trained or self.trained
        written = tracer.script is not None and script.finish(result, [*held, *self.reach.tensors])
        if not self.fullgraph:
            written = calm.tried(written, script)
            if written and self.weighs and not script.is_worth_it():
                calm.is_in_vain()
                written = False
            if calm.tries == 0:
                self.met = []  # nobody else may hold them
                self.looks = self.weighs and not written
        if written:  # others that were for modules as they were before never hold again
            others = [s for s in self.scripts if s.changes == script.changes]
            self._lead([script, *others[:SCRIPTS - 1]])
        elif self.fullgraph:
            self._unwritten(script, tracer.captured)

    def _unwritten(self, script, is_new: bool) -> None:
        """A call with fullgraph=True cannot be made again without Python, now or ever."""
        if script.reason == ANOTHER_PATH:
            # The next call of this kind learns its path as a whole, and others keep theirs.
            self.apart = [(self.way, Step()), *(
                row for row in self.apart if row[0] != self.way)][:SCRIPTS]
        elif script.effect is not None:
            if not is_new:
                self._tell_of(script.effect)
        elif not is_new:
            raise RuntimeError(f"compile: {self.report.name} cannot be one program with "
                               f"fullgraph=True: {script.reason}{script.line}")

    def _puts_off(self, args, kwargs) -> bool:
        """Whether calls of this kind are too rare to learn their path."""
        report, habits, self.kind = self.report, self.habits, None
        if not report.captured or habits.calm >= CALMLY or self.verify:
            return False
        self.kind = kind_of(args, kwargs, habits.closely)
        return habits.puts_off(self.kind, report.captured, report.calls,
                               report.captured < self.freely)

    def _eagerly(self, args, kwargs):
        """A call of a kind that is too rare to learn its path."""
        report = self.report
        report.calls += 1
        if Compiled.stance == "fail_on_recompile":
            report.captured += 1  # as it would be, and is not allowed to
        report.passed += 1
        self.aside = self.habits.rests()
        if report.passed == RARELY and 2 * report.passed > report.calls:
            warnings.warn(
                f"compile: {report.name} is seldom called in the same way: most of {report.calls} "
                "calls were given other shapes, or took another path, than all before. Such calls "
                "run eagerly. flambeau.compiler.explain shows where paths part.", stacklevel=5)
        return self.function(*args, **kwargs)

    def _tell_of(self, effect: str) -> None:
        """Once: what Python changes in every call is what Python has to be there for."""
        if not self.told:
            self.told = True
            warnings.warn(
                f"compile: {self.report.name} changes {effect} in every call, so Python is not "
                "skipped with fullgraph=True: its op calls run as programs, and what is around "
                "them as ever.", stacklevel=5)

    def _looks_closely(self, writing) -> bool:
        """Whether all that code can reach is looked for, as it has to be where Python is skipped.

        With fullgraph=True no longer if it never is, but in calls that are written down.
        """
        if self.fullgraph:
            return writing is not None or self.unplayed <= UNPLAYED
        return bool(self.calm.ran)

    def _reached(self, closely: bool) -> Reach:
        """Look again for tensors that the function's code can reach without being given them."""
        self.changes = interception.module_changes[0]
        if closely:
            _, bound, tensors, *_ = everything(self.function,
                                               None if self.fullgraph else self.calm.ran)
        else:
            bound = around(self.function)
            tensors = tensors_of(self.function, bound)
        self.reach = Reach(bound, tensors, closely)
        return self.reach

    def _lose_patience(self) -> None:
        report = self.report
        if self.habits.vain >= PATIENCE:
            calls = report.calls - report.passed
            self._give_up(
                f"took a new path in {report.captured} of {calls} calls",
                "shows where paths part; numbers that change, or shapes that are never the same, "
                "are the usual reasons.")
        elif report.twice >= TWICE and 2 * report.twice > report.calls:
            self._give_up(
                "differentiates gradients of what was computed in several parts, which has to be "
                "computed again for that", "shows where parts end; requires_grad_() on something "
                "that was computed is the usual reason.")

    def _give_up(self, reason: str, hint: str) -> None:
        self.given_up, self.aside = True, 1
        warnings.warn(f"compile: {self.report.name} {reason}, so it runs eagerly from now on. "
                      f"flambeau.compiler.explain {hint}", stacklevel=5)

    def __reduce__(self):
        return Compiled, (self.function, self.fullgraph)
