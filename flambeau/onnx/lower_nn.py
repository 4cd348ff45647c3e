"""Convolution, normalisation, resampling and attention in ONNX."""

from __future__ import annotations

import math

import numpy as np

import flambeau
from flambeau.export.graph import Value, example

from .build import Builder, UnsupportedOperatorError
from .lower_pool import adaptive, batched
from .registry import Call, axis_of, lowers, several

# -- convolution ---------------------------------------------------------------------------------


@lowers("conv1d", "conv2d", "conv3d")
def conv(b: Builder, call: Call, x, weight, bias, stride, padding, dilation, groups):
    n = int(call.key[4])
    kernel = list(weight.sizes[2:])
    dilation = several(dilation, n)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    else:
        pads = several(0 if padding == "valid" else padding, n) * 2
    return batched(b, x, n + 2, lambda name, shape: b.op(
        "Conv", name, weight, bias, kernel_shape=kernel, strides=several(stride, n), pads=pads,
        dilations=dilation, group=groups))


@lowers("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(b: Builder, call: Call, x, weight, bias, stride, padding, output_padding, groups,
                   dilation):
    n = int(call.key[14])
    return batched(b, x, n + 2, lambda name, shape: b.op(
        "ConvTranspose", name, weight, bias, kernel_shape=list(weight.sizes[2:]),
        strides=several(stride, n), pads=several(padding, n) * 2, dilations=several(dilation, n),
        output_padding=several(output_padding, n), group=groups))


@lowers("nn.functional.fold")
def fold(b: Builder, call: Call, x, output_size, kernel_size, dilation, padding, stride):
    b.require(18, "fold")
    return batched(b, x, 3, lambda name, shape: b.op(
        "Col2Im", name, b.ints(several(output_size, 2)), b.ints(several(kernel_size, 2)),
        dilations=several(dilation, 2), pads=several(padding, 2) * 2, strides=several(stride, 2)))


@lowers("nn.functional.unfold")
def unfold(b: Builder, call: Call, x, kernel_size, dilation, padding, stride):
    """Patches are what a convolution with one weight per place of the kernel gives."""
    (kh, kw), channels = several(kernel_size, 2), example(x.shape[-3])
    picks = np.eye(kh * kw, dtype=np.float64).reshape(kh * kw, 1, kh, kw)
    weight = b.const(np.tile(picks, (channels, 1, 1, 1)), x.dtype)

    def work(name, shape):
        found = b.op("Conv", name, weight, kernel_shape=[kh, kw], strides=several(stride, 2),
                     pads=several(padding, 2) * 2, dilations=several(dilation, 2), group=channels)
        return b.op("Reshape", found, b.ints([0, channels * kh * kw, -1]))

    return batched(b, x, 4, work)


# -- normalisation -------------------------------------------------------------------------------


def _ones(b: Builder, weight, bias, count: int, kind):
    """Weights and biases, or what stands for none."""
    return (b.const(np.ones(count), kind) if weight is None else weight,
            b.const(np.zeros(count), kind) if bias is None else bias)


@lowers("nn.functional.batch_norm")
def batch_norm(b: Builder, call: Call, x, mean, var, weight, bias, training, momentum, eps):
    if training:
        axes = [d for d in range(x.rank) if d != 1]
        return _affine(b, x, _standard(b, x, axes, eps), weight, bias, 1)
    weight, bias = _ones(b, weight, bias, example(x.shape[1]), x.dtype)
    return b.op("BatchNormalization", x, weight, bias, mean, var, epsilon=float(eps))


def _standard(b: Builder, x, axes, eps) -> str:
    """x less its mean, over its deviation."""
    apart = b.op("Sub", x, b.reduce("ReduceMean", x, axes, True))
    spread = b.reduce("ReduceMean", b.op("Mul", apart, apart), axes, True)
    kind = x.dtype if isinstance(x, Value) else flambeau.float32
    return b.op("Div", apart, b.op("Sqrt", b.op("Add", spread, b.const(eps, kind))))


def _affine(b: Builder, x: Value, name: str, weight, bias, axis: int) -> str:
    """Times a weight and plus a bias for each channel."""
    lengthened = list(range(1, x.rank - axis))
    for kind, part in (("Mul", weight), ("Add", bias)):
        if part is not None:
            name = b.op(kind, name, b.unsqueeze(part, lengthened) if lengthened else part)
    return name


