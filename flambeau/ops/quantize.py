"""Rounding to the few values that integers of a scale can stand for, in floating point.

Networks are trained with it for a device of short integers. Gradients pass where a value is within
what the integers reach, as if nothing had been rounded.
"""

from __future__ import annotations

from ..core import dtype as dt
from ..core import shape as sh
from ..core.dtype import spoken
from .declare import T, composite, engine
from .refusal import no_kernel
from .rounding import round as nearest

KERNEL = "fake_quantize_tensor_cachemask_kernel_type_handling"


def _levels(input, scale, zero_point):
    """The integer that stands for each element, before it is cut."""
    scaled = input * scale.reciprocal()
    if zero_point.dtype.kind == "f":  # it is no level itself
        return nearest(scaled + zero_point)
    return nearest(scaled) + zero_point


def _quantized(input, scale, zero_point, quant_min, quant_max):
    if input.dtype.kind != "f":
        raise no_kernel(KERNEL, input.dtype)
    levels = _levels(input, scale, zero_point).clamp(quant_min, quant_max)
    return engine.cast((levels - zero_point) * scale, input.dtype)


def _passed(g, input, scale, zero_point, quant_min, quant_max):
    levels = _levels(input, scale, zero_point)
    return g * engine.cast((levels >= quant_min) & (levels <= quant_max), g.dtype)


def _check_range(quant_min, quant_max) -> None:
    if quant_min > quant_max:
        raise RuntimeError("`quant_min` should be less than or equal to `quant_max`.")


# -- one scale for all ---------------------------------------------------------------------------


def _one(value, dtype):
    """A number or a tensor of one element as a tensor, which float32 rounds as torch's kernel."""
    return (engine.reshape(value, ()) if hasattr(value, "sig") else
            engine.tensor(value, dtype))


@composite(method=False, backward="FakeQuantizePerTensorAffineCachemaskBackward0")
def fake_quantize_per_tensor_affine(input: T, scale, zero_point, quant_min, quant_max):
    """(clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale"""
    _check_range(quant_min, quant_max)
    if not hasattr(zero_point, "sig") and not quant_min <= zero_point <= quant_max:
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    return _quantized(input, _one(scale, dt.float32), _one(zero_point, dt.int32), quant_min,
                      quant_max)


@fake_quantize_per_tensor_affine.gradient
def fake_quantize_per_tensor_affine(g, input, scale, zero_point, quant_min, quant_max):
    return _passed(g, input, _one(scale, dt.float32), _one(zero_point, dt.int32), quant_min,
                   quant_max)


# -- a scale for each channel --------------------------------------------------------------------

FOR_CHANNELS = "fake_quantize_per_channel_affine"


def _along(input, value, axis):
    """A vector as it is broadcast along one dimension."""
    shape = [1] * input.dim()
    shape[axis] = value.shape[0]
    return engine.reshape(value, tuple(shape))


def _check_channels(input, scale, zero_point, axis, quant_min, quant_max) -> None:
    if scale.dtype not in (dt.float32, dt.bfloat16):
        raise RuntimeError(f"Scale must be Float or BFloat16, found {spoken(scale.dtype)}")
    if zero_point.dtype not in (dt.int32, dt.float32, dt.float16):
        raise RuntimeError("Zero-point must be Int32, Float or Half, found "
                           f"{spoken(zero_point.dtype)}")
    if scale.dim() != 1 or zero_point.dim() != 1:
        raise RuntimeError("scale and zero point need to be 1-D tensors")
    if scale.shape != zero_point.shape:
        raise RuntimeError("scale and zero-point need to have the same dimensions")
    if scale.shape[0] != input.shape[sh.wrap_dim(axis, input.dim(), FOR_CHANNELS)]:
        raise RuntimeError("dimensions of scale and zero-point are not consistent with input "
                           "tensor")
    if axis < 0:
        raise RuntimeError("`axis` must be between 0 and number of dimensions of input")
    _check_range(quant_min, quant_max)
    if zero_point.dtype is dt.int32 and not bool(
            ((zero_point >= quant_min) & (zero_point <= quant_max)).all()):
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")


@composite(method=False, backward="FakeQuantizePerChannelAffineCachemaskBackward0")
def fake_quantize_per_channel_affine(input: T, scale, zero_point, axis, quant_min, quant_max):
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each place along axis."""
    _check_channels(input, scale, zero_point, axis, quant_min, quant_max)
    return _quantized(input, _along(input, scale, axis), _along(input, zero_point, axis), quant_min,
                      quant_max)


@fake_quantize_per_channel_affine.gradient
def fake_quantize_per_channel_affine(g, input, scale, zero_point, axis, quant_min, quant_max):
    return _passed(g, input, _along(input, scale, axis), _along(input, zero_point, axis), quant_min,
                   quant_max)
