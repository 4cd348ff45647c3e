"""The end of a segment: its program runs, and what Python holds of it becomes real."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

from ..engine.modes import mark_inferred
from ..engine.tensor import Tensor
from .again import call, made_again
from .capture import Capture
from .graph_steps import attach_reverse, can_repeat
from .overlap import homes_of, overlapping
from .phantom import Phantom
from .segment import Step, Variant, tie
from .settle import Settling

#: reasons to end a segment that no replay without Python can follow
ANOTHER_PATH = "another path"
_HOST_READS = ("Python needs a value", ANOTHER_PATH)


class Ending(Capture):
    """The part of a trace that runs what was asked for."""

    # What the trace has besides, see trace.py.
    state: Any
    script: Any
    verify: int
    ends: list | None
    _segment: Callable

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
        if self.ends is not None:
            self.ends.append(step)
        try:
            if self.recorder is not None:
                if self.script is not None:
                    self.script.refuse("a path is new")
                self.end_capture(step)
            elif not self._settled(step):
                self._run(step)
        except BaseException:
            for x in self.outside:  # gradients that were promised, and are not to be had
                if getattr(x, "_grad", None).__class__ is Phantom:
                    x._grad = None
            raise
        finally:
            state.paused = False
            if self.script is not None:
                self.script.met += self.outside
                if reason in _HOST_READS:
                    self.script.refuse(reason)
            if step not in self.report.ends:
                self.report.flushed(step, reason if isinstance(reason, str) else
                                    getattr(reason, "__name__", "a call") + " runs by itself")
            self._segment(step.stopped().after)

    def live(self) -> tuple[int, ...]:
        """Phantoms that somebody besides this trace holds."""
        values = self.values
        return tuple([k for k in range(len(values)) if getrefcount(values[k]) > 2])

    def _run(self, step: Step) -> None:
        stop = step.stopped()
        if not (stop.proven or self.numbers == stop.learnt):
            # Whether the code depends on these numbers otherwise than by reading them is seen when
            # they differ for the first time.
            if self.script is not None:
                self.script.learns(self, step)
            (self._call_by_call if stop.hopeless else self.learn_again)(step)
            return
        live = self.live()
        found = stop.programs.get(live)
        if found is None:
            if self.ends is not None:  # perhaps there is no need of a program
                self._call_by_call(step)
                return
            found = stop.programs[live] = step.build(live, self.report)
        if found.eagerly:
            if self.script is not None:
                self.script.learns(self, step)
            (self._call_by_call if stop.hopeless else self.learn_again)(step)
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
        mark_inferred(made)
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
        stop.settling = found, Settling(found, len(self.values), stop.reverse)
        if back is not None:
            back.compare(self)

    def _settled(self, step: Step) -> bool:
        """Whether the segment has ended as it did last time."""
        stop = step.stop
        if stop is None or stop.settling is None or self.script is not None or self.verify or (
                self.report.twice or (not stop.proven and self.numbers != stop.learnt)):
            return False
        found, settling = stop.settling
        if found.written and not self._lies_as_learnt(found):
            return False
        made = settling.run(self.state.address, self.numbers)
        if made is None:
            return False
        for k in found.written:
            self.outside[k].mem.version += 1
        mark_inferred(made)
        if found.wanting and stop.reverse.parts:
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
