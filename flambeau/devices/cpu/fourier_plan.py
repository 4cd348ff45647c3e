"""Plans of Fourier transforms along one dimension: factors of its length, and tables of roots."""

from __future__ import annotations

import functools
import math
import struct

from ...core.lazily import np
from .assembly.conv_words import address_of, table
from .assembly.fourier_words import ABREAST, FOURIER, MOST, RADICES, SHORT, STAGE
from .foundry import machine_code
from .remember import remembered

#: products by factors that have no pass of their own, of a number and of all, up to which numpy
#: would take longer
_FEW, _WORTH = 32, 1 << 15
#: numbers that are worth a thread's while
_GRAIN = 1 << 13


def factors(n: int) -> list[int]:
    """Eights first, then what is left: but rather two fours than eight and two."""
    found, rest = [], n
    while rest % 8 == 0 and rest != 16:
        found.append(8)
        rest //= 8
    for radix in (4, 2, *range(3, rest + 1, 2)):
        while rest % radix == 0:
            found.append(radix)
            rest //= radix
        if rest == 1:
            break
    return found


@functools.cache
def _products(n: int) -> int:
    """How many products a number costs in passes by factors other than two and four."""
    return sum(r for r in factors(n) if r not in RADICES)


def has_code(rows: int, n: int, inner: int) -> bool:
    """Whether so many rows of a length, numbers so far apart, are transformed by machine code."""
    if not 0 < n <= (MOST if inner == 1 else ABREAST):
        return False
    products = _products(n)
    return products <= _FEW or rows * n * products <= _WORTH


def _roots(n: int) -> np.ndarray:
    """exp(-2 pi i k / n), each from an angle of an eighth of a turn at most."""
    eighths, rest = np.divmod(8 * np.arange(n), n)
    quarters, odd = np.divmod(eighths + 1, 2)  # the nearest quarter of a turn
    turned = np.exp(-2j * math.pi * (rest - np.where(odd, 0, n)) / (8 * n))
    return turned * np.array([1, -1j, -1, 1j])[quarters % 4]


def _grain(n: int) -> int:
    """Rows that are worth a thread's while, of short ones as many as go together."""
    return -(-_GRAIN // n // 32) * 32 if n <= SHORT else max(1, _GRAIN // n)


class Plan:
    """Words, the tables they point to, and the function that reads them."""

    def __init__(self, given: str, made: str, dtype: str, rows: int, inner: int, n: int,
                 taken: int, kept: int, inverse: bool, scale: float):
        name = f"fourier_{given}_{made}_{dtype}"
        self.function = machine_code("fourier", (name,), given, made, dtype)[name]
        self.tables: list[np.ndarray] = []
        stages = self._stages(n, dtype)
        (bits,) = struct.unpack("q", struct.pack("d", scale))
        self.words = table([*FOURIER.values(
            rows=rows, inner=inner, n=n, taken=taken, made=kept, swapped=int(inverse), scale=bits,
            grain=_grain(n), stages=len(stages)), *(w for s in stages for w in s)])
        self.address, self.work = address_of(self.words), rows * n

    def _stages(self, n: int, dtype: str) -> list[list[int]]:
        roots, apart, found = _roots(n), 1, []
        for radix in factors(n):
            count = n // (radix * apart)
            numbers = _weights(roots, radix, apart, count).astype(dtype)
            self.tables.append(numbers)
            found.append(STAGE.values(radix=radix, apart=apart, count=count,
                                      table=numbers.ctypes.data))
            apart *= radix
        return found


def _weights(roots: np.ndarray, radix: int, apart: int, count: int) -> np.ndarray:
    """The table of a pass: real parts of all groups and then imaginary ones, for each result but
    the first; of a factor without a pass of its own those of every product, one after another."""
    n, groups = len(roots), np.arange(count) * apart
    if radix in RADICES:
        found = roots[np.arange(1, radix)[:, None] * groups]
        return np.stack([found.real, found.imag], 1)
    results, terms = np.arange(radix)[:, None], np.arange(radix) * (n // radix)
    return roots[results * (groups[:, None, None] + terms) % n].view("float64")


fourier_plan = remembered(Plan)
