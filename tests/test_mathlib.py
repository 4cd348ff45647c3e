"""Every function of the math library, through the reference: dense sweeps, then special values.

float32 is held against float64; float64 against numpy's long double, against Python's math, or
against a series summed here.
"""

import math

import numpy as np
import pytest

from flambeau.core import dtype as dt
from flambeau.core import expr
from flambeau.devices import mathlib, reference

LONG = np.longdouble
wide = pytest.mark.skipif(np.finfo(LONG).nmant <= 52, reason="long double is no wider than double")
PRIMITIVES = {
    "add", "sub", "mul", "div", "neg", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor",
    "not", "shl", "shr", "select", "cast", "bitcast", "fma", "abs", "floor", "ceil", "trunc",
    "rint", "sqrt", "copysign", "const", "input",
}
BINARY = {"pow", "atan2", "hypot"}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, math.inf, -math.inf, math.nan]


def formula(name, dtype):
    count = 2 if name in BINARY else 1
    return mathlib.TABLE[name, dtype](*(expr.input(i, dtype) for i in range(count)))


def compute(name, dtype, *args):
    return reference.evaluate(formula(name, dtype), [np.asarray(a, dtype.numpy) for a in args])


def units(got, want):
    """The error in units of the last place of the right result; infinite where kinds differ."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(want).astype(got.dtype)
    unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1))).astype(LONG)
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(LONG) - want) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(np.isfinite(rounded) & np.isfinite(got), error, np.where(same, 0, np.inf))


def hold(name, dtype, args, want, limit):
    got = compute(name, dtype, *args)
    error = units(got, want)
    worst = int(np.argmax(error))
    at = [a[worst] for a in args]
    assert error[worst] <= limit, (
        f"{name}{at} = {got[worst]!r}, {float(error[worst]):.2f} ulp from {want[worst]!r}")


def sweep(dtype, *ranges, everything=True, count=20000):
    """Points of some intervals and, if asked, of every size a float can have."""
    rng = np.random.default_rng(7)
    parts = [rng.uniform(low, high, count) for low, high in ranges]
    if everything:
        info = np.finfo(dtype.numpy)
        exponent = rng.uniform(info.minexp - info.nmant + 1, info.maxexp, 2 * count)
        sizes = np.exp2(exponent.astype(LONG)) * rng.choice([-1, 1], 2 * count)
        parts.append(sizes.astype(dtype.numpy))
    return np.concatenate(parts).astype(dtype.numpy)


# -- truths ------------------------------------------------------------------------------------


def each(function):
    return lambda x: np.array([function(float(v)) for v in x])


def digamma(x):
    """Thirty steps of the recurrence, then the asymptotic series, in long double."""
    x = x.astype(LONG)
    steps = sum(1 / (x + k) for k in range(30))
    y = x + 30
    z = 1 / (y * y)
    series = z * (LONG(1) / 12 - z * (LONG(1) / 120 - z * (LONG(1) / 252 - z * (
        LONG(1) / 240 - z * (LONG(1) / 132 - z * (LONG(691) / 32760 - z / 12))))))
    return np.log(y) - 1 / (2 * y) - series - steps


def trigamma(x):
    x = x.astype(LONG)
    steps = sum(1 / ((x + k) * (x + k)) for k in range(30))
    y = x + 30
    z = 1 / (y * y)
    series = LONG(1) / 6 - z * (LONG(1) / 30 - z * (LONG(1) / 42 - z * (
        LONG(1) / 30 - z * (LONG(5) / 66 - z * (LONG(691) / 2730 - z * 7 / 6)))))
    return steps + 1 / y + z / 2 + series * z / y


def bessel(order, scaled):
    def truth(x):
        quarter = (x.astype(LONG) / 2) ** 2
        total = term = np.ones_like(quarter)
        for k in range(1, 120):
            term = term * quarter / (k * (k + order))
            total = total + term
        total = total * (x.astype(LONG) / 2 if order else 1)
        return total * np.exp(-np.abs(x.astype(LONG))) if scaled else total
    return truth


def erfcx(x):
    x = x.astype(LONG)
    return np.exp(x * x) * each(math.erfc)(x)


def log_ndtr(x):
    return each(lambda v: math.log(0.5 * math.erfc(-v / math.sqrt(2))))(x)


def first_kind(order, x):
    """The mean of cos(order t - x sin t), by sums that converge fast."""
    nodes = (np.arange(128, dtype=LONG) + LONG(0.5)) * LONG("3.14159265358979323846") / 128
    return np.mean([np.cos(order * t - x * np.sin(t)) for t in nodes], 0)


def second_kind(order, x):
    """Neumann's series in functions of the first kind."""
    pi, euler = LONG("3.14159265358979323846"), LONG("0.57721566490153286061")
    log = np.log(x / 2) + euler
    if order == 0:
        tail = sum((-1) ** k * first_kind(2 * k, x) / k for k in range(1, 32))
        return 2 / pi * log * first_kind(0, x) - 4 / pi * tail
    tail = sum((-1) ** k * LONG(2 * k + 1) / (k * (k + 1)) * first_kind(2 * k + 1, x)
               for k in range(1, 31))
    return 2 / pi * ((log - 1) * first_kind(1, x) - first_kind(0, x) / x - tail)


