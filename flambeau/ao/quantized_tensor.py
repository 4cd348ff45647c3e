"""Tensors of whole numbers that stand for real ones: (number - zero point) * scale.

The scale and the zero point are those of the whole tensor, or of each place along one axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau

from ..assemble import convert, engine
from ..core import dtype as dt
from ..core.device import CPU
from ..core.printing import format_values, with_suffixes
from ..engine import protocol
from ..engine.tensor import Tensor, signature
from ..engine.unstrided import SparseTensor, unstrided

#: quantized dtype -> dtype of the numbers, the least and the largest
NUMBERS = {
    dt.qint8:  (dt.int8, -128, 127),
    dt.quint8: (dt.uint8, 0, 255),
    dt.qint32: (dt.int32, -(2**31), 2**31 - 1),
}
#: a smaller scale loses its digits; zero points would not fit
SMALLEST_SCALE = float(np.float32(6.1e-5))
NO_SCALE = 2.0**-128   # the inverse of a smaller one is no float32
_AFFINE, _BY_CHANNEL = dt.per_tensor_affine, dt.per_channel_affine


class QuantizedTensor(SparseTensor):
    """A tensor of dtype qint8, quint8 or qint32."""

    __slots__ = ("axis", "scale", "zero")

    scale: Any           # a float, or an array of one for each place along the axis
    zero: Any
    axis: int | None
    SPOKEN = "Quantized"
    is_quantized: Any = property(lambda x: True)

    __module__ = "torch"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", str(func))
        found = TABLE.get(name)
        if found is None:
            raise NotImplementedError(
                f"Could not run 'aten::{name}' with arguments from the 'QuantizedCPU' backend: "
                f"{name} is not defined for quantized tensors. Call dequantize() first, or work on "
                "int_repr().")
        return found(*args, **(kwargs or {}))

    @staticmethod
    def made(held, scale, zero, axis, kind) -> QuantizedTensor:
        x = unstrided(QuantizedTensor, held, tuple(held.shape))
        rank = len(held.shape)
        x.sig = signature(kind, tuple(held.shape), (0,) * rank, CPU, QuantizedTensor)
        x.scale, x.zero, x.axis = scale, zero, axis
        return x

    def _parts(self) -> tuple:
        return self.held, self.scale, self.zero, self.axis, self.sig.dtype

    def _with(self, values: Tensor) -> QuantizedTensor:
        return self.made(values, *self._parts()[1:])

    def _become(self, other) -> QuantizedTensor:
        self.sig, self.held = other.sig, other.held
        self.scale, self.zero, self.axis = other.scale, other.zero, other.axis
        return self

    # -- what it is -------------------------------------------------------------------------------

    def int_repr(self) -> Tensor:
        """The whole numbers."""
        return self.held.clone()

    def dequantize(self) -> Tensor:
        """The real numbers."""
        scale, zero = self.scale, self.zero
        if self.axis is not None:
            shape = [1] * self.sig.rank
            shape[self.axis] = -1
            scale = convert.copied(scale.astype(np.float32)).reshape(shape)
            zero = convert.copied(zero.astype(np.float32)).reshape(shape)
        return (self.held.to(dt.float32) - zero) * scale

    to_dense = dequantize

    def qscheme(self):
        """Whether there is one scale, or one for each channel."""
        return _AFFINE if self.axis is None else _BY_CHANNEL

    def _one(self, name: str) -> None:
        if self.axis is not None:
            raise RuntimeError(f"{name}: Expected quantizer->qscheme() == kPerTensorAffine to be "
                               "true, but got false. q_per_channel_scales() and its kin are for "
                               "tensors with a scale per channel")

    def _several(self, name: str) -> None:
        if self.axis is None:
            raise RuntimeError(f"{name}: Expected quantizer->qscheme() == kPerChannelAffine to be "
                               "true, but got false. q_scale() and q_zero_point() are for tensors "
                               "with one scale")

    def q_scale(self) -> float:
        self._one("q_scale")
        return self.scale

    def q_zero_point(self) -> int:
        self._one("q_zero_point")
        return self.zero

    def q_per_channel_scales(self) -> Tensor:
        self._several("q_per_channel_scales")
        return convert.copied(self.scale)

    def q_per_channel_zero_points(self) -> Tensor:
        self._several("q_per_channel_zero_points")
        return convert.copied(self.zero)

    def q_per_channel_axis(self) -> int:
        self._several("q_per_channel_axis")
        assert self.axis is not None
        return self.axis

    def stride(self, dim=None):
        return self.held.stride() if dim is None else self.held.stride(dim)

    def is_contiguous(self, memory_format=None) -> bool:
        return self.held.is_contiguous()

    def type(self, dtype=None, non_blocking=False):
        if dtype is None:
            return f"torch.quantized.{dt.spoken(self.sig.dtype)}Tensor"
        return self.to(dtype)

    def to(self, *args, **kwargs):
        wanted = [a for a in (*args, *kwargs.values()) if isinstance(a, dt.dtype)]
        if wanted and wanted[0] is not self.sig.dtype:
            raise RuntimeError("Creation of quantized tensor requires quantized dtype like "
                               "torch.quint8; dequantize() gives floats")
        return self

    def numpy(self, *, force=False):
        raise TypeError(f"Got unsupported ScalarType {dt.spoken(self.sig.dtype)}")

    def clone(self, *, memory_format=None) -> QuantizedTensor:
        return self._with(self.held.clone())

    def copy_(self, source, non_blocking=False) -> QuantizedTensor:
        if isinstance(source, QuantizedTensor):
            return self._become(source.clone())
        self._one("copy_")
        return self._become(quantize_per_tensor(source.expand(self.sig.shape), self.scale,
                                                self.zero, self.sig.dtype))

    def __repr__(self, *, tensor_contents=None) -> str:
        options = protocol.Printing.options
        prefix = "tensor("
        said = [f"size={tuple(self.sig.shape)}", f"dtype={self.sig.dtype}",
                f"quantization_scheme={self.qscheme()}"]
        if self.axis is None:
            said += [f"scale={self.scale}", f"zero_point={self.zero}"]
        else:
            said += [f"scale={convert.copied(self.scale)!r}",
                     f"zero_point={convert.copied(self.zero)!r}", f"axis={self.axis}"]
        text = format_values(convert.to_array(self.dequantize()), options, len(prefix))
        return with_suffixes(prefix + text, said, len(prefix), options)

    __str__ = __repr__


# -- making one ------------------------------------------------------------------------------------


def _numbers(kind) -> tuple:
    found = NUMBERS.get(kind)
    if found is None:
        raise RuntimeError(f"ScalarType {dt.spoken(kind)} is not supported in new_qtensor: a "
                           "quantized dtype is torch.qint8, torch.quint8 or torch.qint32")
    return found


def _rounded(x: Tensor, scale, zero, kind) -> Tensor:
    """The numbers next to x / scale + zero, ties to even."""
    carrier, low, high = _numbers(kind)
    if x.sig.dtype is not dt.float32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {dt.spoken(x.sig.dtype)}")
    wide = x.detach().to(dt.float64) if kind is dt.qint32 else x.detach()
    return ((wide * (1.0 / scale)).round() + zero).clamp(low, high).to(carrier)


def quantize_per_tensor(input, scale, zero_point, dtype):
    """A tensor as whole numbers with one scale."""
    if isinstance(input, (list, tuple)):
        return tuple(quantize_per_tensor(x, float(s), int(z), dtype) for x, s, z in zip(
            input, scale, zero_point, strict=True))
    scale, zero = float(scale), int(zero_point)
    _, low, high = _numbers(dtype)
    if not low <= zero <= high:
        raise RuntimeError(f"quantize_per_tensor: zero_point {zero} is not between {low} and {high}"
                           f", as {dtype} needs it")
    return QuantizedTensor.made(_rounded(input, scale, zero, dtype), scale, zero, None, dtype)


def quantize_per_channel(input, scales, zero_points, axis: int, dtype):
    """A tensor as whole numbers, with a scale for each place along an axis."""
    axis = axis % input.dim()
    scale = convert.to_array(scales.to(dt.float64)).copy()
    zero = convert.to_array(zero_points.to(dt.int64)).copy()
    if scale.size != input.shape[axis] or zero.size != scale.size:
        raise RuntimeError(f"quantize_per_channel: dimension {axis} of size {input.shape[axis]} "
                           f"wants as many scales and zero points, got {scale.size} and "
                           f"{zero.size}")
    shape = [1] * input.dim()
    shape[axis] = -1
    by = convert.copied(scale.astype(np.float32)).reshape(shape)
    held = _rounded(input, by, convert.copied(zero.astype(np.float32)).reshape(shape), dtype)
    return QuantizedTensor.made(held, scale, zero, axis, dtype)


def chosen(low: float, high: float, least: int, most: int) -> tuple[float, int]:
    """The scale and the zero point by which numbers from low to high use all of least to most."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (most - least)
    if scale < NO_SCALE:
        scale = 0.1
    if scale < SMALLEST_SCALE:
        grown, scale = SMALLEST_SCALE / scale, SMALLEST_SCALE
        if low == 0:
            high = SMALLEST_SCALE * (most - least)
        elif high == 0:
            low = -SMALLEST_SCALE * (most - least)
        else:
            low, high = low * grown, high * grown
    # Of the two ends the one is met that rounds less.
    below, above = abs(least) + abs(low / scale), abs(most) + abs(high / scale)
    start = least - low / scale if below < above else most - high / scale
    return scale, least if start < least else most if start > most else round(start)