@lowers("nn.functional.instance_norm")
def instance_norm(b: Builder, call: Call, x, mean, var, weight, bias, use_input, momentum, eps):
    weight, bias = _ones(b, weight, bias, example(x.shape[1]), x.dtype)
    if not use_input:
        return b.op("BatchNormalization", x, weight, bias, mean, var, epsilon=float(eps))
    return b.op("InstanceNormalization", x, weight, bias, epsilon=float(eps))


@lowers("nn.functional.group_norm")
def group_norm(b: Builder, call: Call, x, groups, weight, bias, eps, *rest):
    grouped = b.op("Reshape", x, b.ints([0, groups, -1]))
    ones, zeros = _ones(b, None, None, groups, x.dtype)
    name = b.op("InstanceNormalization", grouped, ones, zeros, epsilon=float(eps))
    name = b.op("Reshape", name, b.op("Shape", x))
    return _affine(b, x, name, weight, bias, 1)


@lowers("nn.functional.layer_norm")
def layer_norm(b: Builder, call: Call, x, shape, weight, bias, eps, *rest):
    count = len(shape)
    if weight is None:
        weight = b.const(np.ones([example(n) for n in shape]), x.dtype)
    return b.op("LayerNormalization", x, weight, bias, axis=-count, epsilon=float(eps))


@lowers("nn.functional.rms_norm")
def rms_norm(b: Builder, call: Call, x, shape, weight, eps):
    eps = flambeau.finfo(x.dtype).eps if eps is None else eps
    axes = list(range(x.rank - len(shape), x.rank))
    mean = b.reduce("ReduceMean", b.op("Mul", x, x), axes, True)
    name = b.op("Div", x, b.op("Sqrt", b.op("Add", mean, b.const(eps, x.dtype))))
    return name if weight is None else b.op("Mul", name, weight)


@lowers("nn.functional.local_response_norm")
def local_response_norm(b: Builder, call: Call, x, size, alpha, beta, k):
    """The mean of squares of neighbouring channels: size // 2 before, (size - 1) // 2 after."""
    begins, ends = [0] * x.rank, [0] * x.rank
    begins[1], ends[1] = size // 2, (size - 1) // 2
    squares = b.op("Pad", b.op("Mul", x, x), b.ints([*begins, *ends]))
    channels = x.shape[1]
    total = None
    for shift in range(size):
        part = b.slice(squares, 1, shift, shift + example(channels))
        total = part if total is None else b.op("Add", total, part)
    scaled = b.op("Add", b.op("Mul", total, b.const(alpha / size, x.dtype)), b.const(k, x.dtype))
    return b.op("Div", x, b.op("Pow", scaled, b.const(beta, x.dtype)))


# -- softmax and attention -----------------------------------------------------------------------


def _softmax(kind: str):
    def lower(b: Builder, call: Call, x, dim, *rest):
        if not x.rank:
            return b.const(1.0 if kind == "Softmax" else 0.0, call.out.dtype)
        return b.op(kind, b.cast(x, call.out.dtype), axis=axis_of(dim, x.rank))
    return lower


lowers("softmax")(_softmax("Softmax"))
lowers("log_softmax")(_softmax("LogSoftmax"))


@lowers("prelu")
def prelu(b: Builder, call: Call, x, weight):
    if weight.sizes != (1,) and x.rank > 2:
        weight = b.unsqueeze(weight, list(range(1, x.rank - 1)))
    return b.op("PRelu", x, weight)


@lowers("nn.functional.glu")
def glu(b: Builder, call: Call, x, dim):
    axis = axis_of(dim, x.rank)
    half = example(x.shape[axis]) // 2
    one, other = b.op("Split", x, b.ints([half, half]), results=2, axis=axis)
    return b.op("Mul", one, b.op("Sigmoid", other))