def third_kind(order, x):
    """exp(x) K(x): the integral of exp(-x (cosh t - 1)) cosh(order t), by trapezoidal sums."""
    steps = np.arange(1, 400, dtype=LONG) / 16
    total = sum(np.exp(-x * (np.cosh(t) - 1)) * np.cosh(order * t) for t in steps)
    return (LONG(0.5) + total) / 16


def airy(x):
    """A power series, or to the right what is left of a function of the third kind."""
    f, g = np.ones_like(x), x.copy()
    first, second = f, g
    for k in range(1, 60):
        first = first * x ** 3 / ((3 * k) * (3 * k - 1))
        second = second * x ** 3 / ((3 * k) * (3 * k + 1))
        f, g = f + first, g + second
    series = LONG("0.355028053887817239260") * f - LONG("0.258819403792806798405") * g
    safe = np.where(x > 1, x, 1)
    z = safe * np.sqrt(safe) * 2 / 3
    falling = np.sqrt(safe / 3) / LONG("3.14159265358979323846") * np.exp(-z)
    return np.where(x > 1, falling * third_kind(LONG(1) / 3, z), series)


# -- sweeps ------------------------------------------------------------------------------------

#: name -> truth, intervals, and from where on it falls, so that small values have all their digits
WAVES = {
    "j0":   (lambda x: first_kind(0, x), [(-30, 30), (7.9, 8.1)], math.inf),
    "j1":   (lambda x: first_kind(1, x), [(-30, 30), (7.9, 8.1)], math.inf),
    "y0":   (lambda x: second_kind(0, x), [(0.001, 1), (1, 25), (7.9, 8.1)], math.inf),
    "y1":   (lambda x: second_kind(1, x), [(0.1, 1), (1, 25), (7.9, 8.1)], math.inf),
    "k0":   (lambda x: third_kind(0, x) * np.exp(-x), [(0.001, 1), (1, 50), (1.9, 2.1)], 0),
    "k0e":  (lambda x: third_kind(0, x), [(0.001, 1), (1, 50), (1.9, 2.1)], 0),
    "k1":   (lambda x: third_kind(1, x) * np.exp(-x), [(0.001, 1), (1, 50), (1.9, 2.1)], 0),
    "k1e":  (lambda x: third_kind(1, x), [(0.001, 1), (1, 50), (1.9, 2.1)], 0),
    "airy": (airy, [(-8, 2), (1.9, 20)], 0),
}

#: name -> numpy's function, intervals worth a closer look
ELEMENTARY = {
    "exp":   (np.exp, [(-1, 1), (-110, 90)]),
    "exp2":  (np.exp2, [(-1, 1), (-155, 130)]),
    "expm1": (np.expm1, [(-1, 1), (-30, 90)]),
    "log":   (np.log, [(0.5, 2), (0, 1000)]),
    "log2":  (np.log2, [(0.5, 2), (0, 1000)]),
    "log10": (np.log10, [(0.5, 2), (0, 1000)]),
    "log1p": (np.log1p, [(-1, 1), (0, 1000)]),
    "sin":   (np.sin, [(-4, 4), (-1000, 1000), (-2e5, 2e5)]),
    "cos":   (np.cos, [(-4, 4), (-1000, 1000), (-2e5, 2e5)]),
    "tan":   (np.tan, [(-4, 4), (-1000, 1000), (-2e5, 2e5)]),
    "asin":  (np.arcsin, [(-1, 1), (0.5, 0.6)]),
    "acos":  (np.arccos, [(-1, 1), (0.99, 1)]),
    "atan":  (np.arctan, [(-2, 2), (-100, 100)]),
    "sinh":  (np.sinh, [(-1, 1), (-90, 90)]),
    "cosh":  (np.cosh, [(-1, 1), (-90, 90)]),
    "tanh":  (np.tanh, [(-1, 1), (-10, 10)]),
    "asinh": (np.arcsinh, [(-1, 1), (-100, 100)]),
    "acosh": (np.arccosh, [(1, 2), (1, 100)]),
    "atanh": (np.arctanh, [(-1, 1), (0.99, 1)]),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [(0, 10)]),
    "atan2": (np.arctan2, [(-2, 2), (-1000, 1000)]),
    "hypot": (np.hypot, [(-2, 2), (-1000, 1000)]),
    "pow":   (np.power, [(0, 3), (-30, 30)]),
}

