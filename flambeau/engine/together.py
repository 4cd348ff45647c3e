"""Many tensors at once: one native call finds their memory, another runs a kernel over all of it.

An `Update` remembers what it has established about tensors, gradients and state. Native code
compares all of that at every step; if anything differs it changes nothing, and the caller looks
again. Searches, for zeroing and clipping gradients, remember nothing.
"""

from __future__ import annotations

import functools
import math
import operator
from array import array
from collections.abc import Callable
from typing import Any

from ..core.device import CPU
from ..core.dtype import float32, float64
from ..core.pace import formula, pace
from ..core.update import (
    NORMS,
    Number,
    change_kernel,
    is_given,
    norm_kernel,
    update_kernel,
    written_after,
)
from ..devices.cpu import bridge
from ..devices.cpu.assembly.gather_words import ABSENT, ANY, ITEM, SEARCH, TOO_SMALL, UPDATE
from ..devices.cpu.foundry import machine_code
from ..devices.cpu.many import PART, many
from ..devices.switches import switch
from .front_parts import slot_offset
from .interception import plainly, tracing
from .modes import gradient_watchers
from .tensor import Signature, Tensor

#: calls on more elements than this give up the GIL, so somebody must hold on to what they read
LONG = bridge.GIL_THRESHOLD

_DTYPES = (float32, float64)  # others are rounded after every operation, as tensors are


def offsets() -> tuple:
    """Where tensors and signatures keep what native code reads."""
    bridge.jit().publish_python(("PyDict_Next", "PyType_IsSubtype"))
    return (*[(n, slot_offset(Tensor, n)) for n in ("sig", "ptr", "mem", "node", "_grad")],
            *[(n, slot_offset(Signature, n))
              for n in ("numel", "contiguous", "dtype", "device", "tag")])


@functools.cache
def _code() -> dict:
    """The native functions of assembly/gather.py."""
    return machine_code("gather", ("gather", "search", "forget"), offsets())


def _is_plain(t, sig=None) -> bool:
    """Whether a tensor's bytes are its elements, each once, and nobody else has a say in it."""
    found = t.sig
    if sig is not None and found is not sig:
        return False
    return (found.device is CPU and found.tag is None and found.dtype in _DTYPES
            and "_inference" not in t.__dict__ and not getattr(type(t), "read_only", False)
            and (found.contiguous or _is_dense(found)))


