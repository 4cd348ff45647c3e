"""Distributions beside torch's: the same samples from the same seed, densities, moments, errors."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch

import flambeau

SPD = [[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.5]]
TRIL = [[1.2, 0.0, 0.0], [0.3, 0.9, 0.0], [-0.4, 0.2, 1.1]]
UNEVEN = [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]

# name: the arguments of each case; lists stand for tensors
CASES = {
    "Bernoulli": [{"probs": [0.3, 0.8]}, {"logits": [0.5, -2.0]}],
    "Beta": [{"concentration1": [2.0, 0.5], "concentration0": [3.0, 1.5]}],
    "Binomial": [{"total_count": 7, "probs": [0.3, 0.8]}, {"total_count": 9, "logits": [0.2]}],
    "Categorical": [{"probs": UNEVEN}, {"logits": UNEVEN}],
    "Cauchy": [{"loc": [0.0, 1.0], "scale": [1.0, 2.0]}],
    "Chi2": [{"df": [1.5, 4.0]}],
    "ContinuousBernoulli": [{"probs": [0.2, 0.9]}, {"logits": [0.001, 1.0]}],
    "Dirichlet": [{"concentration": [[2.0, 0.5, 1.0], [3.0, 4.0, 5.0]]}],
    "Exponential": [{"rate": [0.5, 2.0]}],
    "FisherSnedecor": [{"df1": [3.0, 5.0], "df2": [6.0, 9.0]}],
    "Gamma": [{"concentration": [0.5, 3.0], "rate": [1.0, 2.0]}],
    "GeneralizedPareto": [
        {"loc": [0.0, 1.0, 1.0], "scale": [1.0, 2.0, 0.5], "concentration": [0.0, 0.3, -0.4]}
    ],
    "Geometric": [{"probs": [0.3, 0.7]}, {"logits": [0.5, -1.0]}],
    "Gumbel": [{"loc": [0.0, 1.0], "scale": [1.0, 2.0]}],
    "HalfCauchy": [{"scale": [1.0, 2.0]}],
    "HalfNormal": [{"scale": [1.0, 2.0]}],
    "InverseGamma": [{"concentration": [2.5, 3.0], "rate": [1.0, 2.0]}],
    "Kumaraswamy": [{"concentration1": [2.0, 1.5], "concentration0": [3.0, 1.2]}],
    "LKJCholesky": [{"dim": 3, "concentration": [0.8, 2.0]}],
    "Laplace": [{"loc": [0.0, 1.0], "scale": [1.0, 2.0]}],
    "LogNormal": [{"loc": [0.0, 0.3], "scale": [0.5, 1.0]}],
    "LogisticNormal": [{"loc": [[0.0, 0.3]], "scale": [[0.5, 1.0]]}],
    "LowRankMultivariateNormal": [
        {"loc": [0.0, 1.0, 2.0], "cov_factor": [[1.0], [0.5], [0.2]], "cov_diag": [1.0, 2.0, 0.5]}
    ],
    "Multinomial": [{"total_count": 5, "probs": UNEVEN}],
    "MultivariateNormal": [
        {"loc": [0.0, 1.0, 2.0], "covariance_matrix": SPD},
        {"loc": [0.0, 1.0, 2.0], "precision_matrix": SPD},
        {"loc": [[0.0, 1.0, 2.0]] * 2, "scale_tril": TRIL},
    ],
    "NegativeBinomial": [{"total_count": [3.0, 2.0], "probs": [0.3, 0.6]}],
    "Normal": [{"loc": [0.5, -1.0], "scale": [2.0, 0.3]}, {"loc": 0.0, "scale": 1.0}],
    "OneHotCategorical": [{"probs": UNEVEN}],
    "OneHotCategoricalStraightThrough": [{"logits": UNEVEN}],
    "Pareto": [{"scale": [1.0, 2.0], "alpha": [3.0, 2.5]}],
    "Poisson": [{"rate": [0.5, 4.0]}],
    "RelaxedBernoulli": [{"temperature": [0.7], "probs": [0.3, 0.6]}],
    "RelaxedOneHotCategorical": [{"temperature": [0.7], "probs": UNEVEN}],
    "StudentT": [{"df": [1.5, 4.0], "loc": [0.0, 1.0], "scale": [1.0, 2.0]}],
    "Uniform": [{"low": [-1.0, 0.0], "high": [2.0, 0.5]}],
    "VonMises": [{"loc": [0.0, 1.0], "concentration": [0.5, 4.0]}],
    "Weibull": [{"scale": [1.0, 2.0], "concentration": [1.5, 3.0]}],
    "Wishart": [{"df": 4.5, "covariance_matrix": SPD}],
}
EVERY = [(name, i) for name, cases in CASES.items() for i in range(len(cases))]

# What torch approximates: Bessel functions to seven digits, gamma quantiles to four.
ROUGH = {"VonMises": 1e-5}


def build(lib, name, case=0):
    given = CASES[name][case]
    tensors = {k: lib.tensor(v) if isinstance(v, list) else v for k, v in given.items()}
    return getattr(lib.distributions, name)(**tensors)


def both(name, case=0):
    return build(flambeau, name, case), build(torch, name, case)


def carried(value, lib):
    """A tensor of either library, in the other."""
    return lib.tensor(np.array(value.detach().numpy()).tolist(), dtype=lib.float32)


def same(actual, expected, tolerance=1e-4):
    np.testing.assert_allclose(
        np.array(actual.detach().numpy()), expected.detach().numpy(), tolerance, tolerance
    )


def attempt(function):
    """What a function gives, or the type of what it raises."""
    try:
        return function(), None
    except (NotImplementedError, ValueError, AssertionError) as error:
        return None, type(error).__name__


def same_outcome(actual, expected, tolerance=1e-4):
    assert actual[1] == expected[1]
    if expected[1] is None:
        same(actual[0], expected[0], tolerance)


@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize(("name", "case"), EVERY)
def test_samples(name, case):
    """The same numbers, and the stream at the same place afterwards."""
    drawn = []
    for lib in (flambeau, torch):
        distribution = build(lib, name, case)
        lib.manual_seed(11)
        sample = distribution.sample((4,))
        drawn.append((sample, lib.rand(3)))
    (actual, actual_next), (expected, expected_next) = drawn
    assert tuple(actual.shape) == tuple(expected.shape)
    same(actual, expected, 1e-3)
    same(actual_next, expected_next, 0)


@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize(("name", "case"), EVERY)
def test_densities(name, case):
    ours, theirs = both(name, case)
    torch.manual_seed(5)
    value = theirs.sample((3,))
    tolerance = ROUGH.get(name, 1e-4)
    same(ours.log_prob(carried(value, flambeau)), theirs.log_prob(value), tolerance)
    for method in ("cdf", "icdf"):
        at = value if method == "cdf" else torch.rand(value.shape)
        expected = attempt(functools.partial(getattr(theirs, method), at))
        actual = attempt(functools.partial(getattr(ours, method), carried(at, flambeau)))
        same_outcome(actual, expected)


@pytest.mark.parametrize(("name", "case"), EVERY)
@pytest.mark.parametrize("moment", ["mean", "mode", "variance", "stddev"])
def test_moments(name, case, moment):
    ours, theirs = both(name, case)
    expected = attempt(lambda: getattr(theirs, moment))
    same_outcome(attempt(lambda: getattr(ours, moment)), expected, ROUGH.get(name, 1e-4))


@pytest.mark.parametrize(("name", "case"), EVERY)
def test_entropy_and_support(name, case):
    ours, theirs = both(name, case)
    same_outcome(attempt(ours.entropy), attempt(theirs.entropy))
    same_outcome(attempt(ours.enumerate_support), attempt(theirs.enumerate_support))
    if name != "MixtureSameFamily":
        assert ours.support.is_discrete == theirs.support.is_discrete
        assert ours.support.event_dim == theirs.support.event_dim


@pytest.mark.parametrize(("name", "case"), EVERY)
def test_shapes_and_printed_form(name, case):
    ours, theirs = both(name, case)
    assert repr(ours).replace("flambeau", "torch") == repr(theirs)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    assert ours.has_enumerate_support == theirs.has_enumerate_support
    ours, theirs = (d.expand((5, *d.batch_shape)) for d in (ours, theirs))
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    torch.manual_seed(5)
    value = theirs.sample()
    same(ours.log_prob(carried(value, flambeau)), theirs.log_prob(value))


# Finite, where torch says infinite for a uniform on the whole interval.
CORRECTED = {("ContinuousBernoulli", "Uniform"), ("Uniform", "ContinuousBernoulli")}


def kl_pairs():
    registry = torch.distributions.kl._KL_REGISTRY
    named = [(p.__name__, q.__name__) for p, q in registry]
    return [pair for pair in named if set(pair) <= CASES.keys() and pair not in CORRECTED]


@pytest.mark.parametrize("pair", sorted(kl_pairs()), ids="-".join)
def test_divergences(pair):
    ours, theirs = ([build(lib, name) for name in pair] for lib in (flambeau, torch))
    expected = attempt(lambda: torch.distributions.kl_divergence(*theirs))
    actual = attempt(lambda: flambeau.distributions.kl_divergence(*ours))
    same_outcome(actual, expected)


def test_divergence_of_unlike_distributions():
    for name in ("Normal", "Gamma", "Beta", "MultivariateNormal"):
        moved = []
        for lib in (flambeau, torch):
            p = build(lib, name)
            arguments = {k: getattr(p, k) * 1.3 for k in CASES[name][0]}
            q = getattr(lib.distributions, name)(**arguments)
            moved.append(lib.distributions.kl_divergence(p, q))
        same(*moved)


REPARAMETRISED = [
    name
    for name in CASES
    if build(torch, name).has_rsample
    # Gradients of these are estimates, and torch's estimator for shares is another one.
    and name not in ("Beta", "Dirichlet", "Wishart", "OneHotCategoricalStraightThrough")
]


@pytest.mark.parametrize("name", REPARAMETRISED)
def test_gradients_of_samples(name):
    """The same gradient of the same sample in every parameter."""
    gradients = []
    for lib in (flambeau, torch):
        given = {
            k: lib.tensor(v, requires_grad=True) if isinstance(v, list) else v
            for k, v in CASES[name][0].items()
        }
        distribution = getattr(lib.distributions, name)(**given)
        lib.manual_seed(2)
        distribution.rsample((3,)).sum().backward()
        gradients.append([v.grad for v in given.values() if isinstance(v, lib.Tensor)])
    for actual, expected in zip(*gradients, strict=True):
        assert (actual is None) == (expected is None)
        if expected is not None:
            same(actual, expected, 2e-3)


TRANSFORMS = {
    "AbsTransform": ((), False),
    "AffineTransform": ((1.5, -2.0), True),
    "ExpTransform": ((), True),
    "PowerTransform": ((2.0,), True),
    "SigmoidTransform": ((), True),
    "SoftplusTransform": ((), True),
    "TanhTransform": ((), True),
    "SoftmaxTransform": ((), False),
    "StickBreakingTransform": ((), True),
    "CorrCholeskyTransform": ((), True),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    args, bijective = TRANSFORMS[name]
    ours = getattr(flambeau.distributions, name)(*args)
    theirs = getattr(torch.distributions, name)(*args)
    x = torch.tensor([[0.3, 1.2, 0.7], [0.1, 0.4, 2.0]])
    mine = carried(x, flambeau)
    y, expected = ours(mine), theirs(x)
    same(y, expected)
    assert repr(ours) == repr(theirs)
    assert tuple(ours.forward_shape(x.shape)) == tuple(theirs.forward_shape(x.shape))
    assert ours.bijective == theirs.bijective
    if bijective:
        same(ours.inv(y), theirs.inv(expected))
        same(ours.log_abs_det_jacobian(mine, y), theirs.log_abs_det_jacobian(x, expected))
        inverse = ours.inv.log_abs_det_jacobian(y, mine)
        same(inverse, theirs.inv.log_abs_det_jacobian(expected, x))


CONSTRAINTS = ["real", "positive", "nonnegative", "unit_interval", "simplex"]


@pytest.mark.parametrize(
    ("name", "registry"), list(itertools.product(CONSTRAINTS, ["biject_to", "transform_to"]))
)
def test_unconstrained_values_are_led_into_a_region(name, registry):
    x = torch.tensor([[0.3, -1.2], [0.1, 0.4]])
    results = []
    for lib, value in ((flambeau, carried(x, flambeau)), (torch, x)):
        region = getattr(lib.distributions.constraints, name)
        results.append(getattr(lib.distributions, registry)(region)(value))
        assert bool(region.check(results[-1]).all())
    same(*results)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Normal", {"loc": [0.0], "scale": [-1.0]}),
        ("Uniform", {"low": [1.0], "high": [0.0]}),
        ("Bernoulli", {"probs": [1.5]}),
        ("Categorical", {"probs": [[0.2, -0.1]]}),
        ("Bernoulli", {}),
        ("Categorical", {"probs": [0.5, 0.5], "logits": [0.0, 0.0]}),
        ("MultivariateNormal", {"loc": [0.0, 0.0], "covariance_matrix": [[1.0, 2.0], [2.0, 1.0]]}),
        ("LKJCholesky", {"dim": 1}),
    ],
)
def test_parameters_that_are_refused(name, arguments):
    raised = []
    for lib in (flambeau, torch):
        given = {k: lib.tensor(v) if isinstance(v, list) else v for k, v in arguments.items()}
        build_it = functools.partial(getattr(lib.distributions, name), **given)
        raised.append(attempt(build_it)[1])
    assert raised[0] == raised[1] == "ValueError"


def test_mixtures():
    results = []
    for lib in (flambeau, torch):
        d = lib.distributions
        mixture = d.MixtureSameFamily(
            d.Categorical(lib.tensor([0.3, 0.7])),
            d.Independent(d.Normal(lib.zeros(2, 3), lib.tensor([[1.0], [2.0]])), 1),
        )
        lib.manual_seed(3)
        x = mixture.sample((4,))
        results.append((x, mixture.log_prob(x), mixture.mean, mixture.variance, repr(mixture)))
    for actual, expected in zip(*results, strict=True):
        if isinstance(expected, str):
            assert actual == expected
        else:
            same(actual, expected)


def test_transformed_distributions():
    results = []
    for lib in (flambeau, torch):
        d = lib.distributions
        base = d.Normal(lib.zeros(3), lib.ones(3))
        logistic = d.TransformedDistribution(
            base, [d.AffineTransform(0.5, 2.0), d.SigmoidTransform()]
        )
        lib.manual_seed(3)
        x = logistic.rsample((4,))
        results.append(
            (x, logistic.log_prob(x), logistic.cdf(x), logistic.icdf(lib.full((3,), 0.3)))
        )
    for actual, expected in zip(*results, strict=True):
        same(actual, expected)


def test_a_uniform_and_a_continuous_bernoulli_on_the_same_interval():
    """Their divergence is finite: by numerical integration, not by torch."""
    d = flambeau.distributions
    uniform = d.Uniform(0.0, 1.0)
    other = d.ContinuousBernoulli(flambeau.tensor(0.3))
    x = flambeau.linspace(0.0005, 0.9995, 1000)
    expected = -float(other.log_prob(x).mean())
    assert math.isclose(float(d.kl_divergence(uniform, other)), expected, rel_tol=1e-3)


def test_transforms_along_a_dimension():
    results = []
    for lib in (flambeau, torch):
        d = lib.distributions
        x = lib.tensor([[0.3, -1.2], [0.1, 0.4], [0.7, 0.2]])
        parts = [d.ExpTransform(), d.SigmoidTransform()]
        cat = d.CatTransform(parts, dim=0, lengths=[1, 2])
        stack = d.StackTransform(parts, dim=1)
        for transform in (cat, stack):
            y = transform(x)
            results.append((y, transform.inv(y), transform.log_abs_det_jacobian(x, y)))
    for ours, theirs in zip(results[:2], results[2:], strict=True):
        for actual, expected in zip(ours, theirs, strict=True):
            same(actual, expected)


def test_shares_move_as_in_torch():
    """Torch approximates the slope of a share, to about a part in a hundred at worst."""
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.uniform(-3, 6, (2, 500)))
    x = np.clip(rng.beta(a, b), 1e-30, 1 - 1e-9)
    theirs, ours = (lib._dirichlet_grad(*(lib.tensor(v) for v in (x, a, a + b))).numpy()
                    for lib in (torch, flambeau))
    error = abs(ours - theirs) / (abs(theirs) + 1e-8)
    assert np.median(error) < 1e-5 and error.max() < 0.05


def test_slopes_of_shares_are_those_of_quantiles():
    stats = pytest.importorskip("scipy.stats")
    a, b, x = (np.array(v) for v in ([0.3, 2.0, 50.0, 7.0], [1.5, 0.4, 900.0, 7.0],
                                     [0.02, 0.9, 0.06, 0.5]))
    h, q = 1e-5 * a, stats.beta.cdf(x, a, b)
    exact = (stats.beta.ppf(q, a + h, b) - stats.beta.ppf(q, a - h, b)) / (2 * h) / (1 - x)
    ours = flambeau._dirichlet_grad(*(flambeau.tensor(v) for v in (x, a, a + b)))
    np.testing.assert_allclose(ours.numpy(), exact, rtol=1e-6)


@pytest.mark.parametrize("name", ["Beta", "Dirichlet"])
def test_gradients_of_shares(name):
    found = []
    for lib in (torch, flambeau):
        a = lib.tensor([[0.5, 2.0, 1.0], [20.0, 9.0, 30.0]], requires_grad=True)
        lib.manual_seed(0)
        given = (a,) if name == "Dirichlet" else (a, a.flip(0) * 2)
        sample = getattr(lib.distributions, name)(*given).rsample()
        (sample * lib.arange(6.0).view(2, 3)).sum().backward()
        found.append(a.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=0.01, atol=1e-4)
