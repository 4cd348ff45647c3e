"""Loads and stores of fields, in LLVM's language."""

from __future__ import annotations


def at(register: str, base: str, offset: int, type_: str = "ptr") -> str:
    """A register for what is so many bytes into an object; <register>.p is where that lies."""
    return (f"  {register}.p = getelementptr i8, ptr {base}, i64 {offset}\n"
            f"  {register} = load {type_}, ptr {register}.p\n")


def put(base: str, offset: int, value: str, tag: str) -> str:
    """A value stored so many bytes into an object; the tag tells stores of one function apart."""
    return (f"  %put{tag} = getelementptr i8, ptr {base}, i64 {offset}\n"
            f"  store ptr {value}, ptr %put{tag}\n")


def answered(name: str) -> str:
    """The answer of the function in Python that a native one stands for, which ends with it."""
    return (f"  %python = load ptr, ptr @g_{name}\n"
            "  %answer = call ptr @PyObject_Vectorcall(ptr %python, ptr %args, i64 %n, ptr %names)\n"
            "  ret ptr %answer")