def _is_dense(sig) -> bool:
    """Whether the elements fill a run of memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(sig.strides, sig.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


# -- updates ---------------------------------------------------------------------------------------


class Update:
    """Tensors that take one step together: all of one dtype, with counters that agree.

    `params` is the whole list they are from. `members` maps the identity of each of them to its
    state, a dict; others in the list must have no gradient, except those in `apart`.
    """

    def __init__(self, params: list, members: dict, apart: set, state: dict, names: tuple,
                 counters: tuple):
        first = next(p for p in params if id(p) in members)
        self.params, self.state, self.states = params, state, len(names)
        self.dtype = first.sig.dtype
        self.counters = counters
        own = members[id(first)]
        #: the counters as they are, which native code moves on, and as they are to be
        self._old = array("d", [*(own[name].item() for name in counters), 0.0])
        self._new = array("d", self._old)
        self.wide = bool(counters) and own[counters[0]].sig.dtype is float64
        self.members = [p for p in params if id(p) in members]
        self.elements = sum(p.sig.numel for p in self.members)
        self._kernels: dict = {}
        self._last: tuple = _NO_KERNEL  # that of the step before
        self._options: dict | None = None   # those that the step before depended on
        #: what takes the numbers of a step that is repeated, and their formulas
        self.run: Any = None
        self.paced: list = []
        #: repeat(options) takes a step that differs from the last one by its count; False, and
        #: nothing done, if it may differ more
        self.repeat: Callable[[dict], bool] = _differs
        self._changes = False               # whether steps always differ more
        self._busy = [False]  # whether a step is under way without the GIL
        self._describe(members, apart, names)

    def _describe(self, members, apart, names) -> None:
        """Lay out for native code what it compares, and keep all of it alive."""
        known = len(next(iter(members.values())))
        width = ITEM + known + self.states + len(self.counters)
        items = array("q")
        self._keep: list = []
        for p in self.params:
            state = members.get(id(p))
            if state is None:
                count = ANY if id(p) in apart else ABSENT
                items.extend([id(p), 0, count] + [0] * (width - 3))
                continue
            values = [*state.values(), *(state[n] for n in (*names, *self.counters))]
            items.extend([id(p), id(p.sig), p.sig.numel, id(state) if state else 0,
                          *map(id, values)])
            self._keep.append((p, p.sig, state, values))
        self._keep.append(list(self.params))
        entries = list(self.state.values())
        self._keep.append(entries)
        self._snapshot = array("q", map(id, entries)) or array("q", [0])
        rows = sum(-(-p.sig.numel // PART) or 1 for p in self.members)
        self._table = array("q", bytes(8 * rows * (self.states + 3)))
        self._items = items
        said = {
            "items": items.buffer_info()[0], "count": len(self.params),
            "width": width, "known": known,
            "states": self.states, "counters": len(self.counters),
            "table": self._table.buffer_info()[0], "item_size": self.dtype.itemsize,
            "entries": len(entries) if known else -1, "snapshot": self._snapshot.buffer_info()[0],
            "list": id(self.params), "state": id(self.state), "wide": int(self.wide),
            "old": self._old.buffer_info()[0], "new": self._new.buffer_info()[0],
        }
        self._plan = array("q", [said[name] for name in UPDATE])
        self.address = self._plan.buffer_info()[0]
        self._gather = _code()["gather"]

    @property
    def counts(self) -> dict[str, float]:
        """What is counted for each of the tensors."""
        return dict(zip(self.counters, self._old))

    def learn(self, rule, numbers: Callable, options: dict, flags: tuple, negated: bool) -> None:
        """After a step, see whether the next can be like it: if options stay, and if there is a
        formula for its numbers."""
        self.repeat = _differs
        if self._changes:
            return
        before = self._options
        if before is not None and before != (now := {k: options.get(k) for k in before}):
            self._options = now  # they may change at every step
            return
        found = pace(numbers, options) if self.counters in ((), ("step",)) else None
        if found is None:
            self._changes = True
            return
        names, symbolic = found
        self._options = {k: options[k] for k in (*names, *flags) if k in options}
        if before is not None and self._options:
            self.run, given = self._made_for(rule, symbolic, negated)
            self.paced = [symbolic[k] for k in given]
            self.repeat = self._repeating(options, formula(self.paced), self.run)

    def _repeating(self, options: dict, numbers: Callable, run: Callable) -> Callable[[dict], bool]:
        """Steps with these options, whose numbers are a function of the count."""
        picked = operator.itemgetter(*self._options or ())
        values, elements = picked(options), self.elements
        old, new, gather, address = self._old, self._new, self._gather, self.address
        table, busy = self._table_address, self._busy
        if elements > LONG:
            run = functools.partial(_without_the_lock, run, busy, self.members)

        def repeat(options: dict) -> bool:
            try:
                if picked(options) != values or busy[0]:
                    return False
            except KeyError:
                return False
            new[0] = count = old[0] + 1.0
            rows = gather(address, 0)
            if rows < 0:
                return False
            run(table, rows, *numbers(count), elements)
            return True

        return repeat

    def step(self, rule, numbers: dict, counts: dict, negated: bool) -> bool:
        """Apply the rule to all tensors, and let counters be `counts`; False if things differ."""
        if self._busy[0]:
            return False
        names, others, values, run, same_sign = self._last
        if same_sign is not negated or others(numbers) != values or (
                not _SPECIAL.isdisjoint(given := names(numbers))):
            run, given = self._kernel(rule, numbers, negated)
            if run is None:
                return False
        new = self._new
        for k, name in enumerate(self.counters):
            new[k] = counts[name]
        rows = self._gather(self.address, 0)
        if rows < 0:
            return False
        if self.elements > LONG:
            run = functools.partial(_without_the_lock, run, self._busy, self.members)
        run(self._table_address, rows, *given, self.elements)
        return True

    @functools.cached_property
    def _table_address(self) -> int:
        return self._table.buffer_info()[0]

    def _kernel(self, rule, numbers: dict, negated: bool):
        """Machine code of the rule for numbers like these, and those it is given."""
        if any(isinstance(v, Tensor) for v in numbers.values()):
            return None, []
        run, given = self._made_for(rule, numbers, negated)
        names, others = _picking(given), _picking([k for k in numbers if k not in given])
        self._last = names, others, others(numbers), run, negated
        return run, names(numbers)

    def _made_for(self, rule, numbers: dict, negated: bool) -> tuple[Any, list[str]]:
        """Machine code of the rule, and the names of the numbers that it is given."""
        fixed = tuple([(k, Number if is_given(v) else v) for k, v in numbers.items()])
        run = self._kernels.get((fixed, negated))
        if run is None:
            kernel = update_kernel(rule, self.states, fixed, self.dtype, negated)
            run = many(kernel, written_after(self.states), self.states + 3)
            self._kernels[fixed, negated] = run
        return run, [k for k, v in fixed if v is Number]


def _without_the_lock(run: Callable, busy: list[bool], members: list, *given) -> None:
    """A call that gives up the GIL: nobody else may use the table, and gradients must stay."""
    held = [p._grad for p in members]
    busy[0] = True
    try:
        run(*given)
    finally:
        busy[0] = False
        del held


def _differs(options: dict) -> bool:
    """Before there is a way to repeat a step."""
    return False


#: before the first step: what numbers it is given and not given, the latter, the code, the sign
_NO_KERNEL = (None, None, (), None, None)
#: numbers that make a kernel of their own
_SPECIAL = frozenset((0, 1, None))


def _picking(names: list[str]) -> Callable[[dict], tuple]:
    """A function that takes the values of these names out of a dict."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    return lambda numbers: tuple([numbers[name] for name in names])


