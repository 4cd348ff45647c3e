"""Rows shorter than lanes are wide, with operands that are the same in each of them: as one row.

A bias added to a matrix of ten columns would leave lanes idle in every row. The matrix lies in one
piece, so lanes run on over the ends of rows; the bias, written several times in a row to a table,
is read from where its turn comes.
"""

from __future__ import annotations

from ...core import expr as ex
from .blocks import Blocks
from .types import MEMORY

#: elements of a row that is short, rows that are enough to write tables for, and elements that fit
#: the division that says whose turn it is
SHORT, FEW_ROWS, MOST = 64, 16, 1 << 31
#: vectors at a time
_WIDE = 4


class ShortRows(Blocks):
    """Chooses when it runs, by what is known of the layout then."""

    period: str | None = None  # elements of a row, while rows are walked as one

    def begin(self) -> None:
        super().begin()
        self.period = None

    def nest_rows(self, pointers: list[str]) -> None:
        """All kept loops, from %begin to %end of the outermost."""
        if not self._may_be_short():
            self.nest_kept(0, pointers, {})
            return
        w = self.w
        rows, as_one, done = (w.fresh(s)[1:] for s in ("rows", "one", "done"))
        w.do(f"br i1 {self._are_short()}, label %{as_one}, label %{rows}")
        w.start(rows)
        self.nest_kept(0, pointers, {})
        w.do(f"br label %{done}")
        w.start(as_one)
        self._as_one(pointers)
        w.do(f"br label %{done}")
        w.start(done)

    def _may_be_short(self) -> bool:
        """Whether this is one row stage over two loops, of neighbours or one element again."""
        kernel = self.kernel
        return ((kernel.kept, kernel.reduced, kernel.lanes) == (2, 0, "kept")
                and self.native > 1 and [kind for kind, _ in self.stages] == ["row"]
                and all(o.dtype.kind != "c" and o.step in (("1",) if o.written else ("0", "1"))
                        for o in kernel.operands)
                and all(s.coordinates is None and not ex.leaves(s.value, "index")
                        and not ex.leaves(s.value, "load") for s in self.stages[0][1]))

    def _are_short(self) -> str:
        """The question asked when it runs. What is written flows from row to row."""
        w, (rows, row) = self.w, self.sizes
        total = w.emit(f"mul i64 {rows}, {row}")
        mine = w.emit("sub i64 %end, %begin")
        holds = [w.emit(f"icmp ule i64 {row}, {SHORT}"), w.emit(f"icmp ult i64 {total}, {MOST}"),
                 w.emit(f"icmp uge i64 {mine}, {FEW_ROWS}")]
        self.repeats = []
        for operand, (stride, _) in zip(self.kernel.operands, self.strides, strict=True):
            again = w.emit(f"icmp eq i64 {stride}, 0")
            length = w.emit(f"mul i64 {row}, {operand.dtype.itemsize}")
            flows = w.emit(f"icmp eq i64 {stride}, {length}")
            either = flows if operand.written else again if operand.step == "0" else (
                w.emit(f"or i1 {again}, {flows}"))
            holds.append(either)
            self.repeats.append(again)
        answer = holds[0]
        for one in holds[1:]:
            answer = w.emit(f"and i1 {answer}, {one}")
        return answer

    def _as_one(self, pointers: list[str]) -> None:
        w, row = self.w, self.sizes[1]
        tables = [p if o.written or o.step == "0" else self._table(k, p)
                  for k, (o, p) in enumerate(zip(self.kernel.operands, pointers, strict=True))]
        first, last = (w.emit(f"mul i64 {end}, {row}") for end in ("%begin", "%end"))
        self.spans, self.period = {1: (first, last)}, row
        self.lanes(1, tables, {}, self._row, (_WIDE,))
        self.period = None

    def _table(self, k: int, pointer: str) -> str:
        """Where an operand is read: itself, or if it repeats, as often as lanes may want it."""
        w, dtype = self.w, self.kernel.operands[k].dtype
        type_, most = MEMORY[dtype], SHORT + _WIDE * self.native
        table = w.emit(f"alloca [{most} x {type_}]")
        wanted = w.emit(f"add i64 {self.sizes[1]}, {_WIDE * self.native}")
        stop = w.emit(f"select i1 {self.repeats[k]}, i64 {wanted}, i64 0")

        def copy(i, _):
            source = w.emit(f"getelementptr {type_}, ptr {pointer}, i64 {self._turn(i)}")
            value = w.emit(f"load {type_}, ptr {source}, align {dtype.itemsize}")
            place = w.emit(f"getelementptr {type_}, ptr {table}, i64 {i}")
            w.do(f"store {type_} {value}, ptr {place}, align {dtype.itemsize}")

        w.loop("0", stop, "1", (), copy)
        return w.emit(f"select i1 {self.repeats[k]}, ptr {table}, ptr {pointer}")

    def _turn(self, i: str) -> str:
        """The coordinate in its row of an element of all rows."""
        w = self.w
        small, row = (w.emit(f"trunc i64 {v} to i32") for v in (i, self.sizes[1]))
        return w.emit(f"zext i32 {w.emit(f'urem i32 {small}, {row}')} to i64")

    def advance(self, pointers: list[str], axis: int, i: str) -> list[str]:
        if self.period is None:
            return super().advance(pointers, axis, i)
        w, turn, moved = self.w, self._turn(i), []
        for operand, again, p in zip(self.kernel.operands, self.repeats, pointers, strict=True):
            if operand.step == "0":
                moved.append(p)
                continue
            at = i if operand.written else w.emit(f"select i1 {again}, i64 {turn}, i64 {i}")
            moved.append(w.emit(f"getelementptr {MEMORY[operand.dtype]}, ptr {p}, i64 {at}"))
        return moved
