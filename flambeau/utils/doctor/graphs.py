"""A mistake with graphs: losses that are kept, and all that they were computed from with them."""

from __future__ import annotations

import gc
import weakref

from flambeau import Tensor

from .gradients import listed
from .mistake import Mistake, Place

#: so many losses of one line that are still there are too many
MANY = 4


class HeldGraphs(Mistake):
    title = "losses that are kept with their graphs"
    why = ("A loss holds the graph it was computed by. In a list, or added up to a total, the "
           "graphs of all steps stay, and memory grows until there is none left. What is wanted "
           "is a number: loss.item(), or loss.detach().")
    wrong = """\
losses = []
for _ in range(6):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss)
"""
    right = """\
losses = []
for _ in range(6):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""

    def __init__(self, watch):
        super().__init__(watch)
        self.roots: dict[Place, list[tuple]] = {}   # where a way back began -> losses, their steps

    def on_backward(self, losses: list) -> None:
        place = self.watch.place()
        alive = [row for row in self.roots.get(place, ()) if row[1]() is not None]
        if len(alive) >= MANY:
            self.found(self._told(alive), place)
        self.roots[place] = alive + [(weakref.ref(loss), weakref.ref(loss.grad_fn))
                                     for loss in losses if loss.grad_fn is not None]

    def _told(self, alive: list[tuple]) -> str:
        kept = [loss for loss, _ in alive if loss() is not None]
        if not kept:
            return (f"The graphs of {len(alive)} earlier losses are part of something that is "
                    "kept, as a total that each is added to.")
        names = _holders(kept[0]())
        where = f" in {listed(names)}" if names else ""
        return f"{len(kept)} losses of earlier steps are kept{where}."


def _holders(loss: Tensor | None) -> list[str]:
    """What the lists and dicts that a tensor is in are called, where that can be seen."""
    holders = [h for h in gc.get_referrers(loss) if type(h) in (list, dict)]
    names = []
    for space in gc.get_referrers(*holders) if holders else ():
        if type(space) is dict:
            names += [repr(name) for name, value in space.items() if isinstance(name, str)
                      and any(value is h for h in holders)]
    return list(dict.fromkeys(names))
