"""Convolutions, transposed convolutions, and images as columns of patches.

A convolution is one trilinear form in data, weights and result. `convolution` gives the result from
data and weights, or transposed the data from result and weights; `convolution_weight` gives the
weights from the other two. The gradients of each are the other forms, to any order.
"""

from __future__ import annotations

from ..core import spatial as sp
from .declare import T, composite, library, registry
from .reduce import conj, sum
from .refusal import no_kernel, spoken


def tensor_argument(name: str, what: str, value) -> None:
    """torch's TypeError for what is not a tensor."""
    if not hasattr(value, "sig"):
        raise TypeError(f"{name}(): argument '{what}' must be Tensor, not {type(value).__name__}")


# -- checks ---------------------------------------------------------------------------------------


def _check_dtypes(input, weight, bias) -> None:
    if weight.dtype is not input.dtype:
        raise RuntimeError(f"convolution: Input type ({spoken(input.dtype)}) and weight type "
                           f"({spoken(weight.dtype)}) should be the same")
    if bias is not None and bias.dtype is not input.dtype:
        raise RuntimeError(f"convolution: Input type ({spoken(input.dtype)}) and bias type "
                           f"({spoken(bias.dtype)}) should be the same")
    if input.dtype.kind == "b":
        raise no_kernel("convolution", input.dtype)


def _check_options(n, stride, padding, dilation, output_padding, groups, transposed) -> None:
    for what, values in (("stride", stride), ("padding", padding), ("dilation", dilation),
                         ("output_padding", output_padding)):
        if len(values) != n:
            raise RuntimeError(f"convolution: expected {what} to be a list of {n} values to match "
                               f"the convolution dimensions, but got {what}={list(values)}")
    if any(s <= 0 for s in stride):
        raise RuntimeError(f"convolution: non-positive stride is not supported, got {list(stride)}")
    if any(p < 0 for p in padding):
        raise RuntimeError(f"convolution: negative padding is not supported, got {list(padding)}")
    if any(d <= 0 for d in dilation):
        raise RuntimeError(f"convolution: dilation should be greater than zero, but got "
                           f"{list(dilation)}")
    if groups <= 0:
        raise RuntimeError(f"convolution: non-positive groups is not supported, got {groups}")
    if any(o < 0 for o in output_padding):
        raise RuntimeError("convolution: negative output_padding is not supported, got "
                           f"{list(output_padding)}")
    if transposed and any(o >= s and o >= d for o, s, d in
                          zip(output_padding, stride, dilation, strict=True)):
        raise RuntimeError("convolution: output padding must be smaller than either stride or "
                           f"dilation, but got output_padding={list(output_padding)}, "
                           f"stride={list(stride)}, dilation={list(dilation)}")


def _check_ranks(input, weight) -> None:
    sizes, kernel = list(input.shape), list(weight.shape)
    if len(kernel) < 3:
        raise RuntimeError("convolution: weight should have at least three dimensions, but got "
                           f"weight of size {kernel}")
    if len(sizes) != len(kernel):
        raise RuntimeError(f"Expected {len(kernel)}-dimensional input for {len(kernel)}-"
                           f"dimensional weight {kernel}, but got {len(sizes)}-dimensional input "
                           f"of size {sizes} instead")


def _check_shapes(input, weight, bias, groups: int, transposed: bool) -> None:
    sizes, kernel = list(input.shape), list(weight.shape)
    if kernel[0] < groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be at least {groups} at "
                           f"dimension 0, but got weight of size {kernel} instead")
    if kernel[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at "
                           f"dimension 0, but got weight of size {kernel} instead")
    wanted = kernel[0] if transposed else kernel[1] * groups
    if sizes[1] != wanted:
        raise RuntimeError(f"Given groups={groups}, weight of size {kernel}, expected input{sizes} "
                           f"to have {wanted} channels, but got {sizes[1]} channels instead")
    many = kernel[1] * groups if transposed else kernel[0]
    if bias is not None and tuple(bias.shape) != (many,):
        raise RuntimeError(f"Given weight of size {kernel}, expected bias to be 1-dimensional with "
                           f"{many} elements, but got bias of size {list(bias.shape)} instead")


