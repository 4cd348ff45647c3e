"""Kullback-Leibler divergences.

Most pairs need no formula of their own: KL(p || q) = -entropy(p) - E_p[log q], and log q of the
usual families is linear in a few moments of p. So q says how its expected log-density follows
from moments, p what its moments are, and `PAIRS` which of them go together.
"""

import math
import warnings

import flambeau
from flambeau.nn.functional import softplus

from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    low_rank_log_det,
    low_rank_mahalanobis,
)
from .multivariate_normal import MultivariateNormal, half_log_det, mahalanobis
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import EULER, sum_rightmost

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict = {}
_FOUND: dict = {}


def register_kl(type_p, type_q):
    """A decorator: the function gives KL(p || q) for these types and those derived from them."""
    for kind in (type_p, type_q):
        if not isinstance(kind, type):  # distributions of other packages need not be of ours
            raise TypeError(f"Expected a Distribution subclass but got {kind}")

    def register(function):
        _KL_REGISTRY[type_p, type_q] = function
        _FOUND.clear()
        return function

    return register


def kl_divergence(p, q):
    """KL(p || q), one number per distribution of the batch."""
    pair = type(p), type(q)
    if pair not in _FOUND:
        _FOUND[pair] = _lookup(*pair)
    if _FOUND[pair] is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {pair[0].__name__} "
            f"and q type {pair[1].__name__}"
        )
    return _FOUND[pair](p, q)


