"""A segment as one native call: launches in order, buffers placed in one arena.

    program = Program(launches, buffers, ...)     # see `build` in __init__
    program.run(outside pointers, live numbers)   # -> storages of the results

Memory that outlives the call (results) is taken anew on every run; all else lies in the arena.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import struct
import threading
from array import array
from functools import cached_property

from ..core.kernel import param_kinds
from ..devices.cpu.bridge import function_at, jit, wrapper_ir
from ..devices.cpu.compile import ADDRESSES, cache
from ..devices.cpu.memory import allocate, pool_of, reserve, return_idle_pages
from ..devices.cpu.objects import loaded
from .arrange import arranged
from .epilogue import Finished, parts
from .glue import finish_text
from .place import Placement
from .tape import Check, Launch, Live, Place

#: a program that does at least this many elements of work gives up the GIL
_ALIGN = 64


class Program:
    """Launches and where their memory is; compiled on first use."""

    def __init__(self, launches, buffers, constants, filled, results, keep):
        self.launches = launches = arranged(launches, buffers, {*results})
        self.sizes = buffers
        self.constants = constants      # bytes
        self.filled = filled            # buffer -> its first contents, b"" for zeros
        self.results = results          # buffers whose memory outlives a run, in order
        self.placement = Placement(launches, buffers, {*results}, filled)
        self.pools = [(pool_of(buffers[b]), buffers[b]) for b in results]
        self.keep = keep                # what native code reads besides: plans and their words
        self.outside = 1 + max((p.root[1] for step in launches for _, p in step.places()
                                if p.root[0] == "outside"), default=-1)
        self.numbers = 1 + max((a.index for step in launches for a in step.args
                                if isinstance(a, Live)), default=-1)
        # Routines, and addresses of what they read: those differ by process, but the program's code
        # does not, so that another process finds it on disk.
        calls = [s for step in launches for s in parts(step)
                 if isinstance(s, Launch) and s.kernel is None]
        self.routines = list(dict.fromkeys(ADDRESSES[s.function] for s in calls))
        self.foreign = list(dict.fromkeys(
            a for s in calls for a in s.args if type(a) is int and a > 1 << 32))
        self.idle = threading.Lock()    # held by who runs it
        self.checks = [step for step in launches if isinstance(step, Check)]
        self._data()

    # -- memory that stays ---------------------------------------------------------------------

    def _data(self) -> None:
        """Layout words, constants and first contents, in one block each program owns."""
        chunks: list[bytes] = []
        self.at: dict = {}
        size = 0

        def put(key, raw: bytes) -> None:
            nonlocal size
            self.at[key] = size
            chunks.append(raw)
            size += -(-len(raw) // _ALIGN) * _ALIGN

        for number, step in enumerate(self.launches):
            if isinstance(step, Launch) and step.words is not None:
                put(("words", number), array("q", step.words).tobytes())
        for number, raw in enumerate(self.constants):
            put(("constant", number), raw)
        for number, raw in self.filled.items():
            if number in self.placement.constant:
                put(("filled", number), raw or bytes(self.sizes[number]))
            elif raw:
                put(("filled", number), raw)
        self.data = allocate(max(1, size))
        ctypes.memset(self.data.address, 0, self.data.nbytes)
        for at, raw in zip(self.at.values(), chunks, strict=True):
            ctypes.memmove(self.data.address + at, raw, len(raw))
        # What lay in free lists for ops one by one is not needed as well as an arena.
        return_idle_pages()
        self.arena = reserve(max(1, self.placement.size))

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
        other.idle, other.arena = threading.Lock(), reserve(max(1, self.placement.size))
        other._own_table(self.table)
        return other

    def _run(self, pointers, numbers) -> list:
        code = self.code
        made = [pool.pop() if pool else allocate(n) for pool, n in self.pools]
        table = self.table
        for k, m in enumerate(made, 2):
            table[k] = m.address
        k = 2 + len(made)
        for pointer in pointers[:self.outside]:
            table[k] = pointer
            k += 1
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
        before = 2 + len(self.results) + self.outside + self.numbers
        self._own_table([0] * before + self.foreign + self.routines)
        self.foreign_at = {a: before + k for k, a in enumerate(self.foreign)}
        first = before + len(self.foreign)
        self.routine_at = {a: first + k for k, a in enumerate(self.routines)}
        self.work = sum(_work(step, self.sizes) for step in self.launches)
        body, called = self.ir()
        digest = hashlib.sha256(body.encode()).hexdigest()
        name = f"program_{digest[:24]}"
        add = jit().publish
        for symbol, address in called.items():
            add(symbol, address)
        wrapper, self.entry = loaded(
            cache().key(f"{name} {digest}"), (f"{name}_py", name),
            lambda: body.replace("@PROGRAM", f"@{name}") + wrapper_ir(name, "ppq", False))
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
        """The text of the program, and the code it calls: kernels, and `by_name` routines too."""
        lines: list[str] = []
        called: dict[str, int] = {}
        declared: dict[str, str] = {}
        counter = iter(range(10**9))

        def emit(code: str) -> str:
            name = f"%v{next(counter)}"
            lines.append(f"  {name} = {code}")
            return name

        def slot(index: int) -> str:
            at = emit(f"getelementptr i64, ptr %table, i64 {index}")
            return emit(f"load ptr, ptr {at}")

        bases: dict = {}

        def base(key) -> str:
            if key not in bases:
                bases[key] = slot(key)
            return bases[key]

        first = 2 + len(self.results)
        order = {b: 2 + k for k, b in enumerate(self.results)}

        def pointer(place: Place) -> str:
            kind, number = place.root
            if kind == "outside":
                root, offset = base(first + number), place.offset
            elif kind == "constant":
                root, offset = base(1), self.at["constant", number] + place.offset
            elif number in order:
                root, offset = base(order[number]), place.offset
            elif number in self.placement.constant:
                root, offset = base(1), self.at["filled", number] + place.offset
            else:
                host = self.placement.hosts.get(number)
                root = base(0 if host is None else order[host])
                offset = self.placement.offsets[number] + place.offset
            return root if offset == 0 else emit(f"getelementptr i8, ptr {root}, i64 {offset}")

        def fill(number: int, raw: bytes) -> None:
            """Put a buffer's first contents where it is: just before it is first used."""
            if number in self.placement.constant:
                return
            target = pointer(Place(("buffer", number), 0))
            if raw:
                source = emit(f"getelementptr i8, ptr {base(1)}, i64 {self.at['filled', number]}")
                lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, "
                             f"i64 {len(raw)}, i1 false)")
            else:
                lines.append(f"  call void @llvm.memset.p0.i64(ptr {target}, i8 0, "
                             f"i64 {self.sizes[number]}, i1 false)")

        fills: dict[int, list] = {}
        for b, raw in self.filled.items():
            if b in self.placement.first:
                fills.setdefault(self.placement.first[b], []).append((b, raw))
            else:  # handed out as it is
                fill(b, raw)

        def given(step: Launch, number: int) -> list[str]:
            """Arguments of a launch, each with its type."""
            args = []
            for i, a in enumerate(step.args):
                if isinstance(a, Place):
                    args.append(f"ptr {pointer(a)}")
                elif isinstance(a, Live):
                    at = emit(f"getelementptr i64, ptr %table, i64 "
                              f"{first + self.outside + a.index}")
                    args.append(f"double {emit(f'load double, ptr {at}')}")
                elif step.words is not None and i == len(step.args) - 1:
                    words = emit(f"getelementptr i8, ptr {base(1)}, i64 "
                                 f"{self.at['words', number] + 8}")
                    args.append(f"i64 {emit(f'ptrtoint ptr {words} to i64')}")
                elif step.kernel is None and a in self.foreign_at:
                    at = emit(f"getelementptr i64, ptr %table, i64 {self.foreign_at[a]}")
                    args.append(f"i64 {emit(f'load i64, ptr {at}')}")
                else:
                    args.append(_scalar(step, i, a))
            return args

        def code_of(step: Launch, args: list[str]) -> str:
            """What a launch calls."""
            address = ADDRESSES[step.function]
            if step.kernel is None and not by_name:
                return base(self.routine_at[address])
            symbol = _code_name(step)
            called[symbol] = address
            types = ", ".join(a.split()[0] for a in args)
            declared.setdefault(symbol, f"declare void @{symbol}({types})")
            return f"@{symbol}"

        glue: list[str] = []

        def finish_with(step: Finished, number: int, args: list[str]) -> None:
            """Let a routine, called with these arguments, have its pieces finished.

            It is given a copy of its words, as they are the same for all who call it.
            """
            output, name = step.output, f"finish_{len(glue)}"
            passed = given(step.then, number)
            text, held = finish_text(name, code_of(step.then, passed), step.then, passed,
                                     output.size)
            glue.append(text)
            for k, value in enumerate((args[0], *held)):
                at = emit(f"getelementptr i64, ptr %context, i64 {k}")
                lines.append(f"  store {value}, ptr {at}")
            where = emit(f"inttoptr {args[output.argument]} to ptr")
            lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr {where}, "
                         f"i64 {output.room}, i1 false)")
            for k, value in enumerate((f"@{name}", "%context")):
                at = emit(f"getelementptr i8, ptr %words, i64 {output.finish + 8 * k}")
                lines.append(f"  store ptr {value}, ptr {at}")
            args[output.argument] = f"i64 {emit('ptrtoint ptr %words to i64')}"

        checks = 0
        for number, step in enumerate(self.launches):
            for b, raw in fills.get(number, ()):
                fill(b, raw)
            if isinstance(step, Check):
                _check(step, checks, pointer, emit, lines)
                checks += 1
                continue
            launch = parts(step)[0]
            args = given(launch, number)
            if isinstance(step, Finished):
                finish_with(step, number, args)
            lines.append(f"  call void {code_of(launch, args)}({', '.join(args)})")
        text = "\n".join([*declared.values(),
                          "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
                          "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)", *glue,
                          "define void @PROGRAM(ptr %table, ptr %failed, i64 %work) {", "entry:",
                          *self._rooms(), *lines, "  ret void", "}", ""])
        return text, called

    def _rooms(self) -> list[str]:
        """Memory for what a routine is told of how to finish its pieces."""
        found = [step for step in self.launches if isinstance(step, Finished)]
        if not found:
            return []
        words = max(step.output.room for step in found)
        return [f"  %words = alloca [{words} x i8], align 16",
                f"  %context = alloca [{max(len(s.then.args) for s in found)} x i64], align 16"]

    def __str__(self) -> str:
        return "\n".join(map(str, self.launches))


