"""Ready-made parametrizations: orthogonal, weight norm, spectral norm."""

import flambeau
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.parametrize import register_parametrization
from flambeau.nn.utils.weight_norm import norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _tensor_of(module, name):
    tensor = getattr(module, name, None)
    if not isinstance(tensor, flambeau.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return tensor


# -- orthogonal ---------------------------------------------------------------------------------


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Keep a matrix orthogonal: with orthonormal rows or columns, whichever are fewer."""
    weight = _tensor_of(module, name)
    if weight.dim() < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in _ORTHOGONAL_MAPS:
        raise ValueError(
            f"orthogonal_map has to be one of {', '.join(map(repr, _ORTHOGONAL_MAPS))}. "
            f"Got: {orthogonal_map}"
        )
    if orthogonal_map == "householder" and weight.is_complex():
        raise ValueError("The householder parametrization does not support complex tensors.")
    parametrization = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, parametrization, unsafe=True)


def _skew(x, n, k):
    """A skew-hermitian matrix from the lower triangle of x."""
    x = x.tril()
    if n != k:
        x = flambeau.cat([x, x.new_zeros((*x.shape[:-1], n - k))], -1)
    return x - x.mH


def _by_matrix_exp(x, n, k):
    return flambeau.linalg.matrix_exp(_skew(x, n, k))[..., :k]


def _by_cayley(x, n, k):
    a = _skew(x, n, k)
    identity = flambeau.eye(n, dtype=a.dtype, device=a.device)
    return flambeau.linalg.solve(identity - a / 2, identity + a / 2)[..., :k]


def _by_householder(x, n, k):
    reflectors = x.tril(diagonal=-1)
    tau = 2.0 / (1.0 + (reflectors * reflectors).sum(-2))
    q = flambeau.linalg.householder_product(reflectors, tau)
    return q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)


_ORTHOGONAL_MAPS = {
    "matrix_exp": _by_matrix_exp,
    "cayley": _by_cayley,
    "householder": _by_householder,
}


def _make_orthogonal(matrix):
    """The orthogonal factor of a matrix, unique by the signs of the triangular one."""
    reflectors, tau = flambeau.geqrf(matrix)
    q = flambeau.linalg.householder_product(reflectors, tau)
    return q * reflectors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _is_orthogonal(q):
    n, k = q.shape[-2:]
    identity = flambeau.eye(k, dtype=q.dtype, device=q.device)
    tolerance = 10.0 * n * flambeau.finfo(q.dtype).eps
    return flambeau.allclose(q.mH @ q, identity, atol=tolerance)


class _Orthogonal(Module):
    """Any matrix to an orthogonal one, around a base that is changed only by assignment."""

    def __init__(self, weight, orthogonal_map, use_trivialization):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x):
        transposed = x.size(-2) < x.size(-1)
        x = x.mT if transposed else x
        q = _ORTHOGONAL_MAPS[self.orthogonal_map](x, x.size(-2), x.size(-1))
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if transposed else q

    @flambeau.no_grad()
    def right_inverse(self, q):
        if q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {q.shape}."
            )
        transposed = q.size(-2) < q.size(-1)
        wide = q
        q = q.mT if transposed else q
        if not hasattr(self, "base"):
            x = self._reflectors(q)
            return x.mT if transposed else x
        n, k = q.shape[-2:]
        if n != k:
            more = flambeau.randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            self.base = _make_orthogonal(flambeau.cat([q, more], -1))
        else:
            self.base = q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        start = flambeau.zeros_like(wide)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start

    def _reflectors(self, q):
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        reflectors, _ = flambeau.geqrf(q)
        diagonal = reflectors.diagonal(dim1=-2, dim2=-1)
        signs = diagonal.sign()
        diagonal.copy_(flambeau.where(signs == 0, flambeau.ones_like(signs), signs))
        return reflectors


# -- weight norm ---------------------------------------------------------------------------------


def weight_norm(module, name="weight", dim=0):
    """Learn the length and the direction of the weights separately."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(_renamed_weights(name))
    return module


class _WeightNorm(Module):
    """length, direction -> weight"""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight):
        return norm_except_dim(weight, self.dim), weight


def _renamed_weights(name):
    """A hook that reads states saved under the names of the older weight norm."""

    def rename(state_dict, prefix, *_):
        old = [f"{prefix}{name}_{part}" for part in "gv"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                new = f"{prefix}parametrizations.{name}.original{i}"
                state_dict[new] = state_dict.pop(key)

    return rename


# -- spectral norm -------------------------------------------------------------------------------


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide the weights by their largest singular value."""
    weight = _tensor_of(module, name)
    if dim is None:
        transposed = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
        dim = 1 if any(c.__name__ in transposed for c in type(module).__mro__) else 0
    parametrization = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return register_parametrization(module, name, parametrization)


class _SpectralNorm(Module):
    """weight -> weight / sigma, sigma being followed by power iteration while training."""

    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        ndim = weight.dim()
        if dim >= ndim or dim < -ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] "
                f"but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                start = matrix.new_empty(size).normal_(0, 1)
                self.register_buffer(name, F.normalize(start, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _matrix(self, weight):
        if self.dim != 0:
            rest = (d for d in range(weight.dim()) if d != self.dim)
            weight = weight.permute(self.dim, *rest)
        return weight.flatten(1)

    @flambeau.no_grad()
    def _power_method(self, matrix, iterations):
        for _ in range(iterations):
            self._u.copy_(F.normalize(flambeau.mv(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(flambeau.mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # later steps change the vectors in place
        u, v = self._u.clone(), self._v.clone()
        return weight / flambeau.vdot(u, flambeau.mv(matrix, v))

    def right_inverse(self, value):
        return value
