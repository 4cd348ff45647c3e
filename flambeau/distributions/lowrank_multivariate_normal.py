"""The multivariate normal distribution with a covariance of low rank plus a diagonal."""

import math

import flambeau

from . import constraints
from .distribution import Distribution
from .multivariate_normal import half_log_det, mahalanobis, times
from .utils import _standard_normal, expanded, lazy_property

__all__ = ["LowRankMultivariateNormal"]


def capacitance(factor, diagonal):
    """The Cholesky factor of I + W^T D^-1 W, through which W W^T + D is inverted cheaply."""
    m = factor.size(-1)
    inner = factor.mT / diagonal.unsqueeze(-2) @ factor
    identity = flambeau.eye(m, dtype=factor.dtype, device=factor.device)
    return flambeau.linalg.cholesky(inner + identity)


def low_rank_log_det(diagonal, tril):
    return 2 * half_log_det(tril) + diagonal.log().sum(-1)


def low_rank_mahalanobis(factor, diagonal, x, tril):
    projected = times(factor.mT / diagonal.unsqueeze(-2), x)
    return (x.pow(2) / diagonal).sum(-1) - mahalanobis(tril, projected)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance W W^T + D, for cov_factor W and cov_diag D."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, "
                "with optional leading batch dimensions"
            )
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = flambeau.broadcast_shapes(
                loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]
            )
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand(expanded(batch, event))
        self.cov_factor = cov_factor.expand(expanded(batch, cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand(expanded(batch, event))
        super().__init__(batch, event, validate_args=validate_args)
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = capacitance(cov_factor, cov_diag)

    def _expanded(self, new, batch_shape):
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return super()._expanded(new, batch_shape)

    @property
    def mean(self):
        return self.loc

    mode = mean

    def _full(self):
        return expanded(self._batch_shape, self._event_shape, self._event_shape)

    @lazy_property
    def variance(self):
        factor, diagonal = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        shape = expanded(self._batch_shape, self._event_shape)
        return (factor.pow(2).sum(-1) + diagonal).expand(shape)

    @lazy_property
    def covariance_matrix(self):
        factor, diagonal = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        return (factor @ factor.mT + diagonal.diag_embed()).expand(self._full())

    @lazy_property
    def scale_tril(self):
        # Through the scaled matrix I + D^-1/2 W W^T D^-1/2, which is never ill-conditioned.
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        inner = scaled @ scaled.mT
        n = self._event_shape[0]
        identity = flambeau.eye(n, dtype=inner.dtype, device=inner.device)
        return (root * flambeau.linalg.cholesky(inner + identity)).expand(self._full())

    @lazy_property
    def precision_matrix(self):
        diagonal = self._unbroadcasted_cov_diag
        scaled = self._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
        a = flambeau.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return (diagonal.reciprocal().diag_embed() - a.mT @ a).expand(self._full())

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        factor = self._unbroadcasted_cov_factor
        kind = self.loc.dtype, self.loc.device
        common = _standard_normal(expanded(shape[:-1], factor.shape[-1:]), *kind)
        own = _standard_normal(shape, *kind)
        return self.loc + times(factor, common) + self._unbroadcasted_cov_diag.sqrt() * own

    def log_prob(self, value):
        factor, diagonal = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        x = self._checked(value) - self.loc
        distance = low_rank_mahalanobis(factor, diagonal, x, self._capacitance_tril)
        log_det = low_rank_log_det(diagonal, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det + distance)

    def entropy(self):
        log_det = low_rank_log_det(self._unbroadcasted_cov_diag, self._capacitance_tril)
        n = self._event_shape[0]
        return (0.5 * (n * (1.0 + math.log(2 * math.pi)) + log_det)).expand(self._batch_shape)
