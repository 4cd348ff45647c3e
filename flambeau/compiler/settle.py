"""The program at the end of a known segment, as native code runs it and hands out its results.

And the signatures of many tensors changed at once, for those that are traced have others.
"""

from __future__ import annotations

import functools
import sys
from array import array
from types import CellType

from ..devices.cpu import bridge
from ..devices.cpu.assembly.settle_words import EMPTY, FAILED, PLAN
from ..devices.cpu.foundry import machine_code
from ..devices.cpu.memory import allocate
from ..engine.front_parts import slot_offset
from ..engine.tensor import Signature, Tensor
from .names import is_filled
from .phantom import traced

_CLASS = sys.intern("__class__")
CONTENTS = 16  # where a cell has its contents
PLAIN, TRACED = (slot_offset(Signature, name) for name in ("plain", "traced"))


@functools.cache
def _code() -> dict:
    bridge.jit().publish_python((
        "PyObject_SetAttr", "PyLong_FromVoidPtr", "PyType_GenericAlloc", "PyList_SetSlice"))
    offsets = tuple((n, slot_offset(Tensor, n)) for n in ("sig", "ptr", "mem", "node", "_grad"))
    return machine_code("settle", ("settle", "swap", "enter", "promise"), offsets)


class Promise:
    """The gradients that a way back on a known path gives to leaves that have none."""

    def __init__(self, leaves: list[int], results: list):
        made = dict(results)
        rows = array("q")
        for k in leaves:
            result = made.get(k)
            rows.extend((k, *((0, 0) if result is None else (id(result.traced), id(result.node)))))
        self._keep = results, rows, [(r.traced, r.node) for r in made.values()]
        self.rows, self.count = _address(rows), len(leaves)
        #: native(the trace's state, rows, count, 0) gives them; it says so with 0, and any other
        #: number says that a leaf has a gradient already, and nothing was done
        self.native = _code()["promise"]


class Tags:
    """The signatures of many tensors: as they are when nobody traces them, or as a trace sees them.

    `native(id(tensors), PLAIN or TRACED, 0)` changes those it knows, and says how many.
    """

    def __init__(self) -> None:
        self.native = _code()["swap"]

    def untag(self, tensors: list[Tensor]) -> None:
        self.native(id(tensors), PLAIN, 0)

    def retag(self, tensors: list[Tensor]) -> None:
        if self.native(id(tensors), TRACED, 0) < len(tensors):
            for x in tensors:
                x.sig = traced(x.sig)


class Reach:
    """What a function's code takes from around it, and the tensors that it can reach there."""

    def __init__(self, bound: list, tensors: list[Tensor], closely: bool):
        self.bound, self.tensors = bound, tensors
        self.closely = closely  # whether these are all of them
        #: names other than those of variables around the function, which native code looks at
        self.others = [row for row in bound if type(row[0]) is not CellType]
        self._words = array("q", [word for cell, _, value in bound if type(cell) is CellType
                                  for word in (id(cell) + CONTENTS, _word_in(cell, value))])
        #: what `enter` is told: it gives tensors other signatures unless a name has another meaning
        self.told = _address(self._words), len(self._words) // 2, id(tensors), TRACED, 0
        self.enter = _code()["enter"]


class Settling:
    """A variant of a segment's end whose program has been built: see devices/.../settle.py."""

    def __init__(self, variant, values: int, reverse):
        self.program = program = variant.program.prepare()
        self.pools = array("q", [id(pool) for pool, _ in program.pools])
        live = {*variant.held}
        self._live = array("q", [k in live for k in range(values)])
        number = {buffer: i for i, buffer in enumerate(program.results)}
        rows = array("q")
        for k, result in variant.live:
            (kind, root), offset = result.place.root, result.place.offset
            node = reverse.walked[k] if k in variant.wanting and k in reverse.consumed else None
            rows.extend((k, number[root] if kind == "buffer" else -1 - root, offset, id(node)))
        self._rows, self._reverse = rows, reverse
        said = {
            "count": values, "live": _address(self._live), "outside": program.outside,
            "results": len(program.results), "table": program.table_address,
            "failed": program.failed_address, "work": program.work,
            "threshold": bridge.GIL_THRESHOLD, "code": program.entry,
            "rows": _address(rows), "row_count": len(variant.live), "type": id(Tensor),
            "class_name": id(_CLASS), "pools": _address(self.pools),
            "last": not (variant.written or variant.bases or (
                variant.wanting and reverse.parts)),
        }
        self._plan = array("q", [said[name] for name in PLAN])
        self.address = _address(self._plan)
        self.settle = _code()["settle"]

    def run(self, state: int, numbers: list) -> list | None:
        """The storages of the results, or None if other values are held than is planned for."""
        program = self.program
        if numbers:
            program.put_numbers(numbers)
        made: list = []
        while answer := self.settle(state, self.address, id(made), 0):
            if answer == FAILED:
                program.refuse()
            if answer != EMPTY:
                return None
            made.append(allocate(program.pools[len(made)][1]))
        return made


def _word_in(cell, value) -> int:
    """What is in a cell with these contents; one without any has a word nevertheless."""
    return id(value) if value is not None or is_filled(cell) else 0


def _address(words: array) -> int:
    return words.buffer_info()[0] if words else 0
