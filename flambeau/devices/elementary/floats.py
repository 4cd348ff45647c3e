"""How a float is laid out, and the few moves every elementary function is made of.

Nothing here converts a float to an integer with `cast`: adding 1.5 * 2**fraction puts a whole
number into the low bits of a float, where a bitcast reads it, on every machine and in one step.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core import dtype as dt
from ...core import expr
from ...core.expr import Expr

INF, NAN = float("inf"), float("nan")


class Layout(NamedTuple):
    """The numbers that describe a floating point dtype."""

    bits: dt.dtype          # the integer of the same size
    fraction: int           # stored bits of the significand
    bias: int               # what is added to the exponent
    whole: float            # 1.5 * 2**fraction: added, it rounds to a whole number
    whole_bits: int
    tiny: float             # the smallest normal number


LAYOUTS = {
    dt.float32: Layout(dt.int32, 23, 127, 1.5 * 2.0**23, 0x4B400000, 2.0**-126),
    dt.float64: Layout(dt.int64, 52, 1023, 1.5 * 2.0**52, 0x4338000000000000, 2.0**-1022),
}


def layout(x: Expr) -> Layout:
    return LAYOUTS[x.dtype]


def fma(a, b, c) -> Expr:
    return expr.call("fma", a, b, c)


def absolute(x: Expr) -> Expr:
    return expr.call("abs", x)


def root(x: Expr) -> Expr:
    return expr.call("sqrt", x)


def copysign(size: Expr, sign: Expr) -> Expr:
    return expr.make("copysign", (size, sign))


def bits(x: Expr) -> Expr:
    """The float's bits as an integer."""
    return expr.make("bitcast", (x,), None, layout(x).bits)


def from_bits(i: Expr, like: Expr) -> Expr:
    return expr.make("bitcast", (i,), None, like.dtype)


def double(x: Expr) -> Expr:
    return expr.cast(x, dt.float64)


def in_double(function):
    """The float32 form of a float64 function: so exact inside that only the last step rounds."""

    def single(*args: Expr) -> Expr:
        return expr.cast(function(*map(double, args)), dt.float32)

    return single


def polynomial(x: Expr, coefficients) -> Expr:
    """Horner's scheme; the highest power comes first."""
    total = expr.const(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        total = fma(total, x, c)
    return total


def clamp(x: Expr, low: float | None = None, high: float | None = None) -> Expr:
    """x kept within limits; NaN stays NaN."""
    if low is not None:
        x = expr.where(x < low, low, x)
    return x if high is None else expr.where(x > high, high, x)


def nearest(scaled: Expr) -> tuple[Expr, Expr]:
    """A sum with `whole` already added, as the whole number it holds: (float, integer)."""
    shape = layout(scaled)
    return scaled - shape.whole, bits(scaled) - shape.whole_bits


def to_float(n: Expr, like: Expr) -> Expr:
    """A small integer as a float."""
    shape = layout(like)
    return from_bits(n + shape.whole_bits, like) - shape.whole


def power_of_two(n: Expr, like: Expr) -> Expr:
    """2**n, while that is a normal number."""
    shape = layout(like)
    return from_bits((n + shape.bias) << shape.fraction, like)


def scale(x: Expr, n: Expr) -> Expr:
    """x * 2**n in two steps, so that results overflow and become subnormal as they should."""
    half = n >> 1
    return x * power_of_two(half, x) * power_of_two(n - half, x)


def rarely(condition: Expr, slow: Expr, fast: Expr) -> Expr:
    """A select whose first choice is long and hardly ever taken.

    It means what select means; the attribute tells a generator that a branch around `slow`,
    taken when no lane wants it, pays.
    """
    return expr.make("select", (condition, slow, fast), "rare", fast.dtype)


def two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b and what its rounding lost."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def two_product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a * b and what its rounding lost."""
    product = a * b
    return product, fma(a, b, -product)
