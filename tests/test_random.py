"""Random numbers, written out: what torch draws after the same seed."""

import numpy as np
import pytest

from flambeau.devices.cpu import random as rnd
from flambeau.devices.cpu import random_rejection as rejection
from flambeau.devices.cpu.mersenne import Mt19937


@pytest.fixture
def rng():
    return Mt19937(0)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_uniform(rng):
    close(rnd.uniform(rng, 3), [0.49625658988952637, 0.7682217955589294, 0.08847743272781372])


def test_uniform_float64(rng):
    close(rnd.uniform(rng, 2, "float64"), [0.9700530018065531, 0.707819864399788])


def test_few_normals_keep_one(rng):
    close(rnd.normal(rng, 3), [1.5409960746765137, -0.293428897857666, -2.1787893772125244])
    assert rng.next_normal is not None
    close(rnd.uniform(rng, 1), [0.455627977848053])


def test_many_normals_redo_the_end(rng):
    drawn = rnd.normal(rng, 20)[[0, 15, 16, 19]]
    close(drawn, [-1.1258398294448853, -0.843676745891571, 0.9318265914916992, 0.05373690277338028])
    close(rnd.uniform(rng, 1), [0.20812976360321045])


def test_permutation(rng):
    assert rnd.permutation(rng, 8).tolist() == [4, 0, 7, 3, 2, 5, 1, 6]


def test_large_permutations_shuffle_inside_out(rng):
    words, expected = rng.clone(), []
    for i in range(100):
        place = words.random64() % (i + 1)
        expected.append(i)
        expected[i], expected[place] = expected[place], i
    assert rnd.shuffled_inside_out(rng, 100, chunk=7).tolist() == expected
    assert sorted(expected) == list(range(100))
    assert np.array_equal(rng.get_state(), words.get_state())


def test_integers_of_28_bits_use_wide_words(rng):
    assert rnd.integers(rng, 8, "int64", 0, 10).tolist() == [4, 9, 3, 0, 3, 9, 7, 3]
    assert rnd.integers(rng, 2, "int64", 0, 2**40).tolist() == [41332891347, 91845220082]


def test_bernoulli(rng):
    assert rnd.bernoulli(rng, 8, p=0.3).tolist() == [0, 0, 0, 0, 0, 0, 1, 0]
    p = np.full(8, 0.3, np.float32)
    assert rnd.bernoulli_each(rng, p).tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_exponential(rng):
    close(rnd.exponential(rng, 2), [3.508326292037964, 1.2303847074508667])


def test_multinomial(rng):
    weights = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    assert rejection.multinomial(rng, weights, 3).tolist() == [2, 1, 3]
    weights = np.array([0.1, 0.2, 0.7], np.float32)
    assert rejection.multinomial(rng, weights, 8, True).tolist() == [2, 2, 1, 2, 2, 1, 2, 1]


def test_poisson(rng):
    rates = np.array([0.5, 2.0, 5.0, 40.0], np.float32)
    assert rejection.poisson(rng, rates).tolist() == [2, 3, 4, 37]


def test_binomial(rng):
    n, p = np.full(4, 100, np.float32), np.full(4, 0.4, np.float32)
    assert rejection.binomial(rng, n, p).tolist() == [39, 42, 35, 41]


def test_gamma(rng):
    shapes = np.array([0.5, 2.0, 30.0], np.float32)
    expected = [0.0007893581641837955, 0.6315405964851379, 30.548818588256836]
    close(rejection.standard_gamma(rng, shapes), expected)


def test_seeds_keep_64_bits():
    rng = Mt19937(2**63 + 11)
    assert rng.initial_seed() == 2**63 + 11
    close(rnd.uniform(rng, 2), [0.14904171228408813, 0.4865531325340271])


@pytest.mark.parametrize("count", [0, 1, 623, 624, 625, 2000])
def test_states_replay(rng, count):
    rng.words(count)
    rng.normal()
    saved = rng.get_state()
    assert saved.dtype == np.uint8 and saved.size == 5056
    first = [rng.normal(), rng.words(1500).tolist()]
    rng.set_state(saved)
    assert [rng.normal(), rng.words(1500).tolist()] == first


def test_words_do_not_depend_on_how_they_are_asked_for(rng):
    together = Mt19937(0).words(3000)
    pieces = [rng.words(n) for n in (0, 1, 5, 618, 1, 1247, 1128)]
    assert np.array_equal(np.concatenate(pieces), together)
    one_by_one = Mt19937(0)
    assert [one_by_one.random() for _ in range(1300)] == together[:1300].tolist()


def test_bfloat16_rounds_to_even():
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, -0.0], np.float32)
    assert rnd.round_bfloat16(values).tolist() == [1.0, 1.0, 1 + 2**-6, np.inf, -0.0]
    assert np.isnan(rnd.round_bfloat16(np.array([np.nan], np.float32))).all()


def test_memory_order():
    assert rnd.fill_order((4, 3), (1, 4)) == [1, 0]
    assert rnd.fill_order((2, 3, 4), (12, 4, 1)) == [0, 1, 2]
