"""ONNX operators that are layers, as functions of tensors."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau.nn import functional as F
from flambeau.nn.utils import rnn

from .reading import READERS, ints, reads

# -- activations ---------------------------------------------------------------------------------

ACTIVATIONS: dict[str, Any] = {
    "Elu":             lambda x, alpha=1.0: F.elu(x, alpha),
    "Celu":            lambda x, alpha=1.0: F.celu(x, alpha),
    "LeakyRelu":       lambda x, alpha=0.01: F.leaky_relu(x, alpha),
    "Selu":            lambda x, alpha=None, gamma=None: F.selu(x),
    "Softplus":        lambda x: F.softplus(x),
    "HardSigmoid":     lambda x, alpha=0.2, beta=0.5: fb.clamp(x * alpha + beta, 0, 1),
    "ThresholdedRelu": lambda x, alpha=1.0: F.threshold(x, alpha, 0.0),
    "Gelu":            lambda x, approximate="none": F.gelu(x, approximate=approximate),
    "Softmax":         lambda x, axis=-1: F.softmax(x, axis),
    "LogSoftmax":      lambda x, axis=-1: F.log_softmax(x, axis),
}


def _activation(function):
    return lambda x, results=1, opset=0, **attributes: function(x, **attributes)


for _kind, _function in ACTIVATIONS.items():
    READERS[_kind] = _activation(_function)


@reads("PRelu")
def prelu(x, slope, **_):
    return fb.where(x >= 0, x, x * slope)


# -- convolution and pooling ---------------------------------------------------------------------


def _sides(pads, auto_pad: str, x, kernel, strides, dilations):
    """Padding before and after each axis."""
    n = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for k in range(n):
            size, span = x.shape[2 + k], dilations[k] * (kernel[k] - 1) + 1
            total = max(0, (-(-size // strides[k]) - 1) * strides[k] + span - size)
            less = total // 2
            pairs.append((less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less))
        return pairs
    pads = [0] * 2 * n if pads is None else pads
    return [(pads[k], pads[n + k]) for k in range(n)]


def _padded(x, pairs, value=0.0):
    """x and the padding left to its layer: what is not the same on both sides is added here."""
    if all(a == b for a, b in pairs):
        return x, [a for a, _ in pairs]
    return F.pad(x, [n for pair in reversed(pairs) for n in pair], value=value), [0] * len(pairs)


CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@reads("Conv")
def conv(x, weight, bias=None, strides=None, pads=None, dilations=None, group=1, auto_pad="NOTSET",
         **_):
    n = x.dim() - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pairs = _sides(pads, auto_pad, x, list(weight.shape[2:]), strides, dilations)
    x, padding = _padded(x, pairs)
    return CONVOLUTIONS[n](x, weight, bias, strides, padding, dilations, group)


@reads("ConvTranspose")
def conv_transpose(x, weight, bias=None, strides=None, pads=None, dilations=None, group=1,
                   output_padding=None, **_):
    n = x.dim() - 2
    pads = pads or [0] * 2 * n
    more = output_padding or [0] * n
    # Padding that is less at the end leaves more of the result, as output padding does.
    more = [m + pads[k] - pads[n + k] for k, m in enumerate(more)]
    return TRANSPOSED[n](x, weight, bias, strides or [1] * n, pads[:n], more, group,
                         dilations or [1] * n)


@reads("MaxPool")
def max_pool(x, kernel_shape, strides=None, pads=None, dilations=None, ceil_mode=0,
             auto_pad="NOTSET", results=1, **_):
    n = len(kernel_shape)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pairs = _sides(pads, auto_pad, x, kernel_shape, strides, dilations)
    inner, padding = _padded(x, pairs, float("-inf"))
    if results == 1:
        return MAXIMA[n](inner, kernel_shape, strides, padding, dilations, bool(ceil_mode))
    values, places = MAXIMA[n](inner, kernel_shape, strides, padding, dilations, bool(ceil_mode),
                               return_indices=True)
    plane = 1
    for size in inner.shape[2:]:
        plane *= size
    first = fb.arange(x.shape[0] * x.shape[1]).reshape([x.shape[0], x.shape[1], *[1] * n]) * plane
    return values, places + first


@reads("AveragePool")
def average_pool(x, kernel_shape, strides=None, pads=None, ceil_mode=0, count_include_pad=0,
                 auto_pad="NOTSET", **_):
    n = len(kernel_shape)
    strides = strides or [1] * n
    pairs = _sides(pads, auto_pad, x, kernel_shape, strides, [1] * n)
    same = all(a == b and a <= k // 2 for (a, b), k in zip(pairs, kernel_shape, strict=True))
    if same:
        return MEANS[n](x, kernel_shape, strides, [a for a, _ in pairs], bool(ceil_mode),
                        bool(count_include_pad))
    wide = [p for pair in reversed(pairs) for p in pair]
    total = MEANS[n](F.pad(x, wide), kernel_shape, strides, 0, bool(ceil_mode))
    if count_include_pad:
        return total
    return total / MEANS[n](F.pad(fb.ones_like(x), wide), kernel_shape, strides, 0, bool(ceil_mode))


@reads("GlobalAveragePool")
def global_average_pool(x, **_):
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


@reads("GlobalMaxPool")
def global_max_pool(x, **_):
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


@reads("Col2Im")
def col2im(x, image, block, dilations=None, pads=None, strides=None, **_):
    pads = pads or [0] * 4
    return F.fold(x, ints(image), ints(block), dilations or 1, pads[:2], strides or 1)


@reads("DepthToSpace")
def depth_to_space(x, blocksize, mode="DCR", **_):
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    x = x.reshape(n, blocksize, blocksize, c // blocksize ** 2, h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // blocksize ** 2, h * blocksize, w * blocksize)


@reads("SpaceToDepth")
def space_to_depth(x, blocksize, **_):
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    return x.permute(0, 3, 5, 1, 2, 4).reshape(n, c * blocksize ** 2, h // blocksize,
                                               w // blocksize)


# -- normalisation -------------------------------------------------------------------------------


@reads("BatchNormalization")
def batch_norm(x, scale, bias, mean, var, epsilon=1e-5, **_):
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


@reads("InstanceNormalization")
def instance_norm(x, scale, bias, epsilon=1e-5, **_):
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)


@reads("LayerNormalization")
def layer_norm(x, scale, bias=None, axis=-1, epsilon=1e-5, **_):
    return F.layer_norm(x, tuple(x.shape[axis % x.dim():]), scale, bias, epsilon)


@reads("GroupNormalization")
def group_norm(x, scale, bias, num_groups, epsilon=1e-5, **_):
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@reads("RMSNormalization")
def rms_norm(x, scale, axis=-1, epsilon=1e-5, **_):
    return F.rms_norm(x, tuple(x.shape[axis % x.dim():]), scale, epsilon)


@reads("LRN")
def lrn(x, size, alpha=1e-4, beta=0.75, bias=1.0, **_):
    return F.local_response_norm(x, size, alpha, beta, bias)


@reads("LpNormalization")
def lp_normalization(x, axis=-1, p=2, **_):
    return F.normalize(x, p, axis)


@reads("NegativeLogLikelihoodLoss")
def negative_log_likelihood(x, target, weight=None, ignore_index=-100, reduction="mean", **_):
    return F.nll_loss(x, target, weight, ignore_index=ignore_index, reduction=reduction)


@reads("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(x, target, weight=None, ignore_index=-100, reduction="mean", results=1,
                          **_):
    loss = F.cross_entropy(x, target, weight, ignore_index=ignore_index, reduction=reduction)
    return (loss, F.log_softmax(x, 1)) if results == 2 else loss


# -- resampling ----------------------------------------------------------------------------------

#: (mode, coordinates) -> what interpolate calls it, and whether corners are aligned
RESIZE = {
    ("nearest", "asymmetric"):         ("nearest", None),
    ("nearest", "half_pixel"):         ("nearest-exact", None),
    ("linear", "half_pixel"):          ("linear", False),
    ("linear", "pytorch_half_pixel"):  ("linear", False),
    ("linear", "align_corners"):       ("linear", True),
    ("cubic", "half_pixel"):           ("bicubic", False),
    ("cubic", "pytorch_half_pixel"):   ("bicubic", False),
    ("cubic", "align_corners"):        ("bicubic", True),
}


@reads("Resize")
def resize(x, roi=None, scales=None, sizes=None, mode="nearest",
           coordinate_transformation_mode="half_pixel", antialias=0, **_):
    found = RESIZE.get((mode, coordinate_transformation_mode))
    if found is None:
        raise RuntimeError(f"Resize with mode={mode} and coordinates "
                           f"{coordinate_transformation_mode} is not known")
    name, align = found
    if name == "linear":
        name = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.dim()]
    options: dict = {"mode": name, "align_corners": align}
    if antialias:
        options["antialias"] = True
    if sizes is not None:
        return F.interpolate(x, size=ints(sizes)[2:], **options)
    return F.interpolate(x, scale_factor=[float(s) for s in scales.tolist()[2:]], **options)


@reads("GridSample")
def grid_sample(x, grid, mode="linear", padding_mode="zeros", align_corners=0, **_):
    names = {"linear": "bilinear", "cubic": "bicubic"}
    return F.grid_sample(x, grid, names.get(mode, mode), padding_mode, bool(align_corners))


# -- recurrent layers ----------------------------------------------------------------------------

#: how ONNX orders gates: where each gate here is found there
ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}


def _blocks(x, order):
    """Rows in our order of gates."""
    parts = x.chunk(len(order), 0)
    return parts[0] if len(order) == 1 else fb.cat([parts[k] for k in order], 0)


def _recurrent(kind: str):
    def read(x, w, r, b=None, lengths=None, h=None, c=None, hidden_size=None, direction="forward",
             activations=None, linear_before_reset=0, layout=0, results=1, opset=0, **_):
        if layout or direction == "reverse":
            raise RuntimeError(f"{kind} with layout or direction=reverse is not known")
        if kind == "GRU" and not linear_before_reset:
            raise RuntimeError("GRU is known with linear_before_reset=1 only")
        order, count = ORDERS[kind], w.shape[0]
        weights = []
        for d in range(count):
            weights += [_blocks(w[d], order), _blocks(r[d], order)]
            if b is not None:
                weights += [_blocks(part, order) for part in b[d].chunk(2, 0)]
        if h is None:
            h = fb.zeros(count, x.shape[1], hidden_size, dtype=x.dtype)
        if kind == "LSTM" and c is None:
            c = fb.zeros_like(h)
        name = {"LSTM": fb.lstm, "GRU": fb.gru}.get(kind)
        if name is None:
            name = fb.rnn_relu if activations and activations[0] == "Relu" else fb.rnn_tanh
        states, settings = (h, c)[:1 + (kind == "LSTM")], (weights, b is not None, 1, 0.0, False,
                                                           count == 2)
        if lengths is None:
            out, *last = name(x, states if kind == "LSTM" else h, *settings, False)
        else:
            out, *last = _of_lengths(name, x, lengths, states, settings)
        steps, batch = x.shape[:2]
        return (out.reshape(steps, batch, count, -1).permute(0, 2, 1, 3), *last)
    return read


def _of_lengths(function, x, lengths, states, settings):
    """Sequences of different lengths: packed, longest first, and back in their order."""
    packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    states = [s.index_select(1, packed.sorted_indices) for s in states]
    data, *last = function(packed.data, packed.batch_sizes,
                           tuple(states) if len(states) > 1 else states[0], *settings)
    out, _ = rnn.pad_packed_sequence(packed._replace(data=data), total_length=x.shape[0])
    return out, *(s.index_select(1, packed.unsorted_indices) for s in last)


for _kind in ORDERS:
    READERS[_kind] = _recurrent(_kind)
