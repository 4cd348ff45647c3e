"""Initial values: fill a tensor in place and return it, drawing the numbers torch draws."""

import math
import warnings
from functools import wraps

import flambeau

__all__ = [
    "calculate_gain", "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_",
    "eye_", "dirac_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_",
    "orthogonal_", "sparse_", "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform",
    "xavier_normal", "kaiming_uniform", "kaiming_normal", "orthogonal", "sparse",
]  # fmt: skip

_GAINS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d"), 1),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"), 1),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity, param=None):
    """The factor that keeps the variance of values passing through a nonlinearity."""
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _calculate_fan_in_and_fan_out(tensor):
    """How many inputs each output sees, and how many outputs each input reaches."""
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    receptive_field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive_field, tensor.shape[0] * receptive_field


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def _initialiser(function):
    """Initialisation is not recorded, and an empty tensor has nothing to draw."""

    @wraps(function)
    def initialise(tensor, *args, **kwargs):
        with flambeau.no_grad():
            return function(tensor, *args, **kwargs)

    return initialise


def _is_empty(tensor):
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=4)
        return True
    return False


# -- one value or one distribution ------------------------------------------------------------


@_initialiser
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Uniform between a and b."""
    return tensor.uniform_(a, b, generator=generator)


@_initialiser
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Normal with this mean and standard deviation."""
    return tensor.normal_(mean, std, generator=generator)


@_initialiser
def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Normal, restricted to values between a and b: drawn anew wherever they do not fit."""
    if not a - 2 * std <= mean <= b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=3,
        )
    if tensor.is_meta:
        return tensor
    bounds = [(bound - mean) / std for bound in (a, b)]
    inside = (math.erf(bounds[1] / math.sqrt(2.0)) - math.erf(bounds[0] / math.sqrt(2.0))) / 2.0
    candidates = _NormalCandidates if inside > WORTH_DRAWING else _UniformCandidates
    source = candidates(tensor, mean, std, a, b, generator)
    values = source.draw()
    open_places = source.refused(values)
    while open_places.any():
        others = source.draw()
        values = flambeau.where(open_places, others, values)
        open_places &= source.refused(others)
    return tensor.copy_(values)


WORTH_DRAWING = 0.3  # share of a normal distribution inside its bounds that makes drawing it quick


class _NormalCandidates:
    """Drawn as they should be, and refused outside of the bounds."""

    def __init__(self, tensor, mean, std, a, b, generator):
        self.tensor, self.generator = tensor, generator
        self.mean, self.std = mean, std
        self.low, self.high = tensor.new_tensor([a, b]).tolist()  # as the dtype can hold them

    def draw(self):
        return flambeau.empty_like(self.tensor).normal_(self.mean, self.std,
                                                        generator=self.generator)

    def refused(self, values):
        return (values < self.low) | (values > self.high)


class _UniformCandidates:
    """Drawn anywhere between the bounds, and refused the more often the less likely they are.

    Rejection sampling: u uniform in (0, 1) lets a value pass where u is at most the density there,
    as a share of the highest density between the bounds.
    """

    def __init__(self, tensor, mean, std, a, b, generator):
        self.tensor, self.generator = tensor, generator
        self.mean, self.std, self.a, self.b = mean, std, a, b
        self.highest = -0.5 * ((min(max(mean, a), b) - mean) / std) ** 2

    def draw(self):
        return flambeau.empty_like(self.tensor).uniform_(self.a, self.b, generator=self.generator)

    def refused(self, values):
        log_density = ((values - self.mean) / self.std).pow(2).mul(-0.5).sub(self.highest)
        chance = flambeau.empty_like(values).uniform_(generator=self.generator)
        return chance.log() > log_density


@_initialiser
def constant_(tensor, val):
    """The same value everywhere."""
    return tensor.fill_(val)


@_initialiser
def ones_(tensor):
    """One everywhere."""
    return tensor.fill_(1.0)


@_initialiser
def zeros_(tensor):
    """Zero everywhere."""
    return tensor.zero_()


@_initialiser
def eye_(tensor):
    """The identity matrix."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return tensor.copy_(flambeau.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@_initialiser
def dirac_(tensor, groups=1):
    """The convolution that copies its input, channel by channel, as far as there are channels."""
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out_channels, in_channels, *kernel = tensor.shape
    if out_channels % groups:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = out_channels // groups
    centre = tuple(size // 2 for size in kernel)
    tensor.zero_()
    for group in range(groups):
        for channel in range(min(per_group, in_channels)):
            tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


# -- scaled by the size of the layer ---------------------------------------------------------


def _xavier_std(tensor, gain):
    return gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor))))


def _kaiming_std(tensor, a, mode, nonlinearity):
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


@_initialiser
def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Uniform, scaled so that variance is kept both forward and backward."""
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return tensor.uniform_(-bound, bound, generator=generator)


@_initialiser
def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal, scaled so that variance is kept both forward and backward."""
    return tensor.normal_(0.0, _xavier_std(tensor, gain), generator=generator)


@_initialiser
def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Uniform, scaled for layers followed by a rectifier."""
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor.uniform_(-bound, bound, generator=generator)


@_initialiser
def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Normal, scaled for layers followed by a rectifier."""
    if _is_empty(tensor):
        return tensor
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor.normal_(0, std, generator=generator)


@_initialiser
def orthogonal_(tensor, gain=1, generator=None):
    """Orthonormal rows or columns, whichever are fewer."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    flat = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
    q, r = flambeau.linalg.qr(flat.t() if rows < columns else flat)
    q = q * r.diagonal().sign()  # makes the distribution uniform over orthogonal matrices
    if rows < columns:
        q = q.t()
    return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


@_initialiser
def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Normal, with this fraction of each column set to zero."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0, std, generator=generator)
    for column in range(columns):
        tensor[flambeau.randperm(rows)[:zeros], column] = 0
    return tensor


# -- names from before the underscore ----------------------------------------------------------


def _deprecated(function):
    old = function.__name__[:-1]

    @wraps(function)
    def initialise(*args, **kwargs):
        warnings.warn(
            f"`nn.init.{old}` is now deprecated in favor of `nn.init.{function.__name__}`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    initialise.__name__ = old
    return initialise


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
