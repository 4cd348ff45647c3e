"""Fourier transforms of the CPU, by numpy; scaling is part of the transform."""

from __future__ import annotations

from ...core.lazily import np
from .routines import routine

# numpy calls "backward" the norm under which the forward transform is not scaled.
_FORWARD = {"none": "backward", "root": "ortho", "n": "forward"}
_INVERSE = {"none": "forward", "root": "ortho", "n": "backward"}


def _floating(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


@routine
def fft_c2c(x, sizes, dims, scale, forward):
    transform, norm = (np.fft.fftn, _FORWARD) if forward else (np.fft.ifftn, _INVERSE)
    return transform(_floating(x), sizes, dims, norm=norm[scale])


@routine
def fft_r2c(x, sizes, dims, scale):
    return np.fft.rfftn(_floating(x), sizes, dims, norm=_FORWARD[scale])


@routine
def fft_c2r(x, sizes, dims, scale):
    return np.fft.irfftn(_floating(x), sizes, dims, norm=_INVERSE[scale])


@routine
def resized_to(x, shape):
    common = tuple(slice(min(have, want)) for have, want in zip(x.shape, shape, strict=True))
    out = np.zeros(shape, x.dtype)
    out[common] = x[common]
    return out


@routine
def overlap_add(frames, hop):
    *lead, count, width = frames.shape
    out = np.zeros((*lead, (count - 1) * hop + width), frames.dtype)
    for k in range(count):
        out[..., k * hop:k * hop + width] += frames[..., k, :]
    return out
