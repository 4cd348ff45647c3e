"""Loops over a kernel's operands: place by place, or as many at once as there are lanes."""

from __future__ import annotations

from collections.abc import Callable

from ...core.kernel import Kernel
from .memory import Operands
from .weights import expanded, lanes_of
from .writer import Place


class Loops(Operands):
    """Walks axes of a kernel. `bits` is the width of the host's vector registers."""

    def __init__(self, kernel: Kernel, bits: int) -> None:
        super().__init__(kernel)
        self.stages = expanded(kernel)
        self.native = lanes_of(kernel, self.stages, bits)
        self.many_registers = bits == 512

    def begin(self) -> None:
        super().begin()
        self.spans: dict[int, tuple[str, str]] = {}  # axes of which only a part is walked

    @property
    def loops(self) -> int:
        return self.kernel.kept + self.kernel.reduced

    def ends(self, axis: int) -> tuple[str, str]:
        """Where a loop starts and stops."""
        return self.spans.get(axis, ("0", self.sizes[axis]))

    def advance(self, pointers: list[str], axis: int, i: str) -> list[str]:
        """Pointers moved to a coordinate of an axis."""
        w, moved = self.w, []
        for k, p in enumerate(pointers):
            stride = self.strides[k][axis]
            if stride == "0":
                moved.append(p)
                continue
            offset = w.emit(f"mul i64 {i}, {stride}")
            moved.append(w.emit(f"getelementptr i8, ptr {p}, i64 {offset}"))
        return moved

    def below(self, place: Place, axis: int, i: str) -> Place:
        """The place at a coordinate of one more axis."""
        return Place(place.width, self.advance(place.pointers, axis, i),
                     {**place.index, axis: i}, place.lane_axis, place.steps, place.strides,
                     outer=place)

    def abreast(self, width: int, pointers: list[str], index: dict[int, str], axis: int, i: str,
                outer: Place | None = None) -> Place:
        """`width` neighbouring places of an axis, the first of them at a coordinate."""
        moved = self.advance(pointers, axis, i)
        steps = [o.step for o in self.kernel.operands]
        return Place(width, moved, {**index, axis: i}, axis, steps, [s[axis] for s in self.strides],
                     outer=outer)

    def lanes(self, axis: int, pointers: list[str], index: dict[int, str],
              body: Callable[[Place], None], unrolls: tuple[int, ...], again: bool = False) -> None:
        """Cut a loop into wide vectors, then native ones, then single elements.

        With `again` the last native vector may overlap the one before, and takes the place of
        single elements, each of which would walk all the memory of a fold once more.
        """
        w, (start, end) = self.w, self.ends(axis)
        widths = [self.native * u for u in unrolls if self.native > 1] + [1]
        again = again and self.native > 1
        total = w.emit(f"sub i64 {end}, {start}")
        enough = w.emit(f"icmp sge i64 {total}, {self.native}") if again else ""
        final = w.emit(f"sub i64 {end}, {self.native}") if again else ""
        for width in widths:
            if width == 1:
                stop = end
            elif again and width == self.native:
                stop = w.emit(f"select i1 {enough}, i64 {end}, i64 {start}")
            else:
                left = w.emit(f"sub i64 {end}, {start}")
                whole = w.emit(f"and i64 {left}, {-width}")
                stop = w.emit(f"add i64 {start}, {whole}")

            def inside(i, _, width=width):
                if again and width == self.native:
                    early = w.emit(f"icmp slt i64 {i}, {final}")
                    i = w.emit(f"select i1 {early}, i64 {i}, i64 {final}")
                body(self.abreast(width, pointers, index, axis, i))

            w.loop(start, stop, str(width), (), inside)
            start = stop

    def walk_reduced(self, axis: int, place: Place, body: Callable[[Place], None]) -> None:
        """The reduced loops from an axis on, and `body` at each of their places."""
        if axis == self.loops:
            body(Place(place.width, place.pointers, place.index, place.lane_axis, place.steps,
                       place.strides, outer=place))
        elif self.kernel.lanes == "reduced" and axis == self.loops - 1:
            def at(inner: Place) -> None:
                inner.outer = place
                body(inner)
            self.lanes(axis, place.pointers, place.index, at, (2, 1))
        else:
            self.w.loop(*self.ends(axis), "1", (), lambda i, _: self.walk_reduced(
                axis + 1, self.below(place, axis, i), body))
