"""Pooling: a window of elements becomes one value.

Ops that choose an element give its place in its plane too, and go back by it: `gather_planes` and
`scatter_planes` are each other's transposes, so gradients go on to any order. Means go back by
spreading, whose own gradient is the mean again.
"""

from __future__ import annotations

from math import prod

from ..core import dtype as dt
from ..core import spatial as sp
from .arithmetic import abs, pow, sign
from .conv import tensor_argument
from .declare import T, composite, library, registry
from .refusal import no_kernel, spoken

FUNCTIONAL = "nn.functional"


# -- checks -------------------------------------------------------------------------------------------


def _check_input(name: str, input, n: int, channels: bool = True) -> None:
    """n dimensions after the channels, which may come after a batch; only the batch may be empty."""
    rank = input.rank
    if rank not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor for input, but "
                           f"got: {list(input.shape)}")
    inner = input.shape[-n - 1:] if channels else input.shape[-n:]
    if 0 in inner:
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional "
                           f"0 dim batch size for input, but got: {list(input.shape)}")


def _pooled(name: str, n: int, input, kernel_size, stride, padding, dilation, ceil_mode) -> tuple:
    """The shape of the result, after torch's checks."""
    kernel, stride, padding, dilation = sp.pool_options(name, n, kernel_size, stride, padding,
                                                        dilation)
    for what, values in (("kernel size", kernel), ("stride", stride), ("dilation", dilation)):
        if any(v <= 0 for v in values):
            raise RuntimeError(f"{name}: {what} should be greater than zero, but got {list(values)}")
    if any(p < 0 for p in padding):
        raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {list(padding)}")
    if any(p > sp.extent(k, d) // 2 for p, k, d in zip(padding, kernel, dilation, strict=True)):
        raise RuntimeError(f"{name}: pad should be at most half of effective kernel size, but got "
                           f"pad={list(padding)}, kernel_size={list(kernel)} and "
                           f"dilation={list(dilation)}")
    _check_input(name, input, n)
    outs = tuple(sp.pooled(*v, ceil_mode) for v in
                 zip(input.shape[-n:], kernel, stride, padding, dilation, strict=True))
    if any(o < 1 for o in outs):
        raise RuntimeError(f"{name}: Given input size: {list(input.shape[-n:])}. Calculated output "
                           f"size: {list(outs)}. Output size is too small")
    return (*input.shape[:-n], *outs)


def _places_of(shape, dtype) -> list:
    return [(shape, dtype), (shape, dt.int64)]


def _chosen(g, out, input_meta):
    """The gradient of what chose elements by their places."""
    n = len(input_meta.shape) - _lead(input_meta, out[1])
    return scatter_planes(g[0], out[1], tuple(input_meta.shape[-n:]))


def _lead(input, places) -> int:
    """How many first dimensions are not pooled: known from the op, which sets `pooled` below."""
    raise AssertionError


# -- to and from places in planes ---------------------------------------------------------------------


@library(method=False, function_form=False)
def gather_planes(input: T, places: T, n):
    """The elements at places counted in planes, the last n dimensions flattened."""
    lead = tuple(max(a, b) for a, b in zip(input.shape[:-n], places.shape[:-n], strict=True))
    return (*lead, *places.shape[-n:])


@gather_planes.gradient
def gather_planes(g, input_meta, places, n):
    return scatter_planes(g, places, tuple(input_meta.shape[-n:])), None


@library(method=False, function_form=False)
def scatter_planes(input: T, places: T, sizes, accumulate=True):
    """Elements put at places counted in planes of these sizes, zeros elsewhere."""
    return (*input.shape[:-len(sizes)], *sizes)


@scatter_planes.gradient
def scatter_planes(g, places, sizes):
    return gather_planes(g, places, len(sizes)), None
