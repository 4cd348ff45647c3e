"""What happened to a compiled function, for people: segments, breaks and where they were."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from ..engine.launch import Finished

_HERE = __file__.rpartition("compiler")[0]


def where() -> str:
    """The line of the user's that is at work: file and number."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename.startswith(_HERE)
                                        or frame.f_code.co_filename.startswith("<")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


#: so often it is looked which guard failed, or where a path parted from others
_LISTENS = 64


class Built(NamedTuple):
    """A segment's last call, and the program that was made of it, if any: `print` shows loops."""

    step: Any
    program: Any


class Report:
    """Counts calls and paths; remembers why segments end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = self.captured = 0
        self.passed = 0                 # of the calls, those of kinds too rare to learn
        self.twice = 0                  # how often gradients were to be differentiated in turn
        self.ends: dict = {}            # step -> (reason, line)
        self.last: set = set()          # segments that nothing was ever called in
        self.breaks: dict = {}          # (op, reason) -> line
        self.programs: list[Built] = []
        self.scripts: list = []         # calls that are made without Python, see script.py
        self.parts: dict = {}           # what made a path part from others -> line
        self.failures: dict = {}        # guards that failed -> how often
        self.heard = 0                  # parts and failures
        self.calm: Any = None           # whether calls are made without Python, see calm.py

    def flushed(self, step, reason: str) -> None:
        self.ends[step] = (reason, where())

    def broke(self, op, reason: str) -> None:
        self.breaks.setdefault((getattr(op, "name", "the way back"), reason), where())

    def built(self, step, program) -> None:
        self.programs.append(Built(step, program))

    def parted(self, step, key: tuple) -> None:
        """A call follows another one that was always followed by others."""
        if self._listens():
            from .guards import difference  # only people need it

            self.parts.setdefault(difference(step, key), where())

    def failed(self, scripts, args, kwargs) -> None:
        """A call is not made without Python, as others were."""
        if self._listens():
            from .guards import failed_guard

            guard = failed_guard(scripts, args, kwargs)
            self.failures[guard] = self.failures.get(guard, 0) + 1

    def _listens(self) -> bool:
        self.heard += 1
        return self.heard <= _LISTENS

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.calls} calls, {self.captured} of them on new paths, "
                 f"{len(self.ends)} segments, {len(self.programs)} programs"]
        if self.passed:
            lines.append(f"  {self.passed} calls ran eagerly: calls of their kind were too rare")
        for step, (reason, line) in self.ends.items():
            ops = [getattr(each.op, "name", "?") for each in step.path()]
            lines.append(f"  segment of {len(ops)} op calls: {_shown(ops)}")
            lines.append(f"    ends at {line}: {reason}")
            for owner, program in self.programs:
                if owner is step:
                    lines.append(f"    {_described(step, program)}")
        for (op, reason), line in self.breaks.items():
            lines.append(f"  break at {line}: {op}: {reason}")
        lines += [f"  a new path begins at {line}: {what}" for what, line in self.parts.items()]
        if self.calm is not None:
            lines += [f"  {line}" for line in self.calm.told()]
        return "\n".join([*lines, *self._guarded()])

    def _guarded(self) -> list[str]:
        """What calls without Python depend on, and what some were not made for."""
        from .guards import guards_of

        lines = []
        for script in self.scripts:
            lines.append(f"  without Python, in one call{'' if script.short else ' or several'}, "
                         "as long as")
            lines += [f"    {guard}" for guard in guards_of(script)]
        times = {1: "once", 2: "twice"}
        return lines + [f"  not without Python {times.get(n, f'{n} times')}: {guard}"
                        for guard, n in self.failures.items()]


def _shown(ops: list[str]) -> str:
    return ", ".join(ops[:12]) + (", ..." if len(ops) > 12 else "")


def _described(step, program) -> str:
    if program is None:
        return "runs op by op: its gradient cannot be a program"
    finished = sum(isinstance(launch, Finished) for launch in program.launches)
    epilogues = f" ({finished} with what follows as an epilogue)" if finished else ""
    return (f"program: {len(program.launches)} launches{epilogues} from {step.end} recorded "
            f"ones, arena of {program.size} bytes")