def updates(params: list, state: dict, names, counters: tuple, done: set) -> tuple[list, list]:
    """Updates that together move all of `params` with a gradient, and tensors for which none can.

    names(p) gives the names of the states a tensor has, or None; tensors in `done` are left out.
    """
    if type(params) is not list or switch("FLAMBEAU_DEVICE") == "reference":
        return [], [p for p in params if p.grad is not None and id(p) not in done]
    groups: dict = {}
    apart = []
    seen: set = set()
    for p in params:
        g = p.grad
        if g is None or id(p) in done:
            continue
        kind = None if id(p) in seen else _kind(p, g, state, names(p), counters)
        seen.add(id(p))
        if kind is None:
            apart.append(p)
        else:
            groups.setdefault(kind, {})[id(p)] = state.get(p, {}) if names(p) is not None else {}
    moved = done.union({id(p) for p in apart}, *groups.values())
    made = [Update(params, members, moved - members.keys(), state, kind[0], kind[1])
            for kind, members in groups.items()]
    return made, apart


def _kind(p, g, state, names, counters):
    """What tensors that move together have in common; None if p cannot move with others."""
    if not (_is_plain(p) and _is_plain(g, p.sig)):
        return None
    if names is None:
        return (), (), p.sig.dtype
    own = state.get(p)
    if not own:
        return None
    values = [own.get(n) for n in names]
    counts = [own.get(n) for n in counters]
    if not all(type(v) is Tensor and _is_plain(v, p.sig) for v in values):
        return None
    if not all(type(c) is Tensor and c.sig.numel == 1 and _is_plain(c, counts[0].sig)
               for c in counts):
        return None
    numbers = tuple([c.item() for c in counts])
    wide = counts[0].sig.dtype if counts else None
    return names, counters, p.sig.dtype, numbers, wide, tuple(own)


# -- searches --------------------------------------------------------------------------------------


