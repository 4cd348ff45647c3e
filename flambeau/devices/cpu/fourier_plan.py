"""Plans of Fourier transforms along one dimension: factors of its length, and tables of roots."""

from __future__ import annotations

import cmath
import functools
import math
import struct
from array import array

from .assembly.conv_words import address_of, table
from .assembly.fourier_words import FOURIER, MOST, STAGE
from .foundry import machine_code
from .remember import remembered

#: products by factors that have no pass of their own, up to which numpy would take longer
_WORTH = 1 << 15
#: numbers that are worth a thread's while
_GRAIN = 1 << 13


def factors(n: int) -> list[int]:
    """Fours first, then the primes."""
    found, rest = [], n
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
    return sum(r for r in factors(n) if r not in (2, 4))


def has_code(rows: int, n: int) -> bool:
    """Whether so many rows of a length are transformed by machine code."""
    return 0 < n <= MOST and rows * n * _products(n) <= _WORTH


def _roots(n: int) -> list[complex]:
    """exp(-2 pi i k / n), each from an angle of an eighth of a turn at most."""
    return [_root(k, n) for k in range(n)]


def _root(k: int, n: int) -> complex:
    eighths, rest = divmod(8 * k, n)
    quarter, odd = divmod(eighths + 1, 2)  # the nearest quarter of a turn
    away = rest - (n if not odd else 0)
    turned = cmath.exp(-2j * math.pi * away / (8 * n))
    for _ in range(quarter % 4):
        turned = complex(turned.imag, -turned.real)
    return turned


class Plan:
    """Words, the tables they point to, and the function that reads them."""

    def __init__(self, given: str, made: str, dtype: str, rows: int, inner: int, n: int,
                 taken: int, kept: int, inverse: bool, scale: float):
        name = f"fourier_{given}_{made}_{dtype}"
        self.function = machine_code("fourier", (name,), given, made, dtype)[name]
        self.tables: list[array] = []
        stages = self._stages(n)
        (bits,) = struct.unpack("q", struct.pack("d", scale))
        self.words = table([*FOURIER.values(
            rows=rows, inner=inner, n=n, taken=taken, made=kept, swapped=int(inverse), scale=bits,
            grain=max(1, _GRAIN // n), stages=len(stages)), *(w for s in stages for w in s)])
        self.address, self.work = address_of(self.words), rows * n

    def _stages(self, n: int) -> list[list[int]]:
        roots, apart, found = _roots(n), 1, []
        for radix in factors(n):
            count = n // (radix * apart)
            if radix in (2, 4):
                weights = [roots[j * q * apart] for j in range(count) for q in range(1, radix)]
            else:
                weights = [roots[q * (j * apart + p * (n // radix)) % n] for j in range(count)
                           for q in range(radix) for p in range(radix)]
            numbers = array("d", [part for w in weights for part in (w.real, w.imag)])
            self.tables.append(numbers)
            found.append(STAGE.values(radix=radix, apart=apart, count=count,
                                      table=address_of(numbers)))
            apart *= radix
        return found


fourier_plan = remembered(Plan)
