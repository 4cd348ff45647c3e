"""Pooling: extremes of windows with their positions, means of windows, and the ways back.

Positions count elements of one plane: all pooled dimensions, flattened, before padding.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ...core import spatial as sp
from ...core.lazily import np
from .routines import ROUTINES, routine
from .windows import framed, needed, seen, taps, unframed

# -- the largest of each window -------------------------------------------------------------------


def _lowest(dtype: np.dtype):
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


class _Largest:
    """The largest so far and where it is: the first of equals, but the last NaN."""

    def __init__(self, shape, dtype: np.dtype, start: np.ndarray):
        self.values = np.full(shape, _lowest(dtype), dtype)
        self.places = np.empty(shape, np.int64)
        self.places[...] = start

    def see(self, values: np.ndarray, places: np.ndarray) -> None:
        """One more element of every window."""
        with np.errstate(invalid="ignore"):
            better = values > self.values
            if values.dtype.kind == "f":
                better |= values != values
        np.copyto(self.values, values, where=better)
        np.copyto(self.places, places, where=better)


def _flat(coordinates, sizes) -> np.ndarray:
    """Positions in a plane from one vector of coordinates per dimension."""
    return np.asarray(np.ravel_multi_index(np.ix_(*coordinates), sizes, mode="clip"))


class _Windows:
    """What max pooling needs to know of its windows, worked out once per geometry."""

    def __init__(self, sizes, kernel, stride, padding, dilation, ceil_mode):
        self.outs = tuple(sp.pooled(*v, ceil_mode)
                          for v in zip(sizes, kernel, stride, padding, dilation, strict=True))
        self.padding, self.n = padding, len(sizes)
        self.needed = needed(self.outs, kernel, stride, dilation)
        self.seen = [seen(tap, self.outs, stride, dilation) for tap in taps(kernel)]
        steps = [prod(sizes[d + 1:]) for d in range(self.n)]
        starts = [np.arange(o) * s - p
                  for o, s, p in zip(self.outs, stride, padding, strict=True)]
        self.corner = sum(at * step for at, step in zip(np.ix_(*starts), steps, strict=True))
        self.moves = np.array([sum(t * d * step for t, d, step in
                                   zip(tap, dilation, steps, strict=True)) for tap in taps(kernel)])
        # A window of nothing but the lowest is said to have its largest at its first element.
        first = [np.where(at < 0, at + d * -(at // d), at)
                 for at, d in zip(starts, dilation, strict=True)]
        self.first = _flat(first, sizes)

    def frame(self, x):
        return framed(x, self.padding, self.needed, _lowest(x.dtype))

    def values(self, frame):
        best = frame[self.seen[0]].copy()
        for part in self.seen[1:]:
            np.maximum(best, frame[part], out=best)
        return best

    def both(self, frame):
        best = self.values(frame)
        if best.dtype.kind == "f" and np.isnan(best).any():
            return self._with_nan(frame)
        kind = np.uint8 if len(self.seen) <= 256 else np.int64
        found = np.zeros(best.shape, kind)
        for number in range(len(self.seen) - 1, -1, -1):
            np.copyto(found, kind(number), where=frame[self.seen[number]] == best)
        places = self.moves[found]
        places += self.corner
        if any(self.padding):
            np.copyto(places, self.first, where=best == _lowest(best.dtype))
        return best, places

    def _with_nan(self, frame):
        best = _Largest((*frame.shape[:-self.n], *self.outs), frame.dtype, self.first)
        for part, move in zip(self.seen, self.moves, strict=True):
            best.see(frame[part], self.corner + move)
        return best.values, best.places


@lru_cache(64)
def _windows(*geometry) -> _Windows:
    return _Windows(*geometry)


def _declare_max(n: int) -> None:
    def found(input, kernel_size, stride, padding, dilation, ceil_mode):
        options = sp.pool_options(n, kernel_size, stride, padding, dilation)
        return _windows(input.shape[-n:], *options, bool(ceil_mode))

    def with_places(input, **options):
        windows = found(input, **options)
        return windows.both(windows.frame(input))

    def values(input, **options):
        windows = found(input, **options)
        return windows.values(windows.frame(input))

    ROUTINES[f"max_pool{n}d_with_indices"] = with_places
    ROUTINES[f"max_pool{n}d_values"] = values


for _n in (1, 2, 3):
    _declare_max(_n)


# -- windows chosen to give a size ----------------------------------------------------------------


def _adaptive_bounds(size: int, out: int):
    """Where each of `out` windows over `size` elements begins and ends."""
    at = np.arange(out)
    return at * size // out, -(-(at + 1) * size // out)


def _adaptive_max_pool(input, outs):
    n = len(outs)
    sizes = input.shape[-n:]
    bounds = [_adaptive_bounds(size, out) for size, out in zip(sizes, outs, strict=True)]
    longest = [int((end - begin).max()) for begin, end in bounds] if prod(outs) else [1] * n
    lead, flat = input.shape[:-n], input.reshape(*input.shape[:-n], prod(sizes))
    first = _flat([begin for begin, _ in bounds], sizes) if prod(outs) else np.zeros(outs, np.int64)
    best = _Largest((*lead, *outs), input.dtype, first)
    if not best.values.size:
        return best.values, best.places
    if prod(longest) > prod(outs) * 4:
        return _by_window(flat.reshape(input.shape), bounds, outs)
    for tap in taps(longest):
        at = [np.minimum(begin + t, end - 1) for (begin, end), t in zip(bounds, tap, strict=True)]
        places = _flat(at, sizes)
        best.see(flat[..., places], places)
    return best.values, best.places


def _by_window(input, bounds, outs):
    """Few large windows: each at once."""
    n, lead = len(outs), input.shape[:-len(outs)]
    values = np.empty((*lead, *outs), input.dtype)
    places = np.empty((*lead, *outs), np.int64)
    positions = np.arange(prod(input.shape[-n:])).reshape(input.shape[-n:])
    for out in np.ndindex(*outs):
        part = tuple(slice(begin[i], end[i]) for (begin, end), i in zip(bounds, out, strict=True))
        window = input[(..., *part)].reshape(*lead, -1)
        at = window.argmax(-1)
        missing = window != window
        if missing.any():
            last = window.shape[-1] - 1 - missing[..., ::-1].argmax(-1)
            at = np.where(missing.any(-1), last, at)
        values[(..., *out)] = np.take_along_axis(window, at[..., None], -1)[..., 0]
        places[(..., *out)] = positions[part].reshape(-1)[at]
    return values, places


def _adaptive(n: int):
    return lambda input, output_size: _adaptive_max_pool(input, output_size)


for _n in (1, 2, 3):
    ROUTINES[f"adaptive_max_pool{_n}d_with_indices"] = _adaptive(_n)


# -- windows placed by random numbers -------------------------------------------------------------


def _fractional_starts(samples: np.ndarray, size: int, out: int, kernel: int) -> np.ndarray:
    """(planes, out): where each plane's windows begin."""
    starts = np.empty((len(samples), out), np.int64)
    if out > 1:
        alpha = samples.dtype.type(size - kernel) / samples.dtype.type(out - 1)
        steps = np.arange(out - 1, dtype=samples.dtype)
        starts[:, :-1] = ((steps + samples[:, None]) * alpha).astype(np.int64)
        starts[:, :-1] -= (samples * alpha).astype(np.int64)[:, None]
    starts[:, -1:] = size - kernel
    return starts


