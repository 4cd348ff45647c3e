"""Which launches share a loop.

Pointwise kernels over the same loops become one: a value that the next one needs stays in a
register, and what nobody else reads is never stored. A fold of all elements takes the pointwise
kernels before it into its loop. A group waits as long as nothing else touches its memory.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from ..core import expr as ex
from ..core.kernel import Fold, Kernel, Operand, Store, verify
from ..devices.cpu.compile import KERNELS, compile_kernel
from ..engine.launch import Launch
from .progress import Progress

#: a group stops growing at so many operands, or steps of arithmetic
OPERANDS, STEPS = 24, 160
#: and when it keeps so many bytes waiting that were made since it began, in more than two values:
#: each of many gradients that are added up could be gone before the next is made
LATE = 1 << 15


def fused(launches: list, results: set[int]) -> list:
    """Launches with neighbours merged where they can be."""
    groups = _grouped(launches)
    done = []
    with Progress(sum(isinstance(item, Group) for item in groups)) as progress:
        readers = Counter(root for item in groups for root in item.reads)
        for item in groups:
            if not isinstance(item, Group):
                done.append(item)
            else:
                progress.advance()
                done.extend(item.merged(results, readers))
    return done


def _grouped(launches: list) -> list:
    """Launches in order, pointwise neighbours as groups of several, or with a fold."""
    done: list = []
    waiting: list[Group] = []
    made: dict = {}  # root -> the number of the launch that wrote it last

    def close(group: Group) -> None:
        waiting.remove(group)
        done.append(group.closed())

    for number, step in enumerate(launches):
        loops = _loops(step)
        home = _home(step, loops, waiting, made)
        made |= dict.fromkeys(step.writes, number)
        for group in list(waiting):
            if group is home or not group.conflicts(step):
                continue
            if group.ends_in(step, waiting):
                group.fold = step
                close(group)
                step = None
                break
            close(group)
        if step is None:
            continue
        if home is not None:
            home.add(step, made)
        elif loops is not None:
            waiting.append(Group(step, loops, number))
        else:
            done.append(step)
    for group in list(waiting):
        close(group)
    return done


def _home(step, loops, waiting, made: dict) -> Group | None:
    """The group that a launch joins: the last it has to do with, or else the last that takes it.

    Groups that wait have nothing to do with each other; all others that the launch has to do with
    are closed, and so come before it.
    """
    if loops is None:
        return None
    found = [group for group in waiting if group.loops == loops and group.takes(step, made)]
    related = [group for group in found if group.conflicts(step)]
    return (related or found or [None])[-1]


def _loops(step):
    """What a pointwise kernel walks, or None of anything else."""
    if not isinstance(step, Launch) or not is_pointwise(step.kernel) or any(
            o.dtype.compute is not o.dtype for o in step.kernel.operands):
        return None
    kernel = step.kernel
    return ("dense", step.args[-1]) if kernel.dense else step.words[1:1 + kernel.kept]


def is_pointwise(kernel: Kernel | None) -> bool:
    """Whether a kernel makes of the elements of one place, wherever that is, those of the same."""
    if kernel is None or kernel.reduced or kernel.lanes != "kept" or any(kernel.indirect) or (
            [kind for kind, _ in kernel.stages] != ["row"]):
        return False
    return not any(store.coordinates is not None or store.combine or ex.leaves(
        store.value, "index") or ex.leaves(store.value, "load") for store in kernel.stages[0][1])


class Access:
    """An operand of a launch: where it starts, how it walks, what its elements are."""

    __slots__ = ("dtype", "place", "step", "strides")

    def __init__(self, launch: Launch, k: int):
        kernel = launch.kernel
        operand = kernel.operands[k]
        self.place, self.dtype, self.step = launch.args[k], operand.dtype, operand.step
        loops = kernel.kept + kernel.reduced
        self.strides = () if launch.words is None else (
            launch.words[1 + loops * (1 + k):1 + loops * (2 + k)])

    @property
    def key(self):
        return self.place, self.dtype, self.step, self.strides


class Group:
    """Pointwise launches over the same loops, and perhaps the fold that they lead to."""

    __slots__ = ("fold", "keys", "late", "launches", "loops", "number", "size", "written")

    def __init__(self, step: Launch, loops, number: int):
        self.loops, self.number = loops, number
        self.launches: list[Launch] = []
        self.fold: Launch | None = None
        self.keys: dict[tuple, set] = {}  # root -> how it is accessed
        self.written: set = set()
        self.size = self.late = 0
        self.add(step, {})

    def closed(self) -> Group | Launch:
        """What is left where nothing is added any more: a launch if there is but one."""
        if len(self.launches) == 1 and self.fold is None:
            return self.launches[0]
        self.keys.clear()
        self.written.clear()
        return self

    def add(self, step: Launch, made: dict) -> None:
        self.launches.append(step)
        self.late += self._late(step, made)
        for k in range(len(step.kernel.operands)):
            access = Access(step, k)
            self.keys.setdefault(access.place.root, set()).add(access.key)
        self.written |= step.writes
        self.size += _steps(step.kernel)

    def _late(self, step: Launch, made: dict) -> int:
        """Bytes that a launch reads and that others have made since the group began."""
        roots = {root for root in step.reads if root not in self.keys
                 and made.get(root, -1) > self.number}
        return sum(_bytes(step, k) for k, place in step.places() if place.root in roots)

    def takes(self, step: Launch, made: dict) -> bool:
        """Whether a launch may run element by element with the others."""
        if self.size + _steps(step.kernel) > STEPS or (
                self.late + self._late(step, made) > max(LATE, 2 * _bytes(step, 0))):
            return False
        if sum(map(len, self.keys.values())) + len(step.kernel.operands) > OPERANDS:
            return False
        for k in range(len(step.kernel.operands)):
            access = Access(step, k)
            root = access.place.root
            if (k in step.written or root in self.written) and root in self.keys and (
                    self.keys[root] != {access.key} or access.step == "0"):
                return False  # the same bytes, but not the same element at the same time
        return True

    def conflicts(self, step) -> bool:
        """Whether a launch has to see what the group does, or must not come before it."""
        return bool(step.reads & self.written or step.writes & self.keys.keys())

    def ends_in(self, step, waiting) -> bool:
        """Whether a launch is a fold of everything that can take the group into its loop."""
        if self.loops[0] != "dense" or not isinstance(step, Launch) or step.kernel is None:
            return False
        kernel = step.kernel
        if not kernel.dense or not kernel.reduced or step.args[-1] != self.loops[1] or any(
                o.dtype.compute is not o.dtype for o in kernel.operands):
            return False
        if any(o.step != "1" for launch in self.launches for o in launch.kernel.operands):
            return False
        if step.writes & self.keys.keys() or any(
                group is not self and group.conflicts(step) for group in waiting):
            return False
        reads = [Access(step, k) for k in range(len(kernel.operands)) if k not in step.written]
        return all(a.place.root not in self.written or
                   {(a.place, a.dtype)} == {key[:2] for key in self.keys[a.place.root]}
                   for a in reads)

    @property
    def reads(self) -> set:
        own = {root for step in self.launches for root in step.reads}
        return own | (self.fold.reads if self.fold is not None else set())

    def merged(self, results: set[int], readers: Counter) -> list[Launch]:
        """All of it as one launch; values that nobody reads elsewhere are not stored.

        readers: of how many groups and launches each root is read.
        """
        own = self.reads
        made = dict.fromkeys(step.args[store.operand].root for step in self.launches
                             for store in step.kernel.stages[0][1])

        def needed(also: set | frozenset = frozenset()) -> list:
            return [root for root in made
                    if root[0] == "outside" or root[1] in results or root in also
                    or readers[root] > (root in own)]

        stored = needed()
        if self.fold is not None and not stored:
            return [_Merger(self.launches, len(self.fold.written)).folded(self.fold)]
        if self.fold is not None:  # others want the values too: the fold reads what is stored
            stored = needed(self.fold.reads)
        whole = _Merger(self.launches, len(stored)).pointwise(stored, self.launches[0])
        return [whole] if self.fold is None else [whole, self.fold]


def _bytes(step: Launch, k: int) -> int:
    """Bytes of an operand, if it has an element for each that the kernel makes."""
    count = step.args[-1] if step.words is None else step.words[0]
    return count * step.kernel.operands[k].dtype.itemsize


def _steps(kernel: Kernel) -> int:
    return sum(_size(store.value) for store in kernel.stages[0][1])


def _size(e, seen=None) -> int:
    seen = set() if seen is None else seen
    if e in seen:
        return 0
    seen.add(e)
    return bool(e.args) + sum(_size(a, seen) for a in e.args)


def launch_of(kernel: Kernel, places, numbers, last, words) -> Launch:
    """A launch of a kernel that was put together; its operands that are written come first."""
    verify(kernel)
    function = compile_kernel(kernel)
    kernel = KERNELS.get(function, kernel)  # that of the first of its kind
    written = sum(o.written for o in kernel.operands)
    return Launch(sys.intern(function.__name__), function, kernel, (*places, *numbers, last),
                  words, tuple(range(written)))


class _Merger:
    """Collects operands, parameters and the values of places while launches are put together."""

    def __init__(self, launches: list[Launch], written: int) -> None:
        self.first = written                    # the operands that are read come after those
        self.inputs: dict[tuple, int] = {}
        self.accesses: list[Access] = []
        self.params: list = []
        self.numbers: list = []
        self.values: dict[tuple, tuple] = {}    # root -> (expr, access)
        for step in launches:
            self._take(step)

    def leaves(self, step: Launch) -> dict:
        """What stands in place of a launch's own inputs and parameters."""
        kernel = step.kernel
        found = {}
        for k, operand in enumerate(kernel.operands):
            if operand.written:
                continue
            access = Access(step, k)
            leaf = ex.input(k, operand.dtype.compute)
            made = self.values.get(access.place.root)
            found[leaf] = made[0] if made is not None else self._input(access)
        for k, dtype in enumerate(kernel.params):
            found[ex.param(k, dtype)] = ex.param(len(self.params) + k, dtype)
        self.params += kernel.params
        count = len(kernel.operands)
        self.numbers += step.args[count:-1]
        return found

    def _input(self, access: Access):
        """An operand that is read."""
        number = self.inputs.get(access.key)
        if number is None:
            number = self.inputs[access.key] = len(self.accesses)
            self.accesses.append(access)
        return ex.input(self.first + number, access.dtype.compute)

    def _take(self, step: Launch) -> None:
        leaves = self.leaves(step)
        made = {}
        for store in step.kernel.stages[0][1]:
            access = Access(step, store.operand)
            value = ex.cast(ex.substitute(store.value, leaves), access.dtype.compute)
            made[access.place.root] = (value, access)
        self.values.update(made)

    def _launch(self, kernel: Kernel, written: Sequence[Access], words, last) -> Launch:
        places = [a.place for a in (*written, *self.accesses)]
        return launch_of(kernel, places, self.numbers, last, words)

    def pointwise(self, needed, model: Launch) -> Launch:
        exprs, written = zip(*[self.values[root] for root in needed], strict=True)
        operands = tuple(Operand(a.dtype, a.step, k < len(written))
                         for k, a in enumerate((*written, *self.accesses)))
        stores = tuple(Store(k, e) for k, e in enumerate(exprs))
        old = model.kernel
        kernel = Kernel(operands, tuple(self.params), old.kept, 0, "kept", (("row", stores),),
                        old.dense)
        words = None
        if model.words is not None:
            strides = [s for a in (*written, *self.accesses) for s in a.strides]
            words = (*model.words[:1 + old.kept], *strides)
        return self._launch(kernel, written, words, model.args[-1])

    def folded(self, fold: Launch) -> Launch:
        leaves = self.leaves(fold)
        written = [Access(fold, k) for k in fold.written]
        old = fold.kernel
        stages: list = []
        for kind, payload in old.stages:
            if kind == "fold":
                start, step, merge = (tuple([ex.substitute(e, leaves) for e in part])
                                      for part in (payload.start, payload.step, payload.merge))
                stages.append((kind, Fold(start, step, merge)))
            else:
                stages.append((kind, tuple([Store(s.operand, ex.substitute(s.value, leaves))
                                            for s in payload])))
        operands = (*[old.operands[k] for k in fold.written],
                    *[Operand(a.dtype, a.step) for a in self.accesses])
        kernel = Kernel(operands, tuple(self.params), old.kept, old.reduced, old.lanes,
                        tuple(stages), True, blocks=old.blocks)
        return self._launch(kernel, written, None, fold.args[-1])
