"""CRC-32 at the speed of memory, where the processor multiplies polynomials; else zlib's.

Four sums of 128 bits take in 64 bytes at a time; what they fold to has the same remainder as all
that went in, so zlib finishes with it as if it were the data.
"""

from __future__ import annotations

import ctypes
import functools
import zlib

from .bridge import jit
from .objects import addresses, cache

#: fewer bytes are zlib's
SMALL = 1 << 12
_LANES = range(4)

# x^n mod P, reflected: what a sum is multiplied by to move it on by 64 or by 16 bytes.
_BY_64 = "<i64 u0x154442bd4, i64 u0x1c6e41596>"
_BY_16 = "<i64 u0x1751997d0, i64 u0x0ccaa009e>"


def _fold(target: str, x: str, factor: str, more: str) -> str:
    """target = x moved on by a factor's distance, with more added."""
    return f"""
  {target}.a = call <2 x i64> @llvm.x86.pclmulqdq(<2 x i64> {x}, <2 x i64> {factor}, i8 0)
  {target}.b = call <2 x i64> @llvm.x86.pclmulqdq(<2 x i64> {x}, <2 x i64> {factor}, i8 17)
  {target}.c = xor <2 x i64> {target}.a, {target}.b
  {target} = xor <2 x i64> {target}.c, {more}"""


def _load(target: str, base: str, lane: int) -> str:
    return f"""
  {target}.p = getelementptr i8, ptr {base}, i64 {16 * lane}
  {target} = load <2 x i64>, ptr {target}.p, align 1"""


def _ir() -> str:
    first = "".join(_load(f"%f{i}", "%data", i) for i in _LANES)
    phis = "".join(f"\n  %x{i} = phi <2 x i64> [{'%begun' if i == 0 else f'%f{i}'}, %entry], "
                   f"[%n{i}, %loop]" for i in _LANES)
    body = "".join(_load(f"%d{i}", "%at", i) + _fold(f"%n{i}", f"%x{i}", _BY_64, f"%d{i}")
                   for i in _LANES)
    last = "".join(_fold(f"%s{i}", f"%s{i - 1}" if i > 1 else "%e0", _BY_16, f"%e{i}")
                   for i in range(1, 4))
    ends = "".join(f"\n  %e{i} = phi <2 x i64> [{'%begun' if i == 0 else f'%f{i}'}, %entry], "
                   f"[%n{i}, %loop]" for i in _LANES)
    return f"""
declare <2 x i64> @llvm.x86.pclmulqdq(<2 x i64>, <2 x i64>, i8)
define void @crc32_fold(ptr %data, i64 %count, i64 %start, ptr %out) nounwind {{
entry:{first}
  %init = insertelement <2 x i64> zeroinitializer, i64 %start, i32 0
  %begun = xor <2 x i64> %f0, %init
  %any = icmp ugt i64 %count, 1
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [1, %entry], [%next, %loop]{phis}
  %offset = shl i64 %i, 6
  %at = getelementptr i8, ptr %data, i64 %offset{body}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:{ends}{last}
  store <2 x i64> %s3, ptr %out, align 1
  ret void
}}
"""


@functools.cache
def _folding():
    """The native function, or None where the processor cannot."""
    if "+pclmul" not in jit().features.split(","):
        return None
    text = _ir()
    address, = addresses(cache().key(text), ("crc32_fold",), lambda: text)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64,
                            ctypes.c_void_p)(address)


def crc32(data, value: int = 0) -> int:
    """zlib.crc32 of a bytes-like object; other threads run meanwhile."""
    view = memoryview(data).cast("B")
    fold = _folding() if len(view) >= SMALL else None
    if fold is None:
        return zlib.crc32(view, value)
    count = len(view) // 64
    sums = ctypes.create_string_buffer(16)
    if view.readonly:  # ctypes gives the address of bytes only
        fold(bytes(view), count, value ^ 0xFFFFFFFF, sums)
    else:
        whole = (ctypes.c_char * len(view)).from_buffer(view)
        fold(ctypes.addressof(whole), count, value ^ 0xFFFFFFFF, sums)
    found = zlib.crc32(sums.raw, 0xFFFFFFFF)
    return zlib.crc32(view[64 * count:], found)