#: name -> truth, intervals, whether every float32 is within its reach
ADVANCED = {
    "erf":      (each(math.erf), [(-1, 1), (-5, 5)], True),
    "erfc":     (each(math.erfc), [(-1, 1), (-5, 12)], True),
    "erfcx":    (erfcx, [(-1, 1), (-5, 20)], False),
    "log_ndtr": (log_ndtr, [(-2, -0.5), (-30, -0.5)], False),
    "lgamma":   (each(math.lgamma), [(0.1, 5), (0.99, 1.01), (-5, 0), (2, 1e4)], False),
    "digamma":  (digamma, [(0.01, 5), (1.46, 1.463), (5, 1e4)], False),
    "trigamma": (trigamma, [(0.01, 5), (5, 1e4)], False),
    "i0":       (bessel(0, False), [(-9, 9), (8, 30)], False),
    "i0e":      (bessel(0, True), [(-9, 9), (8, 30)], False),
    "i1":       (bessel(1, False), [(-9, 9), (8, 30)], False),
    "i1e":      (bessel(1, True), [(-9, 9), (8, 30)], False),
}


def elementary_arguments(name, dtype):
    x = sweep(dtype, *ELEMENTARY[name][1])
    return (x, np.random.default_rng(8).permutation(x)) if name in BINARY else (x,)


@pytest.mark.parametrize("name", ELEMENTARY)
def test_float32_elementary(name):
    args = elementary_arguments(name, dt.float32)
    with np.errstate(all="ignore"):
        want = ELEMENTARY[name][0](*(a.astype(LONG) for a in args))
    hold(name, dt.float32, args, want, 2.0)


@wide
@pytest.mark.parametrize("name", [n for n in ELEMENTARY if (n, dt.float64) in mathlib.TABLE])
def test_float64_elementary(name):
    args = elementary_arguments(name, dt.float64)
    with np.errstate(all="ignore"):
        want = ELEMENTARY[name][0](*(a.astype(LONG) for a in args))
    hold(name, dt.float64, args, want, 2.5)


@pytest.mark.parametrize("name", ADVANCED)
def test_float32_advanced(name):
    truth, ranges, everything = ADVANCED[name]
    x = sweep(dt.float32, *ranges, everything=everything, count=4000)
    hold(name, dt.float32, (x,), truth(x.astype(np.float64)), 2.0)


@wide
@pytest.mark.parametrize("name", [n for n in ADVANCED if (n, dt.float64) in mathlib.TABLE])
def test_float64_advanced(name):
    truth, ranges, everything = ADVANCED[name]
    x = sweep(dt.float64, *ranges, everything=everything, count=4000)
    # Near its root digamma's own recurrence, the truth here, loses digits.
    x = x[np.abs(x - 1.4616321449683622) > 0.1] if name == "digamma" else x
    hold(name, dt.float64, (x,), truth(x), 5.0)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_erfinv_undoes_erf(dtype):
    """The distance between erf(erfinv(x)) and x, turned into one between arguments."""
    ends = 1 - np.exp2(np.random.default_rng(9).uniform(-np.finfo(dtype.numpy).nmant, -2, 4000))
    x = np.concatenate([sweep(dtype, (-1, 1), everything=False, count=4000), ends])
    x = x.astype(dtype.numpy)
    x = x[np.abs(x) < 1]
    y = compute("erfinv", dtype, x)
    a, exact = np.abs(y).astype(np.float64), np.abs(x).astype(np.float64)
    missed = np.where(exact > 0.5, (1 - exact) - each(math.erfc)(a), each(math.erf)(a) - exact)
    error = np.abs(missed) / (2 / math.sqrt(math.pi) * np.exp(-a * a)) / np.spacing(np.abs(y))
    assert error.max() <= (2.0 if dtype is dt.float32 else 5.0)
    assert np.array_equal(np.sign(x), np.sign(y))