def quantize_per_tensor_dynamic(input, dtype, reduce_range: bool):
    """A tensor as whole numbers with the scale that its elements ask for."""
    _, low, high = _numbers(dtype)
    if dtype is dt.qint32:
        raise RuntimeError("dtype QInt32 not supported in quantize_per_tensor_dynamic")
    if reduce_range:
        low, high = low // 2, high // 2
    least, most = (float(v) for v in input.aminmax()) if input.numel() else (0.0, 0.0)
    scale, zero = chosen(least, most, low, high)
    return quantize_per_tensor(input, scale, zero, dtype)


def dequantize(tensor):
    """The real numbers of a quantized tensor, or of each of several."""
    if isinstance(tensor, (list, tuple)):
        return tuple(dequantize(x) for x in tensor)
    return tensor.dequantize()


# -- ops -------------------------------------------------------------------------------------------


def _on_numbers(name: str):
    def moved(x, *args, **kwargs):
        if x.axis is not None and name not in ("detach", "clone", "contiguous"):
            x._one(name)
        return x._with(getattr(x.held, name)(*args, **kwargs))

    return moved


def _through_floats(name: str):
    def through(x, *args, **kwargs):
        x._one(name)
        found = getattr(x.dequantize(), name)(*args, **kwargs)
        return quantize_per_tensor(found, x.scale, x.zero, x.sig.dtype)

    return through


