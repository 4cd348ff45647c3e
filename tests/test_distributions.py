"""Distributions by themselves: densities that integrate to one, samples that follow them."""

import math

import pytest

import flambeau
from flambeau import distributions as d

t = flambeau.tensor

CONTINUOUS = {
    "Normal": (d.Normal(t(0.5), t(2.0)), -15, 15),
    "Laplace": (d.Laplace(t(0.5), t(1.0)), -15, 15),
    "Gumbel": (d.Gumbel(t(0.5), t(1.0)), -6, 25),
    "Exponential": (d.Exponential(t(1.5)), 0, 15),
    "Gamma": (d.Gamma(t(2.5), t(1.5)), 0, 20),
    "Chi2": (d.Chi2(t(4.0)), 0, 50),
    "Beta": (d.Beta(t(2.0), t(3.0)), 0, 1),
    "Uniform": (d.Uniform(t(-1.0), t(2.0)), -1, 2),
    "LogNormal": (d.LogNormal(t(0.0), t(0.5)), 0, 15),
    "HalfNormal": (d.HalfNormal(t(1.0)), 0, 8),
    "StudentT": (d.StudentT(t(8.0)), -30, 30),
    "Weibull": (d.Weibull(t(1.0), t(2.0)), 0, 6),
    "Kumaraswamy": (d.Kumaraswamy(t(2.0), t(3.0)), 0, 1),
    "VonMises": (d.VonMises(t(0.5), t(2.0)), -math.pi, math.pi),
    "ContinuousBernoulli": (d.ContinuousBernoulli(t(0.3)), 0, 1),
    "FisherSnedecor": (d.FisherSnedecor(t(5.0), t(12.0)), 0, 80),
    "InverseGamma": (d.InverseGamma(t(4.0), t(2.0)), 0, 60),
}
DISCRETE = {
    "Bernoulli": (d.Bernoulli(t(0.3)), 2),
    "Binomial": (d.Binomial(7, t(0.3)), 8),
    "Categorical": (d.Categorical(t([0.2, 0.5, 0.3])), 3),
    "Geometric": (d.Geometric(t(0.3)), 80),
    "NegativeBinomial": (d.NegativeBinomial(t(3.0), t(0.4)), 80),
    "Poisson": (d.Poisson(t(4.0)), 60),
}
SAMPLED = {name: case[0] for name, case in {**CONTINUOUS, **DISCRETE}.items()}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_densities_integrate_to_one(name):
    distribution, low, high = CONTINUOUS[name]
    n = 20_000
    x = low + (flambeau.arange(n, dtype=flambeau.float32) + 0.5) * ((high - low) / n)
    total = distribution.log_prob(x).exp().sum().item() * (high - low) / n
    assert total == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("name", DISCRETE)
def test_probabilities_add_up_to_one(name):
    distribution, n = DISCRETE[name]
    values = flambeau.arange(n, dtype=flambeau.float32)
    assert distribution.log_prob(values).exp().sum().item() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("name", [n for n in SAMPLED if n not in ("Categorical", "VonMises")])
def test_samples_have_the_mean_and_variance(name):
    distribution = SAMPLED[name]
    flambeau.manual_seed(0)
    x = distribution.sample((4000,))
    spread = distribution.stddev.item()
    assert x.mean().item() == pytest.approx(distribution.mean.item(), abs=0.1 * spread)
    assert x.var().item() == pytest.approx(spread**2, rel=0.4)


@pytest.mark.parametrize(
    "name", ["Normal", "Laplace", "Exponential", "Uniform", "Gumbel", "Weibull"]
)
def test_icdf_inverts_cdf(name):
    distribution = SAMPLED[name]
    q = t([0.1, 0.5, 0.9])
    assert flambeau.allclose(distribution.cdf(distribution.icdf(q)), q, atol=1e-5)


def test_shapes():
    normal = d.Normal(flambeau.zeros(3, 1), flambeau.ones(4))
    assert normal.batch_shape == (3, 4)
    assert normal.sample((2,)).shape == (2, 3, 4)
    vector = d.Independent(normal, 1)
    assert (vector.batch_shape, vector.event_shape) == ((3,), (4,))
    assert vector.log_prob(vector.sample((2,))).shape == (2, 3)
    assert normal.expand((5, 3, 4)).log_prob(flambeau.zeros(4)).shape == (5, 3, 4)


def test_gradients_flow_through_samples():
    """d mean / d loc is one; of a gamma's mean in its concentration, 1 / rate."""
    loc = flambeau.tensor(0.5, requires_grad=True)
    d.Normal(loc, 1.0).rsample((10,)).mean().backward()
    assert loc.grad.item() == pytest.approx(1.0)
    flambeau.manual_seed(0)
    concentration = flambeau.tensor(2.0, requires_grad=True)
    d.Gamma(concentration, t(4.0)).rsample((3000,)).mean().backward()
    assert concentration.grad.item() == pytest.approx(0.25, rel=0.1)


def test_gradients_of_shares():
    """The mean share a / (a + b) has slope b / (a + b)^2 in a."""
    flambeau.manual_seed(0)
    a = flambeau.tensor(2.0, requires_grad=True)
    d.Beta(a, t(3.0)).rsample((3000,)).mean().backward()
    assert a.grad.item() == pytest.approx(3 / 25, rel=0.15)


