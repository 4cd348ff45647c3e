"""A whole step of an optimizer in one native call, where only its count differs from the last one.

Updates (see together.py) find out what a step depends on; native code compares all of that, with
the groups and their options, and runs them if nothing differs.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable

from ..devices.cpu.assembly.gather_words import GROUP, ROW, WHOLE
from ..devices.cpu.foundry import machine_code
from ..devices.cpu.many import LISTED
from ..devices.cpu.paced import paced
from .together import LONG, Update, offsets


@functools.cache
def _code():
    return machine_code("whole_step", ("take_step",), offsets())["take_step"]


class WholeStep:
    """All updates of an optimizer's groups, and where native code finds what it compares."""

    def __init__(self, groups: list, state: dict, updates: list[Update], codes: list):
        self.groups, self.state, self.updates = groups, state, updates
        self._rows, self._keep = array("q"), [*codes]
        for update, (numbers, constants) in zip(updates, codes, strict=True):
            given = array("d", bytes(8 * max(1, len(update.paced))))
            self._keep.append(given)
            said = {
                "plan": update.address, "numbers": numbers, "constants": _address(constants),
                "given": _address(given), "count": len(update.paced),
                "code": LISTED[update.run], "elements": update.elements,
            }
            self._rows.extend([said[name] for name in ROW])
        self._groups = array("q", bytes(8 * GROUP * len(groups)))
        said = {"list": id(groups), "groups": _address(self._groups), "group_count": len(groups),
                "updates": _address(self._rows), "update_count": len(updates)}
        self._plan = array("q", [said[name] for name in WHOLE])
        self.learn()

    def learn(self) -> None:
        """Options were set anew to what they were, or such that no update depends on."""
        self._known = [[(key, value) for key, value in group.items()] for group in self.groups]
        self._items = [array("q", [id(x) for pair in items for x in pair])
                       for items in self._known]
        self._groups[:] = array("q", [
            word for group, items in zip(self.groups, self._items, strict=True)
            for word in (id(group), _address(items), len(items) // 2)])

    def function(self) -> Callable[[list, dict], bool]:
        """What takes a step on groups and state; False, and nothing done, if something differs."""
        groups, state, native, address = self.groups, self.state, _code(), _address(self._plan)

        def take(its, remembered, _held=self) -> bool:
            return its is groups and remembered is state and native(address, 0) == 0

        return take


def whole_step(groups: list, state: dict, updates: list[Update]) -> WholeStep | None:
    """The step that these updates are, if native code can take it.

    Longer ones give up the GIL, and what they take is no matter of microseconds.
    """
    if type(groups) is not list or any(type(group) is not dict for group in groups) or any(
            update.elements > LONG for update in updates):
        return None
    codes = [paced(update.paced) for update in updates]
    return None if None in codes else WholeStep(groups, state, updates, codes)


def _address(words: array) -> int:
    return words.buffer_info()[0]
