"""The CPU's random numbers: torch's streams, number for number, from the same seed.

Each function takes an `Mt19937`, draws `n` numbers of one torch dtype from it and uses up as much
of the stream as torch does: into memory at an address, or into a flat array that it returns.
Either is in the order torch visits memory (see `fill_order`); arrays of bfloat16 come as float32.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, NamedTuple

from ...core.lazily import np
from .foundry import machine_code
from .mersenne import code


class Number(NamedTuple):
    """What drawing needs to know of a dtype."""

    kind: str       # the numpy type that carries it in an array
    digits: int     # bits of its mantissa; 0 for integers
    top: int        # random_() draws from 0 to top
    wide: bool      # from 64-bit words


NUMBERS = {
    "float16":  Number("float16", 11, 2**11,     False),
    "bfloat16": Number("float32", 8,  2**8,      False),
    "float32":  Number("float32", 24, 2**24,     False),
    "float64":  Number("float64", 53, 2**53,     True),
    "bool":     Number("bool",    0,  1,         False),
    "uint8":    Number("uint8",   0,  2**8 - 1,  False),
    "int8":     Number("int8",    0,  2**7 - 1,  False),
    "int16":    Number("int16",   0,  2**15 - 1, False),
    "int32":    Number("int32",   0,  2**31 - 1, False),
    "int64":    Number("int64",   0,  2**63 - 1, True),
    "uint16":   Number("uint16",  0,  2**16 - 1, False),
    "uint32":   Number("uint32",  0,  2**32 - 1, False),
    "uint64":   Number("uint64",  0,  2**64 - 1, True),
}  # fmt: skip


# -- numbers to dtypes ------------------------------------------------------------------------


def fill_order(shape, strides):
    """The dimensions from slowest to fastest as torch visits them when it fills a tensor.

    It walks memory, not indices: a transposed tensor is filled as its storage lies.
    """
    return sorted(range(len(shape)), key=lambda d: (-strides[d], d))


def round_bfloat16(values):
    """float32 values rounded to the nearest bfloat16, still as float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(values), bits | np.uint32(0x400000), rounded)
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def cast(values, dtype):
    """Computed numbers as a dtype; the half types are reached through float32, as in torch."""
    kind = NUMBERS[dtype].kind
    if values.dtype == kind and dtype != "bfloat16":
        return values
    if kind in ("float64", "int64"):
        return values.astype(kind)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            return round_bfloat16(values.astype(np.float32))
        if dtype == "float16":
            values = values.astype(np.float32)
        return values.astype(kind)


def exact_product(x, a):
    """x * a as a rounded float64 and what the rounding lost (Dekker)."""
    product = x * a
    x_high, x_low = halves(x)
    a_high, a_low = halves(np.float64(a))
    lost = ((x_high * a_high - product) + x_high * a_low + x_low * a_high) + x_low * a_low
    return product, lost