def test_the_quantile_of_a_gamma_moves_as_its_slope_says():
    """For concentration one the quantile function is known: its slope by differences."""
    x = t([0.05, 0.7, 2.0, 6.0], dtype=flambeau.float64)
    a = flambeau.ones_like(x)
    # P(1 + h, x + h s) = P(1, x) to first order, with P by numerical integration.
    slope, h = flambeau._standard_gamma_grad(a, x), 1e-4
    for value, s in zip(x.tolist(), slope.tolist()):
        moved = _gamma_cdf(1 + h, value + h * s)
        assert moved == pytest.approx(_gamma_cdf(1.0, value), abs=1e-7)


def _gamma_cdf(a, x, n=4000):
    """Simpson's rule for the integral of u^(a-1) e^-u, substituting u = v^2 at the origin."""
    top = math.sqrt(x)
    step = top / n
    weights = [1, *([4, 2] * (n // 2 - 1)), 4, 1]
    total = sum(
        w * 2 * (i * step) ** (2 * a - 1) * math.exp(-((i * step) ** 2)) if i else 0.0
        for i, w in enumerate(weights)
    )
    return total * step / 3 / math.gamma(a)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (d.Normal(t(0.0), t(1.0)), d.Normal(t(1.0), t(2.0))),
        (d.Normal(t(0.0), t(1.0)), d.Laplace(t(1.0), t(2.0))),
        (d.Normal(t(0.0), t(1.0)), d.Gumbel(t(1.0), t(2.0))),
        (d.Gamma(t(2.0), t(1.0)), d.Gamma(t(3.0), t(2.0))),
        (d.Gamma(t(2.0), t(1.0)), d.Normal(t(1.0), t(2.0))),
        (d.Beta(t(2.0), t(3.0)), d.Uniform(t(-1.0), t(2.0))),
        (d.Beta(t(2.0), t(3.0)), d.Gamma(t(3.0), t(2.0))),
        (d.Uniform(t(0.2), t(0.9)), d.Beta(t(2.0), t(3.0))),
        (d.Uniform(t(0.2), t(0.9)), d.ContinuousBernoulli(t(0.3))),
        (d.Exponential(t(1.0)), d.Gumbel(t(1.0), t(2.0))),
        (d.Laplace(t(0.0), t(1.0)), d.Normal(t(1.0), t(2.0))),
        (d.Bernoulli(t(0.3)), d.Bernoulli(t(0.6))),
    ],
    ids=lambda x: type(x).__name__,
)
def test_divergences_are_expected_log_ratios(p, q):
    flambeau.manual_seed(0)
    x = p.sample((6000,))
    ratio = p.log_prob(x) - q.log_prob(x)
    error = ratio.std().item() / math.sqrt(len(ratio))
    assert d.kl_divergence(p, q).item() == pytest.approx(ratio.mean().item(), abs=5 * error + 1e-5)


def test_divergences_are_infinite_where_p_leaves_q():
    assert d.kl_divergence(d.Normal(0.0, 1.0), d.Exponential(1.0)).item() == math.inf
    assert d.kl_divergence(d.Uniform(0.0, 2.0), d.Uniform(0.0, 1.0)).item() == math.inf
    with pytest.raises(NotImplementedError, match="No KL"):
        d.kl_divergence(d.Cauchy(0.0, 1.0), d.Normal(0.0, 1.0))


def test_own_divergences_can_be_registered():
    class Mine(d.Normal):
        pass

    @d.register_kl(Mine, Mine)
    def always_seven(p, q):
        return flambeau.tensor(7.0)

    assert d.kl_divergence(Mine(0.0, 1.0), Mine(0.0, 1.0)).item() == 7.0
    assert d.kl_divergence(Mine(0.0, 1.0), d.Normal(0.0, 1.0)).item() == 0.0


TRANSFORMS = [
    d.AffineTransform(1.0, -2.0),
    d.ExpTransform(),
    d.SigmoidTransform(),
    d.SoftplusTransform(),
    d.TanhTransform(),
    d.ComposeTransform([d.TanhTransform(), d.AffineTransform(0.0, 3.0)]),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda x: type(x).__name__)
def test_transforms_invert_and_measure_their_slope(transform):
    x = t([-1.0, 0.3, 1.2], dtype=flambeau.float64).requires_grad_()
    y = transform(x)
    assert flambeau.allclose(transform.inv(y), x)
    (slope,) = flambeau.autograd.grad(y.sum(), x)
    assert flambeau.allclose(transform.log_abs_det_jacobian(x, y), slope.abs().log())


def test_a_cached_transform_returns_what_it_was_given():
    transform = d.ExpTransform(cache_size=1)
    x = flambeau.randn(3)
    assert transform.inv(transform(x)) is x


@pytest.mark.parametrize(
    "make",
    [
        lambda: d.Normal(0.0, -1.0),
        lambda: d.Bernoulli(t(1.5)),
        lambda: d.Uniform(1.0, 0.0),
        lambda: d.Categorical(t([-1.0, 2.0])),
        lambda: d.Normal(0.0, 1.0).log_prob("zero"),
        lambda: d.Exponential(1.0).log_prob(t(-1.0)),
        lambda: d.Bernoulli(),
    ],
)
def test_invalid_values_are_refused(make):
    with pytest.raises(ValueError, match=r"Expected|Either|must"):
        make()


def test_validation_can_be_turned_off():
    assert math.isnan(d.Normal(0.0, -1.0, validate_args=False).log_prob(t(0.0)).item())


def test_printed_form():
    assert repr(d.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(d.constraints.unit_interval) == "Interval(lower_bound=0.0, upper_bound=1.0)"
