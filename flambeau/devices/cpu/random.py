"""The CPU's random numbers: torch's streams, number for number, from the same seed.

Each function takes an `Mt19937`, draws `n` numbers of one torch dtype from it and uses up as much
of the stream as torch does. Arrays come back flat, in the order torch visits memory (see
`fill_order`); bfloat16 comes as float32 already rounded to bfloat16.
"""

import functools
import math
from typing import NamedTuple

from ...core.lazily import np
from .shuffle import shuffle

CHUNK = 1 << 15  # elements drawn at once, so that what lies between stays in the cache


class Number(NamedTuple):
    """What drawing needs to know of a dtype."""

    kind: type      # the numpy type that carries it
    digits: int     # bits of its mantissa; 0 for integers
    top: int        # random_() draws from 0 to top
    wide: bool      # from 64-bit words


NUMBERS = {
    "float16":  Number(np.float16, 11, 2**11,     False),
    "bfloat16": Number(np.float32, 8,  2**8,      False),
    "float32":  Number(np.float32, 24, 2**24,     False),
    "float64":  Number(np.float64, 53, 2**53,     True),
    "bool":     Number(np.bool_,   0,  1,         False),
    "uint8":    Number(np.uint8,   0,  2**8 - 1,  False),
    "int8":     Number(np.int8,    0,  2**7 - 1,  False),
    "int16":    Number(np.int16,   0,  2**15 - 1, False),
    "int32":    Number(np.int32,   0,  2**31 - 1, False),
    "int64":    Number(np.int64,   0,  2**63 - 1, True),
    "uint16":   Number(np.uint16,  0,  2**16 - 1, False),
    "uint32":   Number(np.uint32,  0,  2**32 - 1, False),
    "uint64":   Number(np.uint64,  0,  2**64 - 1, True),
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
    if kind in (np.float64, np.int64):
        return values.astype(kind)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            return round_bfloat16(values.astype(np.float32))
        if dtype == "float16":
            values = values.astype(np.float32)
        return values.astype(kind)


def multiply_add(x, a, b):
    """x * a + b rounded once, for float32 or float64 arrays x."""
    if b == 0:
        return x if a == 1 else x * a
    if x.dtype == np.float32:
        return (x.astype(np.float64) * np.float64(a) + np.float64(b)).astype(np.float32)
    product, lost = exact_product(x, a)
    total = product + b
    part = total - product
    return total + ((product - (total - part)) + (b - part) + lost)


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


def in_chunks(draw):
    """Draw many elements a chunk at a time: the same numbers, through less memory."""

    @functools.wraps(draw)
    def drawn(rng, n, dtype="float32", *args, **kwargs):
        if n <= CHUNK:
            return draw(rng, n, dtype, *args, **kwargs)
        out = np.empty(n, NUMBERS[dtype].kind)
        for start in range(0, n, CHUNK):
            part = out[start : start + CHUNK]
            part[:] = draw(rng, part.size, dtype, *args, **kwargs)
        return out

    return drawn


# -- uniform numbers --------------------------------------------------------------------------


def unit(rng, n, kind=np.float64):
    """n numbers of [0, 1): 53 bits of a wide word, or 24 bits of a word for float32."""
    if kind is np.float64:
        return (rng.wide_words(n) & np.uint64(2**53 - 1)).astype(np.float64) * 2.0**-53
    # Signed integers convert faster, and 24 bits have no sign.
    low_bits = (rng.words(n) & np.uint32(2**24 - 1)).view(np.int32)
    return low_bits.astype(np.float32) * np.float32(2.0**-24)


def work_kind(dtype):
    """What a floating dtype is computed in."""
    return np.float64 if dtype == "float64" else np.float32


@in_chunks
def uniform(rng, n, dtype="float32", low=0.0, high=1.0):
    """Uniform numbers of [low, high)."""
    demand(
        low <= high,
        f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}",
    )
    kind = work_kind(dtype)
    base, width = kind(low), kind(high) - kind(low)
    values = cast(multiply_add(unit(rng, n, kind), width, base), dtype)
    if base == 0 and values.dtype == kind and dtype != "bfloat16":
        return values
    # Rounding may reach the bound that is excluded; torch then takes the other one.
    lowest, highest = cast(np.array([low, high]), dtype)
    return np.where(values == highest, lowest, values)


@in_chunks
def random(rng, n, dtype):
    """`random_()`: integers from 0 to the largest the dtype holds exactly."""
    number = NUMBERS[dtype]
    if number.wide:
        values = rng.wide_words(n) % np.uint64(number.top + 1)
    else:
        values = rng.words(n).astype(np.uint64) % np.uint64(number.top + 1)
    return cast(values.astype(np.int64), dtype)


@in_chunks
def integers(rng, n, dtype, low, high=None):
    """`random_(low, high)` and `randint`: integers of [low, high), without `high` up to the top."""
    if high is None and low == -(2**63):
        return cast(rng.wide_words(n).view(np.int64), dtype)
    number = NUMBERS[dtype]
    if high is None:
        high = number.top + 1
    elif number.digits:
        low, high = representable_low(low, number.digits), representable_high(high, number.digits)
    demand(
        low < high,
        f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}",
    )
    return cast(bounded(rng, n, high - low, low), dtype)


def bounded(rng, n, width, low):
    """int64 numbers of [low, low + width); ranges of 28 bits and more use 64-bit words."""
    words = rng.wide_words(n) if width >= 2**28 else rng.words(n).astype(np.uint64)
    if width < 2**64:
        words = words % np.uint64(width)
    return words.view(np.int64) + np.int64(low)


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


