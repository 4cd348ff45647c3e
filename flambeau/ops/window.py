"""Windows: weights that fade a stretch of a signal in and out."""

from __future__ import annotations

import functools
import math

from ..core import dtype as dt
from ..core.lazily import np
from .declare import composite
from .fft import new_vector


def _build(name, count, periodic, value, dtype, device, requires_grad):
    """value(k, n) for k in a window whose last point, k = n, is left out if it is periodic."""
    if count < 0:
        raise RuntimeError(f"{name} requires non-negative window length, got {count}")
    dtype = dtype or dt.default_float()
    if dtype.kind != "f":
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if count == 1:
        values = [1.0]
    else:
        make = _values if count <= _KEPT else _values.__wrapped__
        values = make(value, count, count if periodic else count - 1)
    return new_vector(values, dtype, device, requires_grad)


#: the longest windows that are remembered
_KEPT = 1 << 14


@functools.lru_cache(maxsize=64)
def _values(value, count: int, n: int):
    return value(np.arange(count, dtype=np.float64), n)


@functools.lru_cache(maxsize=64)
def _cosines(coefficients: tuple):
    """The sum of (-1)^i a_i cos(2 pi i k / n)."""
    def value(k, n):
        return sum((-1) ** i * a * np.cos(2 * math.pi * i * k / n)
                   for i, a in enumerate(coefficients))
    return value


def _triangle(k, n):
    return 1 - abs(2 * k / n - 1)


@functools.lru_cache(maxsize=64)
def _kaiser(beta: float):
    def value(k, n):
        bow = np.sqrt(np.maximum(0.0, 1 - (2 * k / n - 1) ** 2))
        return bessel_i0(beta * bow) / bessel_i0(np.float64(beta))
    return value


def bessel_i0(x):
    """The modified Bessel function of order 0 of an array, by its series."""
    total = term = np.ones_like(x)
    k = 0
    while np.any(term > 1e-17 * total):
        k += 1
        term = term * (x / (2 * k)) ** 2
        total = total + term
    return total


@composite(method=False)
def hann_window(window_length, periodic=True, *, dtype=None, layout=None, device=None,
                pin_memory=False, requires_grad=False):
    """One raised cosine."""
    return _build("hann_window", window_length, periodic, _cosines((0.5, 0.5)), dtype, device,
                  requires_grad)


@composite(method=False)
def hamming_window(window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None,
                   device=None, pin_memory=False, requires_grad=False):
    """A raised cosine that does not reach zero."""
    return _build("hamming_window", window_length, periodic, _cosines((alpha, beta)), dtype, device,
                  requires_grad)


@composite(method=False)
def blackman_window(window_length, periodic=True, *, dtype=None, layout=None, device=None,
                    pin_memory=False, requires_grad=False):
    """Three cosines."""
    return _build("blackman_window", window_length, periodic, _cosines((0.42, 0.5, 0.08)), dtype,
                  device, requires_grad)


@composite(method=False)
def bartlett_window(window_length, periodic=True, *, dtype=None, layout=None, device=None,
                    pin_memory=False, requires_grad=False):
    """A triangle."""
    return _build("bartlett_window", window_length, periodic, _triangle, dtype, device,
                  requires_grad)


@composite(method=False)
def kaiser_window(window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None,
                  pin_memory=False, requires_grad=False):
    """Bessel's function of a half circle."""
    return _build("kaiser_window", window_length, periodic, _kaiser(beta), dtype, device,
                  requires_grad)


# -- torch.signal.windows --------------------------------------------------------------------------


def _signal(name, M, sym, value, dtype, layout, device, requires_grad):
    if not isinstance(M, int) or M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and str(layout) != "torch.strided":
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    dtype = dtype or dt.default_float()
    if dtype not in (dt.float32, dt.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    if M == 0:
        return new_vector([], dtype, device, requires_grad)
    return _build(name, M, not sym, value, dtype, device, requires_grad)


@composite(where="signal.windows")
def exponential(M, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None,
                requires_grad=False):
    """exp(-|k - center| / tau)"""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def value(k, n):
        return np.exp(-abs(k - (n / 2 if center is None else center)) / tau)

    return _signal("exponential", M, sym, value, dtype, layout, device, requires_grad)


@composite(where="signal.windows")
def cosine(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Half a period of a sine."""
    def value(k, n):
        return np.sin(math.pi * (k + 0.5) / (n + 1))

    return _signal("cosine", M, sym, value, dtype, layout, device, requires_grad)


@composite(where="signal.windows")
def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-(distance from the middle / std)^2 / 2)"""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def value(k, n):
        return np.exp(-((k - n / 2) / std) ** 2 / 2)

    return _signal("gaussian", M, sym, value, dtype, layout, device, requires_grad)


@composite(where="signal.windows")
def kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Bessel's function of a half circle."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _signal("kaiser", M, sym, _kaiser(beta), dtype, layout, device, requires_grad)


@composite(where="signal.windows")
def general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A sum of cosines with weights a, their signs alternating."""
    if not isinstance(a, (list, tuple)):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _signal("general_cosine", M, sym, _cosines(tuple(a)), dtype, layout, device,
                   requires_grad)


@composite(where="signal.windows")
def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=None, device=None,
                    requires_grad=False):
    """A raised cosine: alpha - (1 - alpha) cos."""
    return _signal("general_hamming", M, sym, _cosines((alpha, 1 - alpha)), dtype, layout, device,
                   requires_grad)


@composite(where="signal.windows")
def hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A raised cosine that does not reach zero."""
    return _signal("hamming", M, sym, _cosines((0.54, 0.46)), dtype, layout, device, requires_grad)


@composite(where="signal.windows")
def hann(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """One raised cosine."""
    return _signal("hann", M, sym, _cosines((0.5, 0.5)), dtype, layout, device, requires_grad)


@composite(where="signal.windows")
def blackman(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Three cosines."""
    return _signal("blackman", M, sym, _cosines((0.42, 0.5, 0.08)), dtype, layout, device,
                   requires_grad)


@composite(where="signal.windows")
def bartlett(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A triangle."""
    return _signal("bartlett", M, sym, _triangle, dtype, layout, device, requires_grad)


@composite(where="signal.windows")
def nuttall(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Four cosines, with low side lobes."""
    value = _cosines((0.3635819, 0.4891775, 0.1365995, 0.0106411))
    return _signal("nuttall", M, sym, value, dtype, layout, device, requires_grad)
