"""Mistakes with losses: what they are given, and how they go."""

from __future__ import annotations

import math
import statistics
from typing import Any

import flambeau
import flambeau.nn.functional as F
from flambeau import Tensor

from .mistake import Mistake, Place

#: losses that compare element by element
_PAIRED = frozenset((F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss))
#: steps from which on something can be said of how a loss goes, and how much it may grow
STEPS, GROWS, FLAT = 10, 10.0, 1e-3


def _step_of(x: Any) -> str:
    """The name of the step that made a tensor."""
    return "" if not isinstance(x, Tensor) or x.grad_fn is None else type(x.grad_fn).__name__


def _given(args: tuple, kwargs: dict, name: str, at: int) -> Any:
    return args[at] if len(args) > at else kwargs.get(name)


class Probabilities(Mistake):
    title = "probabilities where the loss wants scores"
    why = ("cross_entropy applies log_softmax itself, and binary_cross_entropy_with_logits "
           "sigmoid. Given probabilities they apply it twice: gradients are small, and the loss "
           "never comes near zero. Leave the last activation out of the model.")
    wrong = """\
loss = F.cross_entropy(model(x).softmax(1), labels)
"""
    right = """\
loss = F.cross_entropy(model(x), labels)
"""

    #: the loss -> what must not have been applied before it
    APPLIED = {F.cross_entropy: ("softmax", "Softmax"),
               F.binary_cross_entropy_with_logits: ("sigmoid", "Sigmoid")}

    def on_call(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        applied = self.APPLIED.get(function)
        if applied and _step_of(_given(args, kwargs, "input", 0)).startswith(applied[1]):
            self.found(f"{function.__name__} is given what {applied[0]} has made.")


class NotLogarithms(Mistake):
    title = "nll_loss of what are no logarithms"
    why = ("nll_loss takes logarithms of probabilities, as log_softmax gives them: they are never "
           "above zero. Of scores it gives a loss that falls without end.")
    wrong = """\
loss = F.nll_loss(model(x), labels)
"""
    right = """\
loss = F.nll_loss(model(x).log_softmax(1), labels)
"""

    def on_call(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        x = _given(args, kwargs, "input", 0) if function is F.nll_loss else None
        if isinstance(x, Tensor) and x.numel() and bool((x.detach() > 1e-6).any()):
            self.found(f"Its input has values up to {x.detach().max().item():.3g}.")


class OuterProduct(Mistake):
    title = "a column and a row, stretched to a square"
    why = ("Shapes are aligned from the right, so (n, 1) and (n,) make (n, n): each prediction is "
           "compared with every target. Nothing fails, and the model learns the mean.")
    wrong = """\
predictions = model(x)[:, :1]
loss = ((predictions - prices) ** 2).mean()
"""
    right = """\
predictions = model(x)[:, :1]
loss = ((predictions.squeeze(1) - prices) ** 2).mean()
"""

    def on_call(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        if len(args) < 2 or not isinstance(args[0], Tensor) or not isinstance(args[1], Tensor):
            return
        one, other = args[0], args[1]
        if one.dim() == other.dim() or one.requires_grad == other.requires_grad or (
                not _are_crossed(one.shape, other.shape)):
            return
        square = flambeau.broadcast_shapes(one.shape, other.shape)
        if function in _PAIRED or (isinstance(result, Tensor) and result.shape == square):
            self.found(f"{getattr(function, '__name__', 'a call')} of {tuple(one.shape)} and "
                       f"{tuple(other.shape)} works on {tuple(square)}: {math.prod(square):,} "
                       "elements.")


def _are_crossed(one: Any, other: Any) -> bool:
    """Whether two shapes have the same sizes, but for ones, and both are stretched."""
    if [n for n in one if n != 1] != [n for n in other if n != 1]:
        return False
    try:
        count = math.prod(flambeau.broadcast_shapes(one, other))
    except RuntimeError:
        return False
    return count > max(math.prod(one), math.prod(other))


class _Course(Mistake):
    """A mistake that shows in how a loss goes from step to step."""

    def __init__(self, watch):
        super().__init__(watch)
        self.values: dict[Place, list[float]] = {}

    def on_backward(self, losses: list) -> None:
        if len(losses) == 1 and losses[0].numel() == 1 and not losses[0].is_complex():
            self.values.setdefault(self.watch.place(), []).append(losses[0].detach().item())
            self.went(self.watch.place())

    def went(self, place: Place) -> None:
        """There is one more."""

    def ends(self) -> tuple[Place, float, float, int] | None:
        """Where the only way back begins, about what the loss was at first and in the end, and
        after how many steps; None if there are several, or few steps."""
        if len(self.values) != 1:
            return None
        ((place, values),) = self.values.items()
        if len(values) < STEPS or not all(map(math.isfinite, values)):
            return None
        part = max(1, len(values) // 5)
        return (place, statistics.median(values[:part]), statistics.median(values[-part:]),
                len(values))


class NotFinite(_Course):
    title = "a loss that is no number"
    why = ("From here on every parameter becomes nan. The usual reasons: a learning rate that is "
           "too high, log() or division of zero, exp() of large numbers, or nan in the data. "
           "torch.autograd.set_detect_anomaly(True) names the call that first made one.")
    wrong = """\
for _ in range(3):
    loss = (model(x) * 0).log().sum()
    loss.backward()
"""
    right = """\
for _ in range(3):
    loss = (model(x) ** 2 + 1e-6).log().sum()
    loss.backward()
"""

    def went(self, place: Place) -> None:
        values = self.values[place]
        if not math.isfinite(values[-1]) and all(map(math.isfinite, values[:-1])):
            before = f", after {values[-2]:.4g}" if len(values) > 1 else ""
            self.found(f"It is {values[-1]} at step {len(values)}{before}.", place)


class Growing(_Course):
    title = "a loss that grows"
    why = ("Steps are too long: each jumps over the valley and lands higher on the other side. Try "
           "a tenth of the learning rate, and scale inputs to about one.")
    wrong = """\
line = nn.Linear(4, 1)
optimizer = optim.SGD(line.parameters(), lr=1.5)
for _ in range(12):
    optimizer.zero_grad()
    loss = F.mse_loss(line(x)[:, 0], prices)
    loss.backward()
    optimizer.step()
"""
    right = """\
line = nn.Linear(4, 1)
optimizer = optim.SGD(line.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    loss = F.mse_loss(line(x)[:, 0], prices)
    loss.backward()
    optimizer.step()
"""

    def on_end(self) -> None:
        ends = self.ends()
        if ends is not None and ends[2] > GROWS * max(ends[1], 1e-3) > 0:
            place, first, last, steps = ends
            self.found(f"From about {first:.4g} to {last:.4g} in {steps} steps.", place)


class Flat(_Course):
    title = "a loss that does not move"
    why = ("If the learning rate is too low, targets do not belong to inputs, or gradients do not "
           "arrive, nothing is learned. Learn four examples by heart first: that must work.")
    wrong = """\
optimizer = optim.SGD(model.eval().parameters(), lr=1e-9)
for _ in range(12):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
"""
    right = """\
optimizer = optim.SGD(model.eval().parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
"""

    def __init__(self, watch):
        super().__init__(watch)
        self.rate: float | None = None

    def on_step(self, optimizer: Any) -> None:
        self.rate = float(optimizer.param_groups[0]["lr"])

    def on_end(self) -> None:
        ends = self.ends()
        if ends is None or self.rate is None:
            return
        place, first, last, steps = ends
        if first > 0 and max(self.values[place]) - min(self.values[place]) < FLAT * first:
            self.found(f"It is {first:.6g} at first and {last:.6g} after {steps} steps, with a "
                       f"learning rate of {self.rate:g}.", place)
