"""Products of complex matrices as native calls: batches of C = op(A) op(B) through OpenBLAS.

A product is described once by words in memory (see `Product`); a call passes the operands'
addresses and the address of the words, and loops over the batch in machine code.
"""

from __future__ import annotations

import functools
from array import array

from .blas import address
from .bridge import jit, wrapper_ir
from .compile import cache, load_or_build

#: dtype name -> BLAS letter
LETTERS = {"complex64": "c", "complex128": "z"}
_PART = {"c": "float", "z": "double"}
_BYTES = {"c": 8, "z": 16}
PLAIN, TRANSPOSED = 111, 112
_ROW_MAJOR = 101

#: words of a product, after the one that says how much work there is
_WORDS = ("kind", "ta", "tb", "m", "n", "k", "lda", "ldb", "ldc", "rows",
          "cols", "batch", "table")
# kind: gemm; gemv with the matrix on the left, or on the right
MATRIX, LEFT, RIGHT = 0, 1, 2


class Product:
    """What a product needs besides addresses. Batches start at byte offsets kept in a table.

    With a vector on one side, (rows, cols) is the other operand as it lies in memory, its flag says
    whether it is transposed, and lda, ldb, ldc of vectors are the steps between their elements.
    """

    __slots__ = ("address", "table", "words", "work")

    def __init__(self, kind, ta, tb, m, n, k, lda, ldb, ldc, rows, cols, offsets):
        self.table = array("q", [byte for row in offsets for byte in row])
        # Work is counted in elements of a pointwise kernel: 16 multiply-adds take the time of one.
        self.work = m * n * k * len(offsets) >> 4
        self.words = array("q", [self.work, kind, ta, tb, m, n, k, lda, ldb, ldc, rows, cols,
                                 len(offsets), self.table.buffer_info()[0]])
        self.address = self.words.buffer_info()[0] + 8


@functools.cache
def product_function(dtype_name: str, biased: bool):
    """The callable (out, a, b[, bias], words) of a dtype."""
    letter = LETTERS[dtype_name]
    for routine in ("gemm", "gemv"):
        name = f"cblas_{letter}{routine}"
        jit().publish(f"flambeau_{name}", address(name))
    name = f"product_{letter}{'_biased' if biased else ''}"
    return load_or_build(cache().key(name), name, lambda: _module(name, letter, biased))


def _module(name: str, letter: str, biased: bool) -> str:
    return (_kernel(name, letter, biased)
            + wrapper_ir(name, "ppppq" if biased else "pppq", True))


def _kernel(name: str, letter: str, biased: bool) -> str:
    part = _PART[letter]
    beta = "ptr @one" if biased else "ptr @zero"
    loads = "\n".join(
        f"  %p.{w} = getelementptr i64, ptr %words, i64 {i}\n  %{w} = load i64, ptr %p.{w}\n"
        f"  %{w}32 = trunc i64 %{w} to i32" for i, w in enumerate(_WORDS))
    fill = _fill_rows(letter) if biased else "  br label %choose"
    gemm = f"flambeau_cblas_{letter}gemm"
    gemv = f"flambeau_cblas_{letter}gemv"
    return f"""
@one = private constant [2 x {part}] [{part} 1.0, {part} 0.0]
@zero = private constant [2 x {part}] zeroinitializer
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @{gemm}(i32, i32, i32, i32, i32, i32, ptr, ptr, i32, ptr, i32, ptr, ptr, i32)
declare void @{gemv}(i32, i32, i32, i32, ptr, ptr, i32, ptr, i32, ptr, ptr, i32)

define void @{name}(ptr %out, ptr %a, ptr %b, {"ptr %bias, " if biased else ""}i64 %where) {{
entry:
  %words = inttoptr i64 %where to ptr
{loads}
  %offsets = inttoptr i64 %table to ptr
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %done]
  %at = mul i64 %i, 3
  %pa = getelementptr i64, ptr %offsets, i64 %at
  %pb = getelementptr i64, ptr %pa, i64 1
  %pc = getelementptr i64, ptr %pa, i64 2
  %oa = load i64, ptr %pa
  %ob = load i64, ptr %pb
  %oc = load i64, ptr %pc
  %ai = getelementptr i8, ptr %a, i64 %oa
  %bi = getelementptr i8, ptr %b, i64 %ob
  %ci = getelementptr i8, ptr %out, i64 %oc
{fill}
choose:
  switch i64 %kind, label %matrix [ i64 {LEFT}, label %lefts i64 {RIGHT}, label %rights ]
matrix:
  call void @{gemm}(i32 {_ROW_MAJOR}, i32 %ta32, i32 %tb32, i32 %m32, i32 %n32, i32 %k32,
       ptr @one, ptr %ai, i32 %lda32, ptr %bi, i32 %ldb32, {beta}, ptr %ci, i32 %ldc32)
  br label %done
lefts:
  call void @{gemv}(i32 {_ROW_MAJOR}, i32 %ta32, i32 %rows32, i32 %cols32, ptr @one, ptr %ai,
       i32 %lda32, ptr %bi, i32 %ldb32, {beta}, ptr %ci, i32 %ldc32)
  br label %done
rights:
  call void @{gemv}(i32 {_ROW_MAJOR}, i32 %tb32, i32 %rows32, i32 %cols32, ptr @one, ptr %bi,
       i32 %ldb32, ptr %ai, i32 %lda32, {beta}, ptr %ci, i32 %ldc32)
  br label %done
done:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %batch
  br i1 %more, label %next, label %end
end:
  ret void
}}
"""


def _fill_rows(letter: str) -> str:
    """Every row of C starts as the bias; the product is added to it."""
    return f"""  %width = mul i64 %n, {_BYTES[letter]}
  %pitch = mul i64 %ldc, {_BYTES[letter]}
  br label %row
row:
  %r = phi i64 [0, %next], [%r1, %row]
  %ro = mul i64 %r, %pitch
  %cr = getelementptr i8, ptr %ci, i64 %ro
  call void @llvm.memcpy.p0.p0.i64(ptr %cr, ptr %bias, i64 %width, i1 false)
  %r1 = add i64 %r, 1
  %again = icmp slt i64 %r1, %m
  br i1 %again, label %row, label %choose
"""
