"""Order as machine code: rows of keys sorted by radix, and the best few of each row.

A key is an unsigned integer that orders as its element does, NaN last; equal elements have equal
keys, and both routines are stable. The code is written with loops over local variables, which the
optimiser turns into registers.
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import cache
from pathlib import Path

from ...core.lazily import np
from .compile import ATTRIBUTES, addresses
from .compile import cache as object_cache

SMALL = 40  # rows up to this long are sorted by insertion
_DIGITS = 256


def ordered_rows(x: np.ndarray, falling: bool) -> tuple[np.ndarray, np.ndarray]:
    """Each row (of the last dimension) in stable order, and where its elements came from."""
    x = _plain(x)
    values, order = np.empty(x.shape, x.dtype), np.empty(x.shape, np.int64)
    n, size = x.shape[-1], x.itemsize
    spare = np.empty(n * (8 + 2 * size) + 8 * _DIGITS, np.uint8)
    order2 = spare.ctypes.data + 8 * _DIGITS
    keys = order2 + 8 * n
    sort, _ = _functions(x.dtype.kind == "f", size * 8)
    sort(x.ctypes.data, values.ctypes.data, order.ctypes.data, keys, keys + n * size, order2,
         spare.ctypes.data, x.size // n, n, -int(falling))
    return values, order


def best_of_rows(x: np.ndarray, k: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The k largest or smallest of each row, the best first, and where they are."""
    x = _plain(x)
    shape, n = (*x.shape[:-1], k), x.shape[-1]
    values, order = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    spare = np.empty(k, x.dtype)
    _, best = _functions(x.dtype.kind == "f", x.itemsize * 8)
    best(x.ctypes.data, values.ctypes.data, order.ctypes.data, spare.ctypes.data, x.size // n, n, k,
         -int(not largest))
    return values, order


def _plain(x: np.ndarray) -> np.ndarray:
    """The elements in row-major order, in a dtype there is code for."""
    kind = np.float32 if x.dtype == np.float16 else x.dtype if x.dtype.itemsize >= 4 else np.int32
    return np.ascontiguousarray(x, kind)


@cache
def _functions(floating: bool, bits: int):
    """The two routines for elements of a kind and width."""
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    key = object_cache().key(f"order {floating} {bits} {source}")
    sort, best = addresses(key, ("sort", "best"), lambda: _ir(floating, bits), True)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return (ctypes.CFUNCTYPE(None, *[pointer] * 7, *[number] * 3)(sort),
            ctypes.CFUNCTYPE(None, *[pointer] * 4, *[number] * 4)(best))


# -- code --------------------------------------------------------------------------------------


class _Code:
    """Instructions of one function, over local variables in memory."""

    def __init__(self):
        self.locals: list[str] = []
        self.lines: list[str] = []
        self._count = 0

    def _fresh(self, stem: str = "t") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def emit(self, code: str) -> str:
        name = f"%{self._fresh()}"
        self.lines.append(f"  {name} = {code}")
        return name

    def var(self, type_: str, value: str) -> tuple[str, str]:
        name = f"%{self._fresh('v')}"
        self.locals.append(f"  {name} = alloca {type_}")
        self.set((type_, name), value)
        return type_, name

    def get(self, var) -> str:
        return self.emit(f"load {var[0]}, ptr {var[1]}")

    def set(self, var, value: str) -> None:
        self.lines.append(f"  store {var[0]} {value}, ptr {var[1]}")

    def at(self, type_: str, base: str, i: str) -> str:
        return self.emit(f"load {type_}, ptr {self._place(type_, base, i)}")

    def put(self, type_: str, base: str, i: str, value: str) -> None:
        self.lines.append(f"  store {type_} {value}, ptr {self._place(type_, base, i)}")

    def _place(self, type_: str, base: str, i: str) -> str:
        return self.emit(f"getelementptr {type_}, ptr {base}, i64 {i}")

    def loop(self, condition, body) -> None:
        """While condition() holds, body()."""
        head, inside, done = (self._fresh("l") for _ in range(3))
        self.lines += [f"  br label %{head}", f"{head}:"]
        held = condition()
        self.lines += [f"  br i1 {held}, label %{inside}, label %{done}", f"{inside}:"]
        body()
        self.lines += [f"  br label %{head}", f"{done}:"]

    def count(self, stop: str, body, start: str = "0") -> None:
        """body(i) for i from start up to stop."""
        i = self.var("i64", start)

        def step():
            body(self.get(i))
            self.set(i, self.emit(f"add i64 {self.get(i)}, 1"))

        self.loop(lambda: self.emit(f"icmp slt i64 {self.get(i)}, {stop}"), step)

    def when(self, condition: str, then, otherwise=None) -> None:
        yes, no, done = (self._fresh("l") for _ in range(3))
        self.lines += [f"  br i1 {condition}, label %{yes}, label %{no}", f"{yes}:"]
        then()
        self.lines += [f"  br label %{done}", f"{no}:"]
        if otherwise is not None:
            otherwise()
        self.lines += [f"  br label %{done}", f"{done}:"]

    def function(self, name: str, parameters: str) -> str:
        body = "\n".join([*self.locals, *self.lines])
        return f"define void @{name}({parameters}) #0 {{\nentry:\n{body}\n  ret void\n}}\n"


