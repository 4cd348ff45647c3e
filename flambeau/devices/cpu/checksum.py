"""CRC-32 at the speed of memory, where the processor multiplies polynomials; else zlib's.

Four sums of 128 bits, or of 256 where there is such a product, take in 64 or 128 bytes at a time.
What they fold to has the same remainder as all that went in, so zlib finishes with it as if it
were the data.
"""

from __future__ import annotations

import ctypes
import functools
import zlib

from .bridge import jit
from .objects import addresses, cache

#: fewer bytes are zlib's
SMALL = 1 << 12
_LANES = 4
_POLYNOMIAL = 0x104C11DB7


def _power(n: int) -> int:
    """x^n mod P, reflected, as the product of reflected polynomials wants it."""
    found = 1
    for _ in range(n):
        found <<= 1
        found ^= _POLYNOMIAL if found >> 32 else 0
    return int(f"{found:032b}"[::-1], 2) << 1


class _Sums:
    """The text of the function that folds data into sums of `width` bytes."""

    def __init__(self, width: int):
        self.width = width
        self.type = f"<{width // 8} x i64>"
        self.product = "llvm.x86.pclmulqdq" + (".256" if width == 32 else "")
        moved_by = 8 * width * _LANES
        pair = f"i64 {_power(moved_by + 32)}, i64 {_power(moved_by - 32)}"
        self.factor = f"<{', '.join([pair] * (width // 16))}>"

    def load(self, target: str, base: str, lane: int) -> str:
        return f"""
  {target}.p = getelementptr i8, ptr {base}, i64 {self.width * lane}
  {target} = load {self.type}, ptr {target}.p, align 1"""

    def fold(self, target: str, x: str, more: str) -> str:
        """target = x moved on past all lanes, with more added."""
        of = f"{self.type} @{self.product}({self.type} {x}, {self.type} {self.factor}"
        return f"""
  {target}.a = call {of}, i8 0)
  {target}.b = call {of}, i8 17)
  {target}.c = xor {self.type} {target}.a, {target}.b
  {target} = xor {self.type} {target}.c, {more}"""

    def text(self) -> str:
        lanes = range(_LANES)
        begun = ["%begun", *(f"%f{i}" for i in lanes[1:])]
        first = "".join(self.load(f"%f{i}", "%data", i) for i in lanes)
        phis = "".join(f"\n  %x{i} = phi {self.type} [{begun[i]}, %entry], [%n{i}, %loop]"
                       for i in lanes)
        body = "".join(self.load(f"%d{i}", "%at", i) + self.fold(f"%n{i}", f"%x{i}", f"%d{i}")
                       for i in lanes)
        ends = "".join(f"\n  %e{i} = phi {self.type} [{begun[i]}, %entry], [%n{i}, %loop]"
                       for i in lanes)
        last = "".join(f"""
  %o{i} = getelementptr i8, ptr %out, i64 {self.width * i}
  store {self.type} %e{i}, ptr %o{i}, align 1""" for i in lanes)
        return f"""
declare {self.type} @{self.product}({self.type}, {self.type}, i8)
define void @crc32_fold(ptr %data, i64 %count, i64 %start, ptr %out) nounwind {{
entry:{first}
  %init = insertelement {self.type} zeroinitializer, i64 %start, i32 0
  %begun = xor {self.type} %f0, %init
  %any = icmp ugt i64 %count, 1
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [1, %entry], [%next, %loop]{phis}
  %offset = mul i64 %i, {self.width * _LANES}
  %at = getelementptr i8, ptr %data, i64 %offset{body}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:{ends}{last}
  ret void
}}
"""


@functools.cache
def _folding():
    """(native function, bytes it takes in at a time), or (None, 0) where the processor cannot."""
    features = jit().features.split(",")
    if "+pclmul" not in features:
        return None, 0
    sums = _Sums(32 if "+vpclmulqdq" in features else 16)
    text = sums.text()
    address, = addresses(cache().key(text), ("crc32_fold",), lambda: text)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64,
                            ctypes.c_void_p)(address), _LANES * sums.width


def crc32(data, value: int = 0) -> int:
    """zlib.crc32 of a bytes-like object; other threads run meanwhile."""
    view = memoryview(data).cast("B")
    fold, step = _folding() if len(view) >= SMALL else (None, 0)
    if fold is None:
        return zlib.crc32(view, value)
    count = len(view) // step
    sums = ctypes.create_string_buffer(step)
    if view.readonly:  # ctypes gives the address of bytes only
        fold(bytes(view), count, value ^ 0xFFFFFFFF, sums)
    else:
        whole = (ctypes.c_char * len(view)).from_buffer(view)
        fold(ctypes.addressof(whole), count, value ^ 0xFFFFFFFF, sums)
    found = zlib.crc32(sums.raw, 0xFFFFFFFF)
    return zlib.crc32(view[step * count:], found)
