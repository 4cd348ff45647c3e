"""Normalisation within a sample: by layer, by group of channels, by neighbouring channels."""

import numbers

import flambeau
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _add_affine(module, shape, weight, bias, device, dtype):
    """Register a weight and a bias, or None for either."""
    for name, wanted in (("weight", weight), ("bias", bias)):
        value = Parameter(flambeau.empty(shape, device=device, dtype=dtype)) if wanted else None
        module.register_parameter(name, value)


def _as_shape(size):
    return (size,) if isinstance(size, numbers.Integral) else tuple(size)


class LayerNorm(Module):
    """Subtract the mean over the last dimensions, divide by the deviation, scale and shift."""

    def __init__(
        self,
        normalized_shape,
        eps=1e-5,
        elementwise_affine=True,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        _add_affine(
            self,
            self.normalized_shape,
            elementwise_affine,
            elementwise_affine and bias,
            device,
            dtype,
        )
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root mean square over the last dimensions, and scale."""

    def __init__(
        self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None
    ):
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = None
        if elementwise_affine:
            weight = Parameter(flambeau.empty(self.normalized_shape, device=device, dtype=dtype))
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input):
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Normalise each group of channels of each sample by its mean and deviation."""

    def __init__(
        self,
        num_groups,
        num_channels,
        eps=1e-5,
        affine=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        if num_groups <= 0:
            raise ValueError(f"num_groups must be positive, got {num_groups}")
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        _add_affine(self, num_channels, affine, affine and bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divide by a power of the mean square over neighbouring channels."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _window_sums(x, size, before):
    """Sums over `size` neighbouring channels, the first of them `before` channels back."""
    around = F.pad(x, (0, 0, 0, 0, before, size - 1 - before))
    return around.unfold(1, size, 1).sum(-1)


class _AcrossChannels(flambeau.autograd.Function):
    """x / (k + alpha / size * sum of squares nearby) ** beta, in torch's own reading of nearby."""

    @staticmethod
    def forward(ctx, x, size, alpha, beta, k):
        # In torch the first channel, once in the window, never leaves it.
        squares, reach = x * x, (size - 1) // 2
        first, others = squares[:, :1], F.pad(squares[:, 1:], (0, 0, 0, 0, 1, 0))
        scale = k + (first + _window_sums(others, 2 * reach + 1, reach)) * (alpha / size)
        out = x * scale**-beta
        ctx.save_for_backward(x, out, scale)
        ctx.numbers = size, alpha, beta
        return out

    @staticmethod
    def backward(ctx, g):
        x, out, scale = ctx.saved_tensors
        size, alpha, beta = ctx.numbers
        # Nor is the window of its gradient that of its result: it lies a channel lower.
        before = min(int(size - (size - 1) / 2), size - 1)
        nearby = _window_sums(g * out / scale, size, before)
        slope = 2 * alpha * beta / size
        return g * scale**-beta - slope * x * nearby, None, None, None, None


class CrossMapLRN2d(Module):
    """Local response normalisation of (N, C, H, W) over neighbouring channels."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input):
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        return _AcrossChannels.apply(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
