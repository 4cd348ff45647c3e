"""Copies of contiguous rows, by the C library's own copy: what joins and borders are made of."""

from __future__ import annotations

import functools
from array import array

from .bridge import jit, wrapper_ir
from .compile import cache, load_or_build
from .matmul.text import Code, module
from .threads import DECLARATION

#: shorter rows are better copied by vectors
LEAST = 256
#: bytes that are worth a range of their own; a single long row is cut into pieces of a quarter
_RANGE = 1 << 18
_WORDS = ("rows", "size", "to", "from", "all", "grain")


class Layout:
    """Rows of `size` bytes, so many bytes apart in what is written and in what is read."""

    __slots__ = ("address", "words")

    def __init__(self, rows: int, size: int, to: int, source: int):
        total = size if rows == 1 else rows * size
        if rows == 1 and size > _RANGE:
            size = to = source = _RANGE // 4
            rows = -(-total // size)
        known = (rows, size, to, source, total, max(1, _RANGE // size))
        self.words = array("q", [total // 8, *known])
        self.address = self.words.buffer_info()[0] + 8


@functools.cache
def function():
    """The callable (to, from, address of a layout)."""
    return load_or_build(cache().key("copy_rows"), "copy_rows", lambda: _IR + wrapper_ir(
        "copy_rows", "ppq", True))


_LOADS = "".join(f"""  %p.{w} = getelementptr i64, ptr %words, i64 {i}
  %{w} = load i64, ptr %p.{w}
""" for i, w in enumerate(_WORDS))
_IR = f"""{DECLARATION}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @some_rows(ptr %context, i64 %begin, i64 %end) {{
entry:
  %out = load ptr, ptr %context
  %xp = getelementptr ptr, ptr %context, i64 1
  %x = load ptr, ptr %xp
  %wp = getelementptr ptr, ptr %context, i64 2
  %words = load ptr, ptr %wp
{_LOADS}  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %i1, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %o = mul i64 %i, %to
  %s = mul i64 %i, %from
  %op = getelementptr i8, ptr %out, i64 %o
  %sp = getelementptr i8, ptr %x, i64 %s
  %before = mul i64 %i, %size
  %left = sub i64 %all, %before
  %short = icmp slt i64 %left, %size
  %n = select i1 %short, i64 %left, i64 %size
  call void @llvm.memcpy.p0.p0.i64(ptr %op, ptr %sp, i64 %n, i1 false)
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}}

define void @copy_rows(ptr %out, ptr %x, i64 %where) {{
  %context = alloca [3 x ptr]
  store ptr %out, ptr %context
  %xp = getelementptr ptr, ptr %context, i64 1
  store ptr %x, ptr %xp
  %words = inttoptr i64 %where to ptr
  %wp = getelementptr ptr, ptr %context, i64 2
  store ptr %words, ptr %wp
{_LOADS}  call void @flambeau_parallel(ptr @some_rows, ptr %context, i64 %rows, i64 %grain)
  ret void
}}
"""


# -- several parts in one call ---------------------------------------------------------------------


def copy_row() -> tuple[str, dict]:
    """void @copy_row(ptr to, ptr from, i64 bytes): a short row by vectors, of which the last may
    overlap the one before; a long one by the C library."""
    w, widest = Code(), jit().bits // 8
    w.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])

    def copy(at, n: int) -> None:
        type_ = f"i{8 * n}" if n <= 8 else f"<{n} x i8>"
        value = w.emit(f"load {type_}, ptr {w.at('%from', at)}, align 1")
        w.do(f"store {type_} {value}, ptr {w.at('%to', at)}, align 1")

    def vectors() -> None:
        last = w.sub("%n", widest)
        w.loop(0, last, widest, lambda at, _: copy(at, widest))
        copy(last, widest)

    def ends(n: int):
        def both() -> None:
            copy(0, n)
            copy(w.sub("%n", n), n)

        return lambda: w.when(w.is_("sge", "%n", n), both, ends(n // 2) if n > 2 else single)

    def single() -> None:
        w.when(w.is_("sge", "%n", 1), lambda: copy(0, 1))

    def short() -> None:
        w.when(w.is_("sge", "%n", widest), vectors, ends(widest // 2))

    w.when(w.is_("slt", "%n", LEAST), short, lambda: w.do(
        "call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)"))
    text = w.function("copy_row", "ptr %to, ptr %from, i64 %n", "internal ")
    return text.replace(" #0 {", " #0 alwaysinline {", 1), w.declared


#: parts that one call joins at most
MOST = 8


class Joint:
    """Rows made of one row of each part, of given sizes in bytes."""

    __slots__ = ("address", "words")

    def __init__(self, rows: int, sizes):
        pitch = sum(sizes)
        self.words = array("q", [rows * pitch // 8, rows, max(1, _RANGE // max(1, pitch)), pitch,
                                 *sizes])
        self.address = self.words.buffer_info()[0] + 8


@functools.cache
def joining(parts: int):
    """The callable (to, from each part, address of a joint)."""
    name = f"join_rows_{parts}"
    return load_or_build(cache().key(name), name, lambda: _joining(name, parts) + wrapper_ir(
        name, "p" * (parts + 1) + "q", True))


def _joining(name: str, parts: int) -> str:
    given = ["to", *(f"x{k}" for k in range(parts)), "words"]
    loads = "".join(f"""  %p.{g} = getelementptr ptr, ptr %context, i64 {i}
  %{g} = load ptr, ptr %p.{g}
""" for i, g in enumerate(given))
    loads += ("  %p.pitch = getelementptr i64, ptr %words, i64 2\n"
              "  %pitch = load i64, ptr %p.pitch\n")
    loads += "".join(f"""  %p.n{k} = getelementptr i64, ptr %words, i64 {3 + k}
  %n{k} = load i64, ptr %p.n{k}
""" for k in range(parts))
    copies = "".join(f"""  %s{k} = mul i64 %i, %n{k}
  %from{k} = getelementptr i8, ptr %x{k}, i64 %s{k}
  call void @copy_row(ptr %at{k}, ptr %from{k}, i64 %n{k})
  %at{k + 1} = getelementptr i8, ptr %at{k}, i64 %n{k}
""" for k in range(parts))
    stores = "".join(f"""  %p.{g} = getelementptr ptr, ptr %context, i64 {i}
  store ptr %{g}, ptr %p.{g}
""" for i, g in enumerate(given))
    return f"""{DECLARATION}
{module([copy_row()])}
define internal void @rows(ptr %context, i64 %begin, i64 %end) {{
entry:
{loads}  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %i1, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %o = mul i64 %i, %pitch
  %at0 = getelementptr i8, ptr %to, i64 %o
{copies}  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}}

define void @{name}({", ".join(f"ptr %{g}" for g in given[:-1])}, i64 %where) {{
  %context = alloca [{len(given)} x ptr]
  %words = inttoptr i64 %where to ptr
{stores}  %rows = load i64, ptr %words
  %gp = getelementptr i64, ptr %words, i64 1
  %grain = load i64, ptr %gp
  call void @flambeau_parallel(ptr @rows, ptr %context, i64 %rows, i64 %grain)
  ret void
}}
"""