def halves(x):
    """x as a sum of two numbers of 26 bits, whose products are exact."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


def demand(holds, message):
    if not holds:
        raise RuntimeError(message)


# -- machine code --------------------------------------------------------------------------------


@functools.cache
def fill(name: str, dtype: str, *details: str):
    """The routine (state, out, ..., n) that fills memory with numbers of a dtype."""
    symbol = "_".join(("fill", name, dtype, *details))
    return machine_code("fills", (symbol,), name, dtype, *details)[symbol]


def drawn(rng, n: int, dtype: str, at: int | None, run, *numbers):
    """n elements at an address, or in a new array."""
    if at is not None:
        run(rng.state, at, *numbers, n)
        return None
    out: Any = np.empty(n, "uint16" if dtype == "bfloat16" else NUMBERS[dtype].kind)
    run(rng.state, out.ctypes.data, *numbers, n)
    return (out.astype(np.uint32) << np.uint32(16)).view(np.float32) if dtype == "bfloat16" else out


# -- uniform numbers -----------------------------------------------------------------------------


def unit(rng, n, kind="float64"):
    """n numbers of [0, 1): 53 bits of a wide word, or 24 bits of a word for float32."""
    return drawn(rng, n, kind, None, fill("uniform", kind), 0.0, 1.0)


def work_kind(dtype):
    """What a floating dtype is computed in."""
    return "float64" if dtype == "float64" else "float32"


def uniform(rng, n, dtype="float32", low=0.0, high=1.0, at=None):
    """Uniform numbers of [low, high)."""
    demand(
        low <= high,
        f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}",
    )
    return drawn(rng, n, dtype, at, fill("uniform", dtype), float(low), float(high))


def random(rng, n, dtype, at=None):
    """`random_()`: integers from 0 to the largest the dtype holds exactly."""
    number = NUMBERS[dtype]
    if number.wide:
        return bounded(rng, n, dtype, number.top + 1, 0, at, True)
    if number.digits:
        return bounded(rng, n, dtype, number.top + 1, 0, at, False)
    return drawn(rng, n, dtype, at, fill("masked_integers", dtype), number.top)


def integers(rng, n, dtype, low, high=None, at=None):
    """`random_(low, high)` and `randint`: integers of [low, high), without `high` up to the top."""
    if high is None and low == -(2**63):
        return bounded(rng, n, dtype, 2**64, 0, at, True)
    number = NUMBERS[dtype]
    if high is None:
        high = number.top + 1
    elif number.digits:
        low, high = representable_low(low, number.digits), representable_high(high, number.digits)
    demand(
        low < high,
        f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}",
    )
    return bounded(rng, n, dtype, high - low, low, at, high - low >= 2**28)


def bounded(rng, n, dtype, width, low, at, wide: bool):
    """Numbers of [low, low + width), of 64-bit words or of 32-bit ones."""
    name = "wide_integers" if wide else "integers"
    return drawn(rng, n, dtype, at, fill(name, dtype), signed(width), signed(low))


def signed(value: int) -> int:
    """The signed 64-bit number of the same bits."""
    return (value + 2**63) % 2**64 - 2**63


def representable_high(high, digits):
    """The bound torch uses when a float of so many digits rounds high - 1 up to it."""
    rounded = rounded_to_digits(high - 1, digits)
    if rounded < high:
        return high
    return rounded - (1 << (abs(high - 1).bit_length() - digits))


def representable_low(low, digits):
    """The bound torch uses when a float of so many digits rounds low + 1 below it."""
    rounded = rounded_to_digits(low + 1, digits)
    if rounded >= low:
        return low
    return rounded + (1 << (abs(low + 1).bit_length() - digits))


def rounded_to_digits(value, digits):
    """An integer rounded to a float of so many digits, ties to even."""
    step = 1 << max(abs(value).bit_length() - digits, 0)
    whole, rest = divmod(value, step)
    up = 2 * rest > step or (2 * rest == step and whole % 2)
    return (whole + bool(up)) * step


LARGE_PERMUTATION = (2**32 - 1) // 20


def permutation(rng, n, dtype="int64", at=None):
    """`randperm`; from LARGE_PERMUTATION on, where 32-bit words would be visibly uneven, torch
    shuffles in another way."""
    run = code("twister_shuffle" if n < LARGE_PERMUTATION else "twister_inside_out")
    if dtype == "int64":
        return drawn(rng, n, dtype, at, run)
    order = cast(drawn(rng, n, "int64", None, run), dtype)
    return order if at is None else placed(order, dtype, at)


def placed(values, dtype: str, at: int) -> None:
    """The elements of an array, as a dtype stores them, at an address."""
    if dtype == "bfloat16":
        values = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    values = np.ascontiguousarray(values)
    ctypes.memmove(at, values.ctypes.data, values.nbytes)


# -- normal numbers ------------------------------------------------------------------------------


def normal(rng, n, dtype="float32", mean=0.0, std=1.0, contiguous=True, at=None):
    """Normal numbers. Short or strided tensors take the one-by-one path, others blocks of 16."""
    demand(std >= 0, f"normal expects std >= 0.0, but found std {std}")
    name = "normals" if n < 16 or not contiguous else "normal"
    return drawn(rng, n, dtype, at, fill(name, dtype), float(mean), float(std))


def normal_around(rng, mean, std, dtype="float32"):
    """`normal(mean, std)` where either is an array of the dtype; keeps the broadcast shape."""
    shape = np.broadcast_shapes(np.shape(mean), np.shape(std))
    n = math.prod(shape)
    if np.ndim(std) == 0 and not isinstance(std, np.ndarray):
        values = normal(rng, n, dtype, 0.0, std).reshape(shape)
    else:
        demand(np.all(np.asarray(std) >= 0), "normal expects all elements of std >= 0.0")
        values = normal(rng, n, dtype).reshape(shape)
        values = cast(values * np.asarray(std, values.dtype), dtype)
    return cast(values + np.asarray(mean, values.dtype), dtype)


def log_normal(rng, n, dtype="float32", mean=1.0, std=2.0, at=None):
    """exp of normal numbers drawn one by one."""
    demand(std > 0, f"log_normal_ expects std > 0.0, but found std={std}")
    return drawn(rng, n, dtype, at, fill("log_normal", dtype), float(mean), float(std))


# -- from one uniform each -----------------------------------------------------------------------


def exponential(rng, n, dtype="float32", rate=1.0, at=None):
    """Exponential numbers of this rate."""
    demand(rate > 0, f"exponential_ expects lambda > 0.0, but found lambda={rate}")
    return drawn(rng, n, dtype, at, fill("exponential", dtype), float(rate), 0.0)


def geometric(rng, n, dtype="float32", p=0.5, at=None):
    """How many trials it takes to succeed once."""
    demand(0 < p < 1, f"geometric_ expects p to be in (0, 1), but got p={p}")
    return drawn(rng, n, dtype, at, fill("geometric", dtype), float(p), 0.0)


def cauchy(rng, n, dtype="float32", median=0.0, sigma=1.0, at=None):
    """Cauchy numbers."""
    demand(sigma > 0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return drawn(rng, n, dtype, at, fill("cauchy", dtype), float(median), float(sigma))


def bernoulli(rng, n, dtype="float32", p=0.5, at=None):
    """1 with probability p, a Python number; dropout draws its mask so, with 1 - p."""
    demand(0 <= p <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return drawn(rng, n, dtype, at, fill("bernoulli", dtype), float(p))


def bernoulli_each(rng, probabilities, dtype="float32", at=None):
    """1 with the probability given for each element; p of 64 bits uses words of 64."""
    p = np.ravel(probabilities)
    demand(not p.size or (p.min() >= 0 and p.max() <= 1),
           "Expected p_in >= 0 && p_in <= 1 to be true, but got false")
    kind = "float64" if p.dtype == np.float64 else "float32"
    p = np.ascontiguousarray(p, kind)
    return drawn(rng, p.size, dtype, at, fill("bernoulli_each", dtype, kind), p.ctypes.data)


def rrelu(rng, x, low, high, dtype="float32"):
    """`rrelu` while training and its noise: a slope where x is not positive, elsewhere 1."""
    low, high = cast(np.array([low, high]), dtype).astype(np.float64)
    noise = np.ones(x.shape, x.dtype)
    falling = x <= 0
    noise[falling] = cast(unit(rng, int(falling.sum())) * (high - low) + low, dtype)
    return cast(x * noise, dtype), noise
