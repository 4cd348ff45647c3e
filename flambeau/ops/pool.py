"""Pooling: a window of elements becomes one value.

Ops that choose an element give its place in its plane too, and go back by it: `gather_planes` and
`scatter_planes` are each other's transposes, so gradients go on to any order. Means go back by
spreading, whose own gradient is the mean again.
"""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core import spatial as sp
from .arithmetic import abs, mul, pow, sign
from .conv import tensor_argument
from .declare import T, composite, library, registry
from .reduce import mean
from .refusal import no_kernel, spoken
from .resample import AREAS, adaptive_sizes

FUNCTIONAL = "nn.functional"


# -- checks ---------------------------------------------------------------------------------------


def _check_input(name: str, input, n: int) -> None:
    """n dimensions after the channels, themselves after a batch or not; only that may be empty."""
    shape = list(input.shape)
    if input.rank not in (n + 1, n + 2) and n > 1:
        raise RuntimeError(f"{name}: non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected "
                           f"for input, but got: {shape}")
    inner = shape[-n - 1:]
    if 0 in inner and n == 3:
        raise RuntimeError(f"{name}: Expected input's non-batch dimensions to have positive "
                           f"length, but input has a shape of {shape} and non-batch dimension "
                           f"{inner.index(0)} has length zero!")
    if input.rank not in (n + 1, n + 2) or 0 in inner:
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with "
                           f"optional 0 dim batch size for input, but got: {shape}")