def _check_fit(input, weight, padding, dilation) -> None:
    room = [n + 2 * p for n, p in zip(input.shape[2:], padding, strict=True)]
    reach = [sp.extent(k, d) for k, d in zip(weight.shape[2:], dilation, strict=True)]
    if any(a < b for a, b in zip(room, reach, strict=True)):
        raise RuntimeError(f"Calculated padded input size per channel: ({_times(room)}). Kernel "
                           f"size: ({_times(reach)}). Kernel size can't be greater than actual "
                           "input size")


def _times(sizes) -> str:
    return " x ".join(map(str, sizes))


# -- the form -------------------------------------------------------------------------------------


@library(method=False)
def convolution(input: T, weight: T, bias: T | None, stride, padding, dilation, transposed,
                output_padding, groups):
    """Convolution or transposed convolution over all dimensions after the first two."""
    _check_ranks(input, weight)
    _check_options(weight.rank - 2, stride, padding, dilation, output_padding, groups, transposed)
    _check_shapes(input, weight, bias, groups, transposed)
    _check_dtypes(input, weight, bias)
    sizes, kernel = input.shape[2:], weight.shape[2:]
    if transposed:
        outs = tuple(map(sp.transposed, sizes, kernel, stride, padding, dilation, output_padding))
        if any(n < 0 for n in outs):
            raise RuntimeError(f"Given input size per channel: ({_times(sizes)}). Calculated "
                               f"output size per channel: ({_times(outs)}). Output size is too "
                               "small")
        return (input.shape[0], weight.shape[1] * groups, *outs)
    _check_fit(input, weight, padding, dilation)
    outs = tuple(map(sp.convolved, sizes, kernel, stride, padding, dilation))
    return (input.shape[0], weight.shape[0], *outs)


@convolution.gradient
def convolution(g, input, weight, bias_meta, stride, padding, dilation, transposed, output_padding,
                groups):
    fixed = (stride, padding, dilation, groups)

    def data():
        if transposed:
            return _result(g, conj(weight), input.shape, *fixed)
        return _data(g, conj(weight), input.shape, *fixed)

    def weights():
        pair = (g, conj(input)) if transposed else (conj(input), g)
        return convolution_weight(*pair, tuple(weight.shape[2:]), *fixed)

    def shift():
        return sum(g, (0, *range(2, g.dim())))

    return data, weights, None if bias_meta is None else shift


@library(method=False, function_form=False)
def convolution_weight(data: T, result: T, kernel_size, stride, padding, dilation, groups):
    """A convolution's weights from its data and its result."""
    return (result.shape[1], data.shape[1] // groups, *kernel_size)


@convolution_weight.gradient
def convolution_weight(g, data, result, stride, padding, dilation, groups):
    fixed = (stride, padding, dilation, groups)
    return (lambda: _data(conj(result), g, data.shape, *fixed),
            lambda: _result(conj(data), g, result.shape, *fixed))


def _data(result, weight, shape, stride, padding, dilation, groups):
    """A convolution's data, of this shape, from its result."""
    more = tuple(
        have - sp.transposed(size, k, s, p, d, 0) for have, size, k, s, p, d in
        zip(shape[2:], result.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True))
    return convolution(result, weight, None, stride, padding, dilation, True, more, groups)


def _result(data, weight, shape, stride, padding, dilation, groups):
    """A convolution's result, of this shape: data padded at its end may hold more windows."""
    out = convolution(data, weight, None, stride, padding, dilation, False, (0,) * len(stride),
                      groups)
    for dim, size in enumerate(shape[2:], 2):
        if out.shape[dim] != size:
            out = out.narrow(dim, 0, size)
    return out


# -- in one, two and three dimensions -------------------------------------------------------------


def _batched(name: str, n: int, input, weight):
    """The input with its batch dimension, and whether that was added."""
    tensor_argument(name, "input", input)
    tensor_argument(name, "weight", weight)
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, "
                           f"but got input of size: {list(input.shape)}")
    alone = input.dim() == n + 1
    x = input.unsqueeze(0) if alone else input
    _check_ranks(x, weight)
    return x, alone


