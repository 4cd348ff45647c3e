"""A program as LLVM IR: its launches in order, on addresses that it finds in a table.

The table holds where the arena and the program's own data are, then the results, tensors from
outside, numbers, and what differs from process to process: addresses of plans and of code.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..core.kernel import param_kinds
from ..devices.cpu.compile import ADDRESSES
from ..engine.launch import Check, Finished, Launch, Live, Place, parts
from .glue import finish_text
from .place import UNUSED

_DECLARED = ("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
             "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")


class ProgramText:
    """Writes one program; kernels and routines are called by name, or else through the table."""

    def __init__(self, program, by_name: bool):
        self.program, self.by_name = program, by_name
        self.first = 2 + len(program.results)
        self.order = {b: 2 + k for k, b in enumerate(program.results)}
        self.lines: list[str] = []              # of the piece that is being written
        self.glue: dict[str, str] = {}          # text of functions that finish pieces -> name
        self.called: dict[str, int] = {}
        self.declared: dict[str, str] = {}
        self.bases: dict[int, str] = {}         # words of the table that were loaded
        self.values = self.checks = 0

    def pieces(self) -> Iterator[str]:
        """The text, launch by launch, so that nobody has to hold all of it; `called` is known then.

        Functions that it calls come last: what they are is seen on the way.
        """
        yield "define void @PROGRAM(ptr %table, ptr %failed, i64 %work) {\nentry:\n"
        self.lines += self._rooms()
        fills = self._first_contents()
        for number, step in enumerate(self.program.launches):
            for b, raw in fills.get(number, ()):
                self._fill(b, raw)
            if isinstance(step, Check):
                self._check(step)
            else:
                self._launch(step, number)
            yield "\n".join([*self.lines, ""])
            self.lines.clear()
        self.lines += ["  ret void", "}", *self.declared.values(), *_DECLARED, ""]
        yield "\n".join(self.lines)
        for text, name in self.glue.items():
            yield text.replace("@FINISH", f"@{name}")

    # -- values ----------------------------------------------------------------------------------

    def _emit(self, code: str) -> str:
        name = f"%v{self.values}"
        self.values += 1
        self.lines.append(f"  {name} = {code}")
        return name

    def _base(self, index: int) -> str:
        """A word of the table, loaded once."""
        if index not in self.bases:
            at = self._emit(f"getelementptr i64, ptr %table, i64 {index}")
            self.bases[index] = self._emit(f"load ptr, ptr {at}")
        return self.bases[index]

    def _pointer(self, place: Place) -> str:
        kind, number = place.root
        program, offset = self.program, place.offset
        if kind == "outside":
            root = self._base(self.first + number)
        elif kind == "constant":
            root, offset = self._base(1), program.at["constant", number] + offset
        elif number in self.order:
            root = self._base(self.order[number])
        elif number in program.placement.constant:
            root, offset = self._base(1), program.at["filled", number] + offset
        else:
            host = program.placement.hosts.get(number)
            root = self._base(0 if host is None else self.order[host])
            offset += program.placement.offsets[number]
        return root if offset == 0 else self._emit(f"getelementptr i8, ptr {root}, i64 {offset}")

    # -- first contents --------------------------------------------------------------------------

    def _first_contents(self) -> dict[int, list]:
        """Buffers that start with something, by the launch that first uses them."""
        fills: dict[int, list] = {}
        for b, raw in self.program.filled.items():
            first = self.program.placement.first[b]
            if first != UNUSED:
                fills.setdefault(first, []).append((b, raw))
            else:  # handed out as it is
                self._fill(b, raw)
        return fills

    def _fill(self, number: int, raw: bytes) -> None:
        """Put a buffer's first contents where it is: just before it is first used."""
        program = self.program
        if number in program.placement.constant:
            return
        target = self._pointer(Place(("buffer", number), 0))
        if raw:
            source = self._emit(f"getelementptr i8, ptr {self._base(1)}, i64 "
                                f"{program.at['filled', number]}")
            self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, "
                              f"i64 {len(raw)}, i1 false)")
        else:
            self.lines.append(f"  call void @llvm.memset.p0.i64(ptr {target}, i8 0, "
                              f"i64 {program.sizes[number]}, i1 false)")

    # -- launches --------------------------------------------------------------------------------

    def _launch(self, step, number: int) -> None:
        launch = parts(step)[0]
        args = self._given(launch, number)
        if isinstance(step, Finished):
            self._finish_with(step, number, args)
        code = self._code_of(launch, args, self.by_name)
        self.lines.append(f"  call void {code}({', '.join(args)})")

    def _given(self, step: Launch, number: int) -> list[str]:
        """Arguments of a launch, each with its type."""
        program, emit, args = self.program, self._emit, []
        for i, a in enumerate(step.args):
            if isinstance(a, Place):
                args.append(f"ptr {self._pointer(a)}")
            elif isinstance(a, Live):
                at = emit(f"getelementptr i64, ptr %table, i64 "
                          f"{self.first + program.outside + a.index}")
                args.append(f"double {emit(f'load double, ptr {at}')}")
            elif step.words is not None and i == len(step.args) - 1:
                words = emit(f"getelementptr i8, ptr {self._base(1)}, i64 "
                             f"{program.at['words', step.words] + 8}")
                args.append(f"i64 {emit(f'ptrtoint ptr {words} to i64')}")
            elif step.kernel is None and a in program.foreign_at:
                at = emit(f"getelementptr i64, ptr %table, i64 {program.foreign_at[a]}")
                args.append(f"i64 {emit(f'load i64, ptr {at}')}")
            else:
                args.append(_scalar(step, i, a))
        return args

    def _code_of(self, step: Launch, args: list[str], by_name: bool) -> str:
        """What a launch calls. Through the table the code of the program is a quarter smaller."""
        address = ADDRESSES[step.function]
        if not by_name:
            return self._base(self.program.routine_at[address])
        symbol = _code_name(step)
        self.called[symbol] = address
        types = ", ".join(a.split()[0] for a in args)
        self.declared.setdefault(symbol, f"declare void @{symbol}({types})")
        return f"@{symbol}"

    def _finish_with(self, step: Finished, number: int, args: list[str]) -> None:
        """Let a routine, called with these arguments, have its pieces finished.

        It is given a copy of its words, as they are the same for all who call it.
        """
        emit, output = self._emit, step.output
        passed = self._given(step.then, number)
        text, held = finish_text("FINISH", self._code_of(step.then, passed, True), step.then,
                                 passed, output.size)
        name = self.glue.setdefault(text, f"finish_{len(self.glue)}")
        for k, value in enumerate((args[0], *held)):
            at = emit(f"getelementptr i64, ptr %context, i64 {k}")
            self.lines.append(f"  store {value}, ptr {at}")
        where = emit(f"inttoptr {args[output.argument]} to ptr")
        self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr {where}, "
                          f"i64 {output.room}, i1 false)")
        for k, value in enumerate((f"@{name}", "%context")):
            at = emit(f"getelementptr i8, ptr %words, i64 {output.finish + 8 * k}")
            self.lines.append(f"  store ptr {value}, ptr {at}")
        args[output.argument] = f"i64 {emit('ptrtoint ptr %words to i64')}"

    def _rooms(self) -> list[str]:
        """Memory for what a routine is told of how to finish its pieces."""
        found = [step for step in self.program.launches if isinstance(step, Finished)]
        if not found:
            return []
        words = max(step.output.room for step in found)
        return [f"  %words = alloca [{words} x i8], align 16",
                f"  %context = alloca [{max(len(s.then.args) for s in found)} x i64], align 16"]

    def _check(self, step: Check) -> None:
        """Leave the program, saying which check failed on what, if an index is out of bounds."""
        emit, number = self._emit, self.checks
        self.checks += 1
        least, most = (emit(f"load i64, ptr {self._pointer(p)}") for p in (step.least, step.most))
        under = emit(f"icmp slt i64 {least}, {step.low}")
        over = emit(f"icmp sge i64 {most}, {step.high}")
        bad = emit(f"or i1 {under}, {over}")
        self.lines += [f"  br i1 {bad}, label %bad{number}, label %good{number}", f"bad{number}:",
                       f"  store i64 {number + 1}, ptr %failed"]
        for k, value in enumerate((least, most)):
            at = emit(f"getelementptr i64, ptr %failed, i64 {k + 1}")
            self.lines.append(f"  store i64 {value}, ptr {at}")
        self.lines += ["  ret void", f"good{number}:"]


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
