"""Mistakes with gradients: those that are still there, those that never come, those in vain."""

from __future__ import annotations

import weakref
from typing import Any

from flambeau import Tensor

from .mistake import Mistake
from .modules import Outermost

#: steps after which a parameter that got no gradient is one that gets none
ENOUGH = 3


def learned(optimizer: Any) -> list[Tensor]:
    """The parameters of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


class _Used:
    """A gradient that an optimizer has used, and whether others were added to it since."""

    def __init__(self, p: Tensor):
        self.parameter = weakref.ref(p)
        self.remember(p)
        self.stale = False

    def remember(self, p: Tensor) -> None:
        self.gradient = weakref.ref(p.grad)

    def still(self) -> Tensor | None:
        """The parameter, if its gradient is still there: neither cleared, nor another one."""
        p = self.parameter()
        g = None if p is None else p.grad
        return p if g is not None and g is self.gradient() and bool(g.any()) else None


class KeptGradients(Mistake):
    title = "gradients of the step before are still there"
    why = ("Gradients add up until they are cleared, so each step follows the sum of all steps so "
           "far: the loss swings, or explodes.")
    wrong = """\
for _ in range(5):
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
"""
    right = """\
for _ in range(5):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
"""

    def __init__(self, watch):
        super().__init__(watch)
        self.used: dict[int, _Used] = {}
        self.added: list[_Used] = []    # to what the way back that is under way adds

    def on_backward(self, losses: list) -> None:
        self.added = []
        for key, used in list(self.used.items()):
            if used.still() is None:
                del self.used[key]
            else:
                self.added.append(used)

    def on_wentback(self) -> None:
        for used in self.added:
            p = used.parameter()
            if p is not None and p.grad is not None:
                used.stale = True
                used.remember(p)

    def on_step(self, optimizer: Any) -> None:
        rows = [self.used.get(id(p)) for p in learned(optimizer)]
        count = sum(row is not None and row.stale and row.still() is not None for row in rows)
        if count:
            self.found(f"{count} parameters change by gradients to which those of earlier steps "
                       "were added, as nothing cleared them.")

    def on_stepped(self, optimizer: Any) -> None:
        for p in learned(optimizer):
            if p.grad is not None:
                self.used[id(p)] = _Used(p)


class NoGradients(Mistake):
    title = "a step without gradients"
    why = ("step() changes parameters by the gradients that backward() has left. Before "
           "backward(), or after zero_grad(), there are none, and nothing is learned.")
    wrong = """\
for _ in range(3):
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
"""
    right = """\
for _ in range(3):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
"""

    def on_step(self, optimizer: Any) -> None:
        found = learned(optimizer)
        if found and all(p.grad is None for p in found):
            self.found(f"None of the optimizer's {len(found)} parameters has a gradient.")


class NeverReached(Outermost):
    title = "parameters that never get a gradient"
    why = ("What a loss does not depend on is not learned. The usual reasons: a detach(), .item(), "
           ".data or numpy() on the way, a layer that forward() does not use, or no_grad().")
    wrong = """\
for _ in range(4):
    optimizer.zero_grad()
    features = model[:3](x).detach()
    F.cross_entropy(model[3](features), labels).backward()
    optimizer.step()
"""
    right = """\
for _ in range(4):
    optimizer.zero_grad()
    features = model[:3](x)
    F.cross_entropy(model[3](features), labels).backward()
    optimizer.step()
"""

    def __init__(self, watch):
        super().__init__(watch)
        self.steps: dict[int, int] = {}         # of each optimizer
        self.reached: set[int] = set()          # optimizers of which some parameter has a gradient
        self.without: dict[int, tuple] = {}     # parameters -> what to tell, while there is none

    def on_stepped(self, optimizer: Any) -> None:
        key = id(optimizer)
        first = key not in self.steps
        self.steps[key] = self.steps.get(key, 0) + 1
        for p in learned(optimizer):
            if p.grad is not None:
                self.reached.add(key)
                self.without.pop(id(p), None)
            elif first and p.requires_grad:
                self.without[id(p)] = (key, self.name_of(p), self.watch.place())

    def on_end(self) -> None:
        found: dict[tuple, list[str]] = {}
        for key, name, place in self.without.values():
            if self.steps[key] >= ENOUGH and key in self.reached:  # else another mistake tells
                found.setdefault((key, place), []).append(name)
        for (key, place), names in found.items():
            self.found(f"In {self.steps[key]} steps: {listed(names)}.", place)


class NotUpdated(Outermost):
    title = "parameters that no optimizer changes"
    why = ("An optimizer changes the parameters it was given when it was made. A layer that was "
           "added or replaced since then, or that nobody gave it, stays as it was.")
    wrong = """\
model[3] = nn.Linear(8, 2)
for _ in range(4):
    optimizer.zero_grad()
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()
"""
    right = """\
model[3] = nn.Linear(8, 2)
optimizer = optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()
"""

    def __init__(self, watch):
        super().__init__(watch)
        self.changed: set[int] = set()
        self.met: dict[int, tuple] = {}     # parameters with gradients -> name, place
        self.steps = 0

    def on_stepped(self, optimizer: Any) -> None:
        self.steps += 1
        self.changed.update(map(id, learned(optimizer)))
        for p in self.parameters():
            if p.grad is not None and id(p) not in self.changed and id(p) not in self.met:
                self.met[id(p)] = (self.name_of(p), self.watch.place())

    def on_end(self) -> None:
        found: dict = {}
        for key, (name, place) in self.met.items():
            if key not in self.changed:
                found.setdefault(place, []).append(name)
        if self.steps >= ENOUGH:
            for place, names in found.items():
                self.found(f"They have gradients, and stay as they are: {listed(names)}.", place)


def listed(names: list[str], most: int = 6) -> str:
    """Names in a row; of many the first, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
