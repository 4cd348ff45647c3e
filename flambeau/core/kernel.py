"""Loops around expressions, with loads, stores and folds: what a device is asked to compile.

A kernel walks `kept` loops, and inside each place of those its stages in order:

    fold   walk the `reduced` loops and fold elements into states
    map    walk the `reduced` loops and store an element at each place
    row    store once per kept place

A pointwise kernel is one `row` stage; a sum is a fold and a row; softmax is two folds and a
map. Sizes and strides are given when it runs, so one kernel serves every shape of its layout.
"""

from __future__ import annotations

from typing import Any

from . import dtype as dt
from . import expr as ex
from .expr import Expr
from .record import Record


class Operand(Record):
    """A tensor the kernel reads or writes, and how it steps along the lanes.

    step is "1" (neighbours in memory), "0" (the same element again), "-1" (neighbours, read
    backwards) or "s" (some stride).
    """

    dtype: dt.dtype
    step: str
    written: bool = False

    def __str__(self) -> str:
        return f"{'out' if self.written else 'in'} {self.dtype.name}[{self.step}]"


class Fold(Record):
    """States, how an element moves them, and how two partial results merge.

    In `step` the leaves state0, state1 ... are the states so far; in `merge` state0..n-1 are
    those of one part and state n..2n-1 those of the other. `running` stores the states at each
    place, as they are after its step: a scan, which goes place by place and never merges. A sum in
    a wider dtype than its elements' may name the `element`: some may be added as they are first.
    """

    start: tuple[Expr, ...]
    step: tuple[Expr, ...]
    merge: tuple[Expr, ...]
    running: tuple[Store, ...] = ()
    element: Expr | None = None

    __eq__, __hash__ = object.__eq__, object.__hash__


class Store(Record):
    """Write an expr to an operand: at the current place, or at computed coordinates.

    combine names how a value joins what is there (add, mul, amax, amin), or is None.
    """

    operand: int
    value: Expr
    coordinates: tuple[Expr, ...] | None = None
    combine: str | None = None

    __eq__, __hash__ = object.__eq__, object.__hash__


class Kernel(Record):
    """What a device is asked to compile. Kernels are equal if they are made of the same exprs."""

    operands: tuple[Operand, ...]
    params: tuple[dt.dtype, ...]
    kept: int
    reduced: int
    lanes: str  # which innermost loop is cut into vectors: "kept", "reduced" or "none"
    stages: tuple[tuple[str, Any], ...]  # ("fold", a Fold), or another kind and its stores
    dense: bool = False  # one loop, steps 0 or 1: called with a count, not with a layout
    # For each operand, the number of computed coordinates: each has a stride of its own, and they
    # move the operand on from where the loops have taken it.
    indirect: tuple[int, ...] = ()
    # Whether folds may be cut into blocks, for threads; what is folded into many places is not.
    blocks: bool = True

    __slots__ = ("_told",)  # no part of it

    def identity(self) -> tuple:
        """What tells it from other kernels, worked out once."""
        try:
            return self._told  # type: ignore[attr-defined]
        except AttributeError:
            told = _identity(self)
            object.__setattr__(self, "_told", told)
            return told

    def __eq__(self, other) -> bool:
        return isinstance(other, Kernel) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash(self.identity())

    def __str__(self) -> str:
        return listing(self)


def _identity(value):
    """What tells kernels apart: exprs, being interned, by themselves, all else by value."""
    if isinstance(value, Expr):
        return id(value)
    if isinstance(value, tuple):
        return tuple([_identity(v) for v in value])
    if isinstance(value, (Fold, Store, Kernel)):
        return tuple([_identity(v) for v in vars(value).values()])
    return value


def stage_exprs(kind: str, payload) -> list[Expr]:
    """Every expr a stage evaluates at each of its places."""
    if kind == "fold":
        return list(payload.step)
    found = [store.value for store in payload]
    for store in payload:
        found.extend(store.coordinates or ())
    return found


def param_kinds(kernel: Kernel) -> str:
    """One letter per argument: p for a pointer, d for a double, q for an integer."""
    letters = "p" * len(kernel.operands)
    for dtype in kernel.params:
        letters += "dd" if dtype.kind == "c" else "d" if dtype.kind == "f" else "q"
    return letters + "q"


def listing(kernel: Kernel) -> str:
    """The kernel as text: unambiguous, so that it also names the machine code on disk."""
    lines = [f"operands {', '.join(map(str, kernel.operands))}",
             f"params {', '.join(p.name for p in kernel.params)}",
             f"loops {kernel.kept} kept, {kernel.reduced} reduced, lanes {kernel.lanes}"
             f"{', dense' if kernel.dense else ''}{'' if kernel.blocks else ', no blocks'} "
             f"{kernel.indirect or ''}"]
    names: dict[Expr, str] = {}
    for kind, payload in kernel.stages:
        lines.append(f"{kind}:")
        if kind == "fold":
            for role in ("start", "step", "merge"):
                shown = [_name(e, names, lines) for e in getattr(payload, role)]
                lines.append(f"  {role} {', '.join(shown)}")
            if payload.element is not None:
                lines.append(f"  element {_name(payload.element, names, lines)}")
        for store in payload.running if kind == "fold" else payload:
            at = ("" if store.coordinates is None else
                  f"[{', '.join(_name(c, names, lines) for c in store.coordinates)}]")
            verb = store.combine or "="
            lines.append(f"  out{store.operand}{at} {verb} {_name(store.value, names, lines)}")
    return "\n".join(lines)


def _name(e: Expr, names: dict[Expr, str], lines: list[str]) -> str:
    """A short name for an expr, with one line per shared step."""
    if e in names:
        return names[e]
    if not e.args:
        names[e] = f"{ex.text(e)}:{e.dtype.name}"
        return names[e]
    args = ", ".join(_name(a, names, lines) for a in e.args)
    head = e.head if isinstance(e.head, str) else e.head.name
    names[e] = f"t{len(names)}"
    attr = "" if e.attr is None else f"[{e.attr}]"
    lines.append(f"    {names[e]}:{e.dtype.name} = {head}{attr}({args})")
    return names[e]


def verify(kernel: Kernel) -> None:
    """Say what is wrong with an illegal kernel; a legal one passes in silence."""
    states = 0
    for kind, payload in kernel.stages:
        if kind not in ("fold", "map", "row"):
            raise ValueError(f"a stage is a fold, a map or a row, not {kind!r}")
        if kind == "fold":
            assert isinstance(payload, Fold)
            if not len(payload.start) == len(payload.step) == len(payload.merge):
                raise ValueError("a fold has as many starts and merges as steps")
            states += len(payload.start)
            if payload.running and kernel.lanes == "reduced":
                raise ValueError("a scan has no lanes along the loop it runs in")
            continue
        for store in payload:
            if not kernel.operands[store.operand].written:
                raise ValueError(f"operand {store.operand} is stored to but declared as read")
            if max(ex.leaves(store.value, "fold"), default=-1) >= states:
                raise ValueError(f"out{store.operand} uses a fold that has not run yet")
    if kernel.dense and (kernel.kept, kernel.reduced) not in ((1, 0), (1, 1)):
        raise ValueError("a dense kernel has one kept loop, or one place and a reduced loop")
