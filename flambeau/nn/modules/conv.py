"""Convolutions and transposed convolutions in one, two and three dimensions."""

import math

import flambeau
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from flambeau.nn.parameter import Parameter, UninitializedParameter

__all__ = [
    "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: checks, parameters, initial values, printing.

    A subclass says how many dimensions it has, whether it is transposed, and its function.
    """

    _ndim = 0
    transposed = False

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        bias,
        padding_mode,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self._check(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._padding_for_pad()
        options = {"device": device, "dtype": dtype}
        self.weight = Parameter(flambeau.empty(self._weight_shape(), **options))
        if bias:
            self.bias = Parameter(flambeau.empty(out_channels, **options))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    @staticmethod
    def _check(in_channels, out_channels, stride, padding, groups, padding_mode):
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of 'same', 'valid'"
                )
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {set(PADDING_MODES)}, "
                f"but got padding_mode='{padding_mode}'"
            )

    def _padding_for_pad(self):
        """The padding in the form `F.pad` takes, for modes other than zeros."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        sizes = [0, 0] * len(self.kernel_size)
        if self.padding == "same":
            for i, (d, k) in enumerate(zip(self.dilation, self.kernel_size, strict=True)):
                total = d * (k - 1)
                at = 2 * (len(self.kernel_size) - 1 - i)
                sizes[at], sizes[at + 1] = total // 2, total - total // 2
        return sizes

    def _weight_shape(self):
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def reset_parameters(self):
        """Uniform, up to one over the root of how many inputs an output sees."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))  # this slope gives just that bound
        inputs = math.prod(self.weight.shape[1:])
        if self.bias is not None and inputs:
            init.uniform_(self.bias, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))

    def extra_repr(self):
        n = len(self.stride)
        parts = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}, stride={self.stride}",
        ]
        optional = (
            (self.padding, (0,) * n, f"padding={self.padding}"),
            (self.dilation, (1,) * n, f"dilation={self.dilation}"),
            (self.output_padding, (0,) * n, f"output_padding={self.output_padding}"),
            (self.groups, 1, f"groups={self.groups}"),
            (self.bias is None, False, "bias=False"),
            (self.padding_mode, "zeros", f"padding_mode={self.padding_mode}"),
        )
        return ", ".join(parts + [text for value, usual, text in optional if value != usual])


class _Conv(_ConvNd):
    """Convolution in `_ndim` dimensions."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        each = _ntuple(self._ndim)
        super().__init__(
            in_channels,
            out_channels,
            each(kernel_size),
            each(stride),
            padding if isinstance(padding, str) else each(padding),
            each(dilation),
            False,
            each(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """Convolution over the last dimension of (N, C, L) or (C, L)."""

    _ndim = 1
    _function = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """Convolution over the last two dimensions of (N, C, H, W) or (C, H, W)."""

    _ndim = 2
    _function = staticmethod(F.conv2d)


class Conv3d(_Conv):
    """Convolution over the last three dimensions of (N, C, D, H, W) or (C, D, H, W)."""

    _ndim = 3
    _function = staticmethod(F.conv3d)


class _ConvTransposeNd(_ConvNd):
    """Transposed convolution in `_ndim` dimensions."""

    transposed = True

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}, '
                f"not {padding_mode!r}"
            )
        each = _ntuple(self._ndim)
        super().__init__(
            in_channels,
            out_channels,
            each(kernel_size),
            each(stride),
            each(padding),
            each(dilation),
            True,
            each(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input, output_size=None):
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = self._output_padding(input, output_size)
        return self._function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
        )

    def _output_padding(self, input, output_size):
        """The output padding that makes the output this large."""
        n = self._ndim
        output_size = tuple(output_size)
        if len(output_size) == input.dim():
            output_size = output_size[input.dim() - n :]
        if len(output_size) != n:
            raise ValueError(
                f"{type(self).__name__}: for {input.dim()}D input, output_size must have {n} or "
                f"{n + 2} elements (got {len(output_size)})"
            )
        smallest = [
            (size - 1) * s - 2 * p + d * (k - 1) + 1
            for size, s, p, d, k in zip(
                input.shape[-n:],
                self.stride,
                self.padding,
                self.dilation,
                self.kernel_size,
                strict=True,
            )
        ]
        largest = [low + s - 1 for low, s in zip(smallest, self.stride, strict=True)]
        if any(not a <= b <= c for a, b, c in zip(smallest, output_size, largest, strict=True)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from "
                f"{smallest} to {largest} (for an input of {tuple(input.shape[-n:])})"
            )
        return tuple(b - a for a, b in zip(smallest, output_size, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution over the last dimension."""

    _ndim = 1
    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution over the last two dimensions."""

    _ndim = 2
    _function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution over the last three dimensions."""

    _ndim = 3
    _function = staticmethod(F.conv_transpose3d)


# -- lazy ---------------------------------------------------------------------------------------


class _LazyConvXdMixin(LazyModuleMixin):
    """A convolution whose `in_channels` is that of the first input."""

    def _make_lazy(self, out_channels, groups, bias, device, dtype):
        """Put parameters without a shape in place of those made for no channels."""
        self.out_channels, self.groups = out_channels, groups
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input, *args, **kwargs):
        if self.has_uninitialized_params():
            self.in_channels = self._get_in_channels(input)
            if self.in_channels % self.groups:
                raise ValueError("in_channels must be divisible by groups")
            self.weight.materialize(self._weight_shape())
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()
        elif self.in_channels == 0:  # the shape came from a saved state
            self.in_channels = self.weight.shape[0 if self.transposed else 1] * (
                1 if self.transposed else self.groups
            )

    def _get_in_channels(self, input):
        if input.dim() not in (self._ndim + 1, self._ndim + 2):
            raise RuntimeError(
                f"Expected {self._ndim + 1}D (unbatched) or {self._ndim + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {tuple(input.shape)}"
            )
        return input.shape[-self._ndim - 1]


class _LazyConv(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__(
            0, 0, kernel_size, stride, padding, dilation, bias=False, padding_mode=padding_mode
        )
        self._make_lazy(out_channels, groups, bias, device, dtype)


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__(
            0,
            0,
            kernel_size,
            stride,
            padding,
            output_padding,
            bias=False,
            dilation=dilation,
            padding_mode=padding_mode,
        )
        self._make_lazy(out_channels, groups, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """Conv1d that learns its input channels from the first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """Conv2d that learns its input channels from the first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """Conv3d that learns its input channels from the first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """ConvTranspose1d that learns its input channels from the first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """ConvTranspose2d that learns its input channels from the first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """ConvTranspose3d that learns its input channels from the first input."""

    cls_to_become = ConvTranspose3d