def _pooled(name: str, n: int, input, kernel_size, stride, padding, dilation, ceil_mode) -> tuple:
    """The shape of the result, after torch's checks."""
    kernel, stride, padding, dilation = sp.pool_options(n, kernel_size, stride, padding, dilation,
                                                        name)
    for what, values in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        if any(v <= 0 for v in values):
            given = values[0] if n == 1 else list(values)
            raise RuntimeError(f"{name}() {what} must be greater than zero, but got {given}")
    if any(p < 0 for p in padding):
        raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {list(padding)}")
    if any(p > k // 2 for p, k in zip(padding, kernel, strict=True)):
        raise RuntimeError(f"{name}: pad should be at most half of effective kernel size, but got "
                           f"pad={list(padding)}, kernel_size={list(kernel)} and "
                           f"dilation={list(dilation)}")
    _check_input(name, input, n)
    outs = tuple(sp.pooled(*v, ceil_mode) for v in
                 zip(input.shape[-n:], kernel, stride, padding, dilation, strict=True))
    if any(o < 1 for o in outs):
        if name == "max_pool1d":
            raise RuntimeError(f"{name}() Invalid computed output size: {outs[0]}; the input has "
                               f"{input.shape[-1]} elements")
        raise RuntimeError(f"{name}: Given input size: {list(input.shape[-n:])}. Calculated output "
                           f"size: {list(outs)}. Output size is too small")
    return (*input.shape[:-n], *outs)


def _refuse(name: str, dtype: dt.dtype, kinds: str) -> None:
    if dtype.kind not in kinds:
        raise no_kernel(name, dtype)


# -- to and from places in planes -----------------------------------------------------------------


@library(method=False, function_form=False)
def gather_planes(input: T, places: T, n):
    """The elements at places counted in planes: the last n dimensions, flattened."""
    lead = tuple(max(a, b) for a, b in zip(input.shape[:-n], places.shape[:-n], strict=True))
    return (*lead, *places.shape[-n:])


@gather_planes.gradient
def gather_planes(g, input_meta, places, n):
    return scatter_planes(g, places, tuple(input_meta.shape[-n:])), None


@library(method=False, function_form=False)
def scatter_planes(input: T, places: T, sizes):
    """Elements added up at places counted in planes of these sizes."""
    return (*input.shape[:-len(sizes)], *sizes)


@scatter_planes.gradient
def scatter_planes(g, places, sizes):
    return gather_planes(g, places, len(sizes)), None


# -- the largest of each window -------------------------------------------------------------------


def _going_back_by_places(op, n: int):
    """Give an op of (values, places) its gradient."""
    others = len(op.tensor_names) - 1

    def formula(g, out, input_meta):
        back = scatter_planes(g[0], out[1], tuple(input_meta.shape[-n:]))
        return (back, *[None] * others)

    return op.gradient(formula)


def _max_pool(n: int):
    """The op that finds values and places, and the one for values that need no gradient."""
    name = f"max_pool{n}d"

    @library(name=f"{name}_with_indices", method=False, where="" if n == 1 else FUNCTIONAL,
             backward="SqueezeBackward1" if n == 1 else f"MaxPool{n}DWithIndicesBackward0")
    def both(input: T, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        """The largest of each window, and its place in its plane."""
        shape = _pooled(name, n, input, kernel_size, stride, padding, dilation, ceil_mode)
        _refuse(name, input.dtype, "iuf")
        return [(shape, input.dtype), (shape, dt.int64)]

    @library(name=f"{name}_values", method=False, function_form=False)
    def values(input: T, kernel_size, stride, padding, dilation, ceil_mode):
        """The largest of each window."""
        _refuse(name, input.dtype, "iuf")
        return _pooled(name, n, input, kernel_size, stride, padding, dilation, ceil_mode)

    return _going_back_by_places(both, n), values


def _declare_max(n: int) -> None:
    """torch.max_pool and nn.functional.max_pool, which also gives places."""
    name = f"max_pool{n}d"
    both, values = _max_pool(n)

    def largest(input, *options):
        tensor_argument(name, "input", input)
        return both(input, *options)[0] if input.requires_grad else values(input, *options)

    @composite(name=name, method=False)
    def pool(input, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        """The largest of each window."""
        return largest(input, kernel_size, stride, padding, dilation, ceil_mode)

    @composite(name=name, where=FUNCTIONAL)
    def pool_with_places(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False,
                         return_indices=False):
        """The largest of each window, and with `return_indices` its place in its plane."""
        if return_indices:
            tensor_argument(name, "input", input)
            return both(input, kernel_size, stride, padding, dilation, ceil_mode)
        return largest(input, kernel_size, stride, padding, dilation, ceil_mode)


def _declare_adaptive_max(n: int) -> None:
    name = f"adaptive_max_pool{n}d"

    @library(name=f"{name}_with_indices", method=False, function_form=False, where=FUNCTIONAL,
             backward="SqueezeBackward1" if n == 1 else f"AdaptiveMaxPool{n}DBackward0")
    def op(input: T, output_size):
        """The largest of each of `output_size` windows, and its place in its plane."""
        _refuse(name, input.dtype, "f")
        shape = (*input.shape[:-n], *output_size)
        return [(shape, input.dtype), (shape, dt.int64)]

    _going_back_by_places(op, n)

    def both(input, output_size):
        tensor_argument(name, "input", input)
        return op(input, adaptive_sizes(name, input, n, output_size))

    @composite(name=name, where=FUNCTIONAL)
    def pool(input, output_size, return_indices=False):
        """The largest of each of `output_size` windows."""
        found = both(input, output_size)
        return found if return_indices else found[0]

    if n == 1:
        @composite(name=name, method=False)
        def pair(input, output_size):
            """The largest of each of `output_size` windows, and their places."""
            return both(input, output_size)


def _declare_fractional(n: int) -> None:
    name = f"fractional_max_pool{n}d"

    @library(name=f"{name}_with_indices", method=False, function_form=False,
             backward=f"FractionalMaxPool{n}DBackward0")
    def op(input: T, kernel_size, output_size, _random_samples: T):
        """The largest of each of `output_size` windows, placed by random numbers."""
        _check_input(name, input, n)
        _refuse(name, input.dtype, "f")
        for d, (size, out, k) in enumerate(zip(input.shape[-n:], output_size, kernel_size,
                                               strict=True)):
            if out + k - 1 > size or min(out, k) < 1:
                raise RuntimeError(f"{name}(): pool size {k} and output size {out} do not fit "
                                   f"input size {size} in dimension {d - n}")
        if _random_samples.dtype is not input.dtype:
            raise RuntimeError(f"{name}(): Expect _random_samples to have the same dtype as input, "
                               f"got {spoken(_random_samples.dtype)} and {spoken(input.dtype)}")
        batch = input.shape[0] if input.rank == n + 2 else 1
        given, wanted = tuple(_random_samples.shape), (batch, input.shape[-n - 1], n)
        if len(given) != 3 or given[0] < batch or given[1:] != wanted[1:]:
            raise RuntimeError(f"{name}(): Expect _random_samples of shape {list(wanted)}, or for "
                               f"more samples than that, got {list(given)}")
        shape = (*input.shape[:-n], *output_size)
        return [(shape, input.dtype), (shape, dt.int64)]

    _going_back_by_places(op, n)


def _declare_unpool(n: int) -> None:
    name = f"max_unpool{n}d"

    @library(name=name, method=False, function_form=False,
             backward="SqueezeBackward1" if n == 1 else f"MaxUnpool{n}DBackward0")
    def op(input: T, indices: T, output_size):
        """Elements put back where a max pooling found them, zeros elsewhere."""
        if indices.dtype is not dt.int64:
            raise RuntimeError(f"{name}: elements in indices should be type int64 but got: "
                               f"{spoken(indices.dtype)}")
        if indices.shape != input.shape:
            raise RuntimeError("Expected shape of indices to be same as that of the input tensor "
                               f"({list(input.shape)}) but got indices tensor with shape: "
                               f"{list(indices.shape)}")
        _check_input(name, input, n)
        return (*input.shape[:-n], *output_size)

    @op.gradient
    def op(g, indices):
        return gather_planes(g, indices, n), None

    @composite(name=name, where=FUNCTIONAL)
    def unpool(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        """Elements put back where a max pooling found them, zeros elsewhere."""
        tensor_argument(name, "input", input)
        tensor_argument(name, "indices", indices)
        sizes = _unpooled_sizes(name, n, input, kernel_size, stride, padding, output_size)
        return op(input, indices, sizes)


def _unpooled_sizes(name, n, input, kernel_size, stride, padding, output_size) -> sp.Ints:
    kernel, stride, padding, _ = sp.pool_options(n, kernel_size, stride, padding, name=name)
    usual = tuple(map(sp.transposed, input.shape[-n:], kernel, stride, padding, (1,) * n, (0,) * n))
    if output_size is None:
        return usual
    sizes = tuple(output_size)
    if len(sizes) == n + 2:
        sizes = sizes[2:]
    if len(sizes) != n:
        raise ValueError(f"{name}: output_size should be a sequence containing {n} or {n + 2} "
                         f"elements, but it has a length of '{len(output_size)}'")
    if any(not u - s < size < u + s for size, u, s in zip(sizes, usual, stride, strict=True)):
        raise ValueError(f"{name}: invalid output_size {list(sizes)} (each must be less than the "
                         f"stride {list(stride)} away from {list(usual)})")
    return sizes


for _n in (1, 2, 3):
    _declare_max(_n)
    _declare_adaptive_max(_n)
    _declare_unpool(_n)
for _n in (2, 3):
    _declare_fractional(_n)


# -- means of windows -----------------------------------------------------------------------------


def _check_mean(name: str, n: int, input, kernel_size, stride, padding, ceil_mode, divisor):
    shape = _pooled(name, n, input, kernel_size, stride, padding, 1, ceil_mode)
    kernel = sp.each(name, "kernel_size", kernel_size, n)
    if n == 3 and any(size < k for size, k in zip(input.shape[-n:], kernel, strict=True)):
        raise RuntimeError(f"{name}: input image {list(input.shape[-n:])} smaller than kernel size "
                           f"{list(kernel)}")
    if divisor == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    if input.dtype.kind != "f" and input.dtype is not dt.int64:
        raise no_kernel(name, input.dtype)
    return shape


@library(method=False, backward="SqueezeBackward1")
def avg_pool1d(input: T, kernel_size, stride=(), padding=0, ceil_mode=False,
               count_include_pad=True):
    """The mean of each window of the last dimension."""
    return _check_mean("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, None)


@library(where=FUNCTIONAL, backward="AvgPool2DBackward0")
def avg_pool2d(input: T, kernel_size, stride=None, padding=0, ceil_mode=False,
               count_include_pad=True, divisor_override=None):
    """The mean of each window of the last two dimensions."""
    return _check_mean("avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode,
                       divisor_override)


@library(where=FUNCTIONAL, backward="AvgPool3DBackward0")
def avg_pool3d(input: T, kernel_size, stride=None, padding=0, ceil_mode=False,
               count_include_pad=True, divisor_override=None):
    """The mean of each window of the last three dimensions."""
    return _check_mean("avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode,
                       divisor_override)


@avg_pool1d.gradient
def avg_pool1d(g, input_meta, kernel_size, stride, padding, ceil_mode, count_include_pad):
    return avg_pool_back(g, tuple(input_meta.shape[-1:]), kernel_size, stride, padding, ceil_mode,
                         count_include_pad, None)


def _spread(n: int):
    def formula(g, input_meta, kernel_size, stride, padding, ceil_mode, count_include_pad,
                divisor_override):
        return avg_pool_back(g, tuple(input_meta.shape[-n:]), kernel_size, stride, padding,
                             ceil_mode, count_include_pad, divisor_override)
    return formula


avg_pool2d.gradient(_spread(2))
avg_pool3d.gradient(_spread(3))


@library(method=False, function_form=False)
def avg_pool_back(g: T, sizes, kernel_size, stride, padding, ceil_mode, count_include_pad,
                  divisor_override):
    """The transpose of a mean of windows: each mean's share given to what it was over."""
    return (*g.shape[:-len(sizes)], *sizes)


@avg_pool_back.gradient
def avg_pool_back(g, sizes, kernel_size, stride, padding, ceil_mode, count_include_pad,
                  divisor_override):
    if len(sizes) == 1:
        return avg_pool1d(g, kernel_size, stride, padding, ceil_mode, count_include_pad)
    pool = avg_pool2d if len(sizes) == 2 else avg_pool3d
    return pool(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _adaptive_mean(name: str, n: int, input, output_size):
    tensor_argument(name, "input", input)
    sizes = adaptive_sizes(name, input, n, output_size)
    if n > 1 and all(s == 1 for s in sizes) and input.dtype.kind == "f":
        return mean(input, tuple(range(-n, 0)), True)
    return AREAS[n](input, sizes)


@composite(method=False)
def adaptive_avg_pool1d(input, output_size):
    """The means of `output_size` windows over the last dimension."""
    return _adaptive_mean("adaptive_avg_pool1d", 1, input, output_size)


@composite(where=FUNCTIONAL)
def adaptive_avg_pool2d(input, output_size):
    """The means of `output_size` windows over the last two dimensions."""
    return _adaptive_mean("adaptive_avg_pool2d", 2, input, output_size)


@composite(where=FUNCTIONAL)
def adaptive_avg_pool3d(input, output_size):
    """The means of `output_size` windows over the last three dimensions."""
    return _adaptive_mean("adaptive_avg_pool3d", 3, input, output_size)


# -- norms of windows -----------------------------------------------------------------------------


def _norms(n: int, pool, input, norm_type, kernel_size, stride, ceil_mode):
    """The sum over each window of elements to a power, to the inverse power."""
    name = f"lp_pool{n}d"
    tensor_argument(name, "input", input)
    kernel, stride, _, _ = sp.pool_options(n, kernel_size, stride, 0, name=name)
    if n == 3 and input.dim() not in (4, 5):
        raise RuntimeError(f"{name}: Expected 4D or 5D tensor, but got {list(input.shape)}")
    means = pool(pow(input, norm_type), kernel, stride, 0, ceil_mode)
    sums = mul(mul(sign(means), registry["relu"](abs(means))), prod(kernel))
    return pow(sums, 1.0 / norm_type)


@composite(where=FUNCTIONAL)
def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window of the last dimension."""
    return _norms(1, avg_pool1d, input, norm_type, kernel_size, stride, ceil_mode)


@composite(where=FUNCTIONAL)
def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window of the last two dimensions."""
    return _norms(2, avg_pool2d, input, norm_type, kernel_size, stride, ceil_mode)


@composite(where=FUNCTIONAL)
def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window of the last three dimensions."""
    return _norms(3, avg_pool3d, input, norm_type, kernel_size, stride, ceil_mode)
