"""The dot product of two vectors, rounded as torch rounds it.

Four sums of 16 bytes each go along the vectors, and what is left over joins the first of them.
Products are rounded before they are added. That is the order of MKL's generic code, so programs
that iterate on their own rounding, as LBFGS does, go the way they go in torch.
"""

from __future__ import annotations

import functools
from array import array

from .bridge import wrapper_ir
from .compile import cache, load_or_build
from .matmul.text import Code, module

#: dtype -> (LLVM's name, bytes, elements of a sum, how many are taken at a time after whole blocks)
_KINDS = {"float32": ("float", 4, 4, (8, 4)), "float64": ("double", 8, 2, (2,))}
_SUMS = 4


class Length:
    """How long the vectors are, where native code reads it."""

    __slots__ = ("address", "work", "words")

    def __init__(self, n: int):
        self.work, self.words = n, array("q", [n, n])
        self.address = self.words.buffer_info()[0] + 8


@functools.cache
def function(dtype: str):
    """The callable (to, from, from, address of a Length)."""
    name = f"dot_{dtype}"
    return load_or_build(cache().key(name), name, lambda: module([_dot(name, *_KINDS[dtype])])
                         + wrapper_ir(name, "pppq", True))


def _dot(name: str, element: str, size: int, lanes: int, steps: tuple) -> tuple[str, dict]:
    w = Code()
    n = w.word(w.emit("inttoptr i64 %where to ptr"), 0)
    vector = _vector(lanes, element)

    def added(type_: str, total: str, i: str) -> str:
        a, b = (w.emit(f"load {type_}, ptr {w.at(p, w.mul(i, size))}, align {size}")
                for p in ("%a", "%b"))
        return w.emit(f"fadd {type_} {total}, {w.emit(f'fmul {type_} {a}, {b}')}")

    block = _SUMS * lanes
    whole, reached = _vector(block, element), w.op("and", n, -block)
    total, = w.loop(0, reached, block, lambda i, s: [added(whole, s[0], i)],
                    [(whole, "zeroinitializer")])
    sums = [_part(w, total, whole, k * lanes, lanes) for k in range(_SUMS)]
    for step in steps:  # as many of the sums as a step has elements for
        end, some = w.op("and", n, -step), step // lanes
        sums[:some] = w.loop(reached, end, step, lambda i, s: [
            added(vector, each, w.add(i, k * lanes)) for k, each in enumerate(s)],
            [(vector, each) for each in sums[:some]])
        reached = end
    first = w.emit(f"extractelement {vector} {sums[0]}, i64 0")
    first, = w.loop(reached, n, 1, lambda i, s: [added(element, s[0], i)], [(element, first)])
    total = w.emit(f"insertelement {vector} {sums[0]}, {element} {first}, i64 0")
    for each in sums[1:]:
        total = w.emit(f"fadd {vector} {total}, {each}")
    while lanes > 1:
        lanes //= 2
        low, high = (_part(w, total, _vector(2 * lanes, element), k * lanes, lanes) for k in (0, 1))
        total = w.emit(f"fadd {_vector(lanes, element)} {low}, {high}")
    w.do(f"store {_vector(1, element)} {total}, ptr %to")
    return w.function(name, "ptr %to, ptr %a, ptr %b, i64 %where"), w.declared


def _vector(lanes: int, element: str) -> str:
    return f"<{lanes} x {element}>"


def _part(w: Code, value: str, type_: str, start: int, count: int) -> str:
    """So many lanes of a vector."""
    lanes = ", ".join(f"i32 {start + i}" for i in range(count))
    return w.emit(f"shufflevector {type_} {value}, {type_} poison, <{count} x i32> <{lanes}>")
