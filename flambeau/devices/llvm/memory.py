"""A kernel's operands and numbers: where they are, and how elements are loaded and stored."""

from __future__ import annotations

from ...core import dtype as dt
from ...core import expr as ex
from ...core.expr import Expr
from ...core.kernel import Kernel, Store
from ..narrow import narrowed, widened
from .conversions import argument, convert, from_memory, to_memory
from .exprs import Exprs
from .types import MEMORY, of_type
from .vectors import gathered, part, spread
from .writer import Place, Writer

#: how what is stored at a place joins what is there
_COMBINE = {
    "add":  lambda there, given: there + given,
    "mul":  lambda there, given: there * given,
    "amax": ex.maximum,
    "amin": ex.minimum,
}  # fmt: skip


class Operands(Exprs):
    """Exprs whose leaves are elements of a kernel's operands, its numbers and its coordinates."""

    w: Writer

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.declared: dict[str, str] = {}
        super().__init__(Writer(self.declared))

    def begin(self) -> None:
        """Another function, which starts by reading its arguments."""
        self.w = Writer(self.declared)
        self.folds: dict[int, tuple[object, int]] = {}  # results, and of how many lanes
        self.params = [self._param(k, dtype) for k, dtype in enumerate(self.kernel.params)]
        self.sizes: list[str]
        self.strides: list[list[str]]
        self.own: list[list[str]] = [[] for _ in self.kernel.operands]  # of computed places
        if self.kernel.dense:
            self._know_layout()
        else:
            self._read_layout()

    def _param(self, k: int, dtype: dt.dtype):
        if dtype.kind == "c":
            real = dtype.to_real()
            return tuple(argument(self.w, f"%a{k}{half}", real) for half in "ri")
        return argument(self.w, f"%a{k}", dtype)

    def _know_layout(self) -> None:
        """Sizes and strides of a dense kernel, whose last argument is the number of elements."""
        operands = self.kernel.operands
        if self.kernel.reduced:  # one place, and all elements folded into it
            self.sizes = ["1", "%last"]
            self.strides = [["0", "0" if o.written else str(o.dtype.itemsize)] for o in operands]
        else:
            self.sizes = ["%last"]
            self.strides = [[str(o.dtype.itemsize if o.step == "1" else 0)] for o in operands]

    def _read_layout(self) -> None:
        """Sizes and strides from the layout array that the last argument is the address of."""
        kernel, w = self.kernel, self.w
        loops = kernel.kept + kernel.reduced
        w.do("%layout = inttoptr i64 %last to ptr")
        position = iter(range(10**6))

        def read() -> str:
            at = w.emit(f"getelementptr i64, ptr %layout, i64 {next(position)}")
            return w.emit(f"load i64, ptr {at}")

        self.sizes = [read() for _ in range(loops)]
        self.strides = [[read() for _ in range(loops)] for _ in kernel.operands]
        extra = kernel.indirect or (0,) * len(kernel.operands)
        self.own = [[read() for _ in range(n)] for n in extra]

    # -- leaves ------------------------------------------------------------------------------------

    def leaf(self, e: Expr, place: Place):
        if e.head == "input":
            return self._load(e.attr, place)
        if e.head == "load":
            return self._load(e.attr, self._computed_place(e.attr, e.args, place))
        if e.head == "param":
            return spread(self.w, self.params[e.attr], e.dtype, place.width)
        if e.head == "fold":
            value, width = self.folds[e.attr]
            return spread(self.w, value, e.dtype, place.width, width)
        if e.head == "index":
            return self._index(e.attr, place)
        return super().leaf(e, place)

    def _index(self, axis: int, place: Place) -> str:
        value = place.index[axis]
        if place.width == 1:
            return value
        base = spread(self.w, value, dt.int64, place.width)
        if axis != place.lane_axis:
            return base
        lanes = ", ".join(f"i64 {i}" for i in range(place.width))
        return self.w.emit(f"add <{place.width} x i64> {base}, <{lanes}>")

    # -- places ------------------------------------------------------------------------------------

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

    def _lane_pointers(self, k: int, place: Place) -> list[str]:
        w, pointer = self.w, place.pointers[k]
        assert place.strides is not None
        found = [pointer]
        for _ in range(place.width - 1):
            pointer = w.emit(f"getelementptr i8, ptr {pointer}, i64 {place.strides[k]}")
            found.append(pointer)
        return found

    # -- loads -------------------------------------------------------------------------------------

    def _load(self, k: int, place: Place):
        dtype, w, width = self.kernel.operands[k].dtype, self.w, place.width
        step = place.steps[k] if place.steps else "0"
        if width == 1 or step == "0":
            return spread(w, self._load_one(dtype, place.pointers[k]), dtype.compute, width)
        if dtype.kind == "c" and step == "1":
            return self._load_pairs(dtype.to_real(), place.pointers[k], width)
        if step == "1":
            type_ = of_type(MEMORY[dtype], width)
            raw = w.emit(f"load {type_}, ptr {place.pointers[k]}, align {dtype.itemsize}")
            return self._loaded(raw, dtype, width)
        if step == "-1" and dtype.kind != "c":
            return self._load_backwards(dtype, place.pointers[k], width)
        lanes = [self._load_one(dtype, p) for p in self._lane_pointers(k, place)]
        return gathered(w, lanes, dtype.compute, width)

    def _load_one(self, dtype: dt.dtype, pointer: str):
        w = self.w
        if dtype.kind == "c":
            real = dtype.to_real()
            after = w.emit(f"getelementptr i8, ptr {pointer}, i64 {real.itemsize}")
            return tuple(self._load_one(real, p) for p in (pointer, after))
        raw = w.emit(f"load {MEMORY[dtype]}, ptr {pointer}, align {dtype.itemsize}")
        return self._loaded(raw, dtype, 1)

    def _load_backwards(self, dtype: dt.dtype, pointer: str, width: int):
        w, type_ = self.w, of_type(MEMORY[dtype], width)
        first = w.emit(f"getelementptr i8, ptr {pointer}, i64 {(1 - width) * dtype.itemsize}")
        raw = w.emit(f"load {type_}, ptr {first}, align {dtype.itemsize}")
        mask = ", ".join(f"i32 {i}" for i in reversed(range(width)))
        turned = w.emit(f"shufflevector {type_} {raw}, {type_} poison, <{width} x i32> <{mask}>")
        return self._loaded(turned, dtype, width)

    def _load_pairs(self, real: dt.dtype, pointer: str, width: int):
        """Neighbouring complex numbers: all real parts, and all imaginary ones."""
        w, both = self.w, of_type(MEMORY[real], width * 2)
        raw = w.emit(f"load {both}, ptr {pointer}, align {real.itemsize}")
        masks = (", ".join(f"i32 {2 * i + odd}" for i in range(width)) for odd in (0, 1))
        parts = [w.emit(f"shufflevector {both} {raw}, {both} poison, <{width} x i32> <{m}>")
                 for m in masks]
        return tuple(self._loaded(p, real, width) for p in parts)

    def _loaded(self, raw: str, dtype: dt.dtype, width: int) -> str:
        """What was loaded, in the dtype that is computed in."""
        if dtype not in dt.FLOAT8:
            return from_memory(self.w, raw, dtype, width)
        i8, i32 = of_type("i8", width), of_type("i32", width)
        code = self.w.emit(f"zext {i8} {raw} to {i32}")
        place = Place(width, [], memo={ex.input(0, dt.int32): code})
        return self.lower(ex.expand(widened(dtype)), place)

    # -- stores ------------------------------------------------------------------------------------

    def stores(self, stores: tuple[Store, ...], place: Place) -> None:
        """All values, and then each to its place."""
        values = [self.lower(s.value, place) for s in stores]
        for store, value in zip(stores, values, strict=True):
            compute = self.kernel.operands[store.operand].dtype.compute
            value = convert(self.w, value, store.value.dtype, compute, place.width)
            if store.coordinates is not None:
                self._store_at(store, compute, value, place)
            else:
                self._store(store.operand, value, place)

    def _store_at(self, store: Store, compute: dt.dtype, value, place: Place) -> None:
        """Write at computed coordinates, joined to what is there."""
        there = self._computed_place(store.operand, store.coordinates, place)
        if store.combine is not None:
            old, given = (ex.make("state", (), k, compute) for k in (0, 1))
            joined = Place(place.width, [], memo={old: self._load(store.operand, there),
                                                  given: value})
            value = self.lower(ex.expand(_COMBINE[store.combine](old, given)), joined)
        self._store(store.operand, value, there)

    def _store(self, k: int, value, place: Place) -> None:
        w, dtype, pointer = self.w, self.kernel.operands[k].dtype, place.pointers[k]
        step = place.steps[k] if place.steps else "0"
        if place.width == 1:
            self._store_one(dtype, value, pointer)
        elif step == "1" and dtype.kind != "c":
            raw = self._in_memory(value, dtype, place.width)
            type_ = of_type(MEMORY[dtype], place.width)
            w.do(f"store {type_} {raw}, ptr {pointer}, align {dtype.itemsize}")
        else:
            for lane, p in enumerate(self._lane_pointers(k, place)):
                self._store_one(dtype, part(w, value, dtype.compute, place.width, lane, 1), p)

    def _store_one(self, dtype: dt.dtype, value, pointer: str) -> None:
        w = self.w
        if dtype.kind == "c":
            real = dtype.to_real()
            after = w.emit(f"getelementptr i8, ptr {pointer}, i64 {real.itemsize}")
            for half, p in zip(value, (pointer, after), strict=True):
                self._store_one(real, half, p)
            return
        raw = self._in_memory(value, dtype, 1)
        w.do(f"store {MEMORY[dtype]} {raw}, ptr {pointer}, align {dtype.itemsize}")

    def _in_memory(self, value: str, dtype: dt.dtype, width: int) -> str:
        """What is stored of a value in the dtype that is computed in."""
        if dtype not in dt.FLOAT8:
            return to_memory(self.w, value, dtype, width)
        place = Place(width, [], memo={ex.input(0, dt.float32): value})
        code = self.lower(ex.expand(narrowed(dtype)), place)
        return self.w.emit(f"trunc {of_type('i32', width)} {code} to {of_type('i8', width)}")
