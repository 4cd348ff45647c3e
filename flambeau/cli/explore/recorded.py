"""The graph that autograd recorded: which steps there are, and what each of them keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import flambeau


def steps_from(roots: Iterable[Any]) -> Iterator[Any]:
    """The steps that lead to tensors, each once, those nearest to the tensors first."""
    waiting = [t.grad_fn for t in roots if t.grad_fn is not None]
    seen = {id(step): step for step in waiting}  # held, so that no number is used again
    waiting = list(seen.values())
    while waiting:
        step = waiting.pop(0)
        yield step
        for behind, _ in step.next_functions:
            if behind is not None and leaf_of(behind) is None and id(behind) not in seen:
                seen[id(behind)] = behind
                waiting.append(behind)


def leaf_of(step: Any) -> Any:
    """The tensor whose gradient is filled here, if the way back ends here."""
    return getattr(step, "variable", None)


def kept_by(step: Any) -> list:
    """The tensors that a step keeps for its way back; none once it has gone back."""
    return [kept for part in _parts(step) for kept in part.kept or ()
            if isinstance(kept, flambeau.Tensor)]


def freed(step: Any) -> bool:
    """Whether the step has gone back and given up what it kept."""
    return step.kept is None


def _parts(step: Any) -> list:
    """A step, and what it hides: a loss that is reduced is one step to whoever looks."""
    shown = {id(behind) for behind, _ in step.next_functions}
    return [step, *[inner for inner in step.parents
                    if id(inner) not in shown and hasattr(inner, "parents")]]
