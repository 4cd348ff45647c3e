"""Folds in blocks, for threads: one function folds some of them, one joins all, one finishes.

States of blocks lie in scratch memory, fold by fold and block by block, a word for each part of a
state at each place; what follows the last block is the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...core.kernel import Fold
from .stages import Stages
from .types import flatten, regroup
from .vectors import gathered, part
from .writer import Place

#: what writes a function, given pointers to the operands
Body = Callable[[list[str]], None]


class Blocks(Stages):
    """The functions of a kernel that is folds and rows."""

    def block_functions(self) -> dict[str, Body]:
        """role -> what writes the function; none of a kernel that cannot be cut into blocks."""
        kinds = [kind for kind, _ in self.stages]
        folds = [p for kind, p in self.stages if kind == "fold"]
        indirect = any(s.coordinates for kind, p in self.stages if kind == "row" for s in p)
        self.slots: list[int] = []  # words of state per place, of each fold
        whole = not self.kernel.blocks or "map" in kinds or any(f.running for f in folds)
        if not folds or whole or indirect:
            return {}
        self.slots = [sum(2 if e.dtype.kind == "c" else 1 for e in f.start) for f in folds]
        made: dict[str, Body] = {}
        for number, fold in enumerate(folds):
            made[f"part{number}"] = partial(self._part_of_fold, folds, number)
            made[f"join{number}"] = partial(self._join, fold, number)
        made["finish"] = partial(self._finish, folds)
        return made

    # -- what functions do -------------------------------------------------------------------------

    def _part_of_fold(self, folds: list[Fold], number: int, pointers: list[str]) -> None:
        """The blocks from %begin to %end of a fold, after those before it are whole."""
        w, axis = self.w, self.kernel.kept

        def block(b, _):
            first = w.emit(f"mul i64 {b}, %rows")
            stop = w.emit(f"add i64 {first}, %rows")
            inside = w.emit(f"icmp slt i64 {stop}, {self.sizes[axis]}")
            end = w.emit(f"select i1 {inside}, i64 {stop}, i64 {self.sizes[axis]}")
            self.spans = {axis: (first, end)}
            self.at_place = partial(self._fold_block, folds, number, b)
            self.nest_kept(0, pointers, {})

        w.loop("%begin", "%end", "1", (), block)
        self.at_place = None

    def _fold_block(self, folds: list[Fold], number: int, block: str, place: Place) -> None:
        fold = folds[number]
        self._recall(folds[:number], place)
        results = self.fold(fold, place)
        for lane in range(place.width):
            states = results if place.width == 1 else [
                part(self.w, v, e.dtype, place.width, lane, 1)
                for v, e in zip(results, fold.start, strict=True)]
            self._remember(fold, number, block, self._linear(place, lane), states)

    def _join(self, fold: Fold, number: int, pointers: list[str]) -> None:
        """Blocks merged in their order, at each place from %begin to %end."""
        shapes = [(e.dtype, 1) for e in fold.start]

        def place(at, _):
            first = flatten(shapes, self._stored(fold, number, "0", at))
            merged = self.w.loop("1", "%blocks", "1", first, lambda b, values: [
                v for _, v in flatten(shapes, self.merge(
                    fold, regroup(shapes, values), self._stored(fold, number, b, at), 1))])
            self._remember(fold, number, "%blocks", at, regroup(shapes, merged))

        self.w.loop("%begin", "%end", "1", (), place)

    def _finish(self, folds: list[Fold], pointers: list[str]) -> None:
        """The rows, when all folds are whole."""
        def rows(place: Place) -> None:
            self._recall(folds, place)
            for kind, payload in self.stages:
                if kind == "row":
                    self.stores(payload, place)

        self.at_place = rows
        self.nest_kept(0, pointers, {})
        self.at_place = None

    def _recall(self, folds: list[Fold], place: Place) -> None:
        """Results of folds that are done, at a place."""
        count = 0
        for number, fold in enumerate(folds):
            lanes = [self._stored(fold, number, "%blocks", self._linear(place, lane))
                     for lane in range(place.width)]
            for k, e in enumerate(fold.start):
                one = [states[k] for states in lanes]
                value = one[0] if place.width == 1 else gathered(self.w, one, e.dtype, place.width)
                self.folds[count] = (value, place.width)
                count += 1

    # -- states in scratch memory ------------------------------------------------------------------

    def _linear(self, place: Place, lane: int = 0) -> str:
        """The number of a kept place."""
        w, at = self.w, place.index.get(0, "0")
        for axis in range(1, self.kernel.kept):
            down = w.emit(f"mul i64 {at}, {self.sizes[axis]}")
            at = w.emit(f"add i64 {down}, {place.index[axis]}")
        return w.emit(f"add i64 {at}, {lane}") if lane else at

    def _slot(self, number: int, block: str, place: str) -> str:
        """Where the states of a fold's block at a place start; block %blocks is the whole."""
        w = self.w
        places = "1"
        for axis in range(self.kernel.kept):
            places = w.emit(f"mul i64 {places}, {self.sizes[axis]}")
        blocks = w.emit("add i64 %blocks, 1")
        before = w.emit(f"mul i64 {w.emit(f'mul i64 {blocks}, {places}')}, "
                        f"{sum(self.slots[:number])}")
        row = w.emit(f"add i64 {w.emit(f'mul i64 {block}, {places}')}, {place}")
        at = w.emit(f"add i64 {before}, {w.emit(f'mul i64 {row}, {self.slots[number]}')}")
        return w.emit(f"getelementptr i64, ptr %scratch, i64 {at}")

    def _remember(self, fold: Fold, number: int, block: str, place: str, states) -> None:
        slot = self._slot(number, block, place)
        for k, (type_, value) in enumerate(flatten([(e.dtype, 1) for e in fold.start], states)):
            at = self.w.emit(f"getelementptr i64, ptr {slot}, i64 {k}")
            self.w.do(f"store {type_} {value}, ptr {at}")

    def _stored(self, fold: Fold, number: int, block: str, place: str) -> list:
        slot, shapes = self._slot(number, block, place), [(e.dtype, 1) for e in fold.start]
        unknown = [("", "") if e.dtype.kind == "c" else "" for e in fold.start]
        values = []
        for k, (type_, _) in enumerate(flatten(shapes, unknown)):
            at = self.w.emit(f"getelementptr i64, ptr {slot}, i64 {k}")
            values.append(self.w.emit(f"load {type_}, ptr {at}"))
        return regroup(shapes, values)
