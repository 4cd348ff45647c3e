"""What the training loop is shown with: a line through points, and a small net on two moons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau import nn
from flambeau.cli.explore.numbers import plain

SEED, GRID = 2, 24
FIELD = (-1.6, 2.6, -1.2, 1.7)  # left, right, low, high of the plane that the net is drawn on


@dataclass(frozen=True)
class Recipe:
    """A model, its data (in the order of a sorted file) and what usually suits them."""

    about: str
    lr: float
    steps: int
    model: Callable[[], nn.Module]
    loss: Callable[[], nn.Module]
    data: Callable[[], tuple[Any, Any]]
    batch: int
    held_out: int
    field: bool


def line_data() -> tuple[Any, Any]:
    """64 points of y = 2x + 1 with a little noise, sorted by x."""
    x = (flambeau.rand(64, 1) * 4 - 2).sort(0).values
    return x, 2 * x + 1 + 0.1 * flambeau.randn(64, 1)


def moons_data() -> tuple[Any, Any]:
    """128 points of two moons with a little noise, one class after the other."""
    angle = flambeau.rand(128) * math.pi
    second = (flambeau.arange(128) >= 64).float()
    x = flambeau.where(second > 0, 1 - angle.cos(), angle.cos())
    y = flambeau.where(second > 0, 0.5 - angle.sin(), angle.sin())
    return flambeau.stack([x, y], 1) + 0.12 * flambeau.randn(128, 2), second[:, None]


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))


LESSONS = {
    "line": Recipe(
        "a line through 48 points of y = 2x + 1: nn.Linear(1, 1), mean squared error", lr=0.1,
        steps=60, model=lambda: nn.Linear(1, 1), loss=nn.MSELoss, data=line_data, batch=16,
        held_out=16, field=False),
    "net": Recipe(
        "two layers on 96 points of two moons: Linear(2, 16), Tanh, Dropout(0.1), Linear(16, 1)",
        lr=1.0, steps=300, model=two_layers, loss=nn.BCEWithLogitsLoss, data=moons_data, batch=32,
        held_out=32, field=True),
}


class Lesson:
    """A model at its beginning, and the batches it is given."""

    def __init__(self, recipe: Recipe, shuffle: bool) -> None:
        flambeau.manual_seed(SEED)
        self.about, self.lr, self.field = recipe.about, recipe.lr, recipe.field
        self.size = recipe.batch
        x, y = recipe.data()
        held = flambeau.zeros(len(x), dtype=flambeau.bool)
        held[flambeau.randperm(len(x))[:recipe.held_out]] = True
        self.x, self.y = x[~held], y[~held]
        self.held_x, self.held_y = x[held], y[held]
        self.model, self.loss = recipe.model(), recipe.loss()
        self.has_dropout = any(isinstance(m, nn.Dropout) for m in self.model.modules())
        self.shuffle = shuffle
        self.own = flambeau.Generator().manual_seed(SEED)
        self.per_epoch = math.ceil(len(self.x) / self.size)

    def batch(self, number: int) -> tuple[Any, Any]:
        """The batch of a step; the order is drawn anew at the beginning of each pass."""
        place = number % self.per_epoch
        if place == 0:
            count = len(self.x)
            self.order = (flambeau.randperm(count, generator=self.own) if self.shuffle
                          else flambeau.arange(count))
        chosen = self.order[place * self.size:(place + 1) * self.size]
        return self.x[chosen], self.y[chosen]

    def fit(self) -> dict:
        """What the model says now: of the line its ends, of the net the plane in letters."""
        training = self.model.training
        self.model.eval()
        with flambeau.no_grad():
            seen = self._plane() if self.field else {
                "line": plain(self.model(flambeau.tensor([[-2.0], [2.0]])).reshape(-1))}
        self.model.train(training)
        return {**seen, "params": [plain(p) for p in self.model.parameters()]}

    def _plane(self) -> dict:
        left, right, low, high = FIELD
        across = flambeau.linspace(left, right, GRID)
        up = flambeau.linspace(high, low, GRID)
        points = flambeau.stack([across.repeat(GRID), up.repeat_interleave(GRID)], 1)
        sure = self.model(points).sigmoid().nan_to_num(0.5).reshape(-1)
        return {"plane": bytes((sure * 255).round().to(flambeau.uint8).tolist()).hex()}

    def shown(self) -> dict:
        return {"x": plain(self.x), "y": plain(self.y), "held_x": plain(self.held_x),
                "held_y": plain(self.held_y), "field": list(FIELD), "grid": GRID}
