"""A script in one short function, where it is a program and calls that make nothing.

Most training steps are: a program, and the optimizer's step. What a call of such a script may
differ in is compared here, and whatever is not quite as it was is left to `Script.play`.
"""

from __future__ import annotations

from ..core import device as places
from ..core import dtype as dtypes
from ..devices.cpu.assembly.settle_words import EMPTY, FAILED
from ..devices.cpu.memory import allocate
from ..engine import autocast
from ..engine.interception import module_changes
from ..engine.modes import inferring, mark_inferred, modes
from ..engine.node import Hooked
from ..engine.tensor import Tensor
from .actions import Call
from .casting import casting
from .names import changed, differ
from .phantom import state_of
from .sources import Fixed, Given, Made, Player


def shortcut(script):
    """A function of the arguments that plays a script: [its result], or None and nothing done.

    None instead of a function if there is more to a script than fits into it.
    """
    first, (shape, found) = script.first, script.result
    if first is None or shape != 0 or type(found[0]) is not Made or found[0].action != 0:
        return None
    replay, calls = first.replay, script.others
    fixed = [first.sources[k] for k in first.variant.written]
    if replay.handed != [found[0].value] or not (script.simple and script.presence.idle) or (
            script.again or script.overlaps.sources or script.switches) or (
            any(type(s) is not Given for _, s in first.moving)) or (
            first.rejoins and any(type(s) not in (Fixed, Given) for s in first.sources)) or (
            any(type(s) is not Fixed for s in fixed)) or (
            any(type(each) is not Call or not each.plain for each in calls)):
        return None

    grad, changes, cast, device = script.grad, script.changes, script.casting, script.device
    expected, goes_back = script.leaves, script.goes_back
    bound, scalars = script.bound, script.scalars
    program, numbers, sizes = replay.program, replay.numbers, replay.sizes
    table, native, address = program.table, replay.native, replay.address
    moving = [(replay.first + k, source.number) for k, source in first.moving]
    written = [source.tensor for source in fixed]
    works = [(each.work, each.args, each.kwargs) for each in calls]
    outside = [(s.tensor, 0) if type(s) is Fixed else (None, s.number) for s in first.sources
               ] if first.rejoins else None
    value = replay.handed[0]

    def again(args):
        if modes.grad is not grad or module_changes[0] != changes or (
                places._Default.value is not device or len(args) != len(expected) or (
                Hooked.leaves and goes_back)):
            return None
        if (autocast.active or dtypes._Default.value is not cast) and casting() != cast:
            return None
        if args:
            for x, (its, state) in zip(args, expected):
                if not isinstance(x, Tensor) or x.sig is not its or state_of(x) != state:
                    return None
        if (bound and changed(bound)) or (scalars and differ(scalars)):
            return None
        if numbers:
            program.put_numbers(numbers)
        for at, k in moving:
            table[at] = args[k].ptr
        made: list = []
        values: list = []
        while refused := native(address, id(made), id(values), 0):
            if refused == FAILED:
                if replay.is_patient:
                    program.failed[0] = 0
                    return None
                program.refuse()
            if refused != EMPTY:
                return None
            made.append(allocate(sizes[len(made)]))
        for x in written:
            x.mem.version += 1
        if inferring:
            mark_inferred(made)
        if outside is not None:
            first.rejoin(Player(args, ()), {value: values[0]},
                         [args[k] if x is None else x for x, k in outside], made)
        for work, args, kwargs in works:
            work(*args, **kwargs)
        return values

    return again