@lowers("nn.functional.scaled_dot_product_attention")
def attention(b: Builder, call: Call, q, k, v, mask, dropout_p, is_causal, scale, enable_gqa):
    kind = q.dtype
    if dropout_p:
        raise UnsupportedOperatorError("attention with dropout_p > 0 is for training; export the "
                                       "model in eval mode")
    rate = math.sqrt(1 / math.sqrt(example(q.shape[-1])) if scale is None else abs(scale))
    keys, values = b.name(k), b.name(v)
    if enable_gqa and k.shape[-3] != q.shape[-3]:
        times = example(q.shape[-3]) // example(k.shape[-3])
        keys, values = _repeated(b, k, times), _repeated(b, v, times)
    order = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    signed = -rate if scale is not None and scale < 0 else rate
    scores = b.op("MatMul", b.op("Mul", q, b.const(signed, kind)),
                  b.op("Mul", b.transpose(keys, order), b.const(rate, kind)))
    if is_causal:
        lengths = b.ints([q.shape[-2], k.shape[-2]])
        below = b.op("Trilu", b.op("Expand", b.const(1, flambeau.int64), lengths), upper=0)
        scores = b.op("Where", b.op("Cast", below, to=9), scores, b.const(-math.inf, kind))
    if mask is not None:
        if mask.dtype is flambeau.bool:
            scores = b.op("Where", mask, scores, b.const(-math.inf, kind))
        else:
            scores = b.op("Add", scores, mask)
    weights = b.op("Softmax", scores, axis=-1)
    if mask is not None and mask.dtype is flambeau.bool:
        # A query that may see nothing gets zeros.
        weights = b.op("Where", b.op("IsNaN", weights), b.const(0, kind), weights)
    return b.op("MatMul", weights, values)


def _repeated(b: Builder, x: Value, times: int) -> str:
    """Each head so many times in a row."""
    wide = b.unsqueeze(x, [x.rank - 2])
    shape = [*x.shape[:-2], times, *x.shape[-2:]]
    spread = b.op("Expand", wide, b.ints(shape))
    return b.reshape(spread, [*x.shape[:-3], example(x.shape[-3]) * times, *x.shape[-2:]])


@lowers("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
def dropout(b: Builder, call: Call, x, p, train):
    if train:
        raise UnsupportedOperatorError(f"{call.key} in training mode draws random numbers; export "
                                       "the model in eval mode")
    return b.name(x)


# -- resampling ----------------------------------------------------------------------------------

#: mode -> ONNX's mode, its coordinates, how it rounds
RESIZE = {
    "nearest":       ("nearest", "asymmetric", "floor"),
    "nearest-exact": ("nearest", "half_pixel", "round_prefer_ceil"),
    "linear":        ("linear", "pytorch_half_pixel", None),
    "bilinear":      ("linear", "pytorch_half_pixel", None),
    "trilinear":     ("linear", "pytorch_half_pixel", None),
    "bicubic":       ("cubic", "half_pixel", None),
}


@lowers("nn.functional.interpolate", "nn.functional.upsample")
def interpolate(b: Builder, call: Call, x, size, scale, mode, align, recompute=None,
                antialias=False):
    n = x.rank - 2
    if mode == "area":
        return adaptive(n, False)(b, call, x, list(call.out.sizes[2:]))
    kind, coordinates, rounds = RESIZE[mode]
    options: dict = {"mode": kind, "nearest_mode": rounds, "coordinate_transformation_mode":
                     "align_corners" if align else coordinates}
    if kind == "cubic":
        options["cubic_coeff_a"] = -0.75
    if antialias:
        b.require(18, "antialias")
        options["antialias"] = 1
        options["coordinate_transformation_mode"] = "align_corners" if align else "half_pixel"
    if scale is not None and not recompute:
        scales = np.array([1.0, 1.0, *several(scale, n)], np.float32)
        return b.op("Resize", x, None, b.const(scales), **options)
    return b.op("Resize", x, None, None, b.ints(list(call.out.shape)), **options)


@lowers("nn.functional.grid_sample")
def grid_sample(b: Builder, call: Call, x, grid, mode, padding_mode, align):
    words = {"bilinear": "linear", "bicubic": "cubic"} if b.opset >= 20 else {}
    if x.rank == 5:
        b.require(20, "grid_sample of volumes")
    return b.op("GridSample", x, grid, mode=words.get(mode, mode), padding_mode=padding_mode,
                align_corners=int(bool(align)))
