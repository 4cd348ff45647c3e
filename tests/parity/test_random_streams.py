"""The CPU's random streams against torch's: the numbers, and how much of the stream they use."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from flambeau.devices.cpu import random as rnd  # noqa: E402
from flambeau.devices.cpu import random_rejection as rejection  # noqa: E402
from flambeau.devices.cpu.mersenne import Mt19937, layout  # noqa: E402

SEEDS = (0, 1234567)
SIZES = (*range(1, 41), 100, 1000, 4099, 100_003)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
EXACT, CLOSE, ROUGH = 0.0, 1e-6, 1e-5
# One unit in the last place of the half types, where a rounding may tip over.
HALF_STEP = {"float16": 2**-10, "bfloat16": 2**-7}


def values_of(tensor):
    tensor = torch.as_tensor(tensor)
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().ravel()


def check_state(rng):
    theirs = torch.get_rng_state().numpy().view(layout())[0]
    ours = rng.get_state().view(layout())[0]
    for field in ("seed", "left", "seeded", "next", "normal_is_valid", "float_is_valid"):
        assert ours[field] == theirs[field], field
    assert np.array_equal(ours["key"], theirs["key"])
    assert ours["normal_y"] == pytest.approx(theirs["normal_y"], rel=1e-12)


def check(torch_draw, our_draw, tolerance=EXACT):
    """Same numbers after the same seed, twice in a row, and the same place afterwards."""
    for seed in SEEDS:
        torch.manual_seed(seed)
        rng = Mt19937(seed)
        for _ in range(2):
            expected, actual = values_of(torch_draw()), np.ravel(our_draw(rng))
            assert actual.dtype == expected.dtype
            if tolerance:
                np.testing.assert_allclose(actual, expected, tolerance, tolerance)
            else:
                np.testing.assert_array_equal(actual, expected)
            check_state(rng)


def filled(name, n, dtype, *args):
    return lambda: getattr(torch.empty(n, dtype=getattr(torch, dtype)), name)(*args)


def tolerance_for(dtype, otherwise):
    return HALF_STEP.get(dtype, otherwise)


# -- the generator ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [0, 1, 5489, 2**32 - 1, 2**32, 2**63 + 11, 2**64 - 1, -3, -(2**63)]
)
def test_seeds(seed):
    torch.manual_seed(seed)
    rng = Mt19937().manual_seed(seed)
    assert rng.initial_seed() == torch.initial_seed()
    assert np.array_equal(rng.get_state(), torch.get_rng_state().numpy())
    assert np.array_equal(rnd.uniform(rng, 5), torch.rand(5).numpy())


def test_default_seed():
    assert Mt19937().initial_seed() == torch.Generator().initial_seed()
    assert np.array_equal(Mt19937().get_state(), torch.Generator().get_state().numpy())


def test_a_fresh_seed_is_reported():
    rng = Mt19937()
    seed = rng.seed()
    assert rng.initial_seed() == seed != Mt19937().seed()
    assert np.array_equal(rng.words(9), Mt19937(seed).words(9))


@pytest.mark.parametrize("count", [0, 1, 5, 623, 624, 625, 1248, 3000])
def test_states_are_exchanged_both_ways(count):
    torch.manual_seed(9)
    torch.rand(count)
    torch.randn(3)
    rng = Mt19937(1)
    rng.set_state(torch.get_rng_state().numpy())
    check_state(rng)
    np.testing.assert_allclose(rnd.normal(rng, 4), torch.randn(4).numpy(), CLOSE)
    rnd.uniform(rng, count)
    torch.set_rng_state(torch.from_numpy(rng.get_state()))
    assert np.array_equal(rnd.uniform(rng, 700), torch.rand(700).numpy())
    check_state(rng)


def test_a_spent_block_and_a_fresh_seed_save_differently():
    torch.manual_seed(3)
    rng = Mt19937(3)
    check_state(rng)
    torch.rand(624)
    rng.words(624)
    check_state(rng)
    twin = rng.clone()
    assert np.array_equal(twin.get_state(), rng.get_state())
    assert np.array_equal(twin.words(1000), rng.words(1000))


def test_a_float_normal_survives_the_round_trip():
    rng = Mt19937(3)
    rng.next_float_normal = 0.25
    state = torch.from_numpy(rng.get_state())
    generator = torch.Generator()
    generator.set_state(state)
    assert torch.equal(generator.get_state(), state)
    assert (other := Mt19937()).set_state(state.numpy()) is None
    assert other.next_float_normal == 0.25


@pytest.mark.parametrize("bad", [np.zeros(10, np.uint8), np.zeros(5056, np.uint8)])
def test_bad_states_are_refused(bad):
    with pytest.raises(RuntimeError):
        torch.Generator().set_state(torch.from_numpy(bad))
    with pytest.raises(RuntimeError):
        Mt19937().set_state(bad)
    with pytest.raises(TypeError):
        Mt19937().set_state(np.zeros(5056, np.float32))


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_beyond_64_bits_are_refused(seed):
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        torch.manual_seed(seed)
    with pytest.raises(theirs.type):
        Mt19937(seed)


# -- uniform and integers -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bounds", [(0, 1), (-2.0, 3.0), (0.1, 0.7), (-1e-3, 5e3), (2, 2), (0, 5)])
def test_uniform(dtype, bounds):
    for n in SIZES if bounds == (0, 1) else (1, 40, 4099, 100_003):
        check(
            filled("uniform_", n, dtype, *bounds),
            lambda g, n=n: rnd.uniform(g, n, dtype, *bounds),
        )


RANGES = [
    (0, 10), (-5, 5), (0, 2), (3, 20), (0, 100), (0, 2**28 - 1), (0, 2**28), (0, 2**31),
    (0, 2**32), (0, 2**40), (-(2**62), 2**62), (-(2**63), 2**63 - 1), (-(2**40), 3), (0, 2**24 + 1),
]  # fmt: skip


@pytest.mark.parametrize("low, high", RANGES)
def test_integers(low, high):
    for n in (1, 17, 1000):
        check(
            lambda n=n: torch.randint(low, high, (n,)),
            lambda g, n=n: rnd.integers(g, n, "int64", low, high),
        )


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("low, high", RANGES)
def test_integers_as_floats(dtype, low, high):
    check(
        filled("random_", 50, dtype, low, high), lambda g: rnd.integers(g, 50, dtype, low, high)
    )


@pytest.mark.parametrize("dtype", [*INTEGERS, "uint16", "uint32", "uint64", "float16", "bool"])
def test_small_integers(dtype):
    high = 2 if dtype == "bool" else 100
    check(filled("random_", 50, dtype, 0, high), lambda g: rnd.integers(g, 50, dtype, 0, high))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "bool"])
def test_random_without_bounds(dtype):
    for n in (1, 7, 1000):
        check(filled("random_", n, dtype), lambda g, n=n: rnd.random(g, n, dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_random_from_a_lower_bound(dtype):
    low = 7
    check(filled("random_", 50, dtype, low, None), lambda g: rnd.integers(g, 50, dtype, low))


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "bfloat16"])
def test_random_over_all_64_bits(dtype):
    low = -(2**63)
    check(filled("random_", 50, dtype, low, None), lambda g: rnd.integers(g, 50, dtype, low))


def test_permutation():
    for n in (0, *range(1, 41), 1000, 50_000):
        check(lambda n=n: torch.randperm(n), lambda g, n=n: rnd.permutation(g, n))
    for dtype in ("int32", "int16", "float32", "float64"):
        check(
            lambda dtype=dtype: torch.randperm(99, dtype=getattr(torch, dtype)),
            lambda g, dtype=dtype: rnd.permutation(g, 99, dtype),
        )


# -- normal -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mean, std", [(0, 1), (1.0, 2.0), (-3, 0), (0.3, 1e-3)])
def test_normal(dtype, mean, std):
    tolerance = tolerance_for(dtype, CLOSE)
    for n in SIZES if (mean, std) == (0, 1) else (1, 15, 16, 17, 33, 1000):
        check(
            filled("normal_", n, dtype, mean, std),
            lambda g, n=n: rnd.normal(g, n, dtype, mean, std),
            tolerance,
        )


def test_normals_of_a_strided_tensor_come_one_by_one():
    check(
        lambda: torch.empty(10, 8)[:, ::2].normal_(),
        lambda g: rnd.normal(g, 40, contiguous=False),
        CLOSE,
    )
    check(
        lambda: torch.empty(40, 4000)[:, ::2].normal_(),
        lambda g: rnd.normal(g, 80_000, contiguous=False),
        CLOSE,
    )


def test_kept_normals_outlive_other_draws():
    def theirs():
        return torch.cat([torch.randn(3), torch.rand(2), torch.randn(2), torch.randn(40)])

    def ours(g):
        draws = [rnd.normal(g, 3), rnd.uniform(g, 2), rnd.normal(g, 2), rnd.normal(g, 40)]
        return np.concatenate(draws)

    check(theirs, ours, CLOSE)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_normal_around_tensors(dtype):
    kind, tolerance = getattr(torch, dtype), tolerance_for(dtype, CLOSE)
    for n in (5, 20):
        mean, std = torch.linspace(-1, 1, n, dtype=kind), torch.linspace(0.5, 3, n, dtype=kind)
        a, b = values_of(mean), values_of(std)
        for theirs, ours in (
            ((mean, std), (a, b)), ((mean, 2.0), (a, 2.0)), ((1.0, std), (1.0, b)),
        ):  # fmt: skip
            check(
                lambda theirs=theirs: torch.normal(*theirs),
                lambda g, ours=ours: rnd.normal_around(g, *ours, dtype),
                tolerance,
            )


@pytest.mark.parametrize(
    "permuted", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (2, 0, 1)], ids=lambda p: "".join(map(str, p))
)
def test_tensors_are_filled_as_they_lie_in_memory(permuted):
    def theirs():
        return torch.empty(3, 8, 5)[:, ::2].permute(permuted).uniform_()

    def ours(g):
        view = theirs()
        order = rnd.fill_order(view.shape, view.stride())
        drawn = rnd.uniform(g, view.numel()).reshape([view.shape[d] for d in order])
        return np.ascontiguousarray(np.transpose(drawn, np.argsort(order)))

    for seed in SEEDS:
        torch.manual_seed(seed)
        expected = theirs().numpy()
        np.testing.assert_array_equal(ours(Mt19937(seed)), expected)


# -- one uniform each ---------------------------------------------------------------------------

SINGLES = [
    ("exponential_", rnd.exponential, (), CLOSE),
    ("exponential_", rnd.exponential, (2.5,), CLOSE),
    ("geometric_", rnd.geometric, (0.3,), EXACT),
    ("geometric_", rnd.geometric, (0.9,), EXACT),
    ("cauchy_", rnd.cauchy, (), ROUGH),
    ("cauchy_", rnd.cauchy, (1.0, 2.0), ROUGH),
    ("log_normal_", rnd.log_normal, (), CLOSE),
    ("log_normal_", rnd.log_normal, (0.5, 0.3), CLOSE),
    ("bernoulli_", rnd.bernoulli, (), EXACT),
    ("bernoulli_", rnd.bernoulli, (0.3,), EXACT),
    ("bernoulli_", rnd.bernoulli, (0,), EXACT),
    ("bernoulli_", rnd.bernoulli, (1,), EXACT),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name, draw, args, tolerance", SINGLES, ids=lambda v: str(v)[:24])
def test_single_draws(name, draw, args, tolerance, dtype):
    allowed = tolerance and tolerance_for(dtype, tolerance)
    for n in (*range(1, 41), 1000, 100_003):
        check(filled(name, n, dtype, *args), lambda g, n=n: draw(g, n, dtype, *args), allowed)


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_integer_bernoulli(dtype):
    check(filled("bernoulli_", 50, dtype, 0.4), lambda g: rnd.bernoulli(g, 50, dtype, 0.4))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_geometric(dtype):
    check(filled("geometric_", 50, dtype, 0.4), lambda g: rnd.geometric(g, 50, dtype, 0.4))


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_of_tensors(dtype):
    p = torch.linspace(0, 1, 63, dtype=getattr(torch, dtype))
    check(lambda: torch.bernoulli(p), lambda g: rnd.bernoulli_each(g, values_of(p), dtype))
    check(
        lambda: torch.empty(63, dtype=torch.int64).bernoulli_(p),
        lambda g: rnd.bernoulli_each(g, values_of(p), "int64"),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rrelu_slopes(dtype):
    x = torch.linspace(-1, 1, 41, dtype=getattr(torch, dtype))

    def theirs():
        noise = torch.empty_like(x)
        out = torch._C._nn.rrelu_with_noise(x, noise, 1 / 8, 1 / 3, True)
        return torch.cat([out, noise])

    def ours(g):
        return np.concatenate(rnd.rrelu(g, values_of(x), 1 / 8, 1 / 3, dtype))

    check(theirs, ours)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_masks(p):
    kept = 1 - p
    check(
        lambda: F.dropout(torch.ones(7, 9), p) != 0,
        lambda g: rnd.bernoulli(g, 63, "bool", kept),
    )
    check(
        lambda: (F.dropout2d(torch.ones(3, 4, 5, 5), p) != 0)[:, :, 0, 0],
        lambda g: rnd.bernoulli(g, 12, "bool", kept),
    )
    check(
        lambda: F.alpha_dropout(torch.ones(7, 9), p, training=True) > 0,
        lambda g: rnd.bernoulli(g, 63, "bool", kept),
    )
    check(
        lambda: (F.feature_alpha_dropout(torch.ones(3, 4, 5), p, training=True) > 0)[:, :, 0],
        lambda g: rnd.bernoulli(g, 12, "bool", kept),
    )


def test_gumbel_softmax():
    def ours(g):
        x = -np.log(rnd.exponential(g, 15).reshape(3, 5)) / np.float32(0.5)
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    check(lambda: F.gumbel_softmax(torch.zeros(3, 5), tau=0.5), ours, ROUGH)


# -- an unforeseen number of tries -----------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_poisson(dtype):
    rates = torch.tensor([0.0, 0.5, 2.0, 5.0, 9.99, 10.0, 40.0, 123.0, 1000.0] * 40)
    rates = rates.to(getattr(torch, dtype))
    check(lambda: torch.poisson(rates), lambda g: rejection.poisson(g, values_of(rates), dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binomial(dtype):
    grid = torch.cartesian_prod(
        torch.tensor([0.0, 1.0, 10.0, 30.0, 100.0, 1e4]),
        torch.tensor([0.0, 0.01, 0.1, 0.4, 0.5, 0.77, 0.999, 1.0]),
    ).repeat(20, 1)
    n, p = grid.to(getattr(torch, dtype)).unbind(1)
    check(
        lambda: torch.binomial(n, p),
        lambda g: rejection.binomial(g, values_of(n), values_of(p), dtype),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_standard_gamma(dtype):
    shapes = torch.tensor([0.0, 0.01, 0.3, 0.9, 1.0, 1.5, 2.0, 10.0, 500.0] * 50)
    shapes = shapes.to(getattr(torch, dtype))
    check(
        lambda: torch._standard_gamma(shapes),
        lambda g: rejection.standard_gamma(g, values_of(shapes), dtype),
        CLOSE,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dirichlet(dtype):
    rows = torch.tensor([[0.5, 2.0, 3.0], [1.0, 1.0, 1.0], [0.01, 0.02, 5.0]] * 9)
    rows = rows.to(getattr(torch, dtype))
    check(
        lambda: torch._sample_dirichlet(rows),
        lambda g: rejection.dirichlet(g, rows.numpy(), dtype),
        CLOSE,
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [1, 4])
def test_multinomial(dtype, rows):
    weights = torch.rand(rows, 12, generator=torch.Generator().manual_seed(1))
    weights = weights.to(getattr(torch, dtype))
    weights = weights[0] if rows == 1 else weights
    plain = values_of(weights).reshape(weights.shape)
    choices = [(1, False), (1, True), (30, True), (999, True)]
    # Numbers of the half types tie, and then torch's order is that of its sort.
    if dtype not in HALF_STEP:
        choices += [(5, False), (12, False)]
    for n, replacement in choices:
        check(
            lambda n=n, r=replacement: torch.multinomial(weights, n, r),
            lambda g, n=n, r=replacement: rejection.multinomial(g, plain, n, r, dtype),
        )


def test_multinomial_skips_impossible_categories():
    weights = torch.tensor([0.0, 1.0, 0.0, 3.0, 0.0])
    check(
        lambda: torch.multinomial(weights, 200, True),
        lambda g: rejection.multinomial(g, weights.numpy(), 200, True),
    )


# -- wrong arguments ------------------------------------------------------------------------------

WRONG = [
    ("uniform_", rnd.uniform, (3.0, 2.0)),
    ("normal_", rnd.normal, (0.0, -1.0)),
    ("log_normal_", rnd.log_normal, (0.0, 0.0)),
    ("exponential_", rnd.exponential, (0.0,)),
    ("geometric_", rnd.geometric, (1.0,)),
    ("cauchy_", rnd.cauchy, (0.0, -1.0)),
    ("bernoulli_", rnd.bernoulli, (1.5,)),
    ("random_", rnd.integers, (5, 5)),
]


@pytest.mark.parametrize("name, draw, args", WRONG, ids=lambda v: str(v)[:16])
def test_wrong_arguments(name, draw, args):
    with pytest.raises(RuntimeError) as theirs:
        filled(name, 4, "float32", *args)()
    with pytest.raises(theirs.type):
        draw(Mt19937(), 4, "float32", *args)


def test_wrong_tensors():
    with pytest.raises(RuntimeError):
        rejection.poisson(Mt19937(), np.array([-1.0]))
    with pytest.raises(RuntimeError):
        rejection.multinomial(Mt19937(), np.array([math.nan, 1.0]), 1)
    with pytest.raises(RuntimeError):
        rejection.multinomial(Mt19937(), np.zeros(3, np.float32), 1)
    with pytest.raises(RuntimeError):
        rnd.bernoulli_each(Mt19937(), np.array([2.0]))
