"""Whether a path is worth a program: what tracing costs, and what a program saves.

Ops of small tensors take a tenth of a microsecond each, which is what following them takes too. A
program saves by computing several of them in one loop, and by going back without a graph. All of
this is estimated from what was recorded, not measured: a program does the same whenever it runs.
"""

from __future__ import annotations

from ..engine.backward import GRAD
from ..engine.launch import Launch
from .program import work_of

# in microseconds
ENTRY = 2.5         # a call of a compiled function
_SEGMENT = 1.2      # running its program
_WRITES = 3.0       # if it changes what was there before
_AGAIN = 1.0        # a call that is made again, for no program can stand for it
_BY_ITSELF = 1.0    # something that is no part of it
_OP = 0.05          # following a call, which then does not start anything
_GRAPH = 10.0       # a step of the graph of its own, and going back through it
_STEP = 1.6         # what going back takes for each call otherwise
_WAY_BACK = 5.0     # and to set out
_INSIDE = 1.0       # a call that another one is made of
_LOOP = 0.05        # a loop that is part of another one
_ROUTINE = 0.3      # what finds a routine in eager
_FRAME = 0.3        # a function of Python's that is left out
_SCRIPT = (3.0, 0.3)    # a call without Python; in one short function
_ELEMENT = 1e-4     # and does not go through memory


def worth_of(step) -> float:
    """About how much time it saves to run a segment as a program; less than nothing at times."""
    if step is None:
        return -_BY_ITSELF
    path = step.path()
    if not path:
        return -_SEGMENT
    if step.stop is not None and step.stop.hopeless:
        return -_SEGMENT - _AGAIN * len(path)
    writes = _WRITES * any(each.writes for each in path)
    if any(each.backward or each.op is GRAD for each in path):
        return _WAY_BACK + _STEP * len(path) - writes
    launches = step.chain.launches.first(step.end)
    works = [work_of(each, step.chain.buffers) for each in launches
             if isinstance(each, Launch) and each.kernel is not None]
    saved = _LOOP * len(works) + _ELEMENT * (sum(works) - max(works, default=0))
    saved += _INSIDE * max(0, len(launches) - len(path))
    if any(result.wants for result in step.final()):
        saved += _STEP * max(len(path), len(launches)) - _GRAPH * _steps_of(step)
    return saved - writes - _SEGMENT - _OP * len(path)


def _steps_of(step) -> int:
    """How many steps a segment has in the graph: each of them goes back by a program of its own."""
    reverse = step.stop.reverse if step.stop is not None else None
    return max(1, len(reverse.parts)) if reverse is not None else 1


def played(steps, calls: int, frames: int, is_short: bool) -> float:
    """The same of segments that are played without Python, of so many functions.

    calls: how many calls are made by themselves in between.
    """
    routines = sum(isinstance(launch, Launch) and launch.kernel is None for step in steps
                   for launch in step.chain.launches.first(step.end))
    return (sum(map(worth_of, steps)) + _ROUTINE * routines + _FRAME * frames
            - _BY_ITSELF * calls - _SCRIPT[is_short])
