"""Mistakes with modes: eval() and train() that were forgotten, graphs that nobody needs."""

from __future__ import annotations

import weakref
from typing import Any

import flambeau
from flambeau import Tensor, nn

from .mistake import Mistake, Place

_DROPOUT = nn.modules.dropout._DropoutNd
_NORM = nn.modules.batchnorm._BatchNorm


def sensitive(module: Any) -> list[str]:
    """What in a module does another thing in training: dropout, and norms over the batch."""
    found = [type(m).__name__ for m in module.modules()
             if (isinstance(m, _DROPOUT) and m.p > 0)
             or (isinstance(m, _NORM) and m.track_running_stats)]
    return list(dict.fromkeys(found))


def _step_of(output: Any) -> Any:
    """A step of the graph that ends in what a module returned, if there is one."""
    if isinstance(output, Tensor):
        return output.grad_fn
    if not isinstance(output, (tuple, list, dict)):
        return None
    parts = output.values() if isinstance(output, dict) else output
    return next((step for step in map(_step_of, parts) if step is not None), None)


class EvalForgotten(Mistake):
    title = "eval() was forgotten"
    why = ("no_grad() only stops the recording of a graph. In training mode dropout still drops, "
           "and batch norm takes the batch's statistics and changes its own, so results are noise "
           "and the model changes while it is tested.")
    wrong = """\
with torch.no_grad():
    accuracy = (model(x).argmax(1) == labels).float().mean()
"""
    right = """\
model.eval()
with torch.no_grad():
    accuracy = (model(x).argmax(1) == labels).float().mean()
model.train()
"""

    def on_forward(self, module: Any, outermost: bool) -> None:
        if outermost and module.training and not flambeau.is_grad_enabled():
            parts = sensitive(module)
            if parts:
                self.found(f"{type(module).__name__} is in training mode under no_grad(), and has "
                           f"{' and '.join(parts)}.")


class TrainForgotten(Mistake):
    title = "train() was forgotten"
    why = ("After eval() a model stays in evaluation mode until train() is called: it goes on "
           "training without dropout, and batch norm keeps the statistics it had.")
    wrong = """\
for epoch in range(3):
    optimizer.zero_grad()
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        model(x)
"""
    right = """\
for epoch in range(3):
    model.train()
    optimizer.zero_grad()
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        model(x)
"""

    def __init__(self, watch):
        super().__init__(watch)
        self.trained: set[int] = set()      # modules that took a step in training mode
        self.called: dict[int, tuple[weakref.ref, Place]] = {}  # since the last step

    def on_forward(self, module: Any, outermost: bool) -> None:
        if outermost and flambeau.is_grad_enabled() and id(module) not in self.called:
            self.called[id(module)] = weakref.ref(module), self.watch.place()

    def on_stepped(self, optimizer: Any) -> None:
        for key, (reference, place) in self.called.items():
            module = reference()
            if module is None:
                continue
            if module.training:
                self.trained.add(key)
            elif key in self.trained and sensitive(module):
                self.found(f"{type(module).__name__} took steps in training mode before, and now "
                           f"takes them in evaluation mode; it has "
                           f"{' and '.join(sensitive(module))}.", place)
        self.called = {}


class GraphForNothing(Mistake):
    title = "a graph that nobody needs"
    why = ("Outside of no_grad() every call records a graph and keeps what the way back would "
           "need: evaluation takes more time, and several times the memory.")
    wrong = """\
model.eval()
accuracy = (model(x).argmax(1) == labels).float().mean()
model(x)
"""
    right = """\
model.eval()
with torch.no_grad():
    accuracy = (model(x).argmax(1) == labels).float().mean()
    model(x)
"""

    def __init__(self, watch):
        super().__init__(watch)
        #: what modules in evaluation mode returned: a step of its graph, their name, where
        self.waiting: list[tuple[weakref.ref, str, Place]] = []

    def on_backward(self, losses: list) -> None:
        self._tell_of_dead()
        self.waiting = []   # what is still there may be behind a loss

    def on_forward(self, module: Any, outermost: bool) -> None:
        self._tell_of_dead()

    def on_forwarded(self, module: Any, output: Any, outermost: bool) -> None:
        step = _step_of(output) if outermost and not module.training else None
        if step is not None:
            self.waiting.append((weakref.ref(step), type(module).__name__, self.watch.place()))

    def on_end(self) -> None:
        self._tell_of_dead(all_of_them=True)

    def _tell_of_dead(self, all_of_them: bool = False) -> None:
        """Graphs that are gone, and nobody went back since they were recorded."""
        alive = []
        for row in self.waiting:
            step, name, place = row
            if step() is not None and not all_of_them:
                alive.append(row)
            else:
                self.found(f"{name} is in evaluation mode, its call was recorded, and nobody went "
                           "back through it.", place)
        self.waiting = alive
