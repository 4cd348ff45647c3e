"""The kept loops of a kernel, and its stages at each of their places."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...core.kernel import stage_exprs
from .folds import MANY_FOLDS, Folds
from .weights import has_many_functions, is_light, is_light_fold, is_light_pair, is_repeatable
from .writer import Place

#: rows that a fold into few places takes at a time
_ROWS = 4


class Stages(Folds):
    """All stages, or `at_place` instead of them, wherever the kept loops lead."""

    at_place: Callable[[Place], None] | None = None

    def lane_axis(self) -> int | None:
        """The kept axis that lanes lie across."""
        return self.kernel.kept - 1 if self.kernel.lanes == "kept" else None

    def nest_kept(self, axis: int, pointers: list[str], index: dict[int, str]) -> None:
        """The kept loops from an axis on."""
        if axis == self.kernel.kept:
            self._row(Place(1, pointers, index))
        elif axis == self.lane_axis():
            self._kept_lanes(axis, pointers, index)
        else:
            self.w.loop(*self.ends(axis), "1", (), lambda i, _: self.nest_kept(
                axis + 1, self.advance(pointers, axis, i), {**index, axis: i}))

    def _kept_lanes(self, axis: int, pointers: list[str], index: dict[int, str]) -> None:
        """Lanes across the innermost kept loop.

        A body of many functions has more vectors in flight, as has a light one. A light fold has
        many vectors of states in flight: of many places, or where there are few of them, of several
        rows. Which it is depends on the problem, never on a thread's range.
        """
        w, kernel, stages = self.w, self.kernel, self.stages
        again, light_fold = is_repeatable(kernel, stages), is_light_fold(kernel, stages)
        if not (again and light_fold and kernel.reduced == 1 and self.native > 1):
            more = is_light(kernel, stages) or is_light_pair(stages) or (
                self.many_registers and has_many_functions(kernel, stages))
            wide = MANY_FOLDS if light_fold else 4 if more else 2
            self.lanes(axis, pointers, index, self._row, (wide, 1), again)
            return
        if self.at_place is not None:  # a block of a fold into few places
            self.together = _ROWS
            self.lanes(axis, pointers, index, self._row, (1,), again)
            self.together = 1
            return
        few, many, done = (w.fresh(s)[1:] for s in ("few", "many", "done"))
        narrow = w.emit(f"icmp slt i64 {self.sizes[axis]}, {self.native * MANY_FOLDS}")
        w.do(f"br i1 {narrow}, label %{few}, label %{many}")
        for label, unrolls, self.together in ((few, (1,), _ROWS), (many, (MANY_FOLDS, 1), 1)):
            w.start(label)
            self.lanes(axis, pointers, index, self._row, unrolls, again)
            w.do(f"br label %{done}")
        w.start(done)

    def _row(self, place: Place) -> None:
        """All stages at one kept place (or at `width` neighbouring ones)."""
        if self.at_place is not None:
            self.at_place(place)
            return
        self.folds = dict(self.folds)
        count = 0
        for kind, payload in self.stages:
            if kind == "row":
                self.stores(payload, place)
            elif kind == "map":
                self.hoist(stage_exprs(kind, payload), place)
                self.walk_reduced(self.kernel.kept, place, partial(self.stores, payload))
            else:
                for value in self.fold(payload, place):
                    self.folds[count] = (value, place.width)
                    count += 1