def _fractional_max_pool(n: int, input, kernel_size, output_size, samples):
    sizes, lead = input.shape[-n:], input.shape[:-n]
    planes = input.reshape(prod(lead), prod(sizes))
    numbers = samples.reshape(prod(samples.shape[:-1]), n)[:len(planes)]
    # torch draws the last dimension's number first in images, and last in volumes.
    order = range(n - 1, -1, -1) if n == 2 else range(n)
    begins = np.zeros((len(planes), *[1] * n), np.int64)
    for d, pick in enumerate(order):
        at = _fractional_starts(numbers[:, pick], sizes[d], output_size[d], kernel_size[d])
        at = at * prod(sizes[d + 1:])
        begins = begins + at.reshape(len(planes), *[1] * d, output_size[d], *[1] * (n - d - 1))
    begins = begins.reshape(len(planes), prod(output_size))
    best = _Largest(begins.shape, input.dtype, begins)
    for tap in taps(kernel_size):
        places = begins + sum(t * prod(sizes[d + 1:]) for d, t in enumerate(tap))
        best.see(np.take_along_axis(planes, places, 1), places)
    shape = (*lead, *output_size)
    return best.values.reshape(shape), best.places.reshape(shape)


def _fractional(n: int):
    return lambda input, kernel_size, output_size, _random_samples: _fractional_max_pool(
        n, input, kernel_size, output_size, _random_samples)


for _n in (2, 3):
    ROUTINES[f"fractional_max_pool{_n}d_with_indices"] = _fractional(_n)


# -- to and from places in planes -----------------------------------------------------------------


@routine
def gather_planes(input, places, n):
    lead, shape = input.shape[:-n], places.shape[-n:]
    flat = places.reshape(*places.shape[:-n], prod(shape))
    out = np.take_along_axis(input.reshape(*lead, prod(input.shape[-n:])), flat, -1)
    return out.reshape(*out.shape[:-1], *shape)


def _absolute(places, shape, sizes) -> np.ndarray:
    """Places counted from the first plane on."""
    volume, n = prod(sizes), len(sizes)
    whole = np.broadcast_to(places, (*shape[:-n], *places.shape[-n:]))
    flat = whole.reshape(prod(shape[:-n]), prod(places.shape[-n:]))
    return (flat + np.arange(len(flat))[:, None] * volume).reshape(-1)


@routine
def scatter_planes(input, places, sizes):
    lead = input.shape[:-len(sizes)]
    flat = _absolute(places, input.shape, sizes)
    return _summed(flat, input.reshape(-1), prod(lead) * prod(sizes)).reshape(*lead, *sizes)


