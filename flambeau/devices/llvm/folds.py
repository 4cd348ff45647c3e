"""Folds: states that are carried along the reduced loops.

States are as wide as the place they belong to; where the lanes themselves are reduced, each lane
has its own, and they are merged at the end, pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core import expr as ex
from ...core.expr import Expr
from ...core.kernel import Fold
from .loops import Loops
from .types import flatten, registers, regroup
from .vectors import part
from .weights import is_light_fold
from .writer import Place

#: vectors of states of a fold with one state and few steps, kept in flight
MANY_FOLDS = 8
#: elements that are added as they are, before they join a sum of a wider dtype; a power of two
_FEW = 16


class Folds(Loops):
    """Folds at a place."""

    together = 1  # rows that a fold across lanes takes at a time

    def fold(self, fold: Fold, place: Place) -> list:
        """The states of a fold, as wide as the place, when all its elements are in."""
        self.hoist([*fold.start, *fold.step], place)
        if self.kernel.lanes == "reduced":
            return self._along_lanes(fold, place)
        if self.together > 1:
            return self._in_rows(fold, place, self.together)
        return self._plain(fold, place)

    def merge(self, fold: Fold, one: Iterable, other: Iterable, width: int) -> list:
        """The states of two parts of a fold, as those of the whole."""
        place = Place(width, [])
        n = len(fold.start)
        for k, value in enumerate([*one, *other]):
            place.memo[ex.make("state", (), k, fold.start[k % n].dtype)] = value
        return [self.lower(e, place) for e in fold.merge]

    def _start(self, fold: Fold, place: Place, width: int) -> list:
        spread = Place(width, [], outer=place) if width != place.width else place
        return [self.lower(e, spread) for e in fold.start]

    def _step(self, fold: Fold, place: Place, states) -> list:
        for k, value in enumerate(states):
            place.memo[ex.make("state", (), k, fold.start[k].dtype)] = value
        return [self.lower(e, place) for e in fold.step]

    def _carried(self, axis: int, shapes, states, body) -> list:
        """states = body(i, states) along a loop."""
        out = self.w.loop(*self.ends(axis), "1", flatten(shapes, states), lambda i, values: [
            v for _, v in flatten(shapes, body(i, regroup(shapes, values)))])
        return regroup(shapes, out)

    # -- nothing crosses lanes ---------------------------------------------------------------------

    def _plain(self, fold: Fold, place: Place) -> list:
        """One element after another."""
        shapes = [(e.dtype, place.width) for e in fold.start]

        def nest(axis, at, states):
            if axis == self.loops:
                stepped = self._step(fold, at, states)
                self._store_running(fold, at, stepped)
                return stepped
            return self._carried(axis, shapes, states, lambda i, values: nest(
                axis + 1, self.below(at, axis, i), values))

        return nest(self.kernel.kept, place, self._start(fold, place, place.width))

    def _store_running(self, fold: Fold, at: Place, states) -> None:
        """Store the states of a scan at this place."""
        if fold.running:
            here = Place(at.width, at.pointers, at.index, at.lane_axis, at.steps, at.strides)
            for k, value in enumerate(states):
                here.memo[ex.make("state", (), k, fold.start[k].dtype)] = value
            self.stores(fold.running, here)

    def _in_rows(self, fold: Fold, place: Place, rows: int) -> list:
        """Some rows at a time, each with states of its own, merged pairwise at the end."""
        w, axis, n = self.w, self.kernel.kept, len(fold.start)
        shapes = [(e.dtype, place.width) for e in fold.start]

        def stepped(i, values, count: int):
            found = []
            for k in range(count):
                at = self.below(place, axis, w.emit(f"add i64 {i}, {k}") if k else i)
                own = regroup(shapes, values[k * n:k * n + n])
                found += [v for _, v in flatten(shapes, self._step(fold, at, own))]
            return found

        start, end = self.ends(axis)
        left = w.emit(f"sub i64 {end}, {start}")
        whole = w.emit(f"add i64 {start}, {w.emit(f'and i64 {left}, {-rows}')}")
        first = flatten(shapes, self._start(fold, place, place.width))
        values = w.loop(start, whole, str(rows), first * rows,
                        lambda i, given: stepped(i, given, rows))
        rest = w.loop(whole, end, "1", [(t, v) for (t, _), v in zip(first, values, strict=False)],
                      lambda i, given: stepped(i, given, 1))
        values = [*rest, *values[n:]]
        states = [regroup(shapes, values[k * n:k * n + n]) for k in range(rows)]
        while len(states) > 1:
            states = [self.merge(fold, a, b, place.width)
                      for a, b in zip(states[::2], states[1::2], strict=True)]
        return states[0]

    # -- lanes are folded --------------------------------------------------------------------------

    def _along_lanes(self, fold: Fold, place: Place) -> list:
        """Wide states along the innermost reduced loop, then lanes merged pairwise."""
        many = is_light_fold(self.kernel, self.stages) and fold.element is None
        wide = self.native * (MANY_FOLDS if many else 4)
        widths = sorted({wide, self.native, 1}, reverse=True)
        shapes = [(e.dtype, width) for width in widths for e in fold.start]

        def nest(axis, at, states):
            if axis == self.loops - 1:
                return self._innermost(fold, at, widths, states)
            return self._carried(axis, shapes, states, lambda i, values: nest(
                axis + 1, self.below(at, axis, i), values))

        start = [state for width in widths for state in self._start(fold, place, width)]
        return self._merge_lanes(fold, widths, nest(self.kernel.kept, place, start))

    def _innermost(self, fold: Fold, at: Place, widths: list[int], states) -> list:
        """The loop along the lanes, once for each width; every width has states of its own."""
        w, n, axis = self.w, len(fold.start), self.loops - 1
        start, end = self.ends(axis)
        states = list(states)
        few = [(0, _FEW)] if fold.element is not None and widths[0] > 1 else []
        for k, times in [*few, *((k, 1) for k in range(len(widths)))]:
            own, width = slice(k * n, k * n + n), widths[k]
            shapes = [(e.dtype, width) for e in fold.start]
            left = w.emit(f"sub i64 {end}, {start}")
            stop = end if width == 1 else w.emit(
                f"add i64 {start}, {w.emit(f'and i64 {left}, {-width * times}')}")

            def inside(i, values, width=width, shapes=shapes, times=times):
                here = self.abreast(width, at.pointers, at.index, axis, i, at)
                if times > 1:
                    others = [self.abreast(width, at.pointers, at.index, axis,
                                           w.emit(f"add i64 {i}, {width * m}"), at)
                              for m in range(1, times)]
                    here.memo[fold.element] = self._added(fold.element, [here, *others])
                return [v for _, v in flatten(
                    shapes, self._step(fold, here, regroup(shapes, values)))]

            out = w.loop(start, stop, str(width * times), flatten(shapes, states[own]), inside)
            states[own] = regroup(shapes, out)
            start = stop
        return states

    def _added(self, element: Expr, places: list[Place]) -> str:
        """The sum of an expr at some places, pair by pair."""
        type_ = registers(element.dtype, places[0].width)
        values = [self.lower(element, place) for place in places]
        while len(values) > 1:
            values = [self.w.emit(f"fadd {type_} {a}, {b}")
                      for a, b in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def _merge_lanes(self, fold: Fold, widths: list[int], states) -> list:
        """One lane out of the widest, halved again and again; narrower ones join on the way."""
        n, wide = len(fold.start), widths[0]
        merged, width = states[:n], wide
        while width > 1:
            if width == self.native < wide:
                merged = self.merge(fold, merged, states[n:2 * n], width)
            width //= 2
            low, high = ([part(self.w, v, e.dtype, width * 2, start, width)
                          for v, e in zip(merged, fold.start, strict=True)]
                         for start in (0, width))
            merged = self.merge(fold, low, high, width)
        return merged if widths == [1] else self.merge(fold, merged, states[-n:], 1)
