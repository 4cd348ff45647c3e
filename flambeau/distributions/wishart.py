"""The Wishart distribution."""

import math
import warnings
from numbers import Number

import flambeau

from . import constraints
from .chi2 import Chi2
from .exp_family import ExponentialFamily
from .multivariate_normal import TO_TRIL, ByCovariance, half_log_det
from .utils import expanded

__all__ = ["Wishart"]

MAX_TRIES = 10


class Wishart(ByCovariance, ExponentialFamily):
    """The scatter matrix of df normal vectors."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self):
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df,
        covariance_matrix=None,
        precision_matrix=None,
        scale_tril=None,
        validate_args=None,
    ):
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        names = [name for name, value in given.items() if value is not None]
        if len(names) != 1:
            raise AssertionError(f"Exactly one of {' or '.join(given)} may be specified.")
        matrix = given[names[0]]
        if matrix.dim() < 2:
            raise ValueError(
                "scale_tril must be at least two-dimensional, "
                "with optional leading batch dimensions"
            )
        if isinstance(df, Number):
            df = flambeau.tensor(df, dtype=matrix.dtype, device=matrix.device)
            batch = matrix.shape[:-2]
        else:
            batch = flambeau.broadcast_shapes(matrix.shape[:-2], df.shape)
        self.df = df.expand(batch)
        n = matrix.shape[-1]
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        if (self.df < n).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        self.__dict__[names[0]] = matrix.expand(expanded(batch, (n, n)))
        super().__init__(batch, (n, n), validate_args=validate_args)
        self._unbroadcasted_scale_tril = TO_TRIL[names[0]](matrix)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Wishart, _instance)
        new.df = self.df.expand(batch_shape)
        self._expand_matrices(new, batch_shape)
        return self._expanded(new, batch_shape)

    def _df(self):
        return self.df.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self):
        return self._df() * self.covariance_matrix

    @property
    def mode(self):
        factor = self._df() - self._event_shape[-1] - 1
        factor = flambeau.where(factor <= 0, math.nan, factor)
        return factor * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._df() * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett(self, sample_shape):
        """Bartlett's decomposition: chi variables on the diagonal, normals below."""
        n = self._event_shape[-1]
        like = self._unbroadcasted_scale_tril
        fewer = flambeau.arange(n, dtype=like.dtype, device=like.device)
        chi = Chi2(self.df.unsqueeze(-1) - fewer).rsample(sample_shape).sqrt()
        noise = chi.clamp(min=flambeau.finfo(chi.dtype).eps).diag_embed()
        i, j = flambeau.tril_indices(n, n, -1)
        below = expanded(sample_shape, self._batch_shape, (n * (n - 1) // 2,))
        lower = flambeau.zeros_like(noise)
        lower[..., i, j] = flambeau.randn(below, dtype=noise.dtype, device=noise.device)
        root = like @ (noise + lower)
        return root @ root.mT

    def rsample(self, sample_shape=(), max_try_correction=None):
        """Singular samples are drawn again; so are all once, which keeps to torch's stream."""
        sample = self._bartlett(sample_shape)
        again = self._any_of_batch(self.support.check(sample))
        for _ in range(MAX_TRIES if max_try_correction is None else max_try_correction):
            if not again.any():
                break
            new = self._bartlett((int(again.sum()),))
            if again.dim():
                sample = sample.clone()
                sample[again] = new
            else:
                sample = new[0]
            bad = self._any_of_batch(~self.support.check(new))
            again = again.masked_scatter(again, bad)
        return sample

    def _any_of_batch(self, flags):
        n = len(self._batch_shape)
        return flags.flatten(-n).any(-1) if n else flags

    def _half_log_norm(self):
        n = self._event_shape[-1]
        return n * math.log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril)

    def log_prob(self, value):
        value = self._checked(value)
        nu, n = self.df, self._event_shape[-1]
        trace = flambeau.cholesky_solve(value, self._unbroadcasted_scale_tril)
        return (
            -nu * self._half_log_norm()
            - flambeau.mvlgamma(nu / 2, p=n)
            + (nu - n - 1) / 2 * flambeau.linalg.slogdet(value).logabsdet
            - trace.diagonal(dim1=-2, dim2=-1).sum(-1) / 2
        )

    def entropy(self):
        nu, n = self.df, self._event_shape[-1]
        steps = flambeau.arange(n, dtype=nu.dtype, device=nu.device) / 2
        digamma = (nu.unsqueeze(-1) / 2 - steps).digamma().sum(-1)
        return (
            (n + 1) * self._half_log_norm()
            + flambeau.mvlgamma(nu / 2, p=n)
            - (nu - n - 1) / 2 * digamma
            + nu * n / 2
        )

    @property
    def _natural_params(self):
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x, y):
        n = self._event_shape[-1]
        half_df = y + (n + 1) / 2
        log_det = flambeau.linalg.slogdet(-2 * x).logabsdet
        return half_df * (math.log(2) * n - log_det) + flambeau.mvlgamma(half_df, p=n)
