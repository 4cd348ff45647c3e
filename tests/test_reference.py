"""The reference evaluates each node as its dtype does: rounding once, wrapping, truncating."""

from fractions import Fraction

import numpy as np
import pytest

from flambeau.core import dtype as dt
from flambeau.core import expr
from flambeau.devices.reference import evaluate


def leaf(dtype, position=0):
    return expr.input(position, dtype)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_fma_rounds_once(dtype):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(3000).astype(dtype.numpy) for _ in range(2))
    # A sum that cancels nearly all of the product is where two roundings would show.
    c = (-(a * b) * rng.choice([1, 1 + 2.0**-20, 0.5], 3000)).astype(dtype.numpy)
    got = evaluate(expr.call("fma", leaf(dtype, 0), leaf(dtype, 1), leaf(dtype, 2)), [a, b, c])
    for x, y, z, value in zip(a, b, c, got):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert value.dtype == dtype.numpy
        nearest = dtype.numpy.type(float(exact))
        if dtype is dt.float64:
            assert value == nearest
        else:  # float() rounds to 53 bits first: allow its tie
            assert abs(Fraction(float(value)) - exact) <= abs(Fraction(float(nearest)) - exact)


def test_float32_stays_float32():
    x = np.array([0.1], np.float32)
    got = evaluate(leaf(dt.float32) * 3 + 1, [x])
    assert got.dtype == np.float32 and got[0] == np.float32(0.1) * np.float32(3) + np.float32(1)


def test_integers_wrap_and_shift_like_machine_words():
    x = np.array([2**31 - 1, -5], np.int32)
    assert evaluate(leaf(dt.int32) + 1, [x]).tolist() == [-(2**31), -4]
    assert evaluate(leaf(dt.int32) >> 1, [x]).tolist() == [2**30 - 1, -3]
    assert evaluate(leaf(dt.int32) << 40, [x]).tolist() == [0, 0]
    assert evaluate(leaf(dt.int32) >> 40, [x]).tolist() == [0, -1]


def test_casts():
    x = np.array([1.9, -1.9, 300.5], np.float32)
    assert evaluate(expr.cast(leaf(dt.float32), dt.int64), [x]).tolist() == [1, -1, 300]
    assert evaluate(expr.cast(leaf(dt.float32), dt.uint8), [x]).tolist() == [1, 255, 44]
    assert evaluate(expr.cast(leaf(dt.float32), dt.bool_), [x * 0]).tolist() == [False] * 3


def test_bfloat16_rounds_to_even_and_keeps_nan():
    x = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, np.inf, np.nan], np.float32)
    stored = evaluate(expr.cast(leaf(dt.float32), dt.bfloat16), [x])
    assert stored.dtype == np.uint16
    back = evaluate(expr.cast(leaf(dt.bfloat16), dt.float32), [stored])
    np.testing.assert_array_equal(back, [1, 1, 1 + 2.0**-6, np.inf, np.nan])


def test_float16_is_computed_in_float32_and_rounded():
    x = np.array([2049.0], np.float16)
    got = evaluate(leaf(dt.float16) + leaf(dt.float16), [x])
    assert got.dtype == np.float16 and got[0] == 4096


def test_bits_and_selects():
    x = np.array([1.0, -2.0], np.float32)
    bits = expr.make("bitcast", (leaf(dt.float32),), None, dt.int32)
    assert evaluate(bits, [x]).tolist() == [0x3F800000, -0x40000000]
    assert evaluate(expr.where(leaf(dt.float32) > 0, leaf(dt.float32), 0.0), [x]).tolist() == [1, 0]
    assert evaluate(~(leaf(dt.float32) > 0), [x]).tolist() == [False, True]


def test_the_larger_asks_for_nan_only_where_there_may_be_one():
    x, one = leaf(dt.float32), expr.const(1, dt.float32)
    for number in (one, expr.where(x > 0, one, 2.0), expr.cast(leaf(dt.int32, 1), dt.float32)):
        assert expr.maximum(x, number).args[0].head == "gt"
    for other in (x, expr.const(float("nan"), dt.float32), expr.where(x > 0, one, x)):
        assert expr.maximum(one, other).args[0].head == "ne"


def test_complex_parts():
    x = np.array([1 + 2j], np.complex64)
    z = leaf(dt.complex64)
    assert evaluate(expr.real(z), [x]).dtype == np.float32
    assert evaluate(expr.imag(z), [x])[0] == 2
    assert evaluate(expr.conj(z), [x])[0] == 1 - 2j
    swapped = evaluate(expr.complex_of(expr.imag(z), expr.real(z)), [x])
    assert swapped.dtype == np.complex64 and swapped[0] == 2 + 1j


def test_coordinates_loads_and_params():
    table = np.arange(12.0).reshape(3, 4)
    i, j = np.meshgrid(np.arange(3), np.arange(3), indexing="ij")
    turned = expr.load(0, (expr.index(1), expr.index(0)), dt.float64)
    got = evaluate(turned * expr.param(0, dt.float64), [table], [2.0], [i, j])
    np.testing.assert_array_equal(got, 2 * table[:, :3].T)


def test_names_the_c_library_lacks_come_from_the_math_library():
    got = evaluate(expr.call("digamma", leaf(dt.float64)), [np.array([1.0])])
    np.testing.assert_allclose(got, -0.5772156649015329, rtol=1e-15)


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="nothing computes frobnicate"):
        evaluate(expr.call("frobnicate", leaf(dt.float32)), [np.zeros(1, np.float32)])
    with pytest.raises(ValueError, match="needs index values"):
        evaluate(expr.index(0), [])


def test_floats_that_no_integer_holds_become_the_lowest():
    x = np.array([3e9, -3e9, np.nan, np.inf, 70000.7, 9.22e18])
    wide = evaluate(expr.cast(leaf(dt.float64), dt.int64), [x])
    assert wide.tolist() == [3 * 10**9, -3 * 10**9, -(2**63), -(2**63), 70000, int(9.22e18)]
    low = -(2**31)
    assert evaluate(expr.cast(leaf(dt.float64), dt.int32), [x]).tolist() == [
        low, low, low, low, 70000, low]
    assert evaluate(expr.cast(leaf(dt.float64), dt.int16), [x]).tolist() == [0, 0, 0, 0, 4464, 0]
