"""A segment as one native call: launches in order, buffers placed in one arena.

    program = Program(launches, buffers, ...)     # see `build` in __init__
    program.run(outside pointers, live numbers)   # -> storages of the results

Memory that outlives the call (results) is taken anew on every run; all else lies in the arena.
"""

from __future__ import annotations

import copy
import ctypes
import threading
from array import array
from collections.abc import Iterator
from functools import cached_property

from ..core.digest import digest
from ..devices.cpu.bridge import function_at, jit, wrapper_ir
from ..devices.cpu.compile import ADDRESSES, cache
from ..devices.cpu.memory import allocate, pool_of, reserve, return_idle_pages
from ..devices.cpu.objects import loaded
from ..engine.launch import Check, Finished, Launch, Live, parts
from ..engine.packed import Packed
from .arrange import arranged
from .place import Placement
from .program_text import ProgramText
from .shown import show_code, shown

#: bytes that what lies in a program's data starts at multiples of
_ALIGN = 64


class Program:
    """Launches and where their memory is; compiled on first use."""

    def __init__(self, launches, buffers, constants, filled, results, keep):
        launches = shown("arranged", arranged(launches, buffers, {*results}))
        self.launches = launches
        self.packed: Packed | None = None
        self.sizes = buffers
        self.constants = constants      # bytes
        self.filled = filled            # buffer -> its first contents, b"" for zeros
        self.results = results          # buffers whose memory outlives a run, in order
        self.pools = [(pool_of(buffers[b]), buffers[b]) for b in results]
        self.keep = keep                # what native code reads besides: plans and their words
        self.outside = 1 + max((p.root[1] for step in launches for _, p in step.places()
                                if p.root[0] == "outside"), default=-1)
        self.numbers = 1 + max((a.index for step in launches for a in step.args
                                if isinstance(a, Live)), default=-1)
        # Kernels and routines, and addresses of what these read: those differ by process, but the
        # program's code does not, so that another process finds it on disk.
        calls = [parts(step)[0] for step in launches if not isinstance(step, Check)]
        self.routines = list(dict.fromkeys(ADDRESSES[s.function] for s in calls))
        self.foreign = list(dict.fromkeys(a for s in calls if s.kernel is None for a in s.args
                                          if type(a) is int and a > 1 << 32))
        self.idle = threading.Lock()    # held by who runs it
        self.checks = [step for step in launches if isinstance(step, Check)]
        self.data = self._written_data()
        # What lay in free lists for ops one by one is not needed as well as an arena.
        return_idle_pages()
        self.size = max(1, self.placement.size)
        self.arena = reserve(self.size)

    # -- memory that stays ---------------------------------------------------------------------

    def _contents(self) -> Iterator[tuple[tuple, bytes]]:
        """Layout words, constants and first contents."""
        for words in dict.fromkeys(step.words for step in self.launches
                                   if isinstance(step, Launch) and step.words is not None):
            yield ("words", words), array("q", words).tobytes()
        for number, raw in enumerate(self.constants):
            yield ("constant", number), raw
        for number, raw in self.filled.items():
            if number in self.placement.constant:
                yield ("filled", number), raw or bytes(self.sizes[number])
            elif raw:
                yield ("filled", number), raw

    def _written_data(self):
        """All of those in one block, which the program owns."""
        parts = {self.at[key]: raw for key, raw in self._contents()}
        data = reserve(max(1, sum(map(_room, parts.values()))))
        ctypes.memset(data.address, 0, data.nbytes)
        for at, raw in parts.items():
            ctypes.memmove(data.address + at, raw, len(raw))
        return data

    # -- what only its text needs: forgotten once there is code, and found again -----------------

    @cached_property
    def launches(self) -> list:
        """In order."""
        return [] if self.packed is None else self.packed.all()

    @cached_property
    def placement(self) -> Placement:
        """Where buffers are."""
        return Placement(self.launches, self.sizes, {*self.results}, self.filled)

    @cached_property
    def at(self) -> dict[tuple, int]:
        """Where what the program owns is in its data: nobody changes it, so it is there once."""
        found, size = {}, 0
        known: dict[bytes, int] = {}
        for key, raw in self._contents():
            found[key] = known.setdefault(raw, size)
            if found[key] == size:
                size += _room(raw)
        return found

    @cached_property
    def foreign_at(self) -> dict[int, int]:
        """Where in the table addresses of plans are."""
        return {a: self._before + k for k, a in enumerate(self.foreign)}

    @cached_property
    def routine_at(self) -> dict[int, int]:
        """Where in the table addresses of kernels and routines are."""
        first = self._before + len(self.foreign)
        return {a: first + k for k, a in enumerate(self.routines)}

    @property
    def _before(self) -> int:
        """How many words of the table change from run to run."""
        return 2 + len(self.results) + self.outside + self.numbers

    def _forget(self) -> None:
        if self.packed is None:
            self.packed = Packed(self.launches).close()
        for name in ("launches", "placement", "at", "foreign_at", "routine_at"):
            self.__dict__.pop(name, None)

    # -- running -------------------------------------------------------------------------------

    def run(self, pointers, numbers) -> list:
        """Run on outside memory; the storages of the results."""
        if not self.idle.acquire(False):  # another thread is in it, perhaps without the GIL
            return self._beside().run(pointers, numbers)
        try:
            return self._run(pointers, numbers)
        finally:
            self.idle.release()

    def _beside(self) -> Program:
        """The same program on an arena of its own."""
        other = copy.copy(self.prepare())
        other.idle, other.arena = threading.Lock(), reserve(self.size)
        other._own_table(self.table)
        return other

    def _run(self, pointers, numbers) -> list:
        code = self.code
        made = [pool.pop() if pool else allocate(n) for pool, n in self.pools]
        words = array("q", [m.address for m in made])
        words.extend(pointers[:self.outside])
        self.table[2:2 + len(words)] = words
        if numbers:
            self.put_numbers(numbers)
        code(self.table_address, self.failed_address, self.work)
        if self.failed[0]:
            self.refuse()
        return made

    def put_numbers(self, numbers) -> None:
        """Let the next run have these numbers."""
        first = 2 + len(self.results) + self.outside
        self.table[first:first + self.numbers] = array(
            "q", array("d", numbers[:self.numbers]).tobytes())

    def refuse(self) -> None:
        """Raise what the check says that did not hold in the last run."""
        number, least, most = self.failed[0] - 1, self.failed[1], self.failed[2]
        self.failed[0] = 0
        check = self.checks[number]
        raise check.refuse(least if least < check.low else most)

    @cached_property
    def code(self):
        """The native function (table, where to say what failed, work)."""
        self._own_table([0] * self._before + self.foreign + self.routines)
        self.work = sum(work_of(step, self.sizes) for step in self.launches)
        text, known = ProgramText(self, False), digest()
        for piece in text.pieces():  # all of it is there at once only if it has to be compiled
            known.update(piece.encode())
        name = f"program_{known.hexdigest()[:24]}"
        add = jit().publish
        for symbol, address in text.called.items():
            add(symbol, address)
        wrapper, self.entry = loaded(
            cache().key(f"{name} {known.hexdigest()}"), (f"{name}_py", name),
            lambda: self.ir()[0].replace("@PROGRAM", f"@{name}") + wrapper_ir(name, "ppq", False))
        show_code(self)
        self._forget()
        return function_at(wrapper, name)

    def _own_table(self, words) -> None:
        """What the native function reads of a run, and where it says what failed."""
        self.table = array("q", words)
        self.table[0], self.table[1] = self.arena.address, self.data.address
        self.table_address = self.table.buffer_info()[0]
        self.failed = array("q", (0, 0, 0))
        self.failed_address = self.failed.buffer_info()[0]

    def prepare(self) -> Program:
        _ = self.code
        return self

    def ir(self, by_name: bool = False) -> tuple[str, dict[str, int]]:
        """The text of the program, and the code that it calls by name: all of it if `by_name`."""
        text = ProgramText(self, by_name)
        return "".join(text.pieces()), text.called

    def __str__(self) -> str:
        from .loops import program_text  # only people need it

        return program_text(self)


def _room(raw: bytes) -> int:
    """Bytes that something takes in a program's data."""
    return -(-len(raw) // _ALIGN) * _ALIGN


def work_of(step, sizes: list[int]) -> int:
    """About how many elements a launch goes through; a routine by the memory it works on."""
    if isinstance(step, Finished):
        return work_of(step.first, sizes) + work_of(step.then, sizes)
    if isinstance(step, Check):
        return 0
    if step.words is not None:
        return step.words[0]
    if step.kernel is not None:
        return step.args[-1]
    return sum(sizes[p.root[1]] for _, p in step.places() if p.root[0] == "buffer") // 2
