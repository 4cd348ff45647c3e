"""What a kernel's body is like, read off its exprs: how heavy, how wide, how often it may run."""

from __future__ import annotations

from typing import Any

from ...core import expr as ex
from ...core.expr import Expr
from ...core.kernel import Fold, Kernel, Store, stage_exprs
from .. import mathlib
from ..libm import LIBM

Stages = list[tuple[str, Any]]  # kind and payload of each

#: what a step costs, in additions
_HEAVY = {"div": 4, "sqrt": 6, "truncdiv": 20, "fmod": 20, "const": 0, "param": 0, "fold": 0}

#: a body of fewer steps is small
_SMALL = 16
#: functions of a body that are many
_MANY = 3


def expanded(kernel: Kernel) -> Stages:
    """The stages of a kernel, their exprs made of primitives."""
    return [(kind, _expanded(kind, payload)) for kind, payload in kernel.stages]


def _expanded(kind: str, payload):
    if kind == "fold":
        start, step, merge = (tuple(map(ex.expand, part))
                              for part in (payload.start, payload.step, payload.merge))
        return Fold(start, step, merge, _expanded("running", payload.running), payload.element)
    return tuple(Store(s.operand, ex.expand(s.value), None if s.coordinates is None else
                       tuple(map(ex.expand, s.coordinates)), s.combine) for s in payload)


def lanes_of(kernel: Kernel, stages: Stages, bits: int) -> int:
    """How many elements a register of so many bits takes, of the widest that are computed with."""
    if kernel.lanes == "none":
        return 1
    # What is the same in all lanes of a row needs none of its own.
    sizes = [o.dtype.compute.itemsize for o in kernel.operands
             if o.step != "0" or kernel.lanes != "reduced"]
    sizes += [e.dtype.compute.itemsize for kind, p in stages for e in stage_exprs(kind, p)
              if e.dtype.kind in "fiu"]
    return max(1, bits // 8 // max(4, *sizes, 1))


def work_of(kernel: Kernel, stages: Stages) -> float:
    """What a place costs, in additions and elements moved."""
    seen = {e for kind, p in stages for root in stage_exprs(kind, p) for e in _walk(root)}
    return sum(_weight(e) for e in seen) + len(kernel.operands)


def _weight(e: Expr) -> float:
    if e.head in LIBM and e.head not in _HEAVY and (e.head, e.dtype) not in mathlib.TABLE:
        return 100
    if e.args and (e.head, e.args[0].dtype) in mathlib.TABLE:
        return 15
    return _HEAVY.get(e.head, 1) if isinstance(e.head, str) else 1


def _walk(e: Expr) -> set[Expr]:
    """Every node under an expr, each once."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.args)
    return seen


def is_light(kernel: Kernel, stages: Stages) -> bool:
    """Whether the body is so small that more of it in flight pays."""
    return kernel.reduced == 0 and sum(
        len(_walk(e)) for kind, p in stages for e in stage_exprs(kind, p)) < _SMALL


def has_many_functions(kernel: Kernel, stages: Stages) -> bool:
    """Whether the body computes several functions: of each vector they are one long chain."""
    seen = {e for kind, p in stages for root in stage_exprs(kind, p) for e in _walk(root)}
    functions = [e for e in seen if e.args and (e.head, e.args[0].dtype) in mathlib.TABLE]
    return kernel.reduced == 0 and len(functions) >= _MANY


def is_light_fold(kernel: Kernel, stages: Stages) -> bool:
    """Whether there is one state, and few steps to it: many can be in flight."""
    fold = _only_fold(stages)
    if fold is None or any(o.step == "s" for o in kernel.operands):
        return False
    return len(fold.start) == 1 and fold.start[0].dtype.kind != "c" and (
        len(_walk(fold.step[0])) < _SMALL)


def is_light_pair(stages: Stages) -> bool:
    """Whether two states are folded by a few steps, and nothing else walks the elements."""
    fold = _only_fold(stages)
    if fold is None or len(fold.start) != 2:
        return False
    steps = {e for root in fold.step for e in _walk(root)}
    return all(e.dtype.kind == "f" for e in fold.start) and len(steps) < _SMALL


def _only_fold(stages: Stages) -> Fold | None:
    """The fold of a kernel that is one fold and one other stage."""
    folds = [p for kind, p in stages if kind == "fold"]
    return folds[0] if len(folds) == len(stages) - 1 == 1 else None


def is_repeatable(kernel: Kernel, stages: Stages) -> bool:
    """Whether places may be computed twice: folds that read nothing that is written later."""
    if not kernel.reduced:
        return False
    drafts: set[int] = set()
    for kind, payload in stages:
        stores = payload.running if kind == "fold" else payload
        if (kind == "fold" and stores) or any(s.coordinates is not None for s in stores):
            return False
        read = {k for e in stage_exprs(kind, payload) for k in ex.leaves(e, "input")}
        if any(kernel.operands[k].written for k in read - drafts):
            return False
        drafts |= {s.operand for s in stores}
    return True
