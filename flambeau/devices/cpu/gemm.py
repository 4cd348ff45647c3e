"""Matrix products as native calls: batches of C = op(A) op(B) (+ bias) through OpenBLAS.

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
LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_ELEMENT = {"s": "float", "d": "double", "c": "<2 x float>", "z": "<2 x double>"}
_BYTES = {"s": 4, "d": 8, "c": 8, "z": 16}
PLAIN, TRANSPOSED, ADJOINT = 111, 112, 113
_ROW_MAJOR = 101

#: words of a product, after the one that says how much work there is
_WORDS = ("kind", "ta", "tb", "m", "n", "k", "lda", "ldb", "ldc", "rows",
          "cols", "batch", "table")
# kind: gemm; gemv with the matrix on the left, or on the right; a loop of our own
MATRIX, LEFT, RIGHT, SMALL = 0, 1, 2, 3
#: products of at most this many multiply-adds take less in a plain loop than BLAS takes to start
SMALL_WORK = 1 << 12


class Product:
    """What a product needs besides addresses. Batches start at byte offsets kept in a table.

    With a vector on one side, (rows, cols) is the other operand as it lies in memory, its flag says
    whether it is transposed, and lda, ldb, ldc of vectors are the steps between their elements.
    A small product has the steps along A's rows and columns in ta and tb; B's rows are contiguous.
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
        jit().llvm.add_symbol(f"flambeau_{name}", address(name))
    name = f"product_{letter}{'_biased' if biased else ''}"
    return load_or_build(cache().key(name), name, lambda: _module(name, letter, biased))


def _module(name: str, letter: str, biased: bool) -> str:
    return (_kernel(name, letter, biased)
            + wrapper_ir(name, "ppppq" if biased else "pppq", True))


def _scalars(letter: str) -> tuple[str, str, str, str]:
    """Global definitions, the type of alpha and beta, one and zero as arguments."""
    if letter in "sd":
        type_ = _ELEMENT[letter]
        return "", type_, f"{type_} 1.0", f"{type_} 0.0"
    part = "float" if letter == "c" else "double"
    text = (f"@one = private constant [2 x {part}] [{part} 1.0, {part} 0.0]\n"
            f"@zero = private constant [2 x {part}] zeroinitializer\n")
    return text, "ptr", "ptr @one", "ptr @zero"


def _kernel(name: str, letter: str, biased: bool) -> str:
    text, scalar, one, zero = _scalars(letter)
    beta = one if biased else zero
    loads = "\n".join(
        f"  %p.{w} = getelementptr i64, ptr %words, i64 {i}\n  %{w} = load i64, ptr %p.{w}\n"
        f"  %{w}32 = trunc i64 %{w} to i32" for i, w in enumerate(_WORDS))
    fill = _fill_rows(letter) if biased else "  br label %choose"
    small = letter in "sd"
    small_case = f"i64 {SMALL}, label %smalls" if small else ""
    small_call = _SMALL_CALL if small else ""
    text += _small_loops(letter, biased) if small else ""
    gemm = f"flambeau_cblas_{letter}gemm"
    gemv = f"flambeau_cblas_{letter}gemv"
    return f"""{text}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @{gemm}(i32, i32, i32, i32, i32, i32, {scalar}, ptr, i32, ptr, i32, {scalar}, ptr, i32)
declare void @{gemv}(i32, i32, i32, i32, {scalar}, ptr, i32, ptr, i32, {scalar}, ptr, i32)

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
  switch i64 %kind, label %matrix [ i64 {LEFT}, label %lefts i64 {RIGHT}, label %rights
                                    {small_case} ]
{small_call}
matrix:
  call void @{gemm}(i32 {_ROW_MAJOR}, i32 %ta32, i32 %tb32, i32 %m32, i32 %n32, i32 %k32,
       {one}, ptr %ai, i32 %lda32, ptr %bi, i32 %ldb32, {beta}, ptr %ci, i32 %ldc32)
  br label %done
lefts:
  call void @{gemv}(i32 {_ROW_MAJOR}, i32 %ta32, i32 %rows32, i32 %cols32, {one}, ptr %ai,
       i32 %lda32, ptr %bi, i32 %ldb32, {beta}, ptr %ci, i32 %ldc32)
  br label %done
rights:
  call void @{gemv}(i32 {_ROW_MAJOR}, i32 %tb32, i32 %rows32, i32 %cols32, {one}, ptr %bi,
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


_SMALL_CALL = """smalls:
  call void @small(ptr %ci, ptr %ai, ptr %bi, i64 %m, i64 %n, i64 %k, i64 %ta, i64 %tb, i64 %ldb,
                   i64 %ldc)
  br label %done"""
# A tile of C is computed together, so that its sums do not wait for each other.
_ROWS, _VECTORS = 4, 2


def _small_loops(letter: str, biased: bool) -> str:
    """C = A B (or C + A B) by tiles of a few rows and vectors.

    Beyond the last row the last one is computed again; lanes beyond the last column are masked.
    """
    element, size = _ELEMENT[letter], _BYTES[letter]
    width = min(jit().bits, 256) // (8 * size)
    vector, bits = f"<{width} x {element}>", f"<{width} x i1>"
    whole = f"i{8 * size}"  # as wide as an element, so that a comparison is a mask at once
    lanes = f"<{width} x {whole}>"
    load, store = (f"@llvm.masked.{deed}.v{width}f{8 * size}.p0" for deed in ("load", "store"))
    fma = f"@llvm.fma.v{width}f{8 * size}"
    rows, vectors = range(_ROWS), range(_VECTORS)
    tile = [(r, v) for r in rows for v in vectors]

    def splat(register: str, value: str, type_: str, many: str) -> str:
        return (f"  {register}.one = insertelement {many} poison, {type_} {value}, i64 0\n"
                f"  {register} = shufflevector {many} {register}.one, {many} poison, "
                f"<{width} x i32> zeroinitializer\n")

    def loaded(register: str, place: str, v: int) -> str:
        return (f"  {register} = call {vector} {load}(ptr align {size} {place}, {bits} %mask{v}, "
                f"{vector} zeroinitializer)\n")

    def numbers(v: int) -> str:
        return ", ".join(f"{whole} {v * width + k}" for k in range(width))

    masks = "".join(f"  %mask{v} = icmp slt {lanes} <{numbers(v)}>, %room\n" for v in vectors)
    places = "".join(f"""  %i{r} = add i64 %i, {r}
  %in{r} = icmp slt i64 %i{r}, %m
  %r{r} = select i1 %in{r}, i64 %i{r}, i64 %last
  %ro{r} = mul i64 %r{r}, %down
  %a{r} = getelementptr {element}, ptr %a, i64 %ro{r}
  %co{r} = mul i64 %r{r}, %ldc
  %cj{r} = add i64 %co{r}, %j
  %c{r}_0 = getelementptr {element}, ptr %c, i64 %cj{r}