class _Search:
    """A table for tensors of a list, or their gradients, and one result per row."""

    def __init__(self, room: int):
        self.table = array("q", bytes(8 * 3 * room))
        self.results = array("d", bytes(8 * room))
        self.room = room
        self.rows = self.elements = 0

    def find(self, tensors: list, dtype, gradients: bool, change: bool) -> int:
        said = {
            "list": id(tensors), "table": self.table.buffer_info()[0], "room": self.room,
            "dtype": id(dtype), "device": id(CPU), "item_size": dtype.itemsize,
            "results": self.results.buffer_info()[0], "gradients": int(gradients),
            "type": id(Tensor), "true": id(True), "elements": 0,
        }
        plan = array("q", [said[name] for name in SEARCH])
        self.rows = _code()["search"](plan.buffer_info()[0], int(change))
        self.elements = plan[SEARCH.index("elements")]
        return self.rows

    def run(self, run, tensors: list, *numbers) -> None:
        held = [(p, p.grad) for p in tensors] if self.elements > LONG else None
        run(self.table.buffer_info()[0], self.rows, *numbers, self.elements)
        del held


_searches: list[_Search] = []  # not in use


def _search(tensors: list, gradients: bool, change: bool) -> tuple[_Search, object] | None:
    """A search that has found tensors or gradients, all alike, and their dtype; else None."""
    if type(tensors) is not list or switch("FLAMBEAU_DEVICE") == "reference":
        return None
    first = next((t for p in tensors for t in ((p.grad if gradients else p),) if t is not None),
                 None)
    if first is None or type(first) is not Tensor or first.sig.dtype not in _DTYPES:
        return None
    search = _searches.pop() if _searches else _Search(256)
    rows = search.find(tensors, first.sig.dtype, gradients, change)
    if rows == TOO_SMALL:
        every = [t for p in tensors for t in ((p.grad if gradients else p),) if t is not None]
        search = _Search(sum(t.sig.numel // PART + 2 for t in every))
        rows = search.find(tensors, first.sig.dtype, gradients, change)
    return (search, first.sig.dtype) if rows >= 0 else None


def _zeroed(x):
    return 0


def _scaled(x, factor):
    return x * factor


def _clamped(x, least, most):
    return x.clamp(least, most)


@functools.cache
def _changing(change, dtype, numbers: int):
    return many(change_kernel(change, dtype, numbers), (0, 0), 3)


@functools.cache
def _folding(order: float, dtype):
    return many(norm_kernel(order, dtype), (0, 1), 3)


def _change(params: list, change, *numbers) -> bool:
    """Change all gradients in place by a function of one element; False if they are not alike."""
    if tracing():  # in a compiled function: on real tensors, as a call of its own
        return plainly(_change, params, change, *numbers)
    found = _search(params, True, True)
    if found is None:
        return False
    search, dtype = found
    search.run(_changing(change, dtype, len(numbers)), params, *numbers)
    _searches.append(search)
    return True


def zero_gradients(params: list) -> bool:
    """Fill all gradients with zeros."""
    return _change(params, _zeroed)


def clamp_gradients(params: list, least: float, most: float) -> bool:
    """Limit every element of all gradients."""
    return _change(params, _clamped, least, most)


def scale_gradients(params: list, factor: float) -> bool:
    """Multiply all gradients by a number."""
    return _change(params, _scaled, factor)


def forget_gradients(params: list) -> None:
    """Set all gradients to None."""
    for tell in gradient_watchers:
        tell(params := list(params))
    if type(params) is not list or _code()["forget"](id(params), id(Tensor), 0) < 0:
        for p in params:
            p.grad = None


def total_norm(tensors: list, order: float, gradients: bool = False):
    """The norm of all tensors, or of their gradients, as one vector, and their dtype.

    None if they are not alike.
    """
    if order not in NORMS:
        return None
    found = _search(tensors, gradients, False)
    if found is None:
        return None
    search, dtype = found
    search.run(_folding(order, dtype), tensors)
    parts = search.results[:search.rows]
    _searches.append(search)
    if order == math.inf:
        total = math.nan if any(map(math.isnan, parts)) else max(parts)
    else:
        total = sum(parts)
    return (math.sqrt(total) if order == 2.0 else total), dtype
