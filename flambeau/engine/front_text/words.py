"""Loads and stores, where ways meet, and loops, in LLVM's language."""

from __future__ import annotations


def at(register: str, base: str, offset: int, type_: str = "ptr") -> str:
    """A register for what is so many bytes into an object; <register>.p is where that lies."""
    return (f"  {register}.p = getelementptr i8, ptr {base}, i64 {offset}\n"
            f"  {register} = load {type_}, ptr {register}.p\n")


def put(base: str, offset: int, value: str, tag: str) -> str:
    """A value stored so many bytes into an object; the tag tells stores of one function apart."""
    return (f"  %put{tag} = getelementptr i8, ptr {base}, i64 {offset}\n"
            f"  store ptr {value}, ptr %put{tag}\n")


def item(register: str, row: str, number: str) -> str:
    """A register for one of the objects that stand in a row."""
    return (f"  {register}.p = getelementptr ptr, ptr {row}, i64 {number}\n"
            f"  {register} = load ptr, ptr {register}.p\n")


def either(register: str, pointer: str, one: str, other: str) -> str:
    """Whether a pointer is one of two that all fronts know."""
    return (f"  {register}.a = load ptr, ptr @g_{one}\n"
            f"  {register}.b = load ptr, ptr @g_{other}\n"
            f"  {register}.is_a = icmp eq ptr {pointer}, {register}.a\n"
            f"  {register}.is_b = icmp eq ptr {pointer}, {register}.b\n"
            f"  {register} = or i1 {register}.is_a, {register}.is_b\n")


def phis(registers: str, *ways: str) -> str:
    """What is known where ways meet.

    Registers are given as "type name" in a row; a way is its block, and a value for each of them.
    """
    rows = [way.split() for way in ways]
    lines = []
    for k, register in enumerate(registers.split(", ")):
        type_, name = register.split()
        lines.append(f"  {name} = phi {type_} "
                     + ", ".join(f"[ {row[1 + k]}, %{row[0]} ]" for row in rows) + "\n")
    return "".join(lines)


def loop(head: str, registers: str, first: str, again: str, end: str, body: str, done: str) -> str:
    """The head of a loop, and its body begun: registers, the first of them a number that is below
    the end, are what they are on the ways `first` and `again`."""
    number = registers.split(", ")[0].split()[1]
    return (f"{head}:\n{phis(registers, first, again)}"
            f"  {number}.in = icmp ult i64 {number}, {end}\n"
            f"  br i1 {number}.in, label %{body}, label %{done}\n"
            f"{body}:\n")


def answered(name: str) -> str:
    """The answer of the function in Python that a native one stands for, which ends with it."""
    return (f"  %python = load ptr, ptr @g_{name}\n"
            "  %answer = call ptr @PyObject_Vectorcall(ptr %python, ptr %args, i64 %n, ptr %names)\n"
            "  ret ptr %answer")