def test_digamma_at_its_root():
    x = np.array([1.46, 1.4616321449683622, 1.4616321449683625, 1.462])
    want = [-0.0015805619870834522, -9.241265521729427e-17, 1.2245374622004068e-16,
            0.00035590320380104274]
    np.testing.assert_allclose(compute("digamma", dt.float64, x), want, rtol=1e-15)


def test_far_angles():
    """Sine and cosine of the hardest numbers: near multiples of pi/2, and the largest of all."""
    x = np.array([6381956970095103.0 * 2.0**797, 1.7976931348623157e308, 2.0**1000, 1e22, 1e15])
    want_sin = [1.0, 0.004961954789184062, -0.15920170308624243, -0.8522008497671888,
                0.8582727931702359]
    want_cos = [-4.687165924254628e-19, -0.9999876894265599, 0.9872460775989135,
                0.523214785395139, -0.5131937377869703]
    np.testing.assert_allclose(compute("sin", dt.float64, x), want_sin, rtol=3e-16)
    np.testing.assert_allclose(compute("cos", dt.float64, x), want_cos, rtol=3e-16)


# -- special values ----------------------------------------------------------------------------


def same(got, want):
    """Equal, NaN with NaN, and zeros of one sign."""
    return np.where(np.isnan(want), np.isnan(got),
                    (got == want) & (np.signbit(got) == np.signbit(want)))


@pytest.mark.parametrize("key", [k for k in mathlib.TABLE if k[0] in reference.HEADS], ids=str)
def test_special_values_are_those_of_the_c_library(key):
    name, dtype = key
    tiny = float(np.finfo(dtype.numpy).smallest_subnormal)
    points = np.array([*SPECIAL, tiny, -tiny, np.finfo(dtype.numpy).max], dtype.numpy)
    args = [a.ravel() for a in np.meshgrid(points, points)] if name in BINARY else [points]
    got = compute(name, dtype, *args)
    with np.errstate(all="ignore"):
        want = reference.HEADS[name](*(a.astype(np.float64) for a in args)).astype(dtype.numpy)
    extreme = ~np.isfinite(want) | (want == 0)
    wrong = ~np.where(extreme, same(got, want), np.isfinite(got))
    assert not wrong.any(), [(*(a[i] for a in args), got[i], want[i])
                             for i in np.flatnonzero(wrong)]


NEVER = math.nan
#                     0     -0      1   -1       2      -2    inf      -inf     nan
EXTREMES = {
    "erfinv":   [0.0, -0.0, math.inf, -math.inf, NEVER, NEVER, NEVER, NEVER, NEVER],
    "digamma":  [-math.inf, math.inf, None, NEVER, None, NEVER, math.inf, NEVER, NEVER],
    "trigamma": [math.inf, math.inf, None, math.inf, None, math.inf, 0.0, None, NEVER],
    "erfcx":    [1.0, 1.0, None, None, None, None, 0.0, math.inf, NEVER],
    "log_ndtr": [None, None, None, None, None, None, -0.0, -math.inf, NEVER],
    "i0":       [1.0, 1.0, None, None, None, None, math.inf, math.inf, NEVER],
    "i0e":      [1.0, 1.0, None, None, None, None, 0.0, 0.0, NEVER],
    "i1":       [0.0, -0.0, None, None, None, None, math.inf, -math.inf, NEVER],
    "i1e":      [0.0, -0.0, None, None, None, None, 0.0, -0.0, NEVER],
    "rsqrt":    [math.inf, -math.inf, 1.0, NEVER, None, NEVER, 0.0, NEVER, NEVER],
    "j0":       [1.0, 1.0, None, None, None, None, NEVER, NEVER, NEVER],
    "j1":       [0.0, None, None, None, None, None, NEVER, NEVER, NEVER],
    "y0":       [-math.inf, -math.inf, None, NEVER, None, NEVER, NEVER, NEVER, NEVER],
    "y1":       [-math.inf, -math.inf, None, NEVER, None, NEVER, NEVER, NEVER, NEVER],
    "k0":       [math.inf, math.inf, None, NEVER, None, NEVER, 0.0, NEVER, NEVER],
    "k0e":      [math.inf, math.inf, None, NEVER, None, NEVER, 0.0, NEVER, NEVER],
    "k1":       [math.inf, math.inf, None, NEVER, None, NEVER, 0.0, NEVER, NEVER],
    "k1e":      [math.inf, math.inf, None, NEVER, None, NEVER, 0.0, NEVER, NEVER],
    "airy":     [None, None, None, None, None, None, NEVER, NEVER, NEVER],
}


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("name", EXTREMES)
def test_special_values_of_what_the_c_library_lacks(name, dtype):
    points = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, math.inf, -math.inf, math.nan]
    got = compute(name, dtype, points)
    for x, value, want in zip(points, got, EXTREMES[name]):
        assert want is None or same(value, np.array(want)), (name, x, value, want)


