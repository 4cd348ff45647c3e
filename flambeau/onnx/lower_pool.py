"""Pooling in ONNX: windows of one size, windows that share an axis out, and windows by chance."""

from __future__ import annotations

import itertools
import math

import numpy as np

import flambeau
from flambeau.export.graph import Extent, Value, example

from .build import Builder, UnsupportedOperatorError
from .registry import Call, lowers, several


def batched(b: Builder, x: Value, rank: int, work):
    """What works on a batch, on a single sample as well."""
    if x.rank == rank:
        return work(b.name(x), x.shape)
    found = work(b.unsqueeze(x, [0]), (1, *x.shape))
    return [b.squeeze(f, [0]) for f in found] if isinstance(found, list) else b.squeeze(found, [0])


def _max_pool(n: int):
    def lower(b: Builder, call: Call, x, kernel, stride, padding, dilation, ceil_mode,
              return_indices=False):
        return batched(b, x, n + 2, lambda name, shape: _windows(
            b, name, shape, n, kernel, stride, padding, dilation, ceil_mode, return_indices))
    return lower


def _windows(b: Builder, name, shape, n, kernel, stride, padding, dilation, ceil_mode, indices):
    kernel = several(kernel, n)
    options = {"kernel_shape": kernel, "pads": several(padding, n) * 2,
               "strides": kernel if stride is None or stride == () else several(stride, n),
               "dilations": several(dilation, n), "ceil_mode": int(ceil_mode)}
    if not indices:
        return b.op("MaxPool", name, **options)
    values, places = b.op("MaxPool", name, results=2, **options)
    # ONNX counts places in the whole tensor, not in the plane.
    plane = b.op("ReduceProd", b.ints(list(shape[2:])), keepdims=0)
    return [values, b.op("Mod", places, plane)]


for _n in (1, 2, 3):
    lowers(f"nn.functional.max_pool{_n}d", f"max_pool{_n}d")(_max_pool(_n))


def _with_places(n: int):
    def lower(b: Builder, call: Call, x, kernel, stride, padding, dilation, ceil_mode):
        return _max_pool(n)(b, call, x, kernel, stride, padding, dilation, ceil_mode, True)
    return lower


lowers("max_pool1d_with_indices")(_with_places(1))
lowers("nn.functional.max_pool2d_with_indices")(_with_places(2))
lowers("nn.functional.max_pool3d_with_indices")(_with_places(3))


@lowers("max_unpool1d", "max_unpool2d", "max_unpool3d")
def max_unpool(b: Builder, call: Call, x, indices, output_size):
    """Values go to their places in planes of zeros."""
    n = int(call.key[10])
    shape = call.out.shape
    size = int(np.prod([example(k) for k in shape[-n:]]))
    lead = list(shape[:-n])
    zeros = b.op("Expand", b.const(0, x.dtype), b.ints([*lead, size]))
    flat = b.op("Reshape", x, b.ints([*lead, -1]))
    places = b.op("Reshape", indices, b.ints([*lead, -1]))
    return b.op("Reshape", b.op("ScatterElements", zeros, places, flat, axis=-1), b.ints(shape))


def _avg_pool(n: int):
    def lower(b: Builder, call: Call, x, kernel, stride, padding, ceil_mode, count_pad,
              divisor=None):
        kernel_ = several(kernel, n)
        steps = kernel_ if stride is None or stride == () else several(stride, n)

        def work(name, shape):
            pads, count = several(padding, n) * 2, int(count_pad)
            if ceil_mode and any(pads) and count_pad:
                # Windows that reach past the padding count only what is inside it.
                wide = b.op("Pad", name, b.ints([0, 0, *pads[:n], 0, 0, *pads[n:]]))
                name, pads, count = wide, [0] * 2 * n, 0
            found = b.op("AveragePool", name, kernel_shape=kernel_, strides=steps, pads=pads,
                         ceil_mode=int(ceil_mode),
                         count_include_pad=1 if divisor is not None and not ceil_mode else count)
            if divisor is None:
                return found
            return b.op("Mul", found, b.const(math.prod(kernel_) / divisor, x.dtype))

        return batched(b, x, n + 2, work)
    return lower


lowers("avg_pool1d")(_avg_pool(1))
lowers("nn.functional.avg_pool2d")(_avg_pool(2))
lowers("nn.functional.avg_pool3d")(_avg_pool(3))