def _cat(tensors, dim=0):
    first = tensors[0]
    parts = [x if (x.scale, x.zero) == (first.scale, first.zero) else quantize_per_tensor(
        x.dequantize(), first.scale, first.zero, first.sig.dtype) for x in tensors]
    return first._with(engine.cat([x.held for x in parts], dim))


def _equal(x, y) -> bool:
    return all(isinstance(t, QuantizedTensor) for t in (x, y)) and (
        x.sig.dtype is y.sig.dtype and x.axis == y.axis and np.array_equal(x.scale, y.scale)
        and np.array_equal(x.zero, y.zero) and x.sig.shape == y.sig.shape
        and bool((x.held == y.held).all()))


def _compared(name: str):
    def compare(x, y):
        x, y = (t.dequantize() if isinstance(t, QuantizedTensor) else t for t in (x, y))
        return getattr(flambeau, name)(x, y)

    return compare


TABLE = {
    **{name: _on_numbers(name) for name in (
        "view", "reshape", "t", "transpose", "permute", "__getitem__", "select", "contiguous",
        "flatten", "unsqueeze", "squeeze", "expand", "detach", "clone", "narrow", "flip")},
    **{name: _through_floats(name) for name in ("relu", "clamp", "max", "min", "mean")},
    **{name: _compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"to_{kind.name}": lambda x: x.to(dt.float32) for kind in dt.ALL},
    "__eq__": _compared("eq"), "cat": _cat, "equal": _equal, "dequantize": dequantize,
}
