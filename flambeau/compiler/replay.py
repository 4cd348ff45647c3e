"""A program that runs again without Python in between: guards, memory and gradients in one call.

Only what every call is given anew is left to Python: arguments, and memory where a free list has
none.
"""

from __future__ import annotations

import functools
from array import array

from ..devices.cpu import bridge
from ..devices.cpu.assembly.player_words import CHANGED, PLAN, ROW
from ..devices.cpu.assembly.settle_words import EMPTY, FAILED
from ..devices.cpu.foundry import machine_code
from ..devices.cpu.memory import allocate
from ..engine.front_parts import slot_offset
from ..engine.tensor import Tensor
from .settle import CONTENTS

__all__ = ["CHANGED", "Replay", "play"]


@functools.cache
def play():
    bridge.jit().publish_python(("PyType_GenericAlloc", "PyLong_FromVoidPtr"))
    offsets = tuple((n, slot_offset(Tensor, n)) for n in ("sig", "ptr", "mem", "node", "_grad"))
    return machine_code("player", ("play",), offsets)["play"]


class Replay:
    """One run of a program, as `play` is told of it.

    guarded: (tensor, signature, node) of all that must be as it was
    cells: (cell, what must be in it)
    fixed: place among the program's inputs -> a tensor that is always the same
    grads: (leaf, signature, number of the result) whose memory is used again
    kept: (value, signature, node, number of the result, offset) that are handed out
    """

    def __init__(self, program, guarded, cells, fixed: dict, grads, kept, numbers):
        self.program, self.numbers, self.cells = program, numbers, cells
        self.handed = [value for value, *_ in kept]
        program.prepare()
        first = 2 + len(program.results)
        place = {id(x): first + k for k, x in fixed.items() if k < program.outside}
        # A tensor that is read at two places is told of at the first; the rest are told again.
        rows = [(x, sig, node, -1) for x, sig, node in guarded if id(x) not in place]
        known = {id(x): (sig, node) for x, sig, node in guarded}
        rows += [(x, *known[id(x)], first + k) for k, x in fixed.items() if k < program.outside]
        self._guards = array("q", [w for x, sig, node, at in rows
                                   for w in (id(x), id(sig), id(node), at)])
        self._grads = array("q", [w for leaf, sig, n in grads
                                  for w in (id(leaf), id(sig), 2 + n, 0)])
        own = {n for _, _, n in grads}
        others = [n for n in range(len(program.pools)) if n not in own]
        self._pools = array("q", [id(program.pools[n][0]) for n in others])
        self._slots = array("q", [2 + n for n in others])
        self.sizes = [program.pools[n][1] for n in others]
        self._kept = array("q", [w for _, sig, node, n, offset in kept
                                 for w in (id(sig), id(node), others.index(n), offset)])
        self._keep = (rows, grads, kept)
        self._words = array("q", [w for cell, value in cells
                                  for w in (id(cell) + CONTENTS, id(value))])
        said = {
            "words": _address(self._words), "word_count": len(cells),
            "guards": _address(self._guards), "guard_count": len(rows),
            "grads": _address(self._grads), "grad_count": len(self._grads) // ROW,
            "pools": _address(self._pools), "slots": _address(self._slots),
            "pool_count": len(others), "kept": _address(self._kept), "kept_count": len(kept),
            "table": program.table_address, "failed": program.failed_address,
            "work": program.work, "threshold": bridge.GIL_THRESHOLD, "code": program.entry,
            "type": id(Tensor),
        }
        self._plan = array("q", [said[name] for name in PLAN])
        self.address = _address(self._plan)
        self.native = play()
        self.first = first
        self.is_patient = False     # whether the call is made with Python if a check fails

    def run(self, moving, made: list) -> dict | int:
        """Run on tensors (place among the inputs, tensor) that are not fixed; the values handed
        out, or why nothing was done. made: an empty list, for the memory of results."""
        program = self.program
        if self.numbers:
            program.put_numbers(self.numbers)
        for k, x in moving:
            program.table[self.first + k] = x.ptr
        values: list[Tensor] = []
        while refused := self.native(self.address, id(made), id(values), 0):
            if refused == FAILED:
                if self.is_patient:
                    program.failed[0] = 0
                    return CHANGED
                program.refuse()
            if refused != EMPTY:
                return refused
            made.append(allocate(self.sizes[len(made)]))
        return dict(zip(self.handed, values, strict=True))


def _address(words: array) -> int:
    return words.buffer_info()[0] if words else 0