def _same_padding(name, input, weight, stride, dilation):
    """The input and the padding that keep its size; what is odd is added at the end."""
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(t % 2 for t in totals):
        after = [v for t in reversed(totals) for v in (0, t % 2)]
        input = registry["constant_pad_nd"](input, after, 0)
    return input, tuple(t // 2 for t in totals)


def _convolve(name, n, input, weight, bias, stride, padding, dilation, groups):
    x, alone = _batched(name, n, input, weight)
    stride = sp.each(name, "stride", stride, n)
    dilation = sp.each(name, "dilation", dilation, n)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise RuntimeError(f"{name}: Invalid padding string: '{padding}', expected 'same' or "
                               "'valid'")
        padded = (x, (0,) * n)
        if padding == "same":
            padded = _same_padding(name, x, weight, stride, dilation)
        x, padding = padded
    else:
        padding = sp.each(name, "padding", padding, n)
    out = convolution(x, weight, bias, stride, padding, dilation, False, (0,) * n, groups)
    return out.squeeze(0) if alone else out


def _convolve_back(name, n, input, weight, bias, stride, padding, output_padding, groups, dilation):
    x, alone = _batched(name, n, input, weight)
    stride, padding, more, dilation = (
        sp.each(name, what, value, n) for what, value in
        (("stride", stride), ("padding", padding), ("output_padding", output_padding),
         ("dilation", dilation)))
    out = convolution(x, weight, bias, stride, padding, dilation, True, more, groups)
    return out.squeeze(0) if alone else out


@composite(method=False)
def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution over the last dimension."""
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@composite(method=False)
def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution over the last two dimensions."""
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@composite(method=False)
def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution over the last three dimensions."""
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@composite(method=False)
def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1,
                     dilation=1):
    """Transposed convolution over the last dimension."""
    return _convolve_back("conv_transpose1d", 1, input, weight, bias, stride, padding,
                          output_padding, groups, dilation)


@composite(method=False)
def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1,
                     dilation=1):
    """Transposed convolution over the last two dimensions."""
    return _convolve_back("conv_transpose2d", 2, input, weight, bias, stride, padding,
                          output_padding, groups, dilation)


@composite(method=False)
def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1,
                     dilation=1):
    """Transposed convolution over the last three dimensions."""
    return _convolve_back("conv_transpose3d", 3, input, weight, bias, stride, padding,
                          output_padding, groups, dilation)


@composite(method=False)
def conv_tbc(input, weight, bias, pad=0):
    """Convolution over time of (time, batch, channels), the weights (time, in, out)."""
    for what, value in (("input", input), ("weight", weight), ("bias", bias)):
        tensor_argument("conv_tbc", what, value)
    if input.dim() != 3 or weight.dim() != 3 or bias.dim() != 1:
        raise RuntimeError("conv_tbc: input and weight must have 3 dimensions and bias 1, but got "
                           f"{input.dim()}, {weight.dim()} and {bias.dim()}")
    out = convolution(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, (1,), (pad,), (1,),
                      False, (0,), 1)
    return out.permute(2, 0, 1)


# -- images as columns of patches -----------------------------------------------------------------


def _blocks(kernel, dilation, padding, stride, sizes):
    return tuple(map(sp.convolved, sizes, kernel, stride, padding, dilation))


def _check_patches(name, kernel, dilation, padding, stride) -> None:
    for what, values, least in (("kernel_size", kernel, 1), ("dilation", dilation, 1),
                                ("stride", stride, 1), ("padding", padding, 0)):
        if any(v < least for v in values):
            raise RuntimeError(f"{name}: {what} should be at least {least}, but got {values}")


@library(method=False, function_form=False, backward="Im2ColBackward0")
def im2col(input: T, kernel_size, dilation, padding, stride):
    """The patches of images, one per column."""
    _check_patches("unfold", kernel_size, dilation, padding, stride)
    if input.rank not in (3, 4) or 0 in input.shape[-3:]:
        raise RuntimeError("unfold: Expected 3D or 4D (batch mode) tensor with possibly 0 batch "
                           "size and other non-zero dimensions for input, but got: "
                           f"{list(input.shape)}")
    if input.dtype.kind in "iu":
        raise no_kernel("im2col_out_cpu", input.dtype)
    count = _blocks(kernel_size, dilation, padding, stride, input.shape[-2:])
    if min(count) < 1:
        raise RuntimeError(f"unfold: Given input with spatial size {tuple(input.shape[-2:])}, "
                           f"kernel_size={kernel_size}, dilation={dilation}, padding={padding}, "
                           f"calculated shape of the array of sliding blocks as {count}, but its "
                           "components must be at least one.")
    (height, width), (rows, columns) = kernel_size, count
    return (*input.shape[:-3], input.shape[-3] * height * width, rows * columns)


@im2col.gradient
def im2col(g, input_meta, kernel_size, dilation, padding, stride):
    return col2im(g, tuple(input_meta.shape[-2:]), kernel_size, dilation, padding, stride)


@library(method=False, function_form=False, backward="Col2ImBackward0")
def col2im(input: T, output_size, kernel_size, dilation, padding, stride):
    """Columns of patches added up into images."""
    _check_patches("fold", kernel_size, dilation, padding, stride)
    if input.rank not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError("fold: Expected 2D or 3D (batch mode) tensor for input with possibly 0 "
                           f"batch size and non-zero dimensions for input, but got: "
                           f"{list(input.shape)}")
    if input.dtype.kind in "iu":
        raise no_kernel("col2im_out_cpu", input.dtype)
    taps = kernel_size[0] * kernel_size[1]
    if input.shape[-2] % taps:
        raise RuntimeError("fold: Expected size of input's dimension 1 to be divisible by the "
                           f"product of kernel_size, but got input.size(1)={input.shape[-2]} and "
                           f"kernel_size={kernel_size}.")
    rows, columns = count = _blocks(kernel_size, dilation, padding, stride, output_size)
    if min(count) < 1 or rows * columns != input.shape[-1]:
        raise RuntimeError(f"fold: Given output_size={output_size}, kernel_size={kernel_size}, "
                           f"dilation={dilation}, padding={padding}, stride={stride}, expected "
                           "size of input's dimension 2 to match the calculated number of sliding "
                           f"blocks {rows} * {columns} = {rows * columns}, but got "
                           f"{input.shape[-1]}.")
    return (*input.shape[:-2], input.shape[-2] // taps, *output_size)


@col2im.gradient
def col2im(g, kernel_size, dilation, padding, stride):
    return im2col(g, kernel_size, dilation, padding, stride)


@composite(where="nn.functional")
def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The patches of images (N, C, H, W) as columns: (N, C * patch, number of patches)."""
    tensor_argument("unfold", "input", input)
    given = (("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding),
             ("stride", stride))
    return im2col(input, *(sp.each("unfold", what, value, 2) for what, value in given))


@composite(where="nn.functional")
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns of patches added up into images of `output_size`."""
    tensor_argument("fold", "input", input)
    given = (("output_size", output_size), ("kernel_size", kernel_size), ("dilation", dilation),
             ("padding", padding), ("stride", stride))
    return col2im(input, *(sp.each("fold", what, value, 2) for what, value in given))