def _windows_of(size, count: int, call: Call) -> list[tuple[int, int]]:
    """Where each window of adaptive pooling begins and ends."""
    if isinstance(size, Extent):
        raise UnsupportedOperatorError(f"{call.key} to {count} of an axis whose size varies has "
                                       "no lowering")
    return [(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]


def adaptive(n: int, largest: bool):
    def lower(b: Builder, call: Call, x, output_size, return_indices=False):
        targets = [x.shape[x.rank - n + k] if t is None else t
                   for k, t in enumerate(several(output_size, n))]
        if return_indices:
            return _with_indices(b, call, x, targets)
        name = b.name(x)
        for k, target in enumerate(targets):
            axis = x.rank - n + k
            if target == 1:
                name = b.reduce("ReduceMax" if largest else "ReduceMean", name, [axis], True)
            elif not (isinstance(target, Extent) or target == x.shape[axis]):
                name = _along(b, name, axis, x.shape[axis], target, largest, call)
        return name
    return lower


def _along(b: Builder, name: str, axis: int, size, target: int, largest: bool, call: Call) -> str:
    kind = "ReduceMax" if largest else "ReduceMean"
    parts = [b.reduce(kind, b.slice(name, axis, begin, end), [axis], True)
             for begin, end in _windows_of(size, target, call)]
    return b.op("Concat", *parts, axis=axis)


lowers("adaptive_avg_pool1d")(adaptive(1, False))
lowers("nn.functional.adaptive_avg_pool2d")(adaptive(2, False))
lowers("nn.functional.adaptive_avg_pool3d")(adaptive(3, False))
for _n in (1, 2, 3):
    lowers(f"nn.functional.adaptive_max_pool{_n}d")(adaptive(_n, True))


@lowers("adaptive_max_pool1d")
def adaptive_max_pool1d(b: Builder, call: Call, x, output_size):
    return adaptive(1, True)(b, call, x, output_size, True)


# -- windows given by the places of their elements -----------------------------------------------


def _largest(b: Builder, planes: str, places: str, lead: list, outs: list, count: int):
    """[largest, its place] of windows of `count` elements in flat planes: the first among equals.

    `places` is (*lead, windows, count).
    """
    several_each = [*lead, math.prod(outs) * count]
    found = b.op("GatherElements", planes, b.op("Reshape", places, b.ints(several_each)), axis=-1)
    found = b.op("Reshape", found, b.op("Shape", places))
    first = b.op("ArgMax", found, axis=-1, keepdims=1)
    shape = b.ints([*lead, *outs])
    return [b.op("Reshape", b.op("GatherElements", each, first, axis=-1), shape)
            for each in (found, places)]


def _with_indices(b: Builder, call: Call, x: Value, targets: list):
    """Adaptive windows differ in size: short ones name their first element more than once."""
    n = len(targets)
    lead, outs = list(x.shape[:x.rank - n]), [example(t) for t in targets]
    spans = [_windows_of(size, out, call)
             for size, out in zip(x.shape[x.rank - n:], outs, strict=True)]
    sizes = x.sizes[x.rank - n:]
    strides = [math.prod(sizes[d + 1:]) for d in range(n)]
    windows = [[sum(k * stride for k, stride in zip(at, strides, strict=True))
                for at in itertools.product(*(range(*span) for span in each))]
               for each in itertools.product(*spans)]
    count = max(map(len, windows))
    table = np.array([w + w[:1] * (count - len(w)) for w in windows], np.int64)
    places = b.op("Expand", b.const(table), b.ints([*lead, *table.shape]))
    planes = b.op("Reshape", x, b.ints([*lead, math.prod(sizes)]))
    return _largest(b, planes, places, lead, outs, count)


def _fractional(n: int):
    def lower(b: Builder, call: Call, x, kernel, outs, samples):
        if any(isinstance(size, Extent) for size in x.shape[x.rank - n:]):
            raise UnsupportedOperatorError(f"{call.key} of an axis whose size varies has no "
                                           "lowering")
        return batched(b, x, n + 2, lambda name, shape: _by_samples(
            b, name, shape, n, list(kernel), list(outs), samples))
    return lower


def _by_samples(b: Builder, x: str, shape, n: int, kernel: list, outs: list, samples: Value):
    """Windows begin where random numbers say: one number for each plane and dimension."""
    lead, sizes = list(shape[:2]), list(shape[2:])
    drawn = b.slice(samples, 0, 0, lead[0])
    begins = b.const(np.zeros([1] * (n + 2), np.int64))
    for d in range(n):
        # The number of an image's last dimension comes first, that of a volume's last.
        pick = n - 1 - d if n == 2 else d
        at = _starts(b, b.slice(drawn, 2, pick, pick + 1), samples.dtype, sizes[d], outs[d],
                     kernel[d])
        at = b.op("Mul", at, b.const(math.prod(sizes[d + 1:]), flambeau.int64))
        apart = [2 + k for k in range(n) if k != d]
        begins = b.op("Add", begins, b.unsqueeze(at, apart) if apart else at)
    taps = [sum(t * math.prod(sizes[d + 1:]) for d, t in enumerate(tap))
            for tap in itertools.product(*map(range, kernel))]
    flat = b.op("Reshape", begins, b.ints([*lead, math.prod(outs), 1]))
    places = b.op("Add", flat, b.const(np.array(taps, np.int64)))
    planes = b.op("Reshape", x, b.ints([*lead, math.prod(sizes)]))
    return _largest(b, planes, places, lead, outs, len(taps))


def _starts(b: Builder, sample: str, kind, size: int, out: int, kernel: int) -> str:
    """(batch, channels, out): where windows begin along one dimension; the last at its end."""
    def whole(name: str) -> str:
        return b.op("Cast", name, to=7)

    last = b.op("Add", whole(b.op("Mul", sample, b.const(0, kind))),
                b.const(size - kernel, flambeau.int64))
    if out == 1:
        return last
    steps = np.arange(out - 1, dtype=kind.numpy)
    alpha = b.const(kind.numpy.type(size - kernel) / kind.numpy.type(out - 1), kind)
    reached = whole(b.op("Mul", b.op("Add", b.const(steps), sample), alpha))
    return b.op("Concat", b.op("Sub", reached, whole(b.op("Mul", sample, alpha))), last, axis=2)


lowers("fractional_max_pool2d_with_indices")(_fractional(2))
lowers("fractional_max_pool3d_with_indices")(_fractional(3))