def permutation(rng, n, dtype="int64"):
    """`randperm`; from LARGE_PERMUTATION on, where 32-bit words would be visibly uneven, torch
    shuffles in another way."""
    order = shuffled(rng, n) if n < LARGE_PERMUTATION else shuffled_inside_out(rng, n)
    return cast(order, dtype)


def shuffled(rng, n):
    """Fisher-Yates: each place swaps with itself or a later one."""
    return shuffle(rng.words(max(n - 1, 0)), n)


def shuffled_inside_out(rng, n, chunk=1 << 16):
    """Each number takes the place of itself or an earlier one, which moves to the end."""
    order = np.empty(n, np.int64)
    places = memoryview(order)
    for start in range(0, n, chunk):
        here = np.arange(start, min(start + chunk, n), dtype=np.uint64)
        chosen = rng.wide_words(here.size) % (here + np.uint64(1))
        for i, j in enumerate(chosen.tolist(), start):
            places[i] = i
            places[i] = places[j]
            places[j] = i
    return order


# -- normal numbers ---------------------------------------------------------------------------


def standard_normals(rng, n):
    """float64 normals one after the other, beginning with the one the generator kept."""
    if n < 16:
        return np.array([rng.normal() for _ in range(n)], np.float64)
    kept, rng.next_normal = rng.next_normal, None
    have = n if kept is None else n - 1
    u = unit(rng, 2 * (-(-have // 2))).reshape(-1, 2)
    radius, angle = np.sqrt(-2.0 * np.log1p(-u[:, 1])), 2.0 * math.pi * u[:, 0]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()
    if have % 2:
        rng.next_normal = float(pairs[-1])
    return pairs[:have] if kept is None else np.concatenate([[kept], pairs[:have]])


def normal(rng, n, dtype="float32", mean=0.0, std=1.0, contiguous=True):
    """Normal numbers. Short or strided tensors take the one-by-one path, others blocks of 16."""
    demand(std >= 0, f"normal expects std >= 0.0, but found std {std}")
    if n < 16 or not contiguous:
        return cast(multiply_add(standard_normals(rng, n), std, mean), dtype)
    kind, whole = work_kind(dtype), n - n % 16
    out = np.empty(n, NUMBERS[dtype].kind)
    for start in range(0, whole, CHUNK):
        part = out[start : min(start + CHUNK, whole)]
        part[:] = cast(box_muller(unit(rng, part.size, kind), mean, std), dtype)
    if n > whole:
        # float32 and float64 draw for every element before they redo the end.
        if dtype in ("float32", "float64"):
            unit(rng, n - whole, kind)
        out[n - 16 :] = cast(box_muller(unit(rng, 16, kind), mean, std), dtype)
    return out


def box_muller(u, mean, std):
    """Blocks of 16 uniforms (8 for the radius, 8 for the angle) to 16 normals."""
    kind = u.dtype.type
    radii, turns = u.reshape(-1, 2, 8)[:, 0], u.reshape(-1, 2, 8)[:, 1]
    radius = np.sqrt(kind(-2) * np.log(kind(1) - radii))
    angle = kind(2 * math.pi) * turns
    points = np.empty((len(radius), 2, 8), kind)
    np.multiply(radius, np.cos(angle), out=points[:, 0])
    np.multiply(radius, np.sin(angle), out=points[:, 1])
    return multiply_add(points.reshape(-1), kind(std), kind(mean))


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


@in_chunks
def log_normal(rng, n, dtype="float32", mean=1.0, std=2.0):
    """exp of normal numbers drawn one by one."""
    demand(std > 0, f"log_normal_ expects std > 0.0, but found std={std}")
    return cast(np.exp(standard_normals(rng, n) * std + mean), dtype)


# -- from one uniform each --------------------------------------------------------------------


@in_chunks
def exponential(rng, n, dtype="float32", rate=1.0):
    """Exponential numbers of this rate."""
    demand(rate > 0, f"exponential_ expects lambda > 0.0, but found lambda={rate}")
    return cast(-1.0 / rate * np.log1p(-unit(rng, n)), dtype)


@in_chunks
def geometric(rng, n, dtype="float32", p=0.5):
    """How many trials it takes to succeed once."""
    demand(0 < p < 1, f"geometric_ expects p to be in (0, 1), but got p={p}")
    with np.errstate(divide="ignore"):
        return cast(np.ceil(np.log(unit(rng, n)) / math.log1p(-p)), dtype)


@in_chunks
def cauchy(rng, n, dtype="float32", median=0.0, sigma=1.0):
    """Cauchy numbers."""
    demand(sigma > 0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return cast(median + sigma * np.tan(math.pi * (unit(rng, n) - 0.5)), dtype)


@in_chunks
def bernoulli(rng, n, dtype="float32", p=0.5):
    """1 with probability p, a Python number; dropout draws its mask so, with 1 - p."""
    demand(0 <= p <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return cast(unit(rng, n) < p, dtype)


def bernoulli_each(rng, probabilities, dtype="float32"):
    """1 with the probability given for each element; p of 64 bits uses words of 64."""
    p = np.ravel(probabilities)
    demand(np.all((p >= 0) & (p <= 1)), "Expected p_in >= 0 && p_in <= 1 to be true, but got false")
    kind = np.float64 if p.dtype == np.float64 else np.float32
    return cast(unit(rng, p.size, kind) < p.astype(kind), dtype)


def rrelu(rng, x, low, high, dtype="float32"):
    """`rrelu` while training and its noise: a slope where x is not positive, elsewhere 1."""
    low, high = cast(np.array([low, high]), dtype).astype(np.float64)
    noise = np.ones(x.shape, x.dtype)
    falling = x <= 0
    noise[falling] = cast(unit(rng, int(falling.sum())) * (high - low) + low, dtype)
    return cast(x * noise, dtype), noise
