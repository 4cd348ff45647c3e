"""Text of functions that finish pieces of what a routine makes: see epilogue.py.

    void @name(ptr at, i64 rows, i64 columns, i64 row_bytes, ptr context)

runs a dense kernel on a piece that starts at `at`. The context holds where the whole output starts,
where the kernel's operands do, and the numbers that are given anew on every run.
"""

from __future__ import annotations

from ..devices.text import Text
from ..engine.launch import Launch, Live, Place

_ARGUMENTS = "ptr %at, i64 %rows, i64 %columns, i64 %row_bytes, ptr %context"


def finish_text(name: str, code: str, launch: Launch, passed: list[str],
                size: int) -> tuple[str, list[str]]:
    """The function, and what of a launch's arguments follows the output in the context.

    `passed` are those arguments with their types; `size` is that of an element of the output.
    """
    w, operands = Text(), launch.kernel.operands
    held: list[str] = []

    def kept(number: int, type_: str) -> str:
        at = w.emit(f"getelementptr i64, ptr %context, i64 {number}")
        return w.emit(f"load {type_}, ptr {at}")

    here, start = (w.emit(f"ptrtoint ptr {p} to i64") for p in ("%at", kept(0, "ptr")))
    first = w.emit(f"sdiv exact i64 {w.emit(f'sub i64 {here}, {start}')}, {size}")
    pitch = w.emit(f"sdiv exact i64 %row_bytes, {size}")
    given = []
    for a, value in zip(launch.args[:-1], passed, strict=False):
        if isinstance(a, Place | Live):
            held.append(value)
            type_ = value.split()[0]
            value = f"{type_} {kept(len(held), type_)}"
        given.append(value)

    def call(number: str, elements: str) -> None:
        """The kernel on so many elements from a number on."""
        args = list(given)
        for k, operand in enumerate(operands):
            if operand.step == "1":
                moved = w.emit(f"mul i64 {number}, {operand.dtype.itemsize}")
                args[k] = f"ptr {w.emit(f'getelementptr i8, {given[k]}, i64 {moved}')}"
        w.do(f"call void {code}({', '.join(args)}, i64 {elements})")

    beside, single = w.emit(f"icmp eq i64 {pitch}, %columns"), w.emit("icmp eq i64 %rows, 1")
    w.do(f"br i1 {w.emit(f'or i1 {beside}, {single}')}, label %whole, label %row")
    w.start("whole")
    call(first, w.emit("mul i64 %rows, %columns"))
    w.do("ret void")
    w.start("row")
    w.do("%i = phi i64 [ 0, %entry ], [ %i1, %row ]")
    w.do(f"%number = phi i64 [ {first}, %entry ], [ %next, %row ]")
    call("%number", "%columns")
    w.do(f"%next = add i64 %number, {pitch}")
    w.do("%i1 = add i64 %i, 1")
    w.do(f"br i1 {w.emit('icmp slt i64 %i1, %rows')}, label %row, label %done")
    w.start("done")
    w.do("ret void")
    lines = "\n".join(w.lines)
    return f"define internal void @{name}({_ARGUMENTS}) {{\nentry:\n{lines}\n}}\n", held