def _ir(floating: bool, bits: int) -> str:
    return _sort_ir(floating, bits) + _best_ir(floating, bits) + ATTRIBUTES


def _key(c: _Code, floating: bool, bits: int, value: str) -> str:
    """The key of an element given as bits; %flip turns the order round."""
    type_, lowest = f"i{bits}", -(1 << (bits - 1))
    flip = "%flip" if bits == 64 else c.emit(f"trunc i64 %flip to {type_}")
    if not floating:
        return c.emit(f"xor {type_} {c.emit(f'xor {type_} {value}, {lowest}')}, {flip}")
    sign = c.emit(f"ashr {type_} {value}, {bits - 1}")
    key = c.emit(f"xor {type_} {value}, {c.emit(f'or {type_} {sign}, {lowest}')}")
    size = c.emit(f"and {type_} {value}, {-lowest - 1}")
    zero = c.emit(f"icmp eq {type_} {size}, 0")
    key = c.emit(f"select i1 {zero}, {type_} {lowest}, {type_} {key}")
    infinite = 0x7F800000 if bits == 32 else 0x7FF0000000000000
    nan = c.emit(f"icmp ugt {type_} {size}, {infinite}")
    key = c.emit(f"select i1 {nan}, {type_} -1, {type_} {key}")
    return c.emit(f"xor {type_} {key}, {flip}")


def _row_of(c: _Code, type_: str, base: str, r: str, size: str) -> str:
    return c.emit(f"getelementptr {type_}, ptr {base}, i64 {c.emit(f'mul i64 {r}, {size}')}")


def _gather(c: _Code, type_: str, source: str, order: str, values: str, size: str) -> None:
    c.count(size, lambda i: c.put(type_, values, i, c.at(type_, source, c.at("i64", order, i))))


def _shift_in(c: _Code, key_type: str, keys: str, order: str, first: str, key: str, place: str,
              beats: str) -> None:
    """Put a key before those it beats, from position `first` downwards."""
    j, open_ = c.var("i64", first), c.var("i1", "true")

    def going() -> str:
        positive = c.emit(f"icmp sgt i64 {c.get(j)}, 0")
        return c.emit(f"and i1 {positive}, {c.get(open_)}")

    def step() -> None:
        here = c.get(j)
        before = c.emit(f"sub i64 {here}, 1")
        other = c.at(key_type, keys, before)

        def move() -> None:
            c.put(key_type, keys, here, other)
            c.put("i64", order, here, c.at("i64", order, before))
            c.set(j, before)

        c.when(c.emit(f"icmp {beats} {key_type} {key}, {other}"), move,
               lambda: c.set(open_, "false"))

    c.loop(going, step)
    c.put(key_type, keys, c.get(j), key)
    c.put("i64", order, c.get(j), place)


