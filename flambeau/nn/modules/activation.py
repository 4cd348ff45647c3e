"""Activations: elementwise functions, softmaxes, and the parametric rectifier."""

import flambeau
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.attention import MultiheadAttention
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "MultiheadAttention", "PReLU", "RReLU",
    "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


# -- without settings --------------------------------------------------------------------------


class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def forward(self, input):
        return flambeau.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input):
        return flambeau.tanh(input)


class LogSigmoid(Module):
    """log(1 / (1 + exp(-x)))"""

    def forward(self, input):
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|)"""

    def forward(self, input):
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)"""

    def forward(self, input):
        return F.tanhshrink(input)


# -- that may overwrite their input ------------------------------------------------------------


class _MaybeInPlace(Module):
    """An activation with no setting but whether to overwrite its input."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return self._function(input, inplace=self.inplace)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class ReLU(_MaybeInPlace):
    """max(0, x)"""

    def forward(self, input):
        return F.relu_(input) if self.inplace else flambeau.relu(input)


class SELU(_MaybeInPlace):
    """ELU scaled so that layers normalise themselves."""

    _function = staticmethod(F.selu)


class SiLU(_MaybeInPlace):
    """x sigmoid(x)"""

    _function = staticmethod(F.silu)


class Mish(_MaybeInPlace):
    """x tanh(softplus(x))"""

    _function = staticmethod(F.mish)


class Hardswish(Module):
    """x min(max(x + 3, 0), 6) / 6"""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return F.hardswish(input, self.inplace)


class Hardsigmoid(Module):
    """min(max(x + 3, 0), 6) / 6"""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return F.hardsigmoid(input, self.inplace)


# -- with settings -----------------------------------------------------------------------------


def _settings(module, *names, inplace=True):
    """'alpha=1.0, inplace=True': settings by name, and in-place if it is so."""
    shown = [f"{name}={getattr(module, name)}" for name in names]
    return ", ".join(shown + ["inplace=True"] * (inplace and module.inplace))


class Threshold(Module):
    """x where x > threshold, else value."""

    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self):
        return _settings(self, "threshold", "value")


class RReLU(Module):
    """x where x >= 0, else x times a slope drawn between lower and upper; their mean in eval."""

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return _settings(self, "lower", "upper")


class Hardtanh(Module):
    """x, limited to between min_val and max_val."""

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None):
        super().__init__()
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.min_val > self.max_val:
            raise ValueError(
                f"Hardtanh: min_val must not exceed max_val, got {self.min_val} > {self.max_val}"
            )

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return _settings(self, "min_val", "max_val")


class ReLU6(Hardtanh):
    """min(max(0, x), 6)"""

    def __init__(self, inplace=False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class ELU(Module):
    """x where x > 0, else alpha (exp(x) - 1)."""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input):
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return _settings(self, "alpha")


class CELU(Module):
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))"""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input):
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return _settings(self, "alpha")


class LeakyReLU(Module):
    """x where x > 0, else negative_slope x."""

    def __init__(self, negative_slope=1e-2, inplace=False):
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self):
        return _settings(self, "negative_slope")


class GELU(Module):
    """x times the probability that a normal variable is below x."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """a sigmoid(b), a and b being the halves of the input along dim."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Softplus(Module):
    """log(1 + exp(beta x)) / beta; the identity where beta x > threshold."""

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return _settings(self, "beta", "threshold", inplace=False)


class Hardshrink(Module):
    """x where |x| > lambd, else 0."""

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.hardshrink(input, self.lambd)

    def extra_repr(self):
        return f"{self.lambd}"


class Softshrink(Module):
    """x moved towards 0 by lambd."""

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.softshrink(input, self.lambd)

    def extra_repr(self):
        return f"{self.lambd}"


class PReLU(Module):
    """x where x > 0, else x times a learned slope, one for all or one per channel."""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(flambeau.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        init.constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


# -- over one dimension ------------------------------------------------------------------------


class _OverDimension(Module):
    """A function of all values along one dimension."""

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def __setstate__(self, state):
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def forward(self, input):
        return self._function(input, self.dim, _stacklevel=5)

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(_OverDimension):
    """exp(x) / sum(exp(x))"""

    _function = staticmethod(F.softmax)


class LogSoftmax(_OverDimension):
    """log(softmax(x))"""

    _function = staticmethod(F.log_softmax)


class Softmin(_OverDimension):
    """softmax(-x)"""

    _function = staticmethod(F.softmin)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D")
        return F.softmax(input, -3)
