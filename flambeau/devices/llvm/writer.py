"""The text of one function of a kernel, and where in its loops one is."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.expr import Expr
from ..text import Text


@dataclass
class Place:
    """Where in the loops we are: pointers, coordinates, lanes and what is computed already."""

    width: int
    pointers: list[str]
    index: dict[int, str] = field(default_factory=dict)
    lane_axis: int | None = None  # the axis whose coordinate differs from lane to lane
    steps: list[str] | None = None  # how each operand moves along the lanes
    strides: list[str] | None = None  # its stride in bytes, for step "s"
    memo: dict[Expr, object] = field(default_factory=dict)
    outer: Place | None = None
    first: Place | None = None  # the first lane's own place, for what all lanes share


class Writer(Text):
    """Writes one function of a kernel."""

    def loop(self, start, stop, step, carried, body):
        """for i in range(start, stop, step), carrying (type, value) pairs; returns the last."""
        head, inside, done = (self.fresh(s)[1:] for s in ("head", "body", "done"))
        before = self.block
        self.do(f"br label %{head}")
        self.start(head)
        i, following = self.fresh("i"), self.fresh("next")
        hole = len(self.lines)
        values = [self.fresh("s") for _ in carried]
        self.lines.extend([""] * (1 + len(carried)))
        more = self.emit(f"icmp slt i64 {i}, {stop}")
        self.do(f"br i1 {more}, label %{inside}, label %{done}")
        self.start(inside)
        results = body(i, values)
        self.do(f"{following} = add i64 {i}, {step}")
        latch = self.block
        self.do(f"br label %{head}")
        self.lines[hole] = f"  {i} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]"
        for k, ((type_, value), name, result) in enumerate(
                zip(carried, values, results or (), strict=True)):
            self.lines[hole + 1 + k] = (
                f"  {name} = phi {type_} [ {value}, %{before} ], [ {result}, %{latch} ]")
        self.start(done)
        return values