def _sort_ir(floating: bool, bits: int) -> str:
    c, key = _Code(), f"i{bits}"

    def row(r: str) -> None:
        source, values = (_row_of(c, key, base, r, "%n") for base in ("%x", "%values"))
        order = _row_of(c, "i64", "%order", r, "%n")

        def begin(i: str) -> None:
            c.put(key, "%keys", i, _key(c, floating, bits, c.at(key, source, i)))
            c.put("i64", order, i, i)

        c.count("%n", begin)
        c.when(c.emit(f"icmp sle i64 %n, {SMALL}"),
               lambda: c.count("%n", lambda i: _shift_in(
                   c, key, "%keys", order, i, c.at(key, "%keys", i), i, "ult"), "1"),
               lambda: _radix(c, bits, "%keys", order))
        _gather(c, key, source, order, values, "%n")

    c.count("%rows", row)
    return c.function("sort", "ptr %x, ptr %values, ptr %order, ptr %keys, ptr %keys2, "
                              "ptr %order2, ptr %counts, i64 %rows, i64 %n, i64 %flip")


def _radix(c: _Code, bits: int, keys: str, order: str) -> None:
    """Sort by one digit after the other, from the lowest; digits all elements share are skipped."""
    key = f"i{bits}"
    sides = [[c.var("ptr", keys), c.var("ptr", order)],
             [c.var("ptr", "%keys2"), c.var("ptr", "%order2")]]
    for shift in range(0, bits, 8):
        def digit(value: str, shift=shift) -> str:
            low = c.emit(f"and {key} {c.emit(f'lshr {key} {value}, {shift}')}, 255")
            return c.emit(f"zext {key} {low} to i64") if bits < 64 else low

        def tally(i: str) -> None:
            d = digit(c.at(key, c.get(sides[0][0]), i))
            c.put("i64", "%counts", d, c.emit(f"add i64 {c.at('i64', '%counts', d)}, 1"))

        def deal() -> None:
            total = c.var("i64", "0")

            def start(d: str) -> None:
                have, so_far = c.at("i64", "%counts", d), c.get(total)
                c.put("i64", "%counts", d, so_far)
                c.set(total, c.emit(f"add i64 {so_far}, {have}"))

            def place(i: str) -> None:
                value = c.at(key, c.get(sides[0][0]), i)
                d = digit(value)
                to = c.at("i64", "%counts", d)
                c.put("i64", "%counts", d, c.emit(f"add i64 {to}, 1"))
                c.put(key, c.get(sides[1][0]), to, value)
                c.put("i64", c.get(sides[1][1]), to, c.at("i64", c.get(sides[0][1]), i))

            c.count(str(_DIGITS), start)
            c.count("%n", place)
            for one, other in zip(*sides, strict=True):
                kept = c.get(one)
                c.set(one, c.get(other))
                c.set(other, kept)

        c.count(str(_DIGITS), lambda d: c.put("i64", "%counts", d, "0"))
        c.count("%n", tally)
        first = digit(c.at(key, c.get(sides[0][0]), "0"))
        c.when(c.emit(f"icmp ne i64 {c.at('i64', '%counts', first)}, %n"), deal)
    c.when(c.emit(f"icmp ne ptr {c.get(sides[0][1])}, {order}"),
           lambda: c.count("%n", lambda i: c.put("i64", order, i, c.at("i64", "%order2", i))))


def _best_ir(floating: bool, bits: int) -> str:
    c, key = _Code(), f"i{bits}"

    def row(r: str) -> None:
        source, values = _row_of(c, key, "%x", r, "%n"), _row_of(c, key, "%values", r, "%k")
        order = _row_of(c, "i64", "%order", r, "%k")
        last = c.emit("sub i64 %k, 1")

        def key_at(i: str) -> str:
            return _key(c, floating, bits, c.at(key, source, i))

        def rest(i: str) -> None:
            value = key_at(i)
            better = c.emit(f"icmp ugt {key} {value}, {c.at(key, '%spare', last)}")
            c.when(better, lambda: _shift_in(c, key, "%spare", order, last, value, i, "ugt"))

        c.count("%k", lambda i: _shift_in(c, key, "%spare", order, i, key_at(i), i, "ugt"))
        c.count("%n", rest, "%k")
        _gather(c, key, source, order, values, "%k")

    c.count("%rows", row)
    return c.function("best", "ptr %x, ptr %values, ptr %order, ptr %spare, i64 %rows, i64 %n, "
                              "i64 %k, i64 %flip")