""" + "".join(f"  %c{r}_{v} = getelementptr {vector}, ptr %c{r}_0, i64 {v}\n"
              for v in vectors if v) for r in rows)
    start = "".join(loaded(f"%start{r}_{v}", f"%c{r}_{v}", v) for r, v in tile) if biased else ""
    sums = "".join(f"  %sum{r}_{v} = phi {vector} "
                   f"[ {f'%start{r}_{v}' if biased else 'zeroinitializer'}, %rows ], "
                   f"[ %next{r}_{v}, %inner ]\n" for r, v in tile)
    right = "".join(f"  %bp{v} = getelementptr {vector}, ptr %bp, i64 {v}\n"
                    + loaded(f"%bv{v}", f"%bp{v}", v) for v in vectors)
    steps = "".join(
        f"  %ap{r} = getelementptr {element}, ptr %a{r}, i64 %ao\n"
        f"  %av{r} = load {element}, ptr %ap{r}\n" + splat(f"%s{r}", f"%av{r}", element, vector)
        + "".join(f"  %next{r}_{v} = call {vector} {fma}({vector} %s{r}, {vector} %bv{v}, "
                  f"{vector} %sum{r}_{v})\n" for v in vectors) for r in rows)
    stores = "".join(f"  call void {store}({vector} %next{r}_{v}, ptr align {size} %c{r}_{v}, "
                     f"{bits} %mask{v})\n" for r, v in tile)
    return f"""
declare {vector} {fma}({vector}, {vector}, {vector})
declare {vector} {load}(ptr, {bits}, {vector})
declare void {store}({vector}, ptr, {bits})

define internal void @small(ptr %c, ptr %a, ptr %b, i64 %m, i64 %n, i64 %k, i64 %down, i64 %right,
                            i64 %ldb, i64 %ldc) {{
entry:
  %last = sub i64 %m, 1
  br label %columns
columns:
  %j = phi i64 [ 0, %entry ], [ %j1, %beside ]
  %far = sub i64 %n, %j
  {f"%left = trunc i64 %far to {whole}" if size < 8 else "%left = add i64 %far, 0"}
{splat("%room", "%left", whole, lanes)}{masks}
  %bj = getelementptr {element}, ptr %b, i64 %j
  br label %rows
rows:
  %i = phi i64 [ 0, %columns ], [ %i4, %below ]
{places}{start}
  br label %inner
inner:
  %kk = phi i64 [ 0, %rows ], [ %kk1, %inner ]
{sums}
  %bo = mul i64 %kk, %ldb
  %bp = getelementptr {element}, ptr %bj, i64 %bo
{right}
  %ao = mul i64 %kk, %right
{steps}  %kk1 = add i64 %kk, 1
  %more = icmp slt i64 %kk1, %k
  br i1 %more, label %inner, label %below
below:
{stores}
  %i4 = add i64 %i, {_ROWS}
  %again = icmp slt i64 %i4, %m
  br i1 %again, label %rows, label %beside
beside:
  %j1 = add i64 %j, {width * _VECTORS}
  %further = icmp slt i64 %j1, %n
  br i1 %further, label %columns, label %end
end:
  ret void
}}
"""
