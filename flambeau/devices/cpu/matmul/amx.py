"""bfloat16 by tiles, for CPUs with AMX: an instruction multiplies 16 rows of 32 k by 16 columns.

Two by two of the eight tiles hold sums, two hold rows and two hold columns. Panels of B are those
of pairs.py; panels of A have, for every tile's worth of k, the rows one after the other. Both are
filled up in k with zeros, so that all tiles are whole and one configuration serves every product;
rows and columns beyond those there are come out as anything, and are left where they are.

Tiles are a thread's own, and a thread without any is cheaper to switch: a block of a product sets
them up when it is entered and gives them back when it is left.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ..bridge import jit
from .block import call_pack
from .host import AMX, SYSTEM_CALL
from .pack import ARGUMENTS as PACK_ARGUMENTS
from .pack import Pack
from .pairs import PairPack
from .text import Code, module
from .tile import ARGUMENTS, FRAME, Kernel, _Tile

#: rows of a tile, and pairs of k or sums in a row of it; bytes of a row, of two rows side by side,
#: and of two tiles
SIDE, LINE, BESIDE, BOTH = 16, 64, 128, 2048
#: rows of sums that are finished at a time
GROUP = 4
#: as the CPU reads it: a palette, then for each tile how long its rows are, and how many it has
CONFIGURATION = struct.pack("<B15x8H16x8B8x", 1, *[LINE] * 8, *[SIDE] * 8)


class Registers:
    """What the CPU does with tiles, which are known by number."""

    def __init__(self, w: Code):
        self.w = w

    def _do(self, name: str, *given: tuple[str, str]) -> None:
        self.w.call(f"llvm.x86.{name}", "void", list(given))

    def configure(self) -> None:
        bytes_ = "".join(f"\\{byte:02X}" for byte in CONFIGURATION)
        self.w.declared["amx_shapes"] = f'@amx_shapes = internal constant [64 x i8] c"{bytes_}"'
        self.ask()
        self._do("ldtilecfg", ("ptr", "@amx_shapes"))

    def ask(self) -> None:
        """Have the system permit it, once: host.py did, but nobody has where exported code runs."""
        w, numbers = self.w, ", ".join(f"i64 {n}" for n in SYSTEM_CALL)
        w.declared["amx_asked"] = "@amx_asked = internal global i64 0"
        asked = w.emit("load atomic i64, ptr @amx_asked acquire, align 8")

        def call() -> None:
            w.emit('call i64 asm sideeffect "syscall", '
                   f'"={{rax}},{{rax}},{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}}"({numbers})')
            w.do("store atomic i64 1, ptr @amx_asked release, align 8")

        w.when(w.is_("eq", asked, 0), call)

    def release(self) -> None:
        self._do("tilerelease")

    def zero(self, tile: int) -> None:
        self._do("tilezero", ("i8", str(tile)))

    def load(self, tile: int, place: str, stride: int) -> None:
        self._do("tileloadd64", ("i8", str(tile)), ("ptr", place), ("i64", str(stride)))

    def store(self, tile: int, place: str, stride: int) -> None:
        self._do("tilestored64", ("i8", str(tile)), ("ptr", place), ("i64", str(stride)))

    def add_products(self, sums: int, left: int, right: int) -> None:
        self._do("tdpbf16ps", *(("i8", str(tile)) for tile in (sums, left, right)))


class _Ends(_Tile):
    """Finishes rows of sums that wait in memory, at %s."""

    def _sums(self) -> dict:
        self.c_rows = self.rows_from("%c", self.word("c_row"))
        places = {(r, v): self.at("%s", r * BESIDE + v * LINE) for r, v in self.places}
        return {p: self.w.emit(f"load {self.t.vector}, ptr {at}") for p, at in places.items()}


def kernel_texts(name: str, vectors: int, masked: bool, out: str,
                 finish: Callable | None) -> list[tuple[str, dict]]:
    """A microkernel as in tile.py, for panels of any number of rows, and the functions it calls."""
    w = Code()
    tiles, sums = Registers(w), w.emit(f"alloca [{AMX.rows * BESIDE} x i8], align {LINE}")
    s_step, c_row, d_row = (w.word("%frame", FRAME.index(f)) for f in ("s_step", "c_row", "d_row"))
    rows, after = w.op("lshr", s_step, 2), w.mul(s_step, SIDE)
    w.when(w.is_("sgt", rows, SIDE), lambda: _multiply(w, tiles, 2, vectors, after, sums),
           lambda: _multiply(w, tiles, 1, vectors, after, sums))

    def end(count: int):
        return lambda r, _: w.do(
            f"call void @{name}_end{count}(ptr {w.at(sums, w.mul(r, BESIDE))}, ptr null, i64 0, "
            f"ptr {w.at('%c', w.mul(r, c_row))}, ptr {w.at('%d', w.mul(r, d_row))}, ptr %frame, "
            "i64 %columns)")

    whole = w.op("and", rows, -GROUP)
    w.loop(0, whole, GROUP, end(GROUP))
    w.loop(whole, rows, 1, end(1))
    ends = [_Ends(Kernel(AMX, count, vectors, masked, out, finish), f"{name}_end{count}")
            for count in (GROUP, 1)]
    return [(w.function(name, ARGUMENTS), w.declared), *(one.text() for one in ends)]


def _multiply(w: Code, tiles: Registers, high: int, wide: int, after: str, sums: str) -> None:
    """Sums of one or two tiles of rows by as many of columns; S goes on `after` so many bytes."""
    places = {(i, j): 2 * i + j for i in range(high) for j in range(wide)}
    for tile in places.values():
        tiles.zero(tile)

    def step(_, at):
        s, v = at
        for j in range(wide):
            tiles.load(6 + j, w.at(v, j * LINE), BESIDE)
        for i in range(high):
            tiles.load(4 + i, w.at(s, i * SIDE * LINE), LINE)
            for j in range(wide):
                tiles.add_products(places[i, j], 4 + i, 6 + j)
        return [w.at(s, after), w.at(v, BOTH)]

    w.loop(0, "%k", SIDE, step, [("ptr", "%s"), ("ptr", "%v")])
    for (i, j), tile in places.items():
        tiles.store(tile, w.at(sums, i * BOTH + j * LINE), BESIDE)


# -- panels, and what happens around blocks --------------------------------------------------------


def _right(name: str, pairs: str) -> tuple[str, dict]:
    """Panels of B, by the pack function of pairs; then half a pair if k is odd, and zeros."""
    w = Code()
    whole, odd = w.op("lshr", "%k", 1), w.op("and", "%k", 1)
    call_pack(w, pairs, "%from", "%lane", "%step", "%lanes", whole, "%to", "%pitch", "%panel")
    filled, beyond = w.mul(whole, "%pitch"), w.mul(whole, "%step")

    def fill(j, _):
        panel = w.at("%to", w.mul(w.op("udiv", j, AMX.columns), "%panel"))
        w.loop(filled, "%panel", LINE, lambda byte, _: w.do(
            f"store {AMX.vector} zeroinitializer, ptr {w.at(panel, byte)}, align 4"))
        lanes, row = w.least(AMX.columns, w.sub("%lanes", j)), w.at(panel, filled)

        def half(i, _):
            place = w.at(w.at("%from", w.mul(w.add(i, j), "%lane")), beyond)
            one = w.emit(f"zext i16 {w.emit(f'load i16, ptr {place}')} to i32")
            w.do(f"store i32 {one}, ptr {w.at(row, w.mul(i, 4))}")

        w.loop(0, w.mul(lanes, odd), 1, half)

    w.loop(0, "%lanes", AMX.columns, fill)
    return w.function(name, PACK_ARGUMENTS), w.declared


def _left(name: str, right: str, copy: str) -> tuple[str, dict]:
    """Panels of A. Pairs that lie together are copied, others turned by way of a panel like B's."""
    w = Code()
    spare = w.emit(f"alloca [{BOTH + LINE} x i8], align {LINE}")
    rows, together = w.op("lshr", "%pitch", 2), w.is_("eq", "%step", 4)

    def panel(_, starts):
        def part(k, at):
            source, to = at
            count = w.least(2 * SIDE, w.sub("%k", k))

            def turn() -> None:
                call_pack(w, right, source, "%lane", "%step", rows, count, spare, BESIDE, BOTH)
                call_pack(w, copy, spare, BESIDE, 4, SIDE, rows, to, LINE, 0)

            w.when(w.op("and", together, w.is_("eq", count, 2 * SIDE), "i1"), lambda: call_pack(
                w, copy, source, 4, "%lane", SIDE, rows, to, LINE, 0), turn)
            return [w.at(source, w.mul("%step", SIDE)), w.at(to, w.mul(rows, LINE))]

        w.loop(0, "%k", 2 * SIDE, part, [("ptr", start) for start in starts])
        return [w.at(starts[0], w.mul(rows, "%lane")), w.at(starts[1], "%panel")]

    w.loop(0, "%lanes", rows, panel, [("ptr", "%from"), ("ptr", "%to")])
    return w.function(name, PACK_ARGUMENTS), w.declared


def around_text(left: str, right: str, enter: str, leave: str) -> str:
    """The module with the pack functions of A and B, and what is called before and after a block.

    Pack functions are told how many elements of k there are, though steps are from pair to pair.
    """
    jit().llvm.initialize_native_asmparser()  # the system call is written in assembly
    pairs, copy, first, last = f"{right}_pairs", f"{left}_copy", Code(), Code()
    Registers(first).configure()
    Registers(last).release()
    return module([PairPack(AMX, "bfloat16").text(pairs), Pack(AMX, "float32").text(copy),
                   _right(right, f"@{pairs}"), _left(left, f"@{right}", f"@{copy}"),
                   (first.function(enter, ""), first.declared),
                   (last.function(leave, ""), last.declared)])
