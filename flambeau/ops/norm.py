"""Normalisation: rows less their mean, over their deviation; each way in a kernel or two."""

from __future__ import annotations

import functools
import math

from ..core import dtype as dt
from ..core import expr as e
from ..core.rows import each, once, row_program
from .declare import T, composite, engine, registry
from .refusal import spoken

# -- programs --------------------------------------------------------------------------------------


def _moments(rows, x):
    """The mean of a row, and the mean of squared distances from it."""
    mean = rows.sum(x) / rows.count
    apart = x - mean
    return mean, rows.sum(apart * apart) / rows.count


def _inverse_root(x):
    return 1 / e.call("sqrt", x)


def _scaled(value, weight, bias):
    value = value if weight is None else value * weight
    return value if bias is None else value + bias


@row_program
def normalised(rows, x: each, weight: each, bias: each, *, eps):
    """Rows less their mean over their deviation, scaled and shifted; the means; 1 / deviations."""
    mean, variance = _moments(rows, x)
    root = _inverse_root(variance + eps)
    return (rows.each(_scaled((x - mean) * root, weight, bias)), rows.kept(mean, x.dtype),
            rows.kept(root, x.dtype))


@row_program
def normalised_slopes(rows, x: each, g: each, weight: each, mean: each, root: each):
    """The gradient of what was normalised."""
    apart = (x - mean) * root
    g = g if weight is None else g * weight
    along_mean, along_root = rows.sums(g, g * apart)
    return rows.each(root * (g - along_mean / rows.count - apart * (along_root / rows.count)))


@row_program
def affine_slopes(rows, x: each, g: each, mean: each, root: each):
    """The gradients of weight and bias."""
    scale, shift = rows.sums(g * ((x - mean) * root), g)
    return rows.kept(scale, x.dtype), rows.kept(shift, x.dtype)


@row_program
def root_normalised(rows, x: each, weight: each, *, eps):
    """Rows over their root mean square, scaled; and one over that."""
    root = _inverse_root(rows.sum(x * x) / rows.count + eps)
    return rows.each(_scaled(x * root, weight, None)), rows.kept(root, x.dtype)


@row_program
def root_slopes(rows, x: each, g: each, weight: each, root: each):
    """The gradient of what was divided by its root mean square."""
    g = g if weight is None else g * weight
    return rows.each(root * (g - x * (root * root * (rows.sum(g * x) / rows.count))))


@row_program
def scale_slopes(rows, x: each, g: each, root: each):
    """The gradient of the weight of a root mean square norm."""
    return rows.kept(rows.sum(g * (x * root)), x.dtype)


@row_program
def batch_normalised(rows, x: each, weight: once, bias: once, running_mean: once,
                     running_var: once, *, eps, momentum):
    """Channels normalised by the batch; means, 1 / deviations, and new running statistics."""
    mean, variance = _moments(rows, x)
    root = _inverse_root(variance + eps)
    results = [rows.each(_scaled((x - mean) * root, weight, bias)), rows.once(mean, x.dtype),
               rows.once(root, x.dtype)]
    if running_mean is not None:
        results.append(rows.once((1 - momentum) * running_mean + momentum * mean, x.dtype))
    if running_var is not None:
        unbiased = variance * (rows.count / (rows.count - 1))
        results.append(rows.once((1 - momentum) * running_var + momentum * unbiased, x.dtype))
    return results


@row_program
def batch_slopes(rows, x: each, g: each, weight: once, mean: once, root: once):
    """The gradients of channels normalised by the batch, of weight, and of bias."""
    apart = (x - mean) * root
    shift, scale = rows.sums(g, g * apart)
    slope = root * (g - shift / rows.count - apart * (scale / rows.count))
    return (rows.each(slope if weight is None else weight * slope), rows.once(scale, x.dtype),
            rows.once(shift, x.dtype))


@row_program
def fixed_normalised(rows, x: each, weight: once, bias: once, mean: once, variance: once, *, eps):
    """Channels normalised by given statistics."""
    return rows.each(_scaled((x - mean) * _inverse_root(variance + eps), weight, bias))


@row_program
def fixed_slopes(rows, x: each, g: each, weight: once, mean: once, variance: once, *, eps):
    """The gradients of channels normalised by given statistics, of weight, and of bias."""
    root = _inverse_root(variance + eps)
    scale, shift = rows.sums(g * ((x - mean) * root), g)
    return (rows.each(g * (root if weight is None else root * weight)), rows.once(scale, x.dtype),
            rows.once(shift, x.dtype))


# -- the same by ops, for derivatives of derivatives -----------------------------------------------


def _mean(x, dims):
    return registry["mean"](x, dims, True)


def _slopes_by_ops(g, x, weight, dims, eps):
    """Gradients of x, of the weight and of the bias, the latter two not yet summed."""
    apart = x - _mean(x, dims)
    root = registry["rsqrt"](_mean(apart * apart, dims) + eps)
    apart = apart * root
    own = g if weight is None else g * weight
    return root * (own - _mean(own, dims) - apart * _mean(own * apart, dims)), g * apart, g


