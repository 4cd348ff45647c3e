"""kernel -> LLVM IR, as text.

Vectors are explicit, as wide as the host's registers, with narrower loops for what is left
over. Nothing here knows an op: it lowers loops, primitives and conversions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from ..core import dtype as dt
from ..core import expr as ex
from ..core.expr import Expr
from ..core.kernel import Fold, Kernel, Store, stage_exprs
from . import complexlib, mathlib, parallel
from .libm import LIBM
from .text import Text

#              dtype          in registers  in memory
_REGISTER = {
    dt.bool_:    "i1",
    dt.uint8:    "i8",
    dt.int8:     "i8",
    dt.int16:    "i16",
    dt.int32:    "i32",
    dt.int64:    "i64",
    dt.float32:  "float",
    dt.float64:  "double",
}
_MEMORY = {**_REGISTER, dt.bool_: "i8", dt.float16: "half", dt.bfloat16: "i16"}

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_INT_COMPARE = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_INTRINSICS = {"sqrt": 1, "floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "copysign": 2, "fma": 3}


def of_type(name: str, width: int) -> str:
    return name if width == 1 else f"<{width} x {name}>"


def number(value, dtype: dt.dtype) -> str:
    """A constant as LLVM spells it."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        return str(value)
    if dtype is dt.float32:  # LLVM wants a float's bits as those of the equal double
        value = struct.unpack("f", struct.pack("f", _clip_float32(value)))[0]
    return "0x" + struct.pack(">d", value).hex().upper()


def _clip_float32(value: float) -> float:
    if value == value and abs(value) > 3.4028235677973366e38:
        return float("inf") if value > 0 else float("-inf")
    return value


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