def _unpool(input, indices, output_size):
    volume, lead = prod(output_size), input.shape[:-len(output_size)]
    if indices.size and (indices.min() < 0 or indices.max() >= volume):
        wrong = indices[(indices < 0) | (indices >= volume)][0]
        raise RuntimeError(f"Found an invalid max index: {wrong} (output volumes are of size "
                           f"{'x'.join(map(str, output_size))})")
    out = np.zeros(prod(lead) * volume, input.dtype)
    out[_absolute(indices, input.shape, output_size)] = input.reshape(-1)
    return out.reshape(*lead, *output_size)


for _n in (1, 2, 3):
    ROUTINES[f"max_unpool{_n}d"] = _unpool


def _summed(places, values, size: int) -> np.ndarray:
    """Sums of the values that go to the same place."""
    if values.dtype.kind == "c":
        return (_summed(places, values.real, size)
                + 1j * _summed(places, values.imag, size)).astype(values.dtype)
    return np.bincount(places, values, size).astype(values.dtype)


# -- means of windows -----------------------------------------------------------------------------


class _Means:
    """Windows whose means are taken, dimension by dimension."""

    def __init__(self, sizes, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
        self.kernel, self.stride, self.padding = kernel, stride, padding
        self.sizes, self.n = sizes, len(sizes)
        self.outs = tuple(sp.pooled(*v, 1, ceil_mode) for v in
                          zip(sizes, self.kernel, self.stride, self.padding, strict=True))
        self.needed = needed(self.outs, self.kernel, self.stride, (1,) * self.n)
        self.divisor = divisor or self._counts(count_include_pad)

    def _counts(self, with_padding: bool):
        """How many elements each window's mean is over."""
        counts = []
        for size, k, s, p, out in zip(self.sizes, self.kernel, self.stride, self.padding, self.outs,
                                      strict=True):
            begin = np.arange(out) * s - p
            end = np.minimum(begin + k, size + p)
            if not with_padding:
                begin, end = np.maximum(begin, 0), np.minimum(end, size)
            counts.append(np.maximum(end - begin, 1))
        first = counts[0]
        if all((c == c[0]).all() for c in counts):
            return int(prod(int(c[0]) for c in counts))
        for other in counts[1:]:
            first = np.multiply.outer(first, other)
        return first

    def divide(self, x):
        if x.dtype.kind in "iu":
            quotient = np.abs(x) // np.abs(self.divisor)
            return np.where((x < 0) != (np.asarray(self.divisor) < 0), -quotient, quotient)
        divisor = self.divisor
        if isinstance(divisor, np.ndarray):
            divisor = divisor.astype(x.real.dtype)
        return x / divisor

    def _slices(self, dim: int):
        """Per tap along one dimension, what the windows see."""
        for tap in range(self.kernel[dim]):
            at = slice(tap, tap + (self.outs[dim] - 1) * self.stride[dim] + 1, self.stride[dim])
            yield (..., at, *[slice(None)] * (self.n - 1 - dim))

    def forward(self, x):
        frame = framed(x, self.padding, self.needed)
        for dim in range(self.n - 1, -1, -1):
            total = None
            for part in self._slices(dim):
                total = frame[part].copy() if total is None else np.add(total, frame[part],
                                                                        out=total)
            frame = total
        return self.divide(frame)

    def backward(self, g):
        frame = self.divide(g)
        for dim in range(self.n):
            shape = list(frame.shape)
            shape[dim - self.n] = max(self.needed[dim], self.sizes[dim] + self.padding[dim])
            spread = np.zeros(shape, frame.dtype)
            for part in self._slices(dim):
                spread[part] += frame
            frame = spread
        return unframed(frame, self.padding, self.sizes)


@lru_cache(64)
def _means(*geometry) -> _Means:
    return _Means(*geometry)


def _half_in_single(function, x):
    if x.dtype != np.float16:
        return function(x)
    return function(x.astype(np.float32)).astype(np.float16)


def _averaged(sizes, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor):
    kernel, stride, padding, _ = sp.pool_options(len(sizes), kernel_size, stride, padding)
    return _means(sizes, kernel, stride, padding, bool(ceil_mode), bool(count_include_pad), divisor)


def _mean(n: int):
    def avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad,
                 divisor_override=None):
        means = _averaged(input.shape[-n:], kernel_size, stride, padding, ceil_mode,
                          count_include_pad, divisor_override)
        return _half_in_single(means.forward, input)
    return avg_pool


for _n in (1, 2, 3):
    ROUTINES[f"avg_pool{_n}d"] = _mean(_n)


@routine
def avg_pool_back(g, sizes, kernel_size, stride, padding, ceil_mode, count_include_pad,
                  divisor_override):
    means = _averaged(sizes, kernel_size, stride, padding, ceil_mode, count_include_pad,
                      divisor_override)
    return _half_in_single(means.backward, g)
