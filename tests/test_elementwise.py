"""Elementwise ops: promotion, operators, errors, gradients at the edges, and special values."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

import flambeau as fl
from flambeau.nn import functional as F

INF, NAN = math.inf, math.nan


def test_promotion_weighs_dimensions_before_numbers():
    whole = fl.tensor([1, 2])
    assert (whole + 1.5).dtype is fl.float32
    assert (whole + fl.tensor(1.5, dtype=fl.float64)).dtype is fl.float64
    assert (fl.ones(2) + fl.tensor(1.5, dtype=fl.float64)).dtype is fl.float32
    assert (fl.tensor([True]) + fl.tensor([True])).tolist() == [True]
    assert (whole / whole).dtype is fl.float32
    assert fl.sqrt(whole).dtype is fl.float32
    assert fl.abs(fl.tensor([3 + 4j])).tolist() == [5.0]


def test_operators_leave_what_they_cannot_take():
    x = fl.ones(2)
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    assert x.__add__(None) is NotImplemented
    with pytest.raises(TypeError):
        bool(x < "a")
    assert (x * np.float64(2)).dtype is fl.float32
    assert (np.float64(2) * x).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("call, error", [
    (lambda b, i: b - b, RuntimeError),
    (lambda b, i: 1 - b, RuntimeError),
    (lambda b, i: -b, RuntimeError),
    (lambda b, i: b % b, NotImplementedError),
    (lambda b, i: i ** -1, RuntimeError),
    (lambda b, i: i // 0, RuntimeError),
    (lambda b, i: i % fl.tensor([0, 1]), RuntimeError),
    (lambda b, i: i.add_(1.5), RuntimeError),
    (lambda b, i: fl.add(i, i, alpha=1.5), RuntimeError),
    (lambda b, i: fl.abs(2), TypeError),
    (lambda b, i: fl.maximum(i, 2), TypeError),
    (lambda b, i: fl.where(i, i, i), RuntimeError),
    (lambda b, i: fl.clamp(i), RuntimeError),
    (lambda b, i: F.gelu(i.float(), approximate="no"), RuntimeError),
    (lambda b, i: fl.exp(i, out=i), RuntimeError),
])
def test_refusals(call, error):
    with pytest.raises(error):
        call(fl.tensor([True, False]), fl.tensor([1, 2]))


def test_integer_powers_and_divisions():
    x = fl.tensor([-7, 7, -3])
    assert (x // 2).tolist() == [-4, 3, -2]
    assert (x % 3).tolist() == [2, 1, 0]
    assert fl.fmod(x, 3).tolist() == [-1, 1, 0]
    assert fl.div(x, 2, rounding_mode="trunc").tolist() == [-3, 3, -1]
    assert (x ** 3).tolist() == [-343, 343, -27]
    assert fl.pow(fl.tensor([1, -1, 2]), fl.tensor([-3, -3, -3])).tolist() == [1, -1, 0]
    assert (2 ** fl.tensor([0, 5, 62])).tolist() == [1, 32, 2**62]
    assert (fl.tensor([3], dtype=fl.uint8) ** 6).tolist() == [729 % 256]


def test_floored_division_of_floats_is_exact():
    a, b = fl.tensor([1.0, -1.0, 0.3, 5.0]), fl.tensor([0.1, 0.1, 0.1, 0.0])
    with np.errstate(divide="ignore"):
        assert (a // b).tolist() == np.floor_divide(a.numpy(), b.numpy()).tolist()


def test_out_is_resized_and_checked():
    out = fl.empty(0)
    assert fl.add(fl.ones(3), 1, out=out) is out
    assert out.tolist() == [2.0, 2.0, 2.0]
    wide = fl.empty(3, dtype=fl.float64)
    assert fl.mul(fl.ones(3), 2, out=wide).dtype is fl.float64
    with pytest.raises(RuntimeError):
        fl.add(fl.ones(3, requires_grad=True), 1, out=fl.empty(3))


def gradient(function, *values):
    leaves = [fl.tensor(v, dtype=fl.float64, requires_grad=True) for v in values]
    function(*leaves).sum().backward()
    return [leaf.grad.tolist() for leaf in leaves]


def test_gradients_at_ties_and_poles():
    assert gradient(fl.maximum, [1.0, 2.0], [1.0, 3.0]) == [[0.5, 0.0], [0.5, 1.0]]
    assert gradient(fl.abs, [-2.0, 0.0, 3.0]) == [[-1.0, 0.0, 1.0]]
    assert gradient(fl.floor, [1.5]) == [[0.0]]
    assert gradient(fl.relu, [-1.0, 0.0, 2.0]) == [[0.0, 0.0, 1.0]]
    assert gradient(fl.sinc, [0.0]) == [[0.0]]
    assert gradient(fl.pow, [0.0, 2.0], [0.0, 3.0])[0] == [0.0, 12.0]
    assert gradient(lambda x: fl.clamp(x, 0, 1), [-1.0, 0.0, 0.5, 1.0, 2.0]) == [[0, 1, 1, 1, 0]]


@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "softplus", "logsigmoid", "elu", "selu",
                                  "celu", "hardswish", "tanhshrink", "softsign"])
@pytest.mark.parametrize("at", [-100.0, 100.0])
def test_activations_are_finite_far_from_zero(name, at):
    (found,) = gradient(getattr(F, name), [at])
    assert all(math.isfinite(g) for g in found)


def test_gradients_follow_changes_in_place():
    x = fl.tensor([0.5, 1.0], requires_grad=True)
    y = x * 1
    y.sin_()
    y.mul_(y)
    y.sum().backward()
    expected = 2 * np.sin([0.5, 1.0]) * np.cos([0.5, 1.0])
    assert np.allclose(x.grad.tolist(), expected)


COMPLEX = ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "expm1", "log1p",
           "reciprocal", "square")
ARC = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
       "acosh": np.arccosh, "atanh": np.arctanh}


@pytest.mark.parametrize("name", [*COMPLEX, *ARC])
def test_complex_functions(name):
    z = np.array([0.3 + 0.4j, -0.7 + 2j, 5 - 0.1j, -30 - 1j, 1e-8 + 1e-9j])
    found = getattr(fl, name)(fl.tensor(z)).numpy()
    assert np.allclose(found, ARC.get(name, getattr(np, name, None))(z), rtol=1e-12)


def test_complex_gradients_point_uphill():
    z = fl.tensor([3 + 4j], requires_grad=True)
    z.abs().sum().backward()
    assert np.allclose(z.grad.tolist(), [0.6 + 0.8j])
    w = fl.tensor([1 + 2j], requires_grad=True)
    (w * w.conj()).sum().real.backward()
    assert np.allclose(w.grad.tolist(), [2 + 4j])


def test_special_values():
    assert fl.special.ndtri(fl.tensor([0.0, 0.5, 1.0])).tolist() == [-INF, 0.0, INF]
    tiny = fl.special.ndtri(fl.tensor([1e-300], dtype=fl.float64)).item()
    assert math.isclose(tiny, -37.0471, rel_tol=1e-5)
    assert np.allclose(fl.polygamma(2, fl.tensor([1.0, -1.5])).tolist(), [-2.4041138, -0.23620405])
    assert np.allclose(fl.special.zeta(2.0, fl.tensor([1.0])).tolist(), math.pi**2 / 6)
    upper = fl.igammac(fl.tensor([1.0, 3.0]), fl.tensor([2.0, 2.0]))
    assert np.allclose(upper.tolist(), [math.exp(-2), 5 * math.exp(-2)])
    assert fl.xlogy(fl.tensor([0.0, 0.0]), fl.tensor([0.0, NAN])).tolist()[0] == 0.0
    parts = fl.frexp(fl.tensor([8.0, 0.0, -3.0, 1e-40]))
    assert parts.exponent.tolist() == [4, 0, 2, -132]
    assert fl.gcd(fl.tensor([12, -18, 0]), fl.tensor([18, 12, 5])).tolist() == [6, 6, 5]
    assert fl.lcm(fl.tensor([4, 0]), fl.tensor([6, 0])).tolist() == [12, 0]
    assert fl.special.bessel_j0(fl.tensor([2.404825557695773])).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("count", [1, 7, 40])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_that_no_integer_holds_become_the_lowest(source, count):
    values = ([3e9, -3e9, math.nan, math.inf, -math.inf, 70000.7, -1.9] * 6)[:count]
    x = fl.tensor(values, dtype=getattr(fl, source))
    low = -(2**31)
    want = {fl.int64: [3 * 10**9, -3 * 10**9, -(2**63), -(2**63), -(2**63), 70000, -1],
            fl.int32: [low, low, low, low, low, 70000, -1],
            fl.int16: [0, 0, 0, 0, 0, 4464, -1],
            fl.uint8: [0, 0, 0, 0, 0, 112, 255]}
    for target, one in want.items():
        assert x.to(target).tolist() == (one * 6)[:count]


def test_polynomials_of_high_degree():
    x = fl.tensor([-1.0, 0.3, 1.0], dtype=fl.float64)
    n = fl.tensor(100_000)
    np.testing.assert_allclose(fl.special.chebyshev_polynomial_t(x, n).numpy(),
                               np.cos(100_000 * np.arccos(x.numpy())), atol=1e-9)
    assert fl.special.chebyshev_polynomial_u(x, n).tolist()[::2] == [100_001, 100_001]
    assert fl.special.chebyshev_polynomial_v(x, n).tolist()[::2] == [200_001, 1]
    assert fl.special.chebyshev_polynomial_w(x, n + 1).tolist()[::2] == [-1, 200_003]
    one = fl.special.laguerre_polynomial_l(fl.tensor([1113.0]), fl.tensor(10_701))
    assert one.isnan().all()
    near_zero = fl.special.legendre_polynomial_p(fl.zeros(1, dtype=fl.float64),
                                                    fl.tensor(5000))
    assert near_zero.item() == pytest.approx(math.sqrt(2 / (math.pi * 5000)), rel=1e-3)


#: as calls were written once, and as they are written now
ONCE = [
    (lambda x, a: fl.add(x, 3, a), lambda x, a: fl.add(x, a, alpha=3)),
    (lambda x, a: x.clone().add_(-0.5, a), lambda x, a: x.clone().add_(a, alpha=-0.5)),
    (lambda x, a: x.sub(2, a), lambda x, a: x.sub(a, alpha=2)),
    (lambda x, a: x.clone().addcmul_(0.5, a, x), lambda x, a: x.clone().addcmul_(a, x, value=0.5)),
    (lambda x, a: x.addcdiv(0.5, a, x), lambda x, a: x.addcdiv(a, x, value=0.5)),
    (lambda x, a: fl.addmm(2, x, 3, a, a), lambda x, a: fl.addmm(x, a, a, beta=2, alpha=3)),
    (lambda x, a: fl.addmm(2, x, a, a), lambda x, a: fl.addmm(x, a, a, beta=2)),
    (lambda x, a: x.addmm(2, 3, a, a), lambda x, a: x.addmm(a, a, beta=2, alpha=3)),
    (lambda x, a: x.clone().addr_(2, a[0], a[1]), lambda x, a: x.addr(a[0], a[1], beta=2)),
]


@pytest.mark.parametrize(("once", "now"), ONCE)
def test_numbers_given_before_tensors(once, now):
    x = (fl.arange(9.0).view(3, 3) + 1).requires_grad_()
    a = (fl.arange(9.0).view(3, 3) / 7 - 0.3).requires_grad_()
    with pytest.warns(UserWarning, match="overload of add|overload of sub") as told:
        found = once(x, a)
    assert told[0].filename == __file__
    assert found.equal(now(x, a))
    for mine, theirs in zip(fl.autograd.grad(found.sum(), (x, a)),
                            fl.autograd.grad(now(x, a).sum(), (x, a)), strict=True):
        assert mine.equal(theirs)


CUT = [complex(a, b) for a in (2.0, -2.0, 0.5, -0.5, 0.0, -0.0) for b in (0.0, -0.0, 2.0, -2.0)]


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "asin", "acos", "asinh", "acosh"])
@pytest.mark.parametrize("dtype", [fl.complex64, fl.complex128])
def test_the_sign_of_a_zero_chooses_the_side_of_a_cut(name, dtype):
    """As C's functions, and Python's, have it."""
    own = getattr(cmath, name, lambda z: 1 / cmath.sqrt(z))
    given = [z for z in CUT if z or name != "rsqrt"]
    found = getattr(fl, name)(fl.tensor(given, dtype=dtype)).tolist()
    for z, value in zip(given, found, strict=True):
        assert cmath.isclose(value, own(z), rel_tol=1e-5, abs_tol=1e-6), z


def test_the_logarithm_of_a_complex_zero_is_infinite_in_one_part():
    x = fl.zeros(2, dtype=fl.complex64)
    for log in (fl.log, fl.log2, fl.log10):
        assert log(x).tolist() == [complex(-math.inf, 0)] * 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_are_exact(dtype):
    """Also of quotients too large for one step, rounded up to a whole number, and of odd values."""
    rng, odd = np.random.default_rng(0), [
        0.0, -0.0, 1.0, -1.0, 3.5, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-30, 1e-45, 2.0**24 + 1]
    x = np.concatenate([np.repeat(odd, len(odd)), rng.standard_normal(4001) * 10.0 ** rng.integers(
        -9, 20, 4001)]).astype(dtype)
    y = np.concatenate([odd * len(odd), rng.standard_normal(4001) * 10.0 ** rng.integers(
        -9, 9, 4001)]).astype(dtype)
    y[500:900] = x[500:900] / rng.integers(1, 50, 400).astype(dtype)
    with np.errstate(invalid="ignore"):
        want, by_number = np.fmod(x, y), np.fmod(x, np.dtype(dtype).type(0.3))
    for found, wanted in ((fl.fmod(fl.tensor(x), fl.tensor(y)), want),
                          (fl.fmod(fl.tensor(x), 0.3), by_number)):
        assert np.array_equal(found.numpy(), wanted, equal_nan=True)
        known = ~np.isnan(wanted)
        assert np.array_equal(np.signbit(found.numpy())[known], np.signbit(wanted)[known])


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
def test_a_body_of_many_functions_of_every_length(dtype):
    """As many vectors as are taken at a time, and what is left over; one element in each is odd."""
    def body(x):
        p = fl.sigmoid(x)
        return fl.tanh(x) * fl.log(p) - fl.log1p(-p) * fl.exp(-x * x)

    compiled = fl.compile(body)
    for n in (1, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 200):
        x = fl.linspace(-4, 4, n, dtype=dtype)
        x[n // 2] = -200.0  # where log is that of 0
        assert fl.allclose(compiled(x), body(x), rtol=1e-5, atol=1e-6, equal_nan=True), n