def _like(part, tensor):
    """A gradient in the shape and dtype of the tensor it belongs to."""
    if tensor is None or part is None:
        return None
    if part.sig is tensor.sig:
        return part
    if part.sig.numel == tensor.sig.numel and part.sig.dtype is tensor.sig.dtype:
        return registry["view"](part, tensor.sig.shape)
    return engine.cast(engine.sum_to(part, tensor.sig.shape), tensor.sig.dtype)


# -- layer norm ------------------------------------------------------------------------------------


def _row_dims(name: str, input, normalized_shape, weight, bias) -> tuple[int, ...]:
    single = isinstance(normalized_shape, int)
    shape = (normalized_shape,) if single else tuple(normalized_shape)
    if not shape:
        raise RuntimeError(f"{name}: Expected normalized_shape to be at least 1-dimensional, i.e., "
                           "containing at least one element, but got normalized_shape = "
                           f"{list(shape)}")
    for what, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise RuntimeError(f"{name}: Expected {what} to be of same shape as normalized_shape, "
                               f"but got {what} of shape {list(tensor.shape)} and normalized_shape "
                               f"= {list(shape)}")
    if tuple(input.shape[-len(shape):]) != shape:
        raise RuntimeError(f"{name}: Given normalized_shape={list(shape)}, expected input with "
                           f"shape [*, {', '.join(map(str, shape))}], but got input of size"
                           f"{list(input.shape)}")
    return tuple(range(input.dim() - len(shape), input.dim()))


def _require_floats(name: str, input, kinds: str = "f") -> None:
    if input.dtype.kind not in kinds:
        raise NotImplementedError(f"\"{name}\" not implemented for '{spoken(input.dtype)}'")


@composite(method=False, function_form=False, backward="NativeLayerNormBackward0", keeps=True)
def layer_normalised(input: T, weight: T, bias: T, dims, eps):
    """layer_norm over the given dimensions."""
    out, mean, root = normalised(input, weight, bias, dims=dims, eps=eps)
    return out, (input, weight, bias, dims, eps, mean, root)


@layer_normalised.gradient
def layer_normalised(g, input, weight, bias, dims, eps, mean, root):
    if engine.recording():
        slope, scale, shift = _slopes_by_ops(g, input, weight, dims, eps)
        return slope, _like(scale, weight), _like(shift, bias)
    slope = normalised_slopes(input, g, weight, mean, root, dims=dims)
    if weight is None and bias is None:
        return slope, None, None
    scale, shift = affine_slopes(input, g, mean, root, dims=tuple(range(dims[0])))
    return slope, _like(scale, weight), _like(shift, bias)


@functools.lru_cache(maxsize=4096)
def _layer_dims(input, normalized_shape, weight, bias) -> tuple[int, ...]:
    """The dimensions of a layer, of signatures that fit together."""
    dims = _row_dims("layer_norm", input, normalized_shape, weight, bias)
    _require_floats("LayerNormKernelImpl", input)
    for tensor in (weight, bias):
        if tensor is not None and tensor.dtype is not input.dtype and not (
                input.dtype.itemsize == 2 and tensor.dtype is dt.float32):
            raise RuntimeError("layer_norm: mixed dtype (CPU): all inputs must share same "
                               f"datatype, got {input.dtype} and {tensor.dtype}.")
    return dims


def _sig(tensor):
    return None if tensor is None else tensor.sig


@composite(where="nn.functional")
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    """Subtract the mean over the last dimensions, divide by the deviation, scale and shift."""
    shape = normalized_shape if isinstance(normalized_shape, int) else tuple(normalized_shape)
    dims = _layer_dims(input.sig, shape, _sig(weight), _sig(bias))
    return layer_normalised.run(input, weight, bias, dims, float(eps))


def as_parameters(input, weight, bias, *statistics):
    """Statistics of the dtype torch returns: the input's, or float32 beside wide parameters."""
    wide = any(t is not None and t.dtype is dt.float32 for t in (weight, bias))
    kind = dt.float32 if wide and input.dtype.itemsize == 2 else input.dtype
    return [engine.cast(s, kind) for s in statistics]


@composite(method=False)
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """layer_norm, with the means and the inverses of the deviations."""
    out = layer_norm(input, normalized_shape, weight, bias, eps)
    dims = _row_dims("layer_norm", input, normalized_shape, weight, bias)
    _, mean, root = normalised(input.detach(), None, None, dims=dims, eps=float(eps))
    return out, *as_parameters(input, weight, bias, mean, root)


# -- rms norm --------------------------------------------------------------------------------------


@composite(method=False, function_form=False, backward="MulBackward0", keeps=True)
def rms_normalised(input: T, weight: T, dims, eps):
    """Rows over their root mean square."""
    out, root = root_normalised(input, weight, dims=dims, eps=eps)
    return out, (input, weight, dims, eps, root)