def _check(step: Check, number: int, pointer, emit, lines: list[str]) -> None:
    """Leave the program, saying which check failed on what, if an index is out of bounds."""
    least, most = (emit(f"load i64, ptr {pointer(p)}") for p in (step.least, step.most))
    under = emit(f"icmp slt i64 {least}, {step.low}")
    over = emit(f"icmp sge i64 {most}, {step.high}")
    bad = emit(f"or i1 {under}, {over}")
    lines += [f"  br i1 {bad}, label %bad{number}, label %good{number}", f"bad{number}:",
              f"  store i64 {number + 1}, ptr %failed"]
    for k, value in enumerate((least, most)):
        at = emit(f"getelementptr i64, ptr %failed, i64 {k + 1}")
        lines.append(f"  store i64 {value}, ptr {at}")
    lines += ["  ret void", f"good{number}:"]


def _code_name(step: Launch) -> str:
    """A symbol for the code a launch calls; names of routines are not unique, addresses are."""
    if step.kernel is not None:
        return f"code_{step.name}"
    return f"code_{step.name}_{ADDRESSES[step.function]:x}"


def _scalar(step: Launch, i: int, a) -> str:
    """A number as an argument: a double, unless the kernel's parameter is an integer."""
    if step.kernel is not None:
        letter = param_kinds(step.kernel)[i]
        if letter == "d":
            return f"double {_double(float(a))}"
        return f"i64 {int(a)}"
    return f"double {_double(a)}" if isinstance(a, float) else f"i64 {int(a)}"


def _double(value: float) -> str:
    return "0x" + struct.pack(">d", value).hex().upper()


def _work(step, sizes: list[int]) -> int:
    """About how many elements a launch goes through; a routine by the memory it works on."""
    if isinstance(step, Finished):
        return _work(step.first, sizes) + _work(step.then, sizes)
    if isinstance(step, Check):
        return 0
    if step.words is not None:
        return step.words[0]
    if step.kernel is not None:
        return step.args[-1]
    return sum(sizes[p.root[1]] for _, p in step.places() if p.root[0] == "buffer") // 2
