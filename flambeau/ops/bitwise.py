"""Bits of integers, and divisors they share."""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from ..core.dtype import result_type
from .declare import SAME, T, composite, library, pointwise
from .refusal import is_signature, no_kernel


def _bits(name: str, kinds: str = "biu"):
    """A check that operands, promoted, are integers or booleans."""
    def check(operands, attributes) -> None:
        for o in operands:
            kind = o.dtype if is_signature(o) else dt.of_scalar(o)
            if kind.kind not in kinds:
                raise no_kernel(f"{name}_cpu", kind)
    return check


@pointwise(SAME, check=_bits("bitwise_not"))
def bitwise_not(x):
    """Every bit turned over; of booleans, not"""
    return ~x


@pointwise(SAME, check=_bits("bitwise_and"))
def bitwise_and(x, y):
    """Bits that are set in both."""
    return x & y


@pointwise(SAME, check=_bits("bitwise_or"))
def bitwise_or(x, y):
    """Bits that are set in either."""
    return x | y


@pointwise(SAME, check=_bits("bitwise_xor"))
def bitwise_xor(x, y):
    """Bits that are set in one and not in the other."""
    return x ^ y


@pointwise(SAME, check=_bits("lshift"))
def bitwise_left_shift(x, y):
    """x with its bits moved left by y places; 0 if they all leave"""
    if x.dtype is dt.bool_:
        raise no_kernel("lshift_cpu", x.dtype)
    return x << y


@pointwise(SAME, check=_bits("rshift"))
def bitwise_right_shift(x, y):
    """x with its bits moved right by y places, its sign kept"""
    if x.dtype is dt.bool_:
        raise no_kernel("rshift_cpu", x.dtype)
    return x >> y


# -- divisors ----------------------------------------------------------------------------------


@library(method=False, function_form=False)
def greatest_common_divisor(input: T, other: T):
    """The largest integer that divides both."""
    dims = [s.dtype for s in (input, other) if s.rank]
    joined = result_type(dims, [s.dtype for s in (input, other) if not s.rank], [])
    if joined.kind not in "iu":
        raise no_kernel("gcd_cpu", joined)
    return sh.broadcast("gcd", input.shape, other.shape), joined


@composite(inplace=True)
def gcd(input, other):
    """The greatest common divisor."""
    return greatest_common_divisor(input, other)


@composite(inplace=True)
def lcm(input, other):
    """The least common multiple."""
    shared = greatest_common_divisor(input, other)
    quotient = input.div(shared + (shared == 0), rounding_mode="trunc")
    return (quotient * other).abs()
