"""The numbers of an optimizer's step as machine code: from how many steps there were.

The code of a formula is the same whatever its constants are, so it is compiled once.
"""

from __future__ import annotations

from array import array

from ...core.pace import tree_of, written
from ..text import Text
from .objects import cache, loaded

_CODE = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_LARGEST = 1 << 53  # integer that is a double, as are all below it


def paced(values: list) -> tuple[int, array] | None:
    """Where code (count, constants, numbers) is that writes these numbers, and the constants.

    None if one of them is no double. Powers are the C library's, as Python's own are.
    """
    body = Text()
    constants: list = []

    def write(sign: str, left: str, right: str) -> str:
        if sign == "**":
            return body.call("pow", "double", [("double", _named(x)) for x in (left, right)])
        return body.emit(f"{_CODE[sign]} double {_named(left)}, {_named(right)}")

    for k, value in enumerate(values):
        found = _named(written(tree_of(value), constants, write))
        at = body.emit(f"getelementptr double, ptr %numbers, i64 {k}")
        body.do(f"store double {found}, ptr {at}")
    if any(type(c) is int and abs(c) > _LARGEST for c in constants):
        return None
    start = Text()
    for k in range(len(constants)):
        start.do(f"%at{k} = getelementptr double, ptr %constants, i64 {k}")
        start.do(f"%c{k} = load double, ptr %at{k}")
    lines = "\n".join([*start.lines, *body.lines, "  ret void", "}", *body.declared.values(), ""])
    key = cache().key(f"paced\n{lines}")
    name = f"paced_{key[:24]}"
    address, = loaded(key, (name,), lambda: (
        f"define void @{name}(double %t, ptr %constants, ptr %numbers) {{\n{lines}"))
    return address, array("d", map(float, constants))


def _named(text: str) -> str:
    """A register; the count and the constants have no sign before their names."""
    return text if text[0] == "%" else f"%{text}"
