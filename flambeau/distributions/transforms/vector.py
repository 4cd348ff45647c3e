"""Transforms of vectors and matrices."""

import math

import flambeau
from flambeau import Size
from flambeau.nn.functional import logsigmoid, pad, softplus

from .. import constraints
from .base import Transform, need_dims
from .scalar import inside_unit


class ReshapeTransform(Transform):
    """An event in another shape."""

    bijective = True
    options = ("in_shape", "out_shape")

    def __init__(self, in_shape, out_shape, cache_size=0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")

    @constraints.dependent_property
    def domain(self):
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self):
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x):
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y):
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x, y):
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape):
        return _replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape):
        return _replaced(shape, self.out_shape, self.in_shape)


def _replaced(shape, old, new):
    need_dims(shape, len(old))
    cut = len(shape) - len(old)
    if tuple(shape[cut:]) != tuple(old):
        raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
    return Size((*shape[:cut], *new))


class SoftmaxTransform(Transform):
    """y = exp(x) / sum(exp(x)); not one to one"""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x):
        return x.softmax(-1)

    def _inverse(self, y):
        return y.log()

    def forward_shape(self, shape):
        need_dims(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """From n numbers to n + 1 parts of a stick: each takes a share of what is left."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _even(x):
        """log of the number of parts that remain: zero then stands for equal parts."""
        n = x.shape[-1]
        return flambeau.arange(n, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x):
        share = inside_unit((x - self._even(x)).sigmoid())
        left = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y):
        parts = y[..., :-1]
        left = (1 - parts.cumsum(-1)).clamp(min=flambeau.finfo(y.dtype).tiny)
        return parts.log() - left.log() + self._even(parts)

    def log_abs_det_jacobian(self, x, y):
        x = x - self._even(x)
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        need_dims(shape, 1)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape):
        need_dims(shape, 1)
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(Transform):
    """A square matrix's lower triangle, with the exponential of the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x):
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """A positive-definite matrix from any square one."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x):
        root = LowerCholeskyTransform()(x)
        return root @ root.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(flambeau.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """The Cholesky factor of an n x n correlation matrix from n (n - 1) / 2 numbers.

    Each row is a point on the sphere: tanh(x) are its coordinates, each as a share of the
    length that the ones before have left.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x):
        eps = flambeau.finfo(x.dtype).eps
        r = _to_lower(x.tanh().clamp(min=-1 + eps, max=1 - eps))
        left = (1 - r * r).sqrt().cumprod(-1)
        r = r + flambeau.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y):
        left = pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1)
        t = _from_lower(y, -1) / _from_lower(left, -1).sqrt()
        return (t.log1p() - t.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        left = 1 - (y * y).cumsum(-1)
        sphere = 0.5 * _from_lower(left, -2).log().sum(-1)
        return sphere - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape):
        need_dims(shape, 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape):
        need_dims(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


def _to_lower(values):
    """A matrix with the values below its diagonal, row by row."""
    n = round((1 + (1 + 8 * values.shape[-1]) ** 0.5) / 2)
    matrix = values.new_zeros((*values.shape[:-1], n, n))
    i, j = flambeau.tril_indices(n, n, -1)
    matrix[..., i, j] = values
    return matrix


def _from_lower(matrix, diagonal):
    """The entries on and below a diagonal, row by row."""
    n = matrix.shape[-1]
    i, j = flambeau.tril_indices(n, n, diagonal)
    return matrix[..., i, j]
