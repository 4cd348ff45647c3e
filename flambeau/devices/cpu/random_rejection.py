"""Random numbers that take an unforeseen number of tries, and choices between categories.

The tries are machine code (assembly/tries.py, which names the algorithms).
"""

from __future__ import annotations

import ctypes
import functools

from ...core.lazily import np
from .foundry import machine_code
from .ordering import places
from .random import cast, demand, drawn, exponential, uniform, unit, work_kind

TINY = {"float32": 2.0**-126, "float64": 2.0**-1022}


@functools.cache
def tries(name: str, dtype: str):
    """The routine (state, out, parameters, n) of a distribution."""
    symbol = f"tries_{name}_{dtype}"
    return machine_code("tries", (symbol,), name, dtype)[symbol]


def flat(values, kind: str):
    """One array of a kind, in memory that lies as its elements are counted."""
    return np.ascontiguousarray(values, kind).reshape(-1)


def poisson(rng, rates, dtype="float32", at=None):
    """A Poisson number for each rate."""
    rates = flat(rates, "float64")
    demand(np.all(rates >= 0), "invalid Poisson rate, expected rate to be non-negative")
    return drawn(rng, rates.size, dtype, at, tries("poisson", dtype), rates.ctypes.data)


def binomial(rng, counts, probabilities, dtype="float32", at=None):
    """A binomial number for each count and probability, both arrays of the dtype."""
    counts, probabilities = (flat(a, work_kind(dtype))
                             for a in np.broadcast_arrays(counts, probabilities))
    return drawn(rng, counts.size, dtype, at, tries("binomial", dtype), counts.ctypes.data,
                 probabilities.ctypes.data)


def standard_gamma(rng, shapes, dtype="float32", at=None):
    """A gamma number of scale 1 for each shape parameter, an array of the dtype."""
    shapes = flat(shapes, work_kind(dtype))
    return drawn(rng, shapes.size, dtype, at, tries("gamma", dtype), shapes.ctypes.data)


def dirichlet(rng, concentrations, dtype="float32"):
    """Points of the simplex, one for each row of the last dimension."""
    a = np.asarray(concentrations, np.float64)
    drawn = standard_gamma(rng, a, "float64").reshape(a.shape)
    shares = cast(drawn / drawn.sum(-1, keepdims=True), dtype)
    below_one = np.nextafter(shares.dtype.type(1), shares.dtype.type(0))
    return np.clip(shares, shares.dtype.type(TINY[dtype]), below_one)


# -- categories -------------------------------------------------------------------------------


@functools.cache
def choosing(dtype: str):
    """Routines: whether weights are fit (0 if so), the race of each row, a search of shares."""
    names = (f"weights_{dtype}", f"race_{dtype}", f"lookup_{dtype}")
    found = machine_code("choices", names, dtype)
    return tuple(found[name] for name in names)


INVALID = "invalid multinomial distribution"


def demand_fit(weights: int, width: int, total: int, dtype: str, one_by_one=False) -> None:
    """Refuse `total` weights at an address by which nothing can be chosen."""
    if choosing(dtype)[0](weights, width, total):
        kind = {"float32": ctypes.c_float, "float64": ctypes.c_double}[dtype]
        rows = np.ctypeslib.as_array((kind * total).from_address(weights)).reshape(-1, width)
        check_weights(rows, one_by_one)


def choose_one(rng, weights: int, width: int, total: int, dtype: str, spare: int, out: int) -> None:
    """One category for each row of `total` weights at an address; `spare` has room for as many."""
    demand_fit(weights, width, total, dtype)
    exponential(rng, total, dtype, 1.0, spare)
    choosing(dtype)[1](weights, spare, out, width, total)


def choose_again(rng, weights: int, width: int, total: int, dtype: str, n: int, spare: int,
                 out: int) -> None:
    """n categories for each row, any of them again; `spare` has room for a double for each choice
    and each weight of a row."""
    demand_fit(weights, width, total, dtype, one_by_one=True)
    count = total // width * n
    uniform(rng, count, "float64", 0.0, 1.0, spare)
    choosing(dtype)[2](weights, spare, spare + 8 * count, out, width, n, total)


def multinomial(rng, weights, n, replacement=False, dtype="float32"):
    """n category numbers for a vector or for each row of weights, int64."""
    rows = np.atleast_2d(weights)
    check_weights(rows, one_by_one := replacement and n != 1)
    if one_by_one:
        chosen = np.stack([with_replacement(rng, row, n) for row in rows])
    else:
        chosen = without_replacement(rng, rows, n, dtype)
    return chosen if np.ndim(weights) == 2 else chosen[0]


def check_weights(rows, one_by_one=False):
    """Refuse weights no category can be drawn by; torch says which kind only in the latter case."""
    if one_by_one:
        demand(not np.any(rows < 0), f"{INVALID} (encountering probability entry < 0)")
        demand(np.all(np.isfinite(rows)),
               f"{INVALID} (encountering probability entry = infinity or NaN)")
    demand(np.all(np.isfinite(rows)) and np.all(rows >= 0),
           "probability tensor contains either `inf`, `nan` or element < 0")
    demand(np.all(rows.sum(-1) > 0), f"{INVALID} (sum of probabilities <= 0)")


def with_replacement(rng, row, n):
    """Look uniforms up in the running sum, of float32 unless the weights are float64."""
    running = np.cumsum(row, dtype=np.float64 if row.dtype == np.float64 else np.float32)
    running /= running[-1]
    running[-1] = 1
    running, drawn_at, found = running.astype(np.float64), unit(rng, n), np.empty(n, np.int64)
    places("float64")(running.ctypes.data, drawn_at.ctypes.data, found.ctypes.data, running.size,
                      max(n, 1), 0, 0, n)
    return found


def without_replacement(rng, rows, n, dtype):
    """The n largest of weight / exponential: a race in which heavier categories are faster."""
    times = exponential(rng, rows.size, dtype).reshape(rows.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = cast(rows / times, dtype)
    if n == 1:
        return np.argmax(speed, -1)[:, None]
    return np.argsort(-speed, axis=-1, kind="stable")[:, :n]
