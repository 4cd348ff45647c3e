"""The machine code of products, compiled or loaded from disk when first needed: by address."""

from __future__ import annotations

import functools
from array import array

from ....core.record import Record
from .. import threads
from ..objects import addresses, cache
from ..registers import many_registers
from . import scratch
from .host import AMX, Tile, adds_pairs, host_tile

#: dtype of operands -> dtype of sums
SUMS = {"float32": "float32", "float64": "float64", "float16": "float32", "bfloat16": "float32"}
SIZES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}


@functools.cache
def drivers(sums: str, finishing: bool = False) -> tuple[int, int]:
    """The addresses of a whole product (see drive.py) and of one block of it (see block.py)."""
    from .drive import driver_text

    threads.publish()
    scratch.publish()
    name, tile = f"matmul_{sums}{'_finishing' if finishing else ''}", host_tile(sums)
    whole, block = addresses(cache().key(name), (name, f"{name}_block"),
                             lambda: driver_text(tile, name, finishing))
    return whole, block


def driver(sums: str, finishing: bool = False) -> int:
    """The address of void matmul(ptr c, ptr a, ptr b, ptr d, ptr words)."""
    return drivers(sums, finishing)[0]


@functools.cache
def packer(dtype: str, paired: bool = False) -> int:
    """The address of the pack function of operands of a dtype, one by one or in pairs of k."""
    from .pack import Pack
    from .pairs import PairPack
    from .text import module

    name, tile = f"pack_{'pairs_' if paired else ''}{dtype}", host_tile(SUMS[dtype])
    make = PairPack if paired else Pack
    (found,) = addresses(cache().key(name), (name,),
                         lambda: module([make(tile, dtype).text(name)]))
    return found


@functools.cache
def around_tiles() -> tuple[int, ...]:
    """Addresses for AMX: pack functions of A and of B, what enters a block, and what leaves it."""
    from .amx import around_text

    names = ("amx_pack_left", "amx_pack_right", "amx_enter", "amx_leave")
    return tuple(addresses(cache().key("amx"), names, lambda: around_text(*names)))


class Family(Record):
    """Microkernels of one shape: up to `rows` by `columns`, which are `vectors` of `lanes`."""

    name: str
    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


@functools.cache
def family(name: str, sums: str) -> Family:
    """`square`: the host's own tile. `wide`: one row of many vectors. `dot`: sums along k.

    `amx`: its tiles, two by two. These and square ones read panels; the others read half precision
    where it lies.
    """
    t = host_tile(sums)
    shapes = {
        "square": (t.rows, t.vectors, t.lanes),
        "wide":   (1, 8, t.lanes),
        "dot":    (5 if many_registers() else 3, 1, 4),
        "amx":    (AMX.rows, AMX.vectors, AMX.lanes),
    }  # fmt: skip
    return Family(name, *shapes[name])


def halves(dtype: str) -> bool:
    """Whether tiles of half a vector take half the time: of vectors as wide as those of AVX-512
    many a CPU computes two halves in turn."""
    tile = host_tile(SUMS[dtype])
    return tile.dtype == dtype and tile.lanes * tile.size == 64


class Tiles:
    """Addresses of a family's microkernels, in groups of one for each number of rows.

    Groups have 1, 2 ... vectors of columns, and then again with the last vector masked; where there
    are any of half a vector, `half` is the first of two such groups, the second one masked.
    `finish` writes an activation (see tile.py); `finish_name` tells it from others.
    """

    def __init__(self, dtype: str, name: str = "square", finish=None, finish_name: str = "",
                 paired: bool = False):
        self.family, self.dtype, self.finish = family(name, SUMS[dtype]), dtype, finish
        self.amx = name == "amx"
        self.paired = paired or self.amx
        self.stem = f"tile_{name}_{'pairs_' if paired else ''}{dtype}{finish_name}"
        groups = 2 * self.family.vectors
        self.half = groups if name == "square" and halves(dtype) else 0
        self.table = array("q", bytes(8 * self.family.rows * (groups + 2)))
        self.address = self.table.buffer_info()[0]

    def need(self, n: int) -> int:
        """The table's address, with what a product of n columns calls."""
        shape = self.family
        if n >= shape.columns:
            self._load(shape.vectors, False)
        rest = n % shape.columns
        part = rest % shape.lanes
        if self.half and 0 < part <= shape.lanes // 2:
            self._load_half(part < shape.lanes // 2)
            rest -= part
        if rest:
            self._load(-(-rest // shape.lanes), rest % shape.lanes > 0)
        return self.address

    def depth(self, k: int) -> int:
        """How deep panels are: in pairs where there are pairs, in whole tiles where there are."""
        return -(-k // 32) * 16 if self.amx else k // 2 if self.paired else k

    def packers(self) -> tuple[int, int]:
        """The addresses of the pack functions of A and B."""
        if self.amx:
            left, right, *_ = around_tiles()
            return left, right
        return (packer(self.dtype, self.paired),) * 2

    def _load(self, vectors: int, masked: bool) -> None:
        group = vectors - 1 + masked * self.family.vectors
        self._fill(group, vectors, masked, f"{vectors}{'m' if masked else ''}",
                   host_tile(SUMS[self.dtype]))

    def _load_half(self, masked: bool) -> None:
        t = host_tile(SUMS[self.dtype])
        self._fill(self.half + masked, 1, masked, f"half{'m' if masked else ''}",
                   Tile(t.dtype, t.rows, 1, t.lanes // 2))

    def _fill(self, group: int, vectors: int, masked: bool, suffix: str, tile: Tile) -> None:
        """The addresses of a group's microkernels."""
        rows = self.family.rows
        start = group * rows
        if self.table[start]:
            return
        stem = f"{self.stem}_{suffix}"
        names = [stem] if self.amx else [f"{stem}_{r}" for r in range(1, rows + 1)]
        found = addresses(cache().key(stem), names,
                          lambda: self._text(names, vectors, masked, tile))
        self.table[start:start + rows] = array("q", found * (rows // len(found)))

    def _text(self, names, vectors: int, masked: bool, tile: Tile) -> str:
        from .pairs import add_products
        from .text import module
        from .tile import DotKernel, Kernel

        if self.amx:
            from .amx import kernel_texts

            return module(kernel_texts(names[0], vectors, masked, self.dtype, self.finish))
        make, width = (DotKernel, self.family.lanes) if self.family.name == "dot" else (
            Kernel, vectors)
        source = "" if self.family.name == "square" else self.dtype
        more = {"add": functools.partial(add_products, instruction=adds_pairs())} if (
            self.paired) else {}
        return module(make(tile, r, width, masked, self.dtype, self.finish, source,
                           **more).text(name) for r, name in enumerate(names, 1))


@functools.cache
def tiles(dtype: str, name: str = "square", paired: bool = False) -> Tiles:
    return Tiles(dtype, name, paired=paired)