@rms_normalised.gradient
def rms_normalised(g, input, weight, dims, eps, root):
    if engine.recording():
        root = registry["rsqrt"](_mean(input * input, dims) + eps)
        own = g if weight is None else g * weight
        slope = root * (own - input * (root * root * _mean(own * input, dims)))
        return slope, None if weight is None else _like(g * input * root, weight)
    slope = root_slopes(input, g, weight, root, dims=dims)
    if weight is None:
        return slope, None
    return slope, _like(scale_slopes(input, g, root, dims=tuple(range(dims[0]))), weight)


@composite(where="nn.functional")
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divide by the root mean square over the last dimensions, and scale."""
    dims = _row_dims("rms_norm", input, normalized_shape, weight, None)
    if eps is None:
        eps = dt.finfo(input.dtype).eps
    if input.dtype.kind == "c":
        root = registry["rsqrt"](_mean(input * input, dims) + eps)
        return input * root if weight is None else input * root * weight
    _require_floats("rms_norm", input)
    return rms_normalised(input, weight, dims, float(eps))


# -- group norm ------------------------------------------------------------------------------------


def _grouped(x, groups: int):
    n, channels = x.shape[:2]
    return engine.reshape(x, (n, groups, channels // groups, math.prod(x.shape[2:])))


def _by_channel(tensor, groups: int):
    return None if tensor is None else engine.reshape(tensor, (1, groups, -1, 1))


@composite(method=False, function_form=False, backward="NativeGroupNormBackward0", keeps=True)
def group_normalised(input: T, weight: T, bias: T, groups, eps):
    """group_norm of tensors that fit together."""
    x, scale, shift = (None if t is None else t.detach() for t in (input, weight, bias))
    out, mean, root = normalised(_grouped(x, groups), _by_channel(scale, groups),
                                 _by_channel(shift, groups), dims=(2, 3), eps=eps)
    return engine.reshape(out, input.shape), (input, weight, bias, groups, eps, mean, root)


@group_normalised.gradient
def group_normalised(g, input, weight, bias, groups, eps, mean, root):
    g, x, scale = _grouped(g, groups), _grouped(input, groups), _by_channel(weight, groups)
    if engine.recording():
        slope, steep, shift = _slopes_by_ops(g, x, scale, (2, 3), eps)
    else:
        slope = normalised_slopes(x, g, scale, mean, root, dims=(2, 3))
        steep = shift = None
        if weight is not None or bias is not None:
            steep, shift = affine_slopes(x, g, mean, root, dims=(0, 3))
    return (engine.reshape(slope, input.shape),
            _of_channels(steep, weight, x), _of_channels(shift, bias, x))


def _of_channels(part, tensor, x):
    if tensor is None:
        return None
    summed = engine.sum_to(part, (1, *x.shape[1:3], 1))
    return engine.cast(engine.reshape(summed, tensor.shape), tensor.dtype)


def _check_groups(input, num_groups: int, weight, bias) -> None:
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received "
                           f"{input.dim()}")
    channels = input.shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, "
                           f"but got input of shape {list(input.shape)} and "
                           f"num_groups={num_groups}")
    for what, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and (tensor.dim() != 1 or tensor.numel() != channels):
            raise RuntimeError(f"Expected {what} to be a vector of size equal to the number of "
                               f"channels in input, but got {what} of shape {list(tensor.shape)} "
                               f"and input of shape {list(input.shape)}")


@composite(where="nn.functional")
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """Normalise each group of channels of each sample by its mean and deviation."""
    _check_groups(input, num_groups, weight, bias)
    _require_floats("GroupNormKernelImpl", input)
    if math.prod(input.shape[2:]) * input.shape[0] == 1 and input.shape[1] == num_groups:
        raise ValueError("Expected more than 1 value per channel when training, got input size "
                         f"{list(input.shape)}")
    return group_normalised(input, weight, bias, num_groups, float(eps))


@composite(method=False)
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """group_norm, with the means and the inverses of the deviations."""
    _check_groups(input, group, weight, bias)
    out = group_normalised(input, weight, bias, group, float(eps))
    x = engine.reshape(input, (N, group, C // group * HxW))
    mean = _mean(x, (2,))
    root = registry["rsqrt"](_mean((x - mean) * (x - mean), (2,)) + eps)
    return out, engine.reshape(mean, (N, group)), engine.reshape(root, (N, group))


# -- local response norm ---------------------------------------------------------------------------


@composite(where="nn.functional")
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divide by a power of the mean square over neighbouring channels."""
    if input.dim() < 3:
        raise ValueError("Expected 3D or higher dimensionality input "
                         f"(got {input.dim()} dimensions)")
    if not input.numel():
        return input
    squares = input * input
    edges = [engine.full((input.shape[0], n, *input.shape[2:]), 0, squares.dtype)
             for n in (size // 2, (size - 1) // 2)]
    near = engine.cat([edges[0], squares, edges[1]], 1)
    total = registry["sum"](registry["unfold"](near, 1, size, 1), (-1,))
    near = total / size if total.dtype.kind == "f" else registry["floor_divide"](total, size)
    return input / (near * alpha + k) ** beta
