"""Random numbers, written out: what torch draws after the same seed."""

import os
import threading

import numpy as np
import pytest

import flambeau as torch
from flambeau.devices.cpu import random as rnd
from flambeau.devices.cpu import random_rejection as rejection
from flambeau.devices.cpu.assembly.state import LOCK
from flambeau.devices.cpu.mersenne import Mt19937, code


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
    assert rnd.drawn(rng, 100, "int64", None, code("twister_inside_out")).tolist() == expected
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


# -- machine code --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 8, 9, 623, 624, 625, 5000])
def test_fills_are_words_converted(n):
    rng, words = Mt19937(7), Mt19937(7)
    low = words.words(n) & np.uint32(2**24 - 1)
    assert np.array_equal(rnd.uniform(rng, n), low.astype(np.float32) * np.float32(2.0**-24))
    wide = words.wide_words(n) & np.uint64(2**53 - 1)
    assert np.array_equal(rnd.uniform(rng, n, "float64"), wide * 2.0**-53)
    wide = words.wide_words(n) & np.uint64(2**53 - 1)
    assert np.array_equal(rnd.bernoulli(rng, n, "bool", 0.3), wide * 2.0**-53 < 0.3)
    assert np.array_equal(rnd.integers(rng, n, "int64", -5, 95), words.words(n) % 100 - 5.0)
    low, high = -(2**40), 2**41 + 7
    wanted = (words.wide_words(n) % np.uint64(high - low)).astype(np.int64) + low
    assert np.array_equal(rnd.integers(rng, n, "int64", low, high), wanted)
    assert np.array_equal(rng.get_state(), words.get_state())


def test_normals_in_pieces_are_those_of_one_draw():
    together, apart = Mt19937(3), Mt19937(3)
    whole = rnd.normal(together, 1001, "float64", 2.0, 3.0, contiguous=False)
    pieces = [rnd.normal(apart, n, "float64", 2.0, 3.0, contiguous=False)
              for n in (1, 63, 5, 64, 201, 667)]
    np.testing.assert_allclose(np.concatenate(pieces), whole, rtol=1e-12)
    assert together.next_normal == pytest.approx(apart.next_normal, rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(3,), (32, 128), (1001,)])
def test_dropout_in_one_pass(dtype, shape):
    x = torch.ones(shape, dtype=getattr(torch, dtype), requires_grad=True)
    torch.manual_seed(5)
    y = torch.nn.functional.dropout(x, 0.25)
    torch.manual_seed(5)
    kept = torch.empty(shape, dtype=torch.bool).bernoulli_(0.75)
    scale = torch.tensor(1 / 0.75, dtype=x.dtype)
    assert torch.equal(y.detach(), kept * scale)
    y.backward(torch.full_like(y, 3.0))
    assert torch.allclose(x.grad, (kept * scale * 3).to(x.dtype), rtol=1e-2 if "16" in dtype else 0)
    assert y.grad_fn.name() == "MulBackward0"


def test_dropout_twice_differentiated():
    x = torch.rand(50, dtype=torch.float64, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.5)
    (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert set(h.tolist()) == {0.0, 8.0}


def test_threads_that_draw_share_one_stream():
    rng, parts = Mt19937(1), []

    def draw():
        for _ in range(5):
            parts.append(rnd.uniform(rng, 100_000, "float64"))

    crowd = [threading.Thread(target=draw) for _ in range(4)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    alone = rnd.uniform(Mt19937(1), 2_000_000, "float64")
    assert np.array_equal(np.sort(np.concatenate(parts)), np.sort(alone))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_can_draw():
    rng = Mt19937(1)
    rng._word(LOCK).value = 1  # as if a thread of the parent were drawing just now
    child = os.fork()
    if not child:
        os._exit(0 if rnd.uniform(rng, 3).size == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    rng._word(LOCK).value = 0


@pytest.mark.parametrize(("draw", "mean", "variance"), [
    (lambda rng, n: rejection.poisson(rng, np.full(n, 3.0)), 3, 3),
    (lambda rng, n: rejection.poisson(rng, np.full(n, 40.0)), 40, 40),
    (lambda rng, n: rejection.binomial(rng, np.full(n, 10.0), np.full(n, 0.3)), 3, 2.1),
    (lambda rng, n: rejection.binomial(rng, np.full(n, 200.0), np.full(n, 0.7)), 140, 42),
    (lambda rng, n: rejection.standard_gamma(rng, np.full(n, 0.5)), 0.5, 0.5),
    (lambda rng, n: rejection.standard_gamma(rng, np.full(n, 7.0), "float64"), 7, 7),
])
def test_moments(rng, draw, mean, variance):
    n = 40_000
    drawn = draw(rng, n).astype(np.float64)
    assert abs(drawn.mean() - mean) < 5 * (variance / n) ** 0.5
    assert drawn.var() == pytest.approx(variance, rel=0.05)


def test_one_category_of_each_row():
    weights = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    assert torch.multinomial(weights, 1).tolist() == [[1], [2]]
    for bad, said in (([-1.0, 1.0], "element < 0"), ([0.0, 0.0], "sum of probabilities <= 0"),
                      ([float("nan"), 1.0], "`nan`")):
        with pytest.raises(RuntimeError, match=said):
            torch.multinomial(torch.tensor(bad), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("shape", "n"), [((10,), 5), ((16, 10), 4), ((3, 300), 50), ((1,), 1)])
def test_choices_by_native_code(dtype, shape, n):
    """Against those of arrays, which half types and other layouts still go through."""
    weights = torch.rand(shape, dtype=dtype)
    for replacement in (False, True):
        torch.manual_seed(3)
        found = torch.multinomial(weights, n, replacement)
        after = torch.rand(1).item()
        torch.manual_seed(3)
        turned = torch.stack([weights, weights], -1)[..., 0]  # not contiguous
        assert torch.equal(found, torch.multinomial(turned, n, replacement))
        assert after == torch.rand(1).item()
    with pytest.raises(RuntimeError, match=r"entry < 0|element < 0"):
        torch.multinomial(weights - 2, n, True)
    with pytest.raises(RuntimeError, match="sum of probabilities"):
        torch.multinomial(weights * 0, n, True)
