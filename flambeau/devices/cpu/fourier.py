"""Fourier transforms of the CPU that have no machine code (see fourier_plan.py), by numpy; scaling
is part of the transform."""

from __future__ import annotations

from ...core.lazily import np
from .routines import routine

# numpy calls "backward" the norm under which the forward transform is not scaled.
_FORWARD = {"none": "backward", "root": "ortho", "n": "forward"}
_INVERSE = {"none": "forward", "root": "ortho", "n": "backward"}


def _floating(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


def _transform(name: str, x: np.ndarray, sizes, dims, norm: str) -> np.ndarray:
    """numpy's transform of a name; over one dimension it has a quicker one."""
    if len(dims) == 1:
        return getattr(np.fft, name)(_floating(x), sizes[0], dims[0], norm)
    return getattr(np.fft, f"{name}n")(_floating(x), sizes, dims, norm)


@routine
def fft_c2c(x, sizes, dims, scale, forward):
    name, norm = ("fft", _FORWARD) if forward else ("ifft", _INVERSE)
    return _transform(name, x, sizes, dims, norm[scale])


@routine
def fft_r2c(x, sizes, dims, scale):
    return _transform("rfft", x, sizes, dims, _FORWARD[scale])


@routine
def fft_c2r(x, sizes, dims, scale):
    return _transform("irfft", x, sizes, dims, _INVERSE[scale])


@routine
def overlap_add(frames, hop):
    *lead, count, width = frames.shape
    out = np.zeros((*lead, (count - 1) * hop + width), frames.dtype)
    for k in range(count):
        out[..., k * hop:k * hop + width] += frames[..., k, :]
    return out