class Lowering:
    """Lowers one kernel. `bits` is the width of the host's vector registers."""

    def __init__(self, kernel: Kernel, name: str, bits: int) -> None:
        self.kernel, self.name = kernel, name
        self.declared: dict[str, str] = {}
        self.at_place: Callable[[Place], None] | None = None  # instead of all stages
        self.together = 1  # rows that a fold across lanes takes at a time
        self.stages = [(kind, _expanded(kind, payload)) for kind, payload in kernel.stages]
        # What is the same in all lanes of a row needs none of its own.
        sizes = [o.dtype.compute.itemsize for o in kernel.operands
                 if o.step != "0" or kernel.lanes != "reduced"]
        sizes += [e.dtype.compute.itemsize for kind, p in self.stages for e in stage_exprs(kind, p)
                  if e.dtype.kind in "fiu"]
        self.native = max(1, bits // 8 // max(4, *sizes, 1)) if kernel.lanes != "none" else 1
        self.folds: dict[int, tuple[object, int]] = {}

    # -- the function ------------------------------------------------------------------------

    def text(self) -> str:
        """The kernel's functions: a range of its outermost loop, and who calls it."""
        kernel = self.kernel
        arguments = [f"ptr %p{k}" for k in range(len(kernel.operands))]
        for k, dtype in enumerate(kernel.params):
            arguments += _param_arguments(k, dtype)
        self.arguments = (*arguments, "i64 %last")
        functions = [self._function("range", ("i64 %begin", "i64 %end"), self._ranges)]
        functions += self._blocks()
        call = parallel.Call(self.name, self.arguments, kernel.dense, kernel.kept, kernel.reduced,
                             self.native * 8 if self._lane_axis() == 0 else 1, self._grain(),
                             sum(self.slots), self._apart())
        functions.append(parallel.entry(call, len(self.slots)))
        return "".join(functions) + "\n".join(self.declared.values()) + "\n"

    def _function(self, role: str, more: tuple[str, ...], emit) -> str:
        """One function of the kernel: its arguments and more, and what `emit` writes."""
        self.w, self.folds = Writer(self.declared), {}
        self.spans: dict[int, tuple[str, str]] = {}
        self.params = [self._param(k, dtype) for k, dtype in enumerate(self.kernel.params)]
        self._read_layout()
        emit([f"%p{k}" for k in range(len(self.kernel.operands))])
        self.w.do("ret void")
        lines = "\n".join(self.w.lines)
        return (f"define internal void @{self.name}_{role}("
                f"{', '.join((*self.arguments, *more))}) #0 {{\nentry:\n{lines}\n}}\n")

    def _ranges(self, pointers) -> None:
        if self.kernel.kept:
            self.spans = {0: ("%begin", "%end")}
        self._nest_kept(0, pointers, {})

    def _apart(self) -> tuple[int, ...]:
        """Which words of the layout say how far the outermost loop moves what is put somewhere."""
        loops = self.kernel.kept + self.kernel.reduced
        put = {s.operand for kind, p in self.stages if kind != "fold" for s in p if s.coordinates}
        return tuple(loops * (1 + k) for k in sorted(put))

    def _grain(self) -> int:
        """How many elements are worth a thread's while."""
        seen = {e for kind, p in self.stages for root in stage_exprs(kind, p) for e in _walk(root)}
        weight = sum(_weight(e) for e in seen) + len(self.kernel.operands)
        return int(parallel.RANGE_NS / (weight / max(1, self.native)))

    def _lane_axis(self) -> int | None:
        return self.kernel.kept - 1 if self.kernel.lanes == "kept" else None

    def _ends(self, axis: int) -> tuple[str, str]:
        """Where a loop starts and stops."""
        return self.spans.get(axis, ("0", self.sizes[axis]))

    # -- folds in blocks -----------------------------------------------------------------------

    def _blocks(self) -> list[str]:
        """Functions that fold blocks, join them and finish, if the kernel is folds and rows."""
        kinds = [kind for kind, _ in self.stages]
        folds = [p for kind, p in self.stages if kind == "fold"]
        indirect = any(s.coordinates for kind, p in self.stages if kind == "row" for s in p)
        self.slots: list[int] = []
        if not folds or "map" in kinds or indirect or any(f.running for f in folds):
            return []
        self.slots = [sum(2 if e.dtype.kind == "c" else 1 for e in f.start) for f in folds]
        made = []
        for number, fold in enumerate(folds):
            made.append(self._function(f"part{number}", parallel.BLOCK_ARGUMENTS,
                                       partial(self._part_of_fold, folds, number)))
            made.append(self._function(f"join{number}", parallel.BLOCK_ARGUMENTS,
                                       partial(self._join, fold, number)))
        made.append(self._function("finish", parallel.BLOCK_ARGUMENTS,
                                   partial(self._finish, folds)))
        return made

    def _part_of_fold(self, folds, number: int, pointers) -> None:
        w, axis = self.w, self.kernel.kept

        def block(b, _):
            first = w.emit(f"mul i64 {b}, %rows")
            stop = w.emit(f"add i64 {first}, %rows")
            inside = w.emit(f"icmp slt i64 {stop}, {self.sizes[axis]}")
            end = w.emit(f"select i1 {inside}, i64 {stop}, i64 {self.sizes[axis]}")
            self.spans = {axis: (first, end)}
            self.at_place = partial(self._fold_block, folds, number, b)
            self._nest_kept(0, pointers, {})

        w.loop("%begin", "%end", "1", (), block)
        self.at_place = None

    def _fold_block(self, folds, number: int, block: str, place: Place) -> None:
        fold = folds[number]
        self._recall(folds[:number], place)
        self._hoist([*fold.start, *fold.step], place)
        results = (self._fold_lanes(fold, place) if self.kernel.lanes == "reduced"
                   else self._fold(fold, place))
        for lane in range(place.width):
            states = results if place.width == 1 else [
                self._part(v, e.dtype, place.width, lane, 1)
                for v, e in zip(results, fold.start, strict=True)]
            self._remember(fold, number, block, self._linear(place, lane), states)

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
        for k, (type_, value) in enumerate(_flatten([(e.dtype, 1) for e in fold.start], states)):
            at = self.w.emit(f"getelementptr i64, ptr {slot}, i64 {k}")
            self.w.do(f"store {type_} {value}, ptr {at}")

    def _stored(self, fold: Fold, number: int, block: str, place: str) -> list:
        slot, shapes = self._slot(number, block, place), [(e.dtype, 1) for e in fold.start]
        dummy = [("", "") if e.dtype.kind == "c" else "" for e in fold.start]
        values = []
        for k, (type_, _) in enumerate(_flatten(shapes, dummy)):
            at = self.w.emit(f"getelementptr i64, ptr {slot}, i64 {k}")
            values.append(self.w.emit(f"load {type_}, ptr {at}"))
        return _regroup(shapes, values)

    def _join(self, fold: Fold, number: int, pointers) -> None:
        """Blocks merged in their order, at each place from %begin to %end."""
        shapes = [(e.dtype, 1) for e in fold.start]

        def place(at, _):
            first = _flatten(shapes, self._stored(fold, number, "0", at))
            merged = self.w.loop("1", "%blocks", "1", first, lambda b, values: [
                v for _, v in _flatten(shapes, self._merge(
                    fold, _regroup(shapes, values), self._stored(fold, number, b, at), 1))])
            self._remember(fold, number, "%blocks", at, _regroup(shapes, merged))

        self.w.loop("%begin", "%end", "1", (), place)

    def _recall(self, folds, place: Place) -> None:
        """Results of folds that are done, at a place."""
        count = 0
        for number, fold in enumerate(folds):
            lanes = [self._stored(fold, number, "%blocks", self._linear(place, lane))
                     for lane in range(place.width)]
            for k, e in enumerate(fold.start):
                one = [states[k] for states in lanes]
                value = one[0] if place.width == 1 else self._gathered(one, e.dtype, place.width)
                self.folds[count] = (value, place.width)
                count += 1

    def _finish(self, folds, pointers) -> None:
        def rows(place: Place) -> None:
            self._recall(folds, place)
            for kind, payload in self.stages:
                if kind == "row":
                    self._stores(payload, place)

        self.at_place = rows
        self._nest_kept(0, pointers, {})
        self.at_place = None

    def _param(self, k: int, dtype: dt.dtype):
        if dtype.kind == "c":
            real = dtype.to_real()
            return tuple(self._number_to(f"%a{k}{part}", real) for part in "ri")
        return self._number_to(f"%a{k}", dtype)

    def _number_to(self, name: str, dtype: dt.dtype) -> str:
        w, register = self.w, _REGISTER[dtype]
        if dtype is dt.float32:
            return w.emit(f"fptrunc double {name} to float")
        if dtype.kind == "f" or register == "i64":
            return name
        return w.emit(f"trunc i64 {name} to {register}")

    def _read_layout(self) -> None:
        """Sizes and strides: constants of a dense kernel, else read from the layout array."""
        kernel, w = self.kernel, self.w
        loops = kernel.kept + kernel.reduced
        self.own: list[list[str]]
        if kernel.dense and kernel.reduced:  # one place, and all elements folded into it
            self.sizes = ["1", "%last"]
            self.strides = [["0", "0" if o.written else str(o.dtype.itemsize)]
                            for o in kernel.operands]
            self.own = [[] for _ in kernel.operands]
            return
        if kernel.dense:
            self.sizes = ["%last"]
            self.strides = [[str(o.dtype.itemsize if o.step == "1" else 0)]
                            for o in kernel.operands]
            self.own = [[] for _ in kernel.operands]
            return
        w.do("%layout = inttoptr i64 %last to ptr")
        position = iter(range(10**6))

        def read() -> str:
            at = w.emit(f"getelementptr i64, ptr %layout, i64 {next(position)}")
            return w.emit(f"load i64, ptr {at}")

        self.sizes = [read() for _ in range(loops)]
        self.strides = [[read() for _ in range(loops)] for _ in kernel.operands]
        extra = kernel.indirect or (0,) * len(kernel.operands)
        self.own = [[read() for _ in range(n)] for n in extra]

    # -- loops -------------------------------------------------------------------------------

    def _advance(self, pointers, axis: int, i: str) -> list[str]:
        w, moved = self.w, []
        for k, p in enumerate(pointers):
            stride = self.strides[k][axis]
            if stride == "0":
                moved.append(p)
                continue
            offset = w.emit(f"mul i64 {i}, {stride}")
            moved.append(w.emit(f"getelementptr i8, ptr {p}, i64 {offset}"))
        return moved

    def _nest_kept(self, axis: int, pointers, index) -> None:
        kernel, w = self.kernel, self.w
        lane = self._lane_axis()
        if axis == kernel.kept:
            self._row(Place(1, pointers, index))
        elif axis == lane:
            self._kept_lanes(axis, pointers, index)
        else:
            w.loop(*self._ends(axis), "1", (), lambda i, _: self._nest_kept(
                axis + 1, self._advance(pointers, axis, i), {**index, axis: i}))

    def _kept_lanes(self, axis: int, pointers, index) -> None:
        """Lanes across the innermost kept loop.

        A light fold has many vectors of states in flight: of many places, or where there are few
        of them, of several rows. Which it is depends on the problem, never on a thread's range.
        """
        w, again = self.w, self._repeatable()
        if not (again and self._light_fold() and self.kernel.reduced == 1 and self.native > 1):
            wide = (_MANY_FOLDS if self._light_fold() else
                    4 if self._light() or self._light_pair() else 2)
            self._lanes(axis, pointers, index, self._row, (wide, 1), again)
            return
        if self.at_place is not None:  # a block of a fold into few places
            self.together = _ROWS
            self._lanes(axis, pointers, index, self._row, (1,), again)
            self.together = 1
            return
        few, many, done = (w.fresh(s)[1:] for s in ("few", "many", "done"))
        narrow = w.emit(f"icmp slt i64 {self.sizes[axis]}, {self.native * _MANY_FOLDS}")
        w.do(f"br i1 {narrow}, label %{few}, label %{many}")
        for label, unrolls, self.together in ((few, (1,), _ROWS), (many, (_MANY_FOLDS, 1), 1)):
            w.start(label)
            self._lanes(axis, pointers, index, self._row, unrolls, again)
            w.do(f"br label %{done}")
        w.start(done)

    def _light(self) -> bool:
        """Whether the body is so small that more of it in flight pays."""
        return self.kernel.reduced == 0 and sum(
            1 for kind, p in self.stages for e in stage_exprs(kind, p) for _ in _walk(e)) < 16

    def _light_fold(self) -> bool:
        """Whether there is one state, and few steps to it: many can be in flight."""
        if any(o.step == "s" for o in self.kernel.operands):
            return False
        folds = [p for kind, p in self.stages if kind == "fold"]
        return len(folds) == len(self.stages) - 1 == 1 and len(folds[0].start) == 1 and (
            folds[0].start[0].dtype.kind != "c" and len(_walk(folds[0].step[0])) < 16)

    def _light_pair(self) -> bool:
        """Whether two states are folded by a few steps, and nothing else walks the elements."""
        folds = [p for kind, p in self.stages if kind == "fold"]
        steps = {e for fold in folds for root in fold.step for e in _walk(root)}
        return len(folds) == len(self.stages) - 1 == 1 and len(folds[0].start) == 2 and (
            all(e.dtype.kind == "f" for e in folds[0].start) and len(steps) < 16)

    def _repeatable(self) -> bool:
        """Whether places may be computed twice: folds that read nothing that is written later."""
        if not self.kernel.reduced:
            return False
        drafts: set[int] = set()
        for kind, payload in self.stages:
            stores = payload.running if kind == "fold" else payload
            if (kind == "fold" and stores) or any(s.coordinates is not None for s in stores):
                return False
            read = {k for e in stage_exprs(kind, payload) for k in ex.leaves(e, "input")}
            if any(self.kernel.operands[k].written for k in read - drafts):
                return False
            drafts |= {s.operand for s in stores}
        return True

    def _lanes(self, axis: int, pointers, index, body, unrolls, again: bool = False) -> None:
        """Cut a loop into wide vectors, then native ones, then single elements.

        With `again` the last native vector may overlap the one before, and takes the place of
        single elements, each of which would walk all the memory of a fold once more.
        """
        w, (start, end) = self.w, self._ends(axis)
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
                moved = self._advance(pointers, axis, i)
                steps = [o.step for o in self.kernel.operands]
                body(Place(width, moved, {**index, axis: i}, axis, steps,
                           [s[axis] for s in self.strides]))

            w.loop(start, stop, str(width), (), inside)
            start = stop

    def _row(self, place: Place) -> None:
        """All stages at one kept place (or at `width` neighbouring ones)."""
        if self.at_place is not None:
            self.at_place(place)
            return
        self.folds = dict(self.folds)
        count = 0
        for kind, payload in self.stages:
            if kind == "row":
                self._stores(payload, place)
            elif kind == "map":
                self._hoist(stage_exprs(kind, payload), place)
                self._walk_reduced(self.kernel.kept, place,
                                   lambda at, p=payload: self._stores(p, at))
            else:
                self._hoist([*payload.start, *payload.step], place)
                results = (self._fold_lanes(payload, place)
                           if self.kernel.lanes == "reduced" else self._fold(payload, place))
                for value in results:
                    self.folds[count] = (value, place.width)
                    count += 1

    def _walk_reduced(self, axis: int, place: Place, body) -> None:
        kernel, w = self.kernel, self.w
        loops = kernel.kept + kernel.reduced
        if axis == loops:
            body(Place(place.width, place.pointers, place.index, place.lane_axis, place.steps,
                       place.strides, outer=place))
        elif kernel.lanes == "reduced" and axis == loops - 1:
            def at(inner: Place):
                inner.outer = place
                body(inner)
            self._lanes(axis, place.pointers, place.index, at, (2, 1))
        else:
            w.loop(*self._ends(axis), "1", (), lambda i, _: self._walk_reduced(
                axis + 1, self._below(place, axis, i), body))

    def _below(self, place: Place, axis: int, i: str) -> Place:
        return Place(place.width, self._advance(place.pointers, axis, i),
                     {**place.index, axis: i}, place.lane_axis, place.steps, place.strides,
                     outer=place)

    # -- folds -------------------------------------------------------------------------------

    def _start(self, fold: Fold, place: Place, width: int):
        spread = Place(width, [], outer=place) if width != place.width else place
        return [self.lower(e, spread) for e in fold.start]

    def _fold(self, fold: Fold, place: Place):
        """States as wide as the place: nothing crosses lanes."""
        kernel = self.kernel
        shapes = [(e.dtype, place.width) for e in fold.start]
        if self.together > 1:
            return self._fold_rows(fold, place, shapes, self.together)

        def nest(axis, at, states):
            if axis == kernel.kept + kernel.reduced:
                stepped = self._step(fold, at, states)
                self._store_running(fold, at, stepped)
                return stepped
            flat = _flatten(shapes, states)
            out = self.w.loop(*self._ends(axis), "1", flat, lambda i, values: [
                v for _, v in _flatten(shapes, nest(axis + 1, self._below(at, axis, i),
                                                    _regroup(shapes, values)))])
            return _regroup(shapes, out)

        return nest(kernel.kept, place, self._start(fold, place, place.width))

    def _fold_rows(self, fold: Fold, place: Place, shapes, rows: int):
        """Some rows at a time, each with states of its own, merged pairwise at the end."""
        w, axis, n = self.w, self.kernel.kept, len(fold.start)

        def stepped(i, values, count: int):
            found = []
            for k in range(count):
                at = self._below(place, axis, w.emit(f"add i64 {i}, {k}") if k else i)
                part = _regroup(shapes, values[k * n:k * n + n])
                found += [v for _, v in _flatten(shapes, self._step(fold, at, part))]
            return found

        start, end = self._ends(axis)
        left = w.emit(f"sub i64 {end}, {start}")
        whole = w.emit(f"add i64 {start}, {w.emit(f'and i64 {left}, {-rows}')}")
        first = _flatten(shapes, self._start(fold, place, place.width))
        values = w.loop(start, whole, str(rows), first * rows,
                        lambda i, given: stepped(i, given, rows))
        rest = w.loop(whole, end, "1", [(t, v) for (t, _), v in zip(first, values, strict=False)],
                      lambda i, given: stepped(i, given, 1))
        values = [*rest, *values[n:]]
        states = [_regroup(shapes, values[k * n:k * n + n]) for k in range(rows)]
        while len(states) > 1:
            states = [self._merge(fold, a, b, place.width)
                      for a, b in zip(states[::2], states[1::2], strict=True)]
        return states[0]

    def _store_running(self, fold: Fold, at: Place, states) -> None:
        """Store the states of a scan at this place."""
        if fold.running:
            here = Place(at.width, at.pointers, at.index, at.lane_axis, at.steps, at.strides)
            for k, value in enumerate(states):
                here.memo[ex.make("state", (), k, fold.start[k].dtype)] = value
            self._stores(fold.running, here)

    def _fold_lanes(self, fold: Fold, place: Place):
        """Wide states along the innermost reduced loop, then lanes merged pairwise."""
        kernel = self.kernel
        many = self._light_fold() and fold.element is None
        wide = self.native * (_MANY_FOLDS if many else 4)
        widths = sorted({wide, self.native, 1}, reverse=True)
        last = kernel.kept + kernel.reduced - 1
        shapes = [(e.dtype, width) for width in widths for e in fold.start]
        n = len(fold.start)

        def place_at(i: str, at: Place, width: int) -> Place:
            return Place(width, self._advance(at.pointers, last, i), {**at.index, last: i}, last,
                         [o.step for o in kernel.operands], [s[last] for s in self.strides],
                         outer=at)

        def along(at: Place, states):
            w, (start, end) = self.w, self._ends(last)
            states = list(states)
            few = [(0, _FEW)] if fold.element is not None and wide > 1 else []
            for k, times in [*few, *((k, 1) for k in range(len(widths)))]:
                part, width = slice(k * n, k * n + n), widths[k]
                left = w.emit(f"sub i64 {end}, {start}")
                stop = end if width == 1 else w.emit(
                    f"add i64 {start}, {w.emit(f'and i64 {left}, {-width * times}')}")

                def inside(i, values, width=width, part=part, times=times):
                    here = place_at(i, at, width)
                    if times > 1:
                        others = [place_at(w.emit(f"add i64 {i}, {width * m}"), at, width)
                                  for m in range(1, times)]
                        here.memo[fold.element] = self._added(fold.element, [here, *others])
                    return [v for _, v in _flatten(
                        shapes[part], self._step(fold, here, _regroup(shapes[part], values)))]

                out = w.loop(start, stop, str(width * times), _flatten(shapes[part], states[part]),
                             inside)
                states[part] = _regroup(shapes[part], out)
                start = stop
            return states

        def nest(axis, at, states):
            if axis == last:
                return along(at, states)
            out = self.w.loop(*self._ends(axis), "1", _flatten(shapes, states),
                              lambda i, values: [v for _, v in _flatten(shapes, nest(
                                  axis + 1, self._below(at, axis, i), _regroup(shapes, values)))])
            return _regroup(shapes, out)

        start = [state for width in widths for state in self._start(fold, place, width)]
        states = nest(kernel.kept, place, start)
        merged, width = states[:n], wide
        while width > 1:
            if width == self.native < wide:
                merged = self._merge(fold, merged, states[n:2 * n], width)
            width //= 2
            low = [self._part(v, e.dtype, width * 2, 0, width)
                   for v, e in zip(merged, fold.start, strict=True)]
            high = [self._part(v, e.dtype, width * 2, width, width)
                    for v, e in zip(merged, fold.start, strict=True)]
            merged = self._merge(fold, low, high, width)
        return merged if widths == [1] else self._merge(fold, merged, states[-n:], 1)

    def _added(self, element: Expr, places: list[Place]) -> str:
        """The sum of an expr at some places, pair by pair."""
        type_ = of_type(_REGISTER[element.dtype], places[0].width)
        values = [self.lower(element, place) for place in places]
        while len(values) > 1:
            values = [self.w.emit(f"fadd {type_} {a}, {b}")
                      for a, b in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def _step(self, fold: Fold, place: Place, states):
        for k, value in enumerate(states):
            place.memo[ex.make("state", (), k, fold.start[k].dtype)] = value
        return [self.lower(e, place) for e in fold.step]

    def _merge(self, fold: Fold, one, other, width: int):
        place = Place(width, [])
        n = len(fold.start)
        for k, value in enumerate([*one, *other]):
            place.memo[ex.make("state", (), k, fold.start[k % n].dtype)] = value
        return [self.lower(e, place) for e in fold.merge]

    def _part(self, value, dtype, width: int, start: int, count: int):
        """`count` lanes of a vector from `start`."""
        if isinstance(value, tuple):
            return tuple(self._part(v, dtype.to_real(), width, start, count) for v in value)
        type_ = of_type(_REGISTER[dtype], width)
        if count == 1:
            return self.w.emit(f"extractelement {type_} {value}, i32 {start}")
        mask = ", ".join(f"i32 {start + i}" for i in range(count))
        return self.w.emit(f"shufflevector {type_} {value}, {type_} poison, "
                           f"<{count} x i32> <{mask}>")

    # -- memory ------------------------------------------------------------------------------

    def _load(self, k: int, place: Place):
        operand, w = self.kernel.operands[k], self.w
        step = place.steps[k] if place.steps else "0"
        if place.width == 1 or step == "0":
            value = self._load_one(operand.dtype, place.pointers[k])
            return self._spread(value, operand.dtype.compute, place.width)
        if operand.dtype.kind == "c":
            return self._load_complex(operand.dtype, place, k, step)
        if step == "1":
            type_ = of_type(_MEMORY[operand.dtype], place.width)
            raw = w.emit(f"load {type_}, ptr {place.pointers[k]}, align {operand.dtype.itemsize}")
            return self._from_memory(raw, operand.dtype, place.width)
        if step == "-1":
            return self._load_backwards(operand.dtype, place.pointers[k], place.width)
        lanes = [self._load_one(operand.dtype, p) for p in self._lane_pointers(k, place)]
        return self._gathered(lanes, operand.dtype.compute, place.width)

    def _load_backwards(self, dtype: dt.dtype, pointer: str, width: int):
        w, type_ = self.w, of_type(_MEMORY[dtype], width)
        first = w.emit(f"getelementptr i8, ptr {pointer}, i64 {(1 - width) * dtype.itemsize}")
        raw = w.emit(f"load {type_}, ptr {first}, align {dtype.itemsize}")
        mask = ", ".join(f"i32 {i}" for i in reversed(range(width)))
        turned = w.emit(f"shufflevector {type_} {raw}, {type_} poison, <{width} x i32> <{mask}>")
        return self._from_memory(turned, dtype, width)

    def _lane_pointers(self, k: int, place: Place) -> list[str]:
        w, pointer = self.w, place.pointers[k]
        assert place.strides is not None
        found = [pointer]
        for _ in range(place.width - 1):
            pointer = w.emit(f"getelementptr i8, ptr {pointer}, i64 {place.strides[k]}")
            found.append(pointer)
        return found

    def _load_one(self, dtype: dt.dtype, pointer: str):
        w = self.w
        if dtype.kind == "c":
            real = dtype.to_real()
            after = w.emit(f"getelementptr i8, ptr {pointer}, i64 {real.itemsize}")
            return tuple(w.emit(f"load {_MEMORY[real]}, ptr {p}, align {real.itemsize}")
                         for p in (pointer, after))
        raw = w.emit(f"load {_MEMORY[dtype]}, ptr {pointer}, align {dtype.itemsize}")
        return self._from_memory(raw, dtype, 1)

    def _load_complex(self, dtype, place: Place, k: int, step: str):
        pointers = None if step == "1" else self._lane_pointers(k, place)
        if pointers is None:
            real, n, w = dtype.to_real(), place.width, self.w
            both = of_type(_MEMORY[real], n * 2)
            raw = w.emit(f"load {both}, ptr {place.pointers[k]}, align {real.itemsize}")
            masks = (", ".join(f"i32 {2 * i + odd}" for i in range(n)) for odd in (0, 1))
            return tuple(w.emit(f"shufflevector {both} {raw}, {both} poison, <{n} x i32> <{m}>")
                         for m in masks)
        lanes = [self._load_one(dtype, p) for p in pointers]
        return tuple(self._gathered([lane[i] for lane in lanes], dtype.to_real(), place.width)
                     for i in (0, 1))

    def _gathered(self, lanes, dtype, width):
        if dtype.kind == "c":
            return tuple(self._gathered([lane[i] for lane in lanes], dtype.to_real(), width)
                         for i in (0, 1))
        type_, value = of_type(_REGISTER[dtype], width), "poison"
        for i, lane in enumerate(lanes):
            value = self.w.emit(
                f"insertelement {type_} {value}, {_REGISTER[dtype]} {lane}, i32 {i}")
        return value

    def _from_memory(self, raw: str, dtype: dt.dtype, width: int) -> str:
        w = self.w
        if dtype is dt.bool_:
            return w.emit(f"icmp ne {of_type('i8', width)} {raw}, zeroinitializer"
                          if width > 1 else f"icmp ne i8 {raw}, 0")
        if dtype is dt.float16:
            return w.emit(f"fpext {of_type('half', width)} {raw} to {of_type('float', width)}")
        if dtype is dt.bfloat16:
            bits = w.emit(f"zext {of_type('i16', width)} {raw} to {of_type('i32', width)}")
            high = w.emit(f"shl {of_type('i32', width)} {bits}, {_splat('16', 'i32', width)}")
            return w.emit(f"bitcast {of_type('i32', width)} {high} to {of_type('float', width)}")
        return raw

    def _to_memory(self, value: str, dtype: dt.dtype, width: int) -> str:
        w = self.w
        if dtype is dt.bool_:
            return w.emit(f"zext {of_type('i1', width)} {value} to {of_type('i8', width)}")
        if dtype is dt.float16:
            return w.emit(f"fptrunc {of_type('float', width)} {value} to {of_type('half', width)}")
        if dtype is dt.bfloat16:
            return self._to_bfloat16(value, width)
        return value

    def _to_bfloat16(self, value: str, width: int) -> str:
        """Round to nearest, ties to even; NaN stays NaN."""
        w, i32, i16 = self.w, of_type("i32", width), of_type("i16", width)

        def c(number: int) -> str:
            return _splat(str(number), "i32", width)

        bits = w.emit(f"bitcast {of_type('float', width)} {value} to {i32}")
        shifted = w.emit(f"lshr {i32} {bits}, {c(16)}")
        odd = w.emit(f"and {i32} {shifted}, {c(1)}")
        bias = w.emit(f"add {i32} {odd}, {c(32767)}")
        rounded = w.emit(f"lshr {i32} {w.emit(f'add {i32} {bits}, {bias}')}, {c(16)}")
        nan = w.emit(f"fcmp uno {of_type('float', width)} {value}, {value}")
        kept = w.emit(f"select {of_type('i1', width)} {nan}, {i32} {c(32704)}, {i32} {rounded}")
        return w.emit(f"trunc {i32} {kept} to {i16}")

    def _stores(self, stores: tuple[Store, ...], place: Place) -> None:
        values = [self.lower(s.value, place) for s in stores]
        for store, value in zip(stores, values, strict=True):
            operand = self.kernel.operands[store.operand]
            value = self._convert(value, store.value.dtype, operand.dtype.compute, place.width)
            if store.coordinates is not None:
                self._store_at(store, operand, value, place)
                continue
            self._store(store.operand, value, place)

    def _store(self, k: int, value, place: Place) -> None:
        dtype, pointer = self.kernel.operands[k].dtype, place.pointers[k]
        step = place.steps[k] if place.steps else "0"
        if place.width == 1:
            self._store_one(dtype, value, pointer)
        elif step == "1" and dtype.kind != "c":
            raw = self._to_memory(value, dtype, place.width)
            type_ = of_type(_MEMORY[dtype], place.width)
            self.w.do(f"store {type_} {raw}, ptr {pointer}, align {dtype.itemsize}")
        else:
            for lane, p in enumerate(self._lane_pointers(k, place)):
                self._store_one(dtype, self._part(value, dtype.compute, place.width, lane, 1), p)

    def _store_one(self, dtype: dt.dtype, value, pointer: str) -> None:
        w = self.w
        if dtype.kind == "c":
            real = dtype.to_real()
            after = w.emit(f"getelementptr i8, ptr {pointer}, i64 {real.itemsize}")
            for part, p in zip(value, (pointer, after), strict=True):
                w.do(f"store {_MEMORY[real]} {part}, ptr {p}, align {real.itemsize}")
            return
        raw = self._to_memory(value, dtype, 1)
        w.do(f"store {_MEMORY[dtype]} {raw}, ptr {pointer}, align {dtype.itemsize}")

    def _store_at(self, store: Store, operand, value, place: Place) -> None:
        """Write at computed coordinates, joined to what is there."""
        there = self._computed_place(store.operand, store.coordinates, place)
        if store.combine is not None:
            compute = operand.dtype.compute
            old, given = (ex.make("state", (), k, compute) for k in (0, 1))
            joined = Place(place.width, [], memo={old: self._load(store.operand, there),
                                                  given: value})
            value = self.lower(ex.expand(COMBINE[store.combine](old, given)), joined)
        self._store(store.operand, value, there)

    def _computed_place(self, k: int, coordinates, place: Place) -> Place:
        """The place with an operand moved by coordinates, which all lanes have in common."""
        w, pointer, first = self.w, place.pointers[k], place
        if place.width > 1:
            if place.first is None:
                place.first = Place(1, place.pointers, place.index)
            first = place.first
        for axis, c in enumerate(coordinates):
            offset = w.emit(f"mul i64 {self.lower(c, first)}, {self.own[k][axis]}")
            pointer = w.emit(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        pointers = [*place.pointers]
        pointers[k] = pointer
        return Place(place.width, pointers, place.index, place.lane_axis, place.steps,
                     place.strides)

    # -- expressions -------------------------------------------------------------------------

    def _hoist(self, exprs, place: Place) -> None:
        """Compute outside a loop what does not change inside it."""
        seen: set[Expr] = set()
        known: dict[Expr, bool] = {}

        def moves(e: Expr) -> bool:
            if e not in known:
                known[e] = e.head in ("input", "load", "index", "state") or any(
                    [moves(a) for a in e.args])
            return known[e]

        def walk(e: Expr) -> None:
            if e in seen or e.head == "const":
                return
            seen.add(e)
            if not moves(e):
                self.lower(e, place)
            else:
                for a in e.args:
                    walk(a)

        for e in exprs:
            walk(e)

    def lower(self, e: Expr, place: Place):
        """The register (or the pair of a complex) that holds e at this place."""
        found = place.memo.get(e)
        if found is not None:
            return found
        above = place.outer
        while above is not None:
            if e in above.memo and e.head not in ("input", "index", "load"):
                found = self._spread(above.memo[e], e.dtype, place.width, above.width)
                break
            above = above.outer
        if found is None:
            found = self._lower(e, place)
        place.memo[e] = found
        return found

    def _lower(self, e: Expr, place: Place):
        head = e.head
        if head == "input":
            return self._load(e.attr, place)
        if head == "const":
            return self._const(e, place.width)
        if head == "param":
            return self._spread(self.params[e.attr], e.dtype, place.width)
        if head == "fold":
            value, width = self.folds[e.attr]
            return self._spread(value, e.dtype, place.width, width)
        if head == "index":
            return self._index(e.attr, place)
        if head == "load":
            return self._load_at(e, place)
        if e.dtype.kind == "c" or any(a.dtype.kind == "c" for a in e.args):
            return self._lower_complex(e, place)
        if head == "select" and e.attr == "rare":
            return self._rare(e, place)
        args = [self.lower(a, place) for a in e.args]
        return self._primitive(e, args, place)

    def _rare(self, e: Expr, place: Place) -> str:
        """A select that branches around its first choice when no lane wants it."""
        w, width = self.w, place.width
        condition, slow, fast = e.args
        lanes, chosen = of_type("i1", width), of_type(_REGISTER[e.dtype], width)
        wanted, usual = self.lower(condition, place), self.lower(fast, place)
        some = wanted
        if width > 1:
            mask = w.emit(f"bitcast {lanes} {wanted} to i{width}")
            some = w.emit(f"icmp ne i{width} {mask}, 0")
        inside, done, before = w.fresh("rare")[1:], w.fresh("done")[1:], w.block
        w.do(f"br i1 {some}, label %{inside}, label %{done}")
        w.start(inside)
        inner = replace(place, memo=dict(place.memo))  # what is computed here is not known after
        slowly = self.lower(slow, inner)
        picked = w.emit(f"select {lanes} {wanted}, {chosen} {slowly}, {chosen} {usual}")
        after = w.block
        w.do(f"br label %{done}")
        w.start(done)
        return w.emit(f"phi {chosen} [ {usual}, %{before} ], [ {picked}, %{after} ]")

    def _load_at(self, e: Expr, place: Place):
        return self._load(e.attr, self._computed_place(e.attr, e.args, place))

    def _index(self, axis: int, place: Place) -> str:
        value = place.index[axis]
        if place.width == 1:
            return value
        base = self._spread(value, dt.int64, place.width)
        if axis != place.lane_axis:
            return base
        lanes = ", ".join(f"i64 {i}" for i in range(place.width))
        return self.w.emit(f"add <{place.width} x i64> {base}, <{lanes}>")

    def _const(self, e: Expr, width: int):
        if e.dtype.kind == "c":
            real = e.dtype.to_real()
            return tuple(_splat(number(v, real), _REGISTER[real], width)
                         for v in (e.attr.real, e.attr.imag))
        return _splat(number(e.attr, e.dtype), _REGISTER[e.dtype], width)

    def _spread(self, value, dtype: dt.dtype, width: int, have: int = 1):
        """One value in every lane."""
        if width == have:
            return value
        if have != 1:
            raise ValueError(f"cannot spread {have} lanes over {width}")
        if isinstance(value, tuple):
            return tuple(self._spread(v, dtype.to_real(), width) for v in value)
        type_, one = of_type(_REGISTER[dtype], width), _REGISTER[dtype]
        first = self.w.emit(f"insertelement {type_} poison, {one} {value}, i32 0")
        return self.w.emit(f"shufflevector {type_} {first}, {type_} poison, "
                           f"<{width} x i32> zeroinitializer")

    def _primitive(self, e: Expr, args, place: Place) -> str:
        head, width, w = e.head, place.width, self.w
        operand = e.args[0].dtype
        type_ = of_type(_REGISTER[operand], width)
        if head == "cast":
            return self._convert(args[0], operand, e.dtype, width)
        if head == "bitcast":
            return w.emit(f"bitcast {type_} {args[0]} to {of_type(_REGISTER[e.dtype], width)}")
        if head == "select":
            chosen = of_type(_REGISTER[e.dtype], width)
            return w.emit(f"select {type_} {args[0]}, {chosen} {args[1]}, {chosen} {args[2]}")
        if head in ex.COMPARISONS:
            return w.emit(_comparison(head, operand, type_, args))
        table = mathlib.TABLE.get((head, operand))
        if table is not None:
            return self.lower(ex.expand(table(*e.args)), place)
        if operand.kind == "f":
            return self._float_primitive(head, operand, type_, args, width)
        return self._int_primitive(head, operand, type_, args, width)

    def _float_primitive(self, head, dtype, type_, args, width) -> str:
        w = self.w
        if head in _FLOAT_OPS:
            return w.emit(f"{_FLOAT_OPS[head]} contract {type_} {args[0]}, {args[1]}")
        if head == "neg":
            return w.emit(f"fneg {type_} {args[0]}")
        suffix = f"v{width}" if width > 1 else ""
        suffix += "f32" if dtype is dt.float32 else "f64"
        if head == "abs":
            return w.call(f"llvm.fabs.{suffix}", type_, [(type_, args[0])])
        if head in _INTRINSICS:
            return w.call(f"llvm.{head}.{suffix}", type_, [(type_, a) for a in args])
        if head in LIBM:
            return self._libm(head, dtype, args, width)
        raise ValueError(f"no lowering of {head} for {dtype}")

    def _libm(self, head, dtype, args, width):
        one, w = _REGISTER[dtype], self.w
        name = head + ("f" if dtype is dt.float32 else "")
        lanes = []
        for lane in range(width):
            parts = [self._part(a, dtype, width, lane, 1) if width > 1 else a for a in args]
            lanes.append(w.call(name, one, [(one, p) for p in parts]))
        return lanes[0] if width == 1 else self._gathered(lanes, dtype, width)

    def _int_primitive(self, head, dtype, type_, args, width) -> str:
        w = self.w
        if head in _INT_OPS:
            name = {"add": "xor", "mul": "and", "sub": "xor"}.get(head, head) if (
                dtype is dt.bool_) else _INT_OPS[head]
            return w.emit(f"{name} {type_} {args[0]}, {args[1]}")
        if head in ("shl", "shr"):
            return self._shift(head, dtype, type_, args, width)
        if head == "neg":
            return w.emit(f"sub {type_} {_splat('0', _REGISTER[dtype], width)}, {args[0]}")
        if head == "not":
            ones = "true" if dtype is dt.bool_ else "-1"
            return w.emit(f"xor {type_} {args[0]}, {_splat(ones, _REGISTER[dtype], width)}")
        if head == "abs":
            if dtype.kind != "i":
                return args[0]
            suffix = (f"v{width}" if width > 1 else "") + _REGISTER[dtype]
            return w.call(f"llvm.abs.{suffix}", type_, [(type_, args[0]), ("i1", "false")])
        if head in ("floor", "ceil", "trunc", "rint"):
            return args[0]
        if head in ("truncdiv", "fmod"):
            return self._int_division(head, dtype, type_, args, width)
        raise ValueError(f"no lowering of {head} for {dtype}")

    def _shift(self, head, dtype, type_, args, width) -> str:
        """Shifts by the width or more give what shifting bit by bit would."""
        w, bits = self.w, dtype.itemsize * 8
        limit = _splat(str(bits), _REGISTER[dtype], width)
        inside = w.emit(f"icmp ult {type_} {args[1]}, {limit}")
        top = _splat(str(bits - 1), _REGISTER[dtype], width)
        flag = of_type("i1", width)
        by = w.emit(f"select {flag} {inside}, {type_} {args[1]}, {type_} {top}")
        code = "shl" if head == "shl" else "ashr" if dtype.kind == "i" else "lshr"
        moved = w.emit(f"{code} {type_} {args[0]}, {by}")
        if code == "ashr":
            return moved
        zero = _splat("0", _REGISTER[dtype], width)
        return w.emit(f"select {flag} {inside}, {type_} {moved}, {type_} {zero}")

    def _int_division(self, head, dtype, type_, args, width) -> str:
        """Division that cannot trap: by 0 it divides by 1, and MIN / -1 wraps."""
        w, signed = self.w, dtype.kind == "i"
        flag, a, b = of_type("i1", width), args[0], args[1]
        zero, one = (_splat(c, _REGISTER[dtype], width) for c in "01")
        unsafe = w.emit(f"icmp eq {type_} {b}, {zero}")
        if signed:
            minus = w.emit(f"icmp eq {type_} {b}, {_splat('-1', _REGISTER[dtype], width)}")
            both = w.emit(f"or {flag} {unsafe}, {minus}")
        else:
            minus, both = None, unsafe
        safe = w.emit(f"select {flag} {both}, {type_} {one}, {type_} {b}")
        sign = "s" if signed else "u"
        if head == "fmod":
            return w.emit(f"{sign}rem {type_} {a}, {safe}")
        quotient = w.emit(f"{sign}div {type_} {a}, {safe}")
        if minus is None:
            return quotient
        negated = w.emit(f"sub {type_} {zero}, {a}")
        return w.emit(f"select {flag} {minus}, {type_} {negated}, {type_} {quotient}")

    # -- conversions -----------------------------------------------------------------------------

    def _convert(self, value, source: dt.dtype, target: dt.dtype, width: int):
        if source is target:
            return value
        w = self.w
        if target.kind == "c":
            real = target.to_real()
            if source.kind == "c":
                return tuple(self._convert(v, source.to_real(), real, width) for v in value)
            zero = _splat(number(0.0, real), _REGISTER[real], width)
            return (self._convert(value, source, real, width), zero)
        if source.kind == "c":
            return self._convert(value[0], source.to_real(), target, width)
        a, b = of_type(_REGISTER[source], width), of_type(_REGISTER[target], width)
        if target is dt.bool_:
            zero = _splat(number(0, source), _REGISTER[source], width)
            code = "fcmp une" if source.kind == "f" else "icmp ne"
            return w.emit(f"{code} {a} {value}, {zero}")
        if source.kind == "f" and target.kind == "f":
            code = "fpext" if target.itemsize > source.itemsize else "fptrunc"
        elif source.kind == "f":
            return self._float_to_int(value, source, target, width)
        elif target.kind == "f":
            code = "uitofp" if source.kind in "bu" else "sitofp"
        elif source.itemsize == target.itemsize and source is not dt.bool_:
            return value
        elif target.itemsize < source.itemsize:
            code = "trunc"
        else:
            code = "zext" if source.kind in "bu" else "sext"
        return w.emit(f"{code} {a} {value} to {b}")

    def _float_to_int(self, value, source, target, width):
        """Truncate in 32 bits, or 64 for int64: what does not fit becomes the lowest integer.

        Narrower integers are cut from the 32 bits, as hardware conversions make them.
        """
        w, a, flag = self.w, of_type(_REGISTER[source], width), of_type("i1", width)
        bits = 64 if target is dt.int64 else 32
        whole = of_type(f"i{bits}", width)
        low, high = (_splat(number(bound, source), _REGISTER[source], width)
                     for bound in (-2.0 ** (bits - 1), 2.0 ** (bits - 1)))
        above = w.emit(f"fcmp oge {a} {value}, {low}")
        below = w.emit(f"fcmp olt {a} {value}, {high}")
        fits = w.emit(f"and {flag} {above}, {below}")
        safe = w.emit(f"select {flag} {fits}, {a} {value}, {a} {low}")
        out = w.emit(f"fptosi {a} {safe} to {whole}")
        if target.itemsize * 8 == bits:
            return out
        return w.emit(f"trunc {whole} {out} to {of_type(_REGISTER[target], width)}")

    # -- complex ---------------------------------------------------------------------------------

    def _lower_complex(self, e: Expr, place: Place):
        """Complex arithmetic as arithmetic on parts."""
        head = e.head
        if head == "cast":
            source = e.args[0].dtype
            return self._convert(self.lower(e.args[0], place), source, e.dtype, place.width)
        if head == "complex":
            return tuple(self.lower(a, place) for a in e.args)
        if head in ("real", "imag"):
            return self.lower(e.args[0], place)[head == "imag"]
        rule = complexlib.COMPLEX.get(head)
        if rule is None:
            raise ValueError(f"no lowering of {head} for {e.dtype}")
        parts: list[Expr | tuple[Expr, ...]] = []
        for a in e.args:
            value = self.lower(a, place)
            if a.dtype.kind != "c":
                parts.append(a)
                continue
            real = a.dtype.to_real()
            pair = tuple(ex.make(name, (a,), None, real) for name in ("real", "imag"))
            for node, v in zip(pair, value, strict=True):
                place.memo[node] = v
            parts.append(pair)
        result = rule(*parts)
        if isinstance(result, tuple):
            return tuple(self.lower(ex.expand(r), place) for r in result)
        return self.lower(ex.expand(result), place)


COMBINE = {
    "add":  lambda there, given: there + given,
    "mul":  lambda there, given: there * given,
    "amax": ex.maximum,
    "amin": ex.minimum,
}


#: vectors of states of a fold with one state and few steps, kept in flight: of places, or of rows
_MANY_FOLDS, _ROWS = 8, 4
#: elements that are added as they are, before they join a sum of a wider dtype; a power of two
_FEW = 16

#: what a step costs, in additions
_HEAVY = {"div": 4, "sqrt": 6, "truncdiv": 20, "fmod": 20, "const": 0, "param": 0, "fold": 0}


def _weight(e: Expr) -> float:
    if e.head in LIBM and (e.head, e.dtype) not in mathlib.TABLE:
        return 100
    if e.args and (e.head, e.args[0].dtype) in mathlib.TABLE:
        return 15
    return _HEAVY.get(e.head, 1) if isinstance(e.head, str) else 1


def _walk(e: Expr) -> set[Expr]:
    """Every node under an expr, each once."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.args)
    return seen


def _expanded(kind: str, payload):
    if kind == "fold":
        start, step, merge = (tuple(map(ex.expand, part))
                              for part in (payload.start, payload.step, payload.merge))
        return Fold(start, step, merge, _expanded("running", payload.running), payload.element)
    return tuple(Store(s.operand, ex.expand(s.value), None if s.coordinates is None else
                       tuple(map(ex.expand, s.coordinates)), s.combine) for s in payload)


def _splat(value: str, type_: str, width: int) -> str:
    return value if width == 1 else f"splat ({type_} {value})"


def _comparison(head, dtype, type_, args) -> str:
    if dtype.kind == "f":
        return f"fcmp {_FLOAT_COMPARE[head]} {type_} {args[0]}, {args[1]}"
    code = _INT_COMPARE[head]
    if dtype.kind in "bu" and code[0] == "s":
        code = "u" + code[1:]
    return f"icmp {code} {type_} {args[0]}, {args[1]}"


def _flatten(shapes, states) -> list[tuple[str, str]]:
    """(type, register) of each part of each state."""
    flat = []
    for (dtype, width), value in zip(shapes, states, strict=True):
        parts = value if isinstance(value, tuple) else (value,)
        type_ = of_type(_REGISTER[dtype.to_real() if dtype.kind == "c" else dtype], width)
        flat += [(type_, part) for part in parts]
    return flat


def _regroup(shapes, values) -> list:
    it = iter(values)
    return [(next(it), next(it)) if dtype.kind == "c" else next(it) for dtype, _ in shapes]


def _param_arguments(k: int, dtype: dt.dtype) -> list[str]:
    if dtype.kind == "c":
        return [f"double %a{k}r", f"double %a{k}i"]
    return [f"{'double' if dtype.kind == 'f' else 'i64'} %a{k}"]


def param_kinds(kernel: Kernel) -> str:
    """One letter per argument: p for a pointer, d for a double, q for an integer."""
    letters = "p" * len(kernel.operands)
    for dtype in kernel.params:
        letters += "dd" if dtype.kind == "c" else "d" if dtype.kind == "f" else "q"
    return letters + "q"


def to_ir(kernel: Kernel, name: str, bits: int) -> str:
    """The kernel as an LLVM function."""
    return Lowering(kernel, name, bits).text()
