"""What a mistake is: one class, which sees it, says why it matters, and what to write instead."""

from __future__ import annotations

import linecache
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A line of a program."""

    file: str
    line: int

    @property
    def code(self) -> str:
        return linecache.getline(self.file, self.line).strip()


class Finding:
    """A mistake at a place, and how often it was made there."""

    def __init__(self, mistake: type[Mistake], place: Place, what: str):
        self.mistake, self.place, self.what, self.times = mistake, place, what, 1

    def __repr__(self) -> str:
        return f"{self.place.file}:{self.place.line}: {self.mistake.title}"


class Mistake:
    """Something that raises no error and spoils training.

    A subclass says what it is called, why it matters, how it is written wrongly and rightly (both
    are run by the tests), and sees it by being told what happens. `wrong` and `right` are parts of
    a program that begins as `BEGINNING` does.
    """

    title: str
    why: str
    wrong: str
    right: str

    def __init__(self, watch: Any):
        self.watch = watch  # what tells it, see watch.py

    def found(self, what: str, place: Place | None = None) -> None:
        """Tell of it, here or at another place, once for each."""
        self.watch.tell(type(self), place or self.watch.place(), what)

    # -- what happens; a mistake listens to what it has to ---------------------------------------

    def on_call(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        """A public function has been called, by the program or by a module."""

    def on_forward(self, module: Any, outermost: bool) -> None:
        """A module is called."""

    def on_forwarded(self, module: Any, output: Any, outermost: bool) -> None:
        """A module has returned."""

    def on_backward(self, losses: list) -> None:
        """A program is about to go back from these."""

    def on_wentback(self) -> None:
        """It has."""

    def on_step(self, optimizer: Any) -> None:
        """An optimizer is about to change its parameters, by gradients that are there."""

    def on_stepped(self, optimizer: Any) -> None:
        """It has."""

    def on_end(self) -> None:
        """Nothing happens any more."""


#: what the parts of programs in declarations begin with
BEGINNING = """\
import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim

torch.manual_seed(0)
x = torch.randn(32, 4)
prices, labels = x @ torch.tensor([1.0, 2.0, -1.0, 0.5]) + 3, (x.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
optimizer = optim.SGD(model.parameters(), lr=0.1)

"""
