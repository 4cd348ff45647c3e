"""Random numbers that take an unforeseen number of tries, and choices between categories.

One element at a time, because how far the stream moves depends on what was drawn before.
Poisson: Hoermann's PTRS (1993); binomial: his BTRS; gamma: Marsaglia and Tsang (2000).
"""

import math

from ...core.lazily import np
from .random import cast, demand, exponential, unit

TINY = {"float32": float(np.finfo(np.float32).tiny), "float64": float(np.finfo(np.float64).tiny)}


def poisson(rng, rates, dtype="float32"):
    """A Poisson number for each rate."""
    rates = np.ravel(rates).astype(np.float64)
    demand(np.all(rates >= 0), "invalid Poisson rate, expected rate to be non-negative")
    return cast(np.array([poisson_one(rng, rate) for rate in rates.tolist()]), dtype)


def poisson_one(rng, rate):
    if rate == 0:
        return 0.0
    return poisson_large(rng, rate) if rate >= 10 else poisson_small(rng, rate)


def poisson_small(rng, rate):
    """Count uniforms until their product falls to exp(-rate)."""
    floor, product, count = math.exp(-rate), 1.0, 0
    while True:
        product *= rng.uniform()
        if product <= floor:
            return float(count)
        count += 1


def poisson_large(rng, rate):
    root = math.sqrt(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    inside = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = rng.uniform() - 0.5, rng.uniform()
        edge = 0.5 - abs(u)
        if edge == 0:
            continue
        k = math.floor((2 * a / edge + b) * u + rate + 0.43)
        if edge >= 0.07 and v <= inside:
            return float(k)
        if k < 0 or (edge < 0.013 and v > edge):
            continue
        tried = log(v) + math.log(inverse_alpha) - math.log(a / (edge * edge) + b)
        if tried <= -rate + k * math.log(rate) - math.lgamma(k + 1):
            return float(k)


def log(x):
    """Natural logarithm with log(0) = -inf."""
    return math.log(x) if x > 0 else -math.inf


# -- binomial ---------------------------------------------------------------------------------


def binomial(rng, counts, probabilities, dtype="float32"):
    """A binomial number for each count and probability, both arrays of the dtype."""
    kind = np.float64 if dtype == "float64" else np.float32
    counts, probabilities = np.broadcast_arrays(counts, probabilities)
    pairs = zip(counts.ravel().astype(kind), probabilities.ravel().astype(kind), strict=True)
    return cast(np.array([binomial_one(rng, n, p) for n, p in pairs], np.float64), dtype)


def binomial_one(rng, n, p):
    """n and p keep their numpy type, for torch rounds the products of both to it."""
    if n <= 0 or p <= 0:
        return 0.0
    if p >= 1:
        return float(n)
    if math.isnan(p):
        return math.nan
    rare = p if p <= 0.5 else type(p)(1.0 - float(p))
    draw = binomial_large if n * rare >= 10 else binomial_small
    successes = draw(rng, n, rare)
    return successes if p <= 0.5 else float(n) - successes


def binomial_small(rng, n, p):
    """Count geometric waiting times that fit into n trials."""
    scale, passed, count, n = float(np.log1p(-p)), 0.0, 0, float(n)
    while True:
        passed += math.ceil(log(u) / scale) if (u := rng.uniform()) > 0 else math.inf
        if passed > n:
            return float(count)
        count += 1


def binomial_large(rng, n, p):
    one = type(p)(1)
    spread = math.sqrt(n * p * (one - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * float(p)
    centre = float(n * p) + 0.5
    inside = 0.92 - 4.2 / b
    odds = float(p / (one - p))
    alpha = (2.83 + 5.1 / b) * spread
    mode = math.floor((n + one) * p)
    n = float(n)
    while True:
        u, v = rng.uniform() - 0.5, rng.uniform()
        edge = 0.5 - abs(u)
        if edge == 0:
            continue
        k = math.floor((2 * a / edge + b) * u + centre)
        if k < 0 or k > n:
            continue
        if edge >= 0.07 and v <= inside:
            return float(k)
        if log(v * alpha / (a / (edge * edge) + b)) <= binomial_bound(n, k, mode, odds):
            return float(k)


def binomial_bound(n, k, mode, odds):
    """log of how likely k is against the mode."""
    return (
        (mode + 0.5) * math.log((mode + 1) / (odds * (n - mode + 1)))
        + (n + 1) * math.log((n - mode + 1) / (n - k + 1))
        + (k + 0.5) * math.log(odds * (n - k + 1) / (k + 1))
        + stirling_tail(mode)
        + stirling_tail(n - mode)
        - stirling_tail(k)
        - stirling_tail(n - k)
    )


def stirling_tail(k):
    """log(k!) less Stirling's formula for it: exact for few, a series for many."""
    if k < 10:
        return math.lgamma(k + 1) - (
            0.5 * math.log(2 * math.pi) + (k + 0.5) * math.log(k + 1) - (k + 1)
        )
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


# -- gamma and what follows from it -----------------------------------------------------------

THIRD = np.float32(1) / np.float32(3)
SQUEEZE = float(np.float32(0.0331))


def standard_gamma(rng, shapes, dtype="float32"):
    """A gamma number of scale 1 for each shape parameter, an array of the dtype."""
    kind = np.float64 if dtype == "float64" else np.float32
    drawn = [gamma_one(rng, a) for a in np.ravel(shapes).astype(kind)]
    return np.maximum(cast(np.array(drawn, np.float64), dtype), kind(TINY[dtype]))


def gamma_one(rng, a):
    """`a` keeps its numpy type, for torch rounds what is computed of it alone to that."""
    scale = 1.0
    if a < 1:
        if a == 0:
            return 0.0
        scale = (1 - rng.uniform()) ** float(type(a)(1) / a)
        a = a + type(a)(1)
    d = float(a - type(a)(THIRD))
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = rng.normal()
        y = 1.0 + c * x
        if y <= 0:
            continue
        v, u, xx = y * y * y, 1 - rng.uniform(), x * x
        if u < 1.0 - SQUEEZE * xx * xx or math.log(u) < 0.5 * xx + d * (1.0 - v + math.log(v)):
            return scale * d * v


def dirichlet(rng, concentrations, dtype="float32"):
    """Points of the simplex, one for each row of the last dimension."""
    a = np.asarray(concentrations, np.float64)
    drawn = standard_gamma(rng, a, "float64").reshape(a.shape)
    shares = cast(drawn / drawn.sum(-1, keepdims=True), dtype)
    below_one = np.nextafter(shares.dtype.type(1), shares.dtype.type(0))
    return np.clip(shares, shares.dtype.type(TINY[dtype]), below_one)


# -- categories -------------------------------------------------------------------------------


def multinomial(rng, weights, n, replacement=False, dtype="float32"):
    """n category numbers for a vector or for each row of weights, int64."""
    rows = np.atleast_2d(weights)
    check_weights(rows)
    if replacement and n != 1:
        chosen = np.stack([with_replacement(rng, row, n) for row in rows])
    else:
        chosen = without_replacement(rng, rows, n, dtype)
    return chosen if np.ndim(weights) == 2 else chosen[0]


def check_weights(rows):
    demand(
        np.all(np.isfinite(rows)) and np.all(rows >= 0),
        "probability tensor contains either `inf`, `nan` or element < 0",
    )
    demand(
        np.all(rows.sum(-1) > 0),
        "invalid multinomial distribution (sum of probabilities <= 0)",
    )


def with_replacement(rng, row, n):
    """Look uniforms up in the running sum, of float32 unless the weights are float64."""
    running = np.cumsum(row, dtype=np.float64 if row.dtype == np.float64 else np.float32)
    running /= running[-1]
    running[-1] = 1
    return np.searchsorted(running.astype(np.float64), unit(rng, n), side="left")


def without_replacement(rng, rows, n, dtype):
    """The n largest of weight / exponential: a race in which heavier categories are faster."""
    times = exponential(rng, rows.size, dtype).reshape(rows.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = cast(rows / times, dtype)
    if n == 1:
        return np.argmax(speed, -1)[:, None]
    return np.argsort(-speed, axis=-1, kind="stable")[:, :n]