def _lookup(type_p, type_q):
    """The function registered for the nearest ancestors."""
    distances = {
        (p, q): (type_p.__mro__.index(p), type_q.__mro__.index(q))
        for p, q in _KL_REGISTRY
        if issubclass(type_p, p) and issubclass(type_q, q)
    }
    if not distances:
        return None
    by_p = _KL_REGISTRY[min(distances, key=distances.get)]
    by_q = _KL_REGISTRY[min(distances, key=lambda pair: distances[pair][::-1])]
    if by_p is not by_q:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({type_p.__name__}, {type_q.__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return by_p


# -- moments of p -----------------------------------------------------------------------------


def _x_log_x(x):
    return flambeau.xlogy(x, x)


def _uniform_mean_log(low, high):
    width = high - low
    return (_x_log_x(high) - _x_log_x(low) - width) / width


def _uniform_mgf(p, s):
    return ((s * p.high).exp() - (s * p.low).exp()) / (s * (p.high - p.low))


# E[log x]
MEAN_LOG = {
    Beta: lambda p: p.concentration1.digamma() - _total(p).digamma(),
    Exponential: lambda p: -EULER - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + p.alpha.reciprocal(),
    Uniform: lambda p: _uniform_mean_log(p.low, p.high),
}
# E[log(1 - x)]
MEAN_LOG_REST = {
    Beta: lambda p: p.concentration0.digamma() - _total(p).digamma(),
    Uniform: lambda p: _uniform_mean_log(1 - p.high, 1 - p.low),
}
# E[exp(s x)]
MGF = {
    Exponential: lambda p, s: p.rate / (p.rate - s),
    Gamma: lambda p, s: (1 - s / p.rate).pow(-p.concentration),
    Gumbel: lambda p, s: (p.loc * s + (1 - p.scale * s).lgamma()).exp(),
    Normal: lambda p, s: (p.loc * s + 0.5 * (p.scale * s).pow(2)).exp(),
    Uniform: _uniform_mgf,
}


def _total(p):
    return p.concentration1 + p.concentration0


def _moment(table, p, *args):
    return next(moment for kind, moment in table.items() if isinstance(p, kind))(p, *args)


# -- E_p[log q] from moments of p -------------------------------------------------------------


def _to_normal(p, q):
    spread = (p.variance + (p.mean - q.loc).pow(2)) / (2 * q.scale.pow(2))
    return -(math.sqrt(2 * math.pi) * q.scale).log() - spread


def _to_exponential(p, q):
    return q.rate.log() - q.rate * p.mean


def _to_gamma(p, q):
    a, b = q.concentration, q.rate
    return a * b.log() - a.lgamma() + (a - 1) * _moment(MEAN_LOG, p) - b * p.mean


def _to_beta(p, q):
    a, b = q.concentration1, q.concentration0
    logs = (a - 1) * _moment(MEAN_LOG, p) + (b - 1) * _moment(MEAN_LOG_REST, p)
    return logs - (a.lgamma() + b.lgamma() - (a + b).lgamma())


def _to_pareto(p, q):
    return q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _moment(MEAN_LOG, p)


def _to_gumbel(p, q):
    tail = (q.loc / q.scale).exp() * _moment(MGF, p, -1 / q.scale)
    return -q.scale.log() - (p.mean - q.loc) / q.scale - tail


def _to_uniform(p, q):
    return -(q.high - q.low).log()


def _to_continuous_bernoulli(p, q):
    return p.mean * q.logits + (-q.probs).log1p() + q._cont_bern_log_norm()


def _ends(p):
    """Where the support of p begins and ends."""
    if isinstance(p, Uniform):
        return p.low, p.high
    if isinstance(p, Pareto):
        return p.scale, math.inf
    if isinstance(p, Beta | ContinuousBernoulli):
        return 0.0, 1.0
    return (0.0 if isinstance(p, Exponential | Gamma) else -math.inf), math.inf


# q: (E_p[log q], every p it is known for)
PAIRS = {
    Normal: (
        _to_normal,
        (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform),
    ),
    Exponential: (
        _to_exponential,
        (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    ),
    Gamma: (_to_gamma, (Beta, Exponential, Gamma, Pareto, Uniform)),
    Beta: (_to_beta, (Beta, Uniform)),
    Pareto: (_to_pareto, (Pareto, Uniform)),
    Gumbel: (_to_gumbel, (Exponential, Gamma, Gumbel, Normal, Uniform)),
    Uniform: (_to_uniform, (Beta, ContinuousBernoulli, Uniform)),
    ContinuousBernoulli: (_to_continuous_bernoulli, (Beta, ContinuousBernoulli, Uniform)),
}


def _by_moments(expected_log):
    def kl(p, q):
        result = -p.entropy() - expected_log(p, q)
        (p_low, p_high), (q_low, q_high) = _ends(p), _ends(q)
        outside = flambeau.as_tensor(p_low < q_low) | flambeau.as_tensor(p_high > q_high)
        return flambeau.where(outside, flambeau.full_like(result, math.inf), result)

    return kl


for _q, (_expected_log, _ps) in PAIRS.items():
    for _p in _ps:
        register_kl(_p, _q)(_by_moments(_expected_log))


# -- pairs where p is sometimes what q never is -----------------------------------------------

# p: every q whose support p always leaves
INFINITE = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _infinite(p, q):
    return flambeau.full_like(p.mean, math.inf)


for _left, _qs in INFINITE.items():
    for _right in _qs:
        register_kl(_left, _right)(_infinite)


# -- discrete ---------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    one = one.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0)
    zero = zero.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0)
    return one + zero


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    odds = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * odds).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    t = p.probs * (p.logits - q.logits)
    t = t.masked_fill((q.probs == 0).expand_as(t), math.inf)
    return t.masked_fill((p.probs == 0).expand_as(t), 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


# -- continuous -------------------------------------------------------------------------------


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    apart = (p.loc - q.loc).abs()
    ratio = p.scale / q.scale
    return -ratio.log() + apart / q.scale + ratio * (-apart / p.scale).exp() - 1


@register_kl(Normal, Laplace)
def _normal_laplace(p, q):
    apart = (p.loc - q.loc) / p.scale
    near = math.sqrt(2 / math.pi) * (-0.5 * apart.pow(2)).exp()
    distance = p.scale * (near + apart * flambeau.erf(math.sqrt(0.5) * apart))
    return (2 * q.scale).log() + distance / q.scale - p.entropy()


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    apart = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return apart.log() - (4 * p.scale * q.scale).log()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    normalizers = a.sum(-1).lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return normalizers + ((a - b) * (a.digamma() - a.sum(-1, True).digamma())).sum(-1)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    """The Bregman divergence of the log normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot "
            "be computed using Bregman divergences"
        )
    own = [eta.detach().requires_grad_() for eta in p._natural_params]
    normalizer = p._log_normalizer(*own)
    gradients = flambeau.autograd.grad(normalizer.sum(), own, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for eta, other, gradient in zip(own, q._natural_params, gradients, strict=True):
        result = result - sum_rightmost((other - eta) * gradient, len(q.event_shape))
    return result


# -- normal vectors ---------------------------------------------------------------------------


def _root(p):
    """R with R R^T the covariance."""
    if isinstance(p, MultivariateNormal):
        return p._unbroadcasted_scale_tril
    factor, noise = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()
    batch = flambeau.broadcast_shapes(factor.shape[:-2], noise.shape[:-2])
    parts = [m.expand(*batch, *m.shape[-2:]) for m in (factor, noise)]
    return flambeau.cat(parts, -1)


def _log_det(p):
    if isinstance(p, MultivariateNormal):
        return 2 * half_log_det(p._unbroadcasted_scale_tril)
    return low_rank_log_det(p._unbroadcasted_cov_diag, p._capacitance_tril)


def _distance(q, x):
    """x^T C^-1 x for the covariance C of q."""
    if isinstance(q, MultivariateNormal):
        return mahalanobis(q._unbroadcasted_scale_tril, x)
    factor, diagonal = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    return low_rank_mahalanobis(factor, diagonal, x, q._capacitance_tril)


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _normal_vectors(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two (Low Rank) Multivariate Normals with different event "
            f"shapes cannot be computed: {p.event_shape} and {q.event_shape}"
        )
    # tr(C_q^-1 C_p) is the distance of every column of the root, added up.
    columns = _root(p).movedim(-1, 0)
    missing = max(0, len(q.batch_shape) + 2 - columns.dim())
    columns = columns.reshape(columns.shape[0], *[1] * missing, *columns.shape[1:])
    trace = _distance(q, columns).sum(0)
    n = p.event_shape[0]
    return 0.5 * (_log_det(q) - _log_det(p) + trace + _distance(q, q.loc - p.loc) - n)


# -- of other distributions -------------------------------------------------------------------


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(
            "KL between TransformedDistributions is known where their transforms are the same"
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "KL between Independents is known where both reinterpret as many dimensions"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