def test_whole_results_are_exact():
    n = np.arange(-149, 128, dtype=np.float32)
    assert np.array_equal(compute("exp2", dt.float32, n), np.exp2(n.astype(np.float64)))
    assert np.array_equal(compute("log2", dt.float32, np.exp2(n)), n)
    tens = np.array([10.0**k for k in range(11)], np.float32)
    assert np.array_equal(compute("log10", dt.float32, tens), np.arange(11))
    k = np.arange(-20, 21, dtype=np.float64)
    assert np.array_equal(compute("pow", dt.float64, np.full(41, 2.0), k), 2.0**k)
    assert np.array_equal(compute("pow", dt.float64, np.full(41, 3.0), np.abs(k)), 3.0**np.abs(k))
    assert np.array_equal(compute("lgamma", dt.float32, [1.0, 2.0]), [0, 0])


# -- the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", mathlib.TABLE, ids=str)
def test_made_of_primitives_and_of_the_right_dtype(key):
    e = formula(*key)
    assert e.dtype is key[1]
    seen, stack = set(), [e]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.args)
    assert {node.head for node in seen} <= PRIMITIVES


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_ndtri_undoes_the_normal_distribution(dtype):
    """The distance between ndtr(ndtri(p)) and p, turned into one between arguments."""
    p = np.concatenate([sweep(dtype, (0, 1), everything=False, count=4000),
                        np.exp2(np.random.default_rng(5).uniform(-90, -2, 2000))])
    p = p.astype(dtype.numpy)
    p = p[(p > 0) & (p < 1)]
    x = compute("ndtri", dtype, p).astype(np.float64)
    missed = 0.5 * each(math.erfc)(-x / math.sqrt(2)) - p.astype(np.float64)
    slope = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    # What p itself is rounded by moves the answer too.
    allowed = 8 * (np.spacing(np.abs(x).astype(dtype.numpy)) + np.spacing(p) / slope)
    assert (np.abs(missed / slope) <= allowed).all()
    ends = compute("ndtri", dtype, np.array([0, 1, 0.5, -1, 2], dtype.numpy))
    assert ends[:3].tolist() == [-math.inf, math.inf, 0.0] and np.isnan(ends[3:]).all()


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=lambda d: d.name)
def test_exp_falling_is_exp_of_what_is_not_positive(dtype):
    """Down to where the result is no normal number, and 0 from there; NaN stays."""
    low = float(np.log(np.finfo(dtype.numpy).smallest_normal)) + 0.5
    x = sweep(dtype, (-1, 0), (low, 0), everything=False)
    error = units(compute("exp_falling", dtype, x), np.exp(x.astype(LONG)))
    assert error.max() <= 2.0
    ends = compute("exp_falling", dtype, np.array([0.0, -0.0, 2 * low, -math.inf, math.nan]))
    assert ends[:4].tolist() == [1.0, 1.0, 0.0, 0.0] and np.isnan(ends[4])


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=lambda d: d.name)
def test_below_is_the_normal_distribution_to_some_half_units_of_one(dtype):
    x = sweep(dtype, (-6, 6), (-0.1, 0.1), everything=False)
    found = compute("below", dtype, x)
    want = each(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x)
    assert np.abs(found - want).max() <= 1.5 * np.finfo(dtype.numpy).eps
    ends = compute("below", dtype, np.array([0, 30, math.inf, -30, -math.inf], dtype.numpy))
    assert ends.tolist() == [0.5, 1.0, 1.0, 0.0, 0.0]


@wide
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", WAVES)
def test_bessel_functions(name, dtype):
    truth, ranges, falls = WAVES[name]
    x = sweep(dtype, *ranges, everything=False, count=500)
    got, want = compute(name, dtype, x), truth(x.astype(LONG))
    # Near zeros of a wave an error of the argument's own rounding is all of it.
    scale = np.where(x > falls, np.abs(want), np.maximum(np.abs(want), 0.3))
    limit = 1e-7 if dtype is dt.float32 else 2e-13 if name == "airy" else 2e-14
    assert (np.abs(got - want) / scale).max() < limit


def test_every_name_is_swept():
    swept = {*ELEMENTARY, *ADVANCED, *WAVES, "below", "erfinv", "ndtri", "exp_falling"}
    assert {name for name, _ in mathlib.TABLE} == swept
