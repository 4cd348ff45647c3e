"""Rows taken by number: what embeddings and selections of whole rows are made of.

A row is copied by as few vectors as it takes, the last of which may overlap the one before, so rows
of any length need neither single elements nor a call.
"""

from __future__ import annotations

import functools
from array import array

from .bridge import jit, wrapper_ir
from .compile import cache, load_or_build
from .matmul.text import Code, module
from .threads import DECLARATION

#: bytes that are worth a range of their own
_RANGE = 1 << 16
#: vectors that are copied at a time
_TOGETHER = 4
_BITS = {"int64": 64, "int32": 32}
_BODY = "ptr %context, i64 %begin, i64 %end"


class Rows:
    """So many rows of `size` bytes to write, side by side, from rows that are `pitch` apart."""

    __slots__ = ("address", "words")

    def __init__(self, count: int, size: int, pitch: int):
        self.words = array("q", [count * size // 8, count, size, pitch, max(1, _RANGE // size)])
        self.address = self.words.buffer_info()[0] + 8


@functools.cache
def function(dtype_name: str):
    """The callable (to, from, numbers of that dtype, address of Rows)."""
    name = f"take_rows_{dtype_name}"
    return load_or_build(cache().key(name), name, lambda: _text(name, _BITS[dtype_name])
                         + wrapper_ir(name, "pppq", True))


def _text(name: str, bits: int) -> str:
    widest = jit().bits // 8
    return DECLARATION + module([_range(bits, widest), _entry(name)])


def _entry(name: str) -> tuple[str, dict]:
    w = Code()
    context = w.emit("alloca [4 x ptr], align 16")
    words = w.emit("inttoptr i64 %where to ptr")
    for i, given in enumerate(("%to", "%from", "%numbers", words)):
        w.put(context, i, given, "ptr")
    count, grain = w.word(words, 0), w.word(words, 3)
    w.do(f"call void @flambeau_parallel(ptr @take_range, ptr {context}, i64 {count}, i64 {grain})")
    return w.function(name, "ptr %to, ptr %from, ptr %numbers, i64 %where"), w.declared


def _range(bits: int, widest: int) -> tuple[str, dict]:
    """Rows begin to end, in a loop of their own for every class of sizes."""
    w = Code()
    to, source, numbers, words = (w.word("%context", i, "ptr") for i in range(4))
    size, pitch = w.word(words, 1), w.word(words, 2)

    def rows(copy):
        def one(i, _):
            number = w.emit(f"load i{bits}, ptr {w.at(numbers, w.mul(i, bits // 8))}")
            if bits < 64:
                number = w.emit(f"sext i{bits} {number} to i64")
            copy(w.at(source, w.mul(number, pitch)), w.at(to, w.mul(i, size)))
        return lambda: w.loop("%begin", "%end", 1, one)

    def moved(parts) -> None:
        """Copy (from, to, bytes): all are read before any is written."""
        found = [w.emit(f"load {_whole(n)}, ptr {x}, align 1") for x, _, n in parts]
        for value, (_, y, n) in zip(found, parts, strict=True):
            w.do(f"store {_whole(n)} {value}, ptr {y}, align 1")

    def ends(n: int, count: int):
        """The first and the last so many vectors of n bytes, which may overlap."""
        def copy(x, y):
            back = w.sub(size, count * n)
            starts = [(x, y), (w.at(x, back), w.at(y, back))]
            moved([(w.at(a, k * n), w.at(b, k * n), n) for a, b in starts for k in range(count)])
        return copy

    def long(x, y):
        """Some vectors at a time, and the last ones again."""
        chunk = _TOGETHER * widest

        def vectors(at):
            a, b = w.at(x, at), w.at(y, at)
            moved([(w.at(a, k * widest), w.at(b, k * widest), widest) for k in range(_TOGETHER)])

        last = w.sub(size, chunk)
        w.loop(0, last, chunk, lambda at, _: vectors(at))
        vectors(last)

    def choose(classes):
        (least, copy), *others = classes
        if not others:
            return rows(copy)
        return lambda: w.when(w.is_("sge", size, least), rows(copy), choose(others))

    def single(x, y):
        moved([(x, y, 1)])

    classes = [(_TOGETHER * widest, long), (2 * widest, ends(widest, 2))]
    n = widest
    while n:
        classes.append((n, ends(n, 1)))
        n //= 2
    choose(classes[:-1] + [(1, single)])()
    return w.function("take_range", _BODY, "internal "), w.declared


def _whole(n: int) -> str:
    """Bytes in one register."""
    return f"i{8 * n}" if n <= 8 else f"<{n} x i8>"
