"""The multivariate normal distribution."""

import math

import flambeau

from . import constraints
from .distribution import Distribution
from .utils import _standard_normal, expanded, lazy_property, one_of

__all__ = ["MultivariateNormal"]


def times(matrix, vector):
    """Matrix times vector, batch by batch."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def mahalanobis(tril, x):
    """|L^-1 x|^2, which is x^T C^-1 x for C = L L^T; shapes broadcast."""
    batch = flambeau.broadcast_shapes(tril.shape[:-2], x.shape[:-1])
    tril = tril.expand(expanded(batch, tril.shape[-2:]))
    x = x.expand(expanded(batch, x.shape[-1:]))
    y = flambeau.linalg.solve_triangular(tril, x.unsqueeze(-1), upper=False)
    return y.squeeze(-1).pow(2).sum(-1)


def half_log_det(tril):
    """log det L, half that of L L^T."""
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def tril_of_precision(precision):
    """L with L L^T the inverse of the precision, by a Cholesky factor from the other end."""
    flipped = flambeau.linalg.cholesky(precision.flip((-2, -1)))
    inverse = flipped.flip((-2, -1)).mT
    identity = flambeau.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return flambeau.linalg.solve_triangular(inverse, identity, upper=False)


TO_TRIL = {
    "scale_tril": lambda tril: tril,
    "covariance_matrix": lambda covariance: flambeau.linalg.cholesky(covariance),
    "precision_matrix": tril_of_precision,
}


class ByCovariance(Distribution):
    """A matrix given as a covariance, a precision or a Cholesky factor; the others follow.

    The factor is kept as it was given in `_unbroadcasted_scale_tril`.
    """

    @lazy_property
    def scale_tril(self):
        return self._unbroadcasted_scale_tril.expand(self._matrix_shape())

    @lazy_property
    def covariance_matrix(self):
        tril = self._unbroadcasted_scale_tril
        return (tril @ tril.mT).expand(self._matrix_shape())

    @lazy_property
    def precision_matrix(self):
        tril = self._unbroadcasted_scale_tril
        return flambeau.cholesky_inverse(tril).expand(self._matrix_shape())

    def _matrix_shape(self):
        n = self._event_shape[-1]
        return expanded(self._batch_shape, (n, n))

    def _expand_matrices(self, new, batch_shape):
        n = self._event_shape[-1]
        shape = expanded(batch_shape, (n, n))
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in TO_TRIL:
            if name in self.__dict__:
                new.__dict__[name] = self.__dict__[name].expand(shape)


class MultivariateNormal(ByCovariance):
    """Normal vectors."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc,
        covariance_matrix=None,
        precision_matrix=None,
        scale_tril=None,
        validate_args=None,
    ):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        name = one_of(**given)
        matrix = given[name]
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch = flambeau.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = matrix.expand(expanded(batch, matrix.shape[-2:]))
        self.loc = loc.expand(expanded(batch, loc.shape[-1:]))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = TO_TRIL[name](matrix)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MultivariateNormal, _instance)
        new.loc = self.loc.expand(expanded(batch_shape, self.event_shape))
        self._expand_matrices(new, batch_shape)
        return self._expanded(new, batch_shape)

    @property
    def mean(self):
        return self.loc

    mode = mean

    @property
    def variance(self):
        shape = expanded(self._batch_shape, self._event_shape)
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(shape)

    def rsample(self, sample_shape=()):
        noise = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype,
                                 self.loc.device)
        return self.loc + times(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value):
        tril = self._unbroadcasted_scale_tril
        distance = mahalanobis(tril, self._checked(value) - self.loc)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + distance) - half_log_det(tril)

    def entropy(self):
        n = self._event_shape[0]
        half = half_log_det(self._unbroadcasted_scale_tril)
        return (0.5 * n * (1.0 + math.log(2 * math.pi)) + half).expand(self._batch_shape)
