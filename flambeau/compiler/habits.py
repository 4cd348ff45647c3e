"""Which kinds of arguments a compiled function meets, and how often: what is rare runs eagerly.

To learn a path costs as much as some ten eager calls. The first is learnt at once; from then on a
kind of arguments has to be met again before its path is learnt, the more often the more paths there
are. So sequences that are never as long as another cost next to nothing. What tells paths
apart may also be inside the function: then its calls are traced the more rarely the more often that
was in vain. Nothing here depends on time, so that a program does the same whenever it runs.
"""

from __future__ import annotations

from ..engine.modes import modes
from ..engine.tensor import Size, Tensor
from .casting import casting

#: so many paths are learnt when met again; with fullgraph=True each is learnt several times
FREELY, FREELY_WHOLE = 4, 12
_BY_VALUE = (int, str, bool, type(None), Size)
#: and none is looked for again after so many calls on known ones, or on ones that are put off
CALMLY = 64
#: how arguments are looked at: by values too, not by values, not at all
CLOSELY = 2
_LONG = 64      # elements of a list that are looked at
_OFTEN = 64     # times that a new kind is put off at least: what it costs, in eager calls
_RARE = 64      # calls of which one at least is of a kind that is learnt
_MOST = 1024    # kinds that are remembered
_REST = 512     # calls that are not looked at, at most
_KNOWN = -1


def kind_of(args: tuple, kwargs: dict, closely: int = CLOSELY) -> int:
    """What arguments are known by: layouts of tensors, whole numbers, names; else their types.

    In one number, for there may be many: should two be the same, nothing but time is lost.
    """
    found: list = [modes.grad, casting()]
    if closely:
        values = _BY_VALUE if closely == CLOSELY else ()
        _add(found, args, values)
        _add(found, kwargs, values)
    return hash(tuple(found))


def _add(found: list, value, values: tuple) -> None:
    kind = value.__class__
    if kind is tuple or kind is list:
        found.append(len(value))
        for v in value[:_LONG]:
            if v.__class__ is Tensor:
                found.append(v.sig)
            else:
                _add(found, v, values)
    elif kind is dict:
        found.append(tuple(value))
        for v in value.values():
            _add(found, v, values)
    elif isinstance(value, Tensor):
        found.append(value.sig)
    else:
        found.append(value if kind in values else kind)


class Habits:
    """How often calls of each kind of arguments were put off, or that their path is known."""

    def __init__(self) -> None:
        self.met: dict[int, int] = {}
        self.learnt: set[int] = set()
        self.vain = 0       # paths that were new to kinds learnt before, less those that were known
        self.calm = 0       # calls since a path was new
        self.row = 0        # calls that were put off since one was traced
        self.closely = CLOSELY
        self.probe = self.probes = 8    # calls put off before one is traced all the same

    def puts_off(self, kind: int, captured: int, calls: int, freely: bool) -> bool:
        """Whether a call of this kind should run eagerly, for it is too rare so far."""
        seen, known = self.met.get(kind, 0), kind in self.learnt
        often = 1 << (captured // 8 + self.vain // 4)
        if seen == _KNOWN or seen >= (not known if freely else often if known else max(
                _OFTEN * often, calls // _RARE)):
            return False
        self.probe -= 1
        if self.probe == 0:
            return False
        if len(self.met) >= _MOST:
            self.met.clear()
        self.met[kind] = seen + 1
        return True

    def rests(self) -> int:
        """How many calls need not be looked at after one that was put off, as others before it."""
        self.row += 1
        return 0 if self.row % CALMLY else min(self.row, _REST)

    def took(self, kind: int, new: bool) -> None:
        """A call of this kind was traced, on a new path or on one that is known."""
        self.calm, self.row = 0 if new else self.calm + 1, 0
        if self.probe <= 0:
            self.probe = self.probes = 4 * self.probes
            if not new and kind not in self.met:
                # Calls are alike though arguments are not: a counter is among them, or a name.
                self.closely -= self.closely > 0
                return
        again = new and kind in self.learnt
        if new and not again and len(self.learnt) < _MOST:
            self.learnt.add(kind)
        self.vain = self.vain + again if new else max(0, self.vain - 1)
        self.met[kind] = 0 if again else _KNOWN
