"""Row programs: folds over rows of elements, and what is stored from them, as one kernel.

A row program is a Python function of a recorder and of elements. Its parameters say by annotation
how a tensor lies over the rows: `each` has an element per place, `once` one per row, `along` one
per position within a row. What follows `*` are numbers, given when the kernel runs, or anything
else, which is part of the kernel. A result is `rows.each(...)`, `rows.once(...)`, or
`rows.kept(...)`, which is once per row and broadcasts against the rows.

    def softmax(rows, x: each):
        raised = exp(x - rows.top(x))
        return rows.each(raised / rows.sum(raised))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from . import dtype as dt
from . import expr as ex
from .expr import Expr
from .kernel import Fold, Store
from .signature import document_of, parameters_of

if TYPE_CHECKING:
    each: TypeAlias = Any
    once: TypeAlias = Any
    along: TypeAlias = Any
else:
    each, once, along = "each", "once", "along"
kept = "kept"  # of results: once per row, the dimensions of a row staying with size 1

_WIDER = {dt.float32: dt.float64}


class Result(NamedTuple):
    """A value to store at each place, or once per row; in the dtype of the program unless given."""

    kind: str
    value: Expr
    dtype: dt.dtype | None


class Rows:
    """Records the folds of a row program. `wide` sums float32 in float64, for very long rows;
    `exact` results have the dtype that elements are computed in.
    """

    def __init__(self, axis: int, count: Expr, wide: bool = False, exact: bool = True):
        self.position, self.count, self.wide, self.exact = ex.index(axis), count, wide, exact
        self.stages: list[tuple[str, object]] = []
        self._states = 0

    def _fold(self, starts, steps, merges) -> tuple[Expr, ...]:
        self.stages.append(("fold", Fold(tuple(starts), tuple(steps), tuple(merges))))
        first, self._states = self._states, self._states + len(starts)
        return tuple(ex.make("fold", (), first + k, s.dtype) for k, s in enumerate(starts))

    def sums(self, *values: Expr) -> tuple[Expr, ...]:
        """Several sums over a row, in one walk."""
        given, n = values, len(values)
        if self.wide:
            values = tuple(ex.cast(v, _WIDER.get(v.dtype, v.dtype)) for v in values)
        so_far = [ex.make("state", (), k, v.dtype) for k, v in enumerate(values)]
        others = [ex.make("state", (), n + k, v.dtype) for k, v in enumerate(values)]
        totals = self._fold([ex.const(0, v.dtype) for v in values],
                            [s + v for s, v in zip(so_far, values, strict=True)],
                            [s + o for s, o in zip(so_far, others, strict=True)])
        return tuple(ex.cast(t, v.dtype) for t, v in zip(totals, given, strict=True))

    def sum(self, value: Expr) -> Expr:
        """The sum over a row."""
        return self.sums(value)[0]

    def max(self, value: Expr) -> Expr:
        """The largest of a row; NaN if there is one."""
        best, other = (ex.make("state", (), k, value.dtype) for k in (0, 1))
        return self._fold([ex.const(float("-inf"), value.dtype)], [ex.maximum(best, value)],
                          [ex.maximum(best, other)])[0]

    def top(self, value: Expr) -> Expr:
        """The largest of a row, NaN passed over: for where what is made of each element has it."""
        best, other = (ex.make("state", (), k, value.dtype) for k in (0, 1))
        return self._fold([ex.const(float("-inf"), value.dtype)],
                          [ex.where(value > best, value, best)],
                          [ex.where(other > best, other, best)])[0]

    def draft(self, value: Expr) -> Expr:
        """A value noted where the first result, one for each place, will be; and read from there.

        For what is dear to compute twice. Where results are narrower than elements it is the value.
        """
        if not self.exact:
            return value
        self.stages.append(("map", (Store(0, value),)))
        return ex.input(0, value.dtype)

    def each(self, value: Expr, dtype: dt.dtype | None = None) -> Result:
        return Result(each, value, dtype)

    def once(self, value: Expr, dtype: dt.dtype | None = None) -> Result:
        return Result(once, value, dtype)

    def kept(self, value: Expr, dtype: dt.dtype | None = None) -> Result:
        return Result(kept, value, dtype)


class Program:
    """A row program and what its parameters are."""

    def __init__(self, body):
        self.body, self.name, self.doc = body, body.__name__, document_of(body)
        positional, self.numbers, _ = parameters_of(body)
        self.tensors = {name: str(body.__annotations__.get(name)) for name in positional[1:]}

    def __repr__(self) -> str:
        return f"<row program {self.name}>"

    def __call__(self, *tensors, dims, **numbers):
        """Run it over some dimensions; the engine puts its own way here."""
        raise RuntimeError("row programs run on an engine; import flambeau")


def row_program(body) -> Program:
    """Decorator: a function of a recorder and of elements, to be run as one kernel."""
    return Program(body)
