"""Convolution three ways: the result, its data, its weights; each from the other two.

A convolution is one trilinear form in (data, weights, result). `convolve` gives the result,
`convolve_data` the data (which is a transposed convolution) and `convolve_weight` the weights.
All take data (N, groups, C, *sizes), weights (groups, M, C, *kernel) and results
(N, groups, M, *outs), and go through matrix products over columns of windows.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ...core import spatial as sp
from ...core.lazily import np
from .routines import routine
from .windows import framed, needed, seen, taps, unframed, windows

#: bytes of columns worked on at a time, so that they stay in cache
BLOCK = 4 << 20


class Geometry:
    """Stride, padding, dilation and kernel, per dimension."""

    def __init__(self, kernel, stride, padding, dilation):
        self.kernel, self.stride = tuple(kernel), tuple(stride)
        self.padding, self.dilation = tuple(padding), tuple(dilation)
        self.taps = prod(self.kernel)

        #: whether every window is one element, and every element a window
        self.pointwise = self.taps == 1 and not any(self.padding) and all(
            s == 1 for s in self.stride)

    def outs(self, sizes):
        return tuple(map(sp.convolved, sizes, self.kernel, self.stride, self.padding,
                         self.dilation))

    def frame(self, x, outs):
        return framed(x, self.padding, needed(outs, self.kernel, self.stride, self.dilation))

    def seen(self, tap, outs):
        return seen(tap, outs, self.stride, self.dilation)


@lru_cache(256)
def geometry_of(kernel, stride, padding, dilation) -> Geometry:
    return Geometry(kernel, stride, padding, dilation)


def _blocks(samples: int, per_sample: int):
    """Slices of the batch whose columns fit a block."""
    step = max(1, BLOCK // max(per_sample, 1))
    return [slice(at, min(at + step, samples)) for at in range(0, samples, step)]


def _columns(frame, outs, geometry: Geometry, lead):
    """(..., C * taps, positions): every window as a column."""
    if geometry.pointwise:
        return frame.reshape(*lead, frame.shape[2], prod(outs))
    view = windows(frame, outs, geometry.kernel, geometry.stride, geometry.dilation)
    return view.reshape(*lead, frame.shape[2] * geometry.taps, prod(outs))


def convolve(x, w, geometry: Geometry, outs) -> np.ndarray:
    """The result of a convolution."""
    (samples, groups, channels), many = x.shape[:3], w.shape[1]
    out = np.zeros((samples, groups, many, *outs), x.dtype)
    if not out.size or not w.size:
        return out
    frame = geometry.frame(x, outs)
    if channels == 1 and groups > 1:
        for tap in taps(geometry.kernel):
            part = w[(slice(None), slice(None), 0, *tap)]
            out += frame[geometry.seen(tap, outs)] * part.reshape(groups, many, *[1] * len(outs))
        return out
    matrix = w.reshape(groups, many, channels * geometry.taps)
    flat = out.reshape(samples, groups, many, prod(outs))
    for block in _blocks(samples, groups * channels * geometry.taps * prod(outs) * x.itemsize):
        part = frame[block]
        np.matmul(matrix, _columns(part, outs, geometry, part.shape[:2]), out=flat[block])
    return out


def convolve_data(y, w, geometry: Geometry, sizes) -> np.ndarray:
    """The data of a convolution, from its result: the transpose of `convolve`."""
    samples, groups, many, *outs = y.shape
    channels = w.shape[2]
    if not y.size or not w.size:
        return np.zeros((samples, groups, channels, *sizes), y.dtype)
    if geometry.pointwise:
        matrix = w.reshape(groups, many, channels).swapaxes(1, 2)
        flat = np.matmul(matrix, y.reshape(samples, groups, many, prod(outs)))
        return flat.reshape(samples, groups, channels, *sizes)
    reach = [max(n, s + p) for n, s, p in zip(
        needed(outs, geometry.kernel, geometry.stride, geometry.dilation), sizes, geometry.padding,
        strict=True)]
    frame = np.zeros((samples, groups, channels, *reach), y.dtype)
    if channels == 1 and many == 1:
        for tap in taps(geometry.kernel):
            part = w[(slice(None), slice(None), 0, *tap)].reshape(groups, 1, *[1] * len(outs))
            frame[geometry.seen(tap, outs)] += y * part
    else:
        _spread(y, w, geometry, frame)
    return unframed(frame, geometry.padding, sizes)


def _spread(y, w, geometry: Geometry, frame) -> None:
    """Columns from the result by matrix products, each tap added where its windows saw it."""
    samples, groups, many, *outs = y.shape
    channels = w.shape[2]
    matrix = w.reshape(groups, many, channels * geometry.taps).swapaxes(1, 2)
    flat = y.reshape(samples, groups, many, prod(outs))
    for block in _blocks(samples, groups * channels * geometry.taps * prod(outs) * y.itemsize):
        columns = np.matmul(matrix, flat[block])
        columns = columns.reshape(-1, groups, channels, *geometry.kernel, *outs)
        part = frame[block]
        for tap in taps(geometry.kernel):
            part[geometry.seen(tap, outs)] += columns[(slice(None),) * 3 + tap]


def convolve_weight(x, y, geometry: Geometry) -> np.ndarray:
    """The weights of a convolution, from its data and its result."""
    samples, groups, channels = x.shape[:3]
    many, outs = y.shape[2], y.shape[3:]
    w = np.zeros((groups, many, channels, *geometry.kernel), x.dtype)
    if not x.size or not y.size:
        return w
    frame = geometry.frame(x, outs)
    if channels == 1 and groups > 1:
        flat = y.reshape(samples, groups, many, prod(outs))
        for tap in taps(geometry.kernel):
            part = frame[geometry.seen(tap, outs)].reshape(samples, groups, prod(outs), 1)
            w[(slice(None), slice(None), 0, *tap)] = np.matmul(flat, part).sum(0)[..., 0]
        return w
    flat = y.reshape(samples, groups, many, prod(outs))
    matrix = w.reshape(groups, many, channels * geometry.taps)
    for block in _blocks(samples, groups * channels * geometry.taps * prod(outs) * x.itemsize):
        part = frame[block]
        columns = _columns(part, outs, geometry, part.shape[:2])
        if len(part) * w.nbytes <= BLOCK:
            matrix += np.matmul(flat[block], columns.swapaxes(2, 3)).sum(0)
            continue
        for one, of in zip(flat[block], columns, strict=True):
            matrix += np.matmul(one, of.swapaxes(1, 2))
    return w


# -- answers by name ------------------------------------------------------------------------------


def _wide(*arrays):
    """Half precision is computed in single."""
    return [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]


def _grouped(x, groups: int):
    """(N, groups, channels of each, *sizes)"""
    return np.ascontiguousarray(x).reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


def _weights(w, groups: int):
    return np.ascontiguousarray(w).reshape(groups, w.shape[0] // groups, *w.shape[1:])


@routine
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    given = input.dtype
    x, w = _wide(input, weight)
    geometry = geometry_of(w.shape[2:], tuple(stride), tuple(padding), tuple(dilation))
    if transposed:
        sizes = tuple(map(sp.transposed, x.shape[2:], geometry.kernel, stride, padding, dilation,
                          output_padding))
        out = convolve_data(_grouped(x, groups), _weights(w, groups), geometry, sizes)
    else:
        outs = geometry.outs(x.shape[2:])
        out = convolve(_grouped(x, groups), _weights(w, groups), geometry, outs)
    out = out.reshape(x.shape[0], -1 if out.size else w.shape[1] * groups if transposed else
                      w.shape[0], *out.shape[3:])
    if bias is not None:
        out = out + bias.reshape(-1, *[1] * (out.ndim - 2))
    return out.astype(given, copy=False)


@routine
def convolution_weight(data, result, kernel_size, stride, padding, dilation, groups):
    given = data.dtype
    x, y = _wide(data, result)
    geometry = geometry_of(tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation))
    w = convolve_weight(_grouped(x, groups), _grouped(y, groups), geometry)
    return w.reshape(-1 if w.size else y.shape[1], *w.shape[2:]).astype(given, copy=False)


@routine
def im2col(input, kernel_size, dilation, padding, stride):
    geometry = geometry_of(tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation))
    outs = geometry.outs(input.shape[-2:])
    if not input.size:
        shape = (*input.shape[:-3], input.shape[-3] * geometry.taps, prod(outs))
        return np.zeros(shape, input.dtype)
    frame = np.ascontiguousarray(geometry.frame(input, outs))
    view = windows(frame, outs, geometry.kernel, geometry.stride, geometry.dilation)
    return view.reshape(*input.shape[:-3], input.shape[-3] * geometry.taps, prod(outs))


@routine
def col2im(input, output_size, kernel_size, dilation, padding, stride):
    given = input.dtype
    (columns,) = _wide(input)
    geometry = geometry_of(tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation))
    outs = geometry.outs(output_size)
    lead, channels = input.shape[:-2], input.shape[-2] // geometry.taps
    columns = columns.reshape(*lead, channels, *geometry.kernel, *outs)
    reach = [max(n, s + p) for n, s, p in zip(
        needed(outs, geometry.kernel, geometry.stride, geometry.dilation), output_size, padding,
        strict=True)]
    frame = np.zeros((*lead, channels, *reach), columns.dtype)
    for tap in taps(geometry.kernel):
        frame[geometry.seen(tap, outs)] += columns[(slice(None),) * (len(lead) + 1) + tap]
    return unframed(frame, padding, output_size).astype(given, copy=False)
