"""Windows over the last dimensions of an array: padding, one slice per tap, and the way back.

A tap is one position inside the window. What all windows see at that tap is a strided slice, so
work on windows is a loop over taps of whole-array steps.
"""

from __future__ import annotations

from itertools import product

from ...core.lazily import np


def needed(outs, kernel, stride, dilation) -> tuple[int, ...]:
    """The padded sizes that windows read."""
    return tuple((o - 1) * s + d * (k - 1) + 1
                 for o, k, s, d in zip(outs, kernel, stride, dilation, strict=True))


def framed(x: np.ndarray, before, sizes, fill=0) -> np.ndarray:
    """x put at `before` in a larger array of `fill`, cut off where it does not fit."""
    n = len(sizes)
    if not any(before) and x.shape[-n:] == tuple(sizes):
        return x
    out = np.full((*x.shape[:-n], *sizes), fill, x.dtype) if fill else np.zeros(
        (*x.shape[:-n], *sizes), x.dtype)
    inner, taken = inside(x.shape[-n:], before, sizes)
    out[inner] = x[taken]
    return out


def inside(have, before, sizes):
    """Where an array lies in its frame, and which part of it does."""
    reach = [min(h, size - b) for h, b, size in zip(have, before, sizes, strict=True)]
    inner = (..., *(slice(b, b + r) for b, r in zip(before, reach, strict=True)))
    return inner, (..., *(slice(0, r) for r in reach))


def unframed(frame: np.ndarray, before, have) -> np.ndarray:
    """The part of a frame that an array of sizes `have` fills: the transpose of `framed`."""
    n = len(have)
    if not any(before) and frame.shape[-n:] == tuple(have):
        return frame
    inner, taken = inside(have, before, frame.shape[-n:])
    if frame[inner].shape[-n:] == tuple(have):
        return frame[inner]
    out = np.zeros((*frame.shape[:-n], *have), frame.dtype)
    out[taken] = frame[inner]
    return out


def taps(kernel):
    """Every position in the window, the last dimension fastest."""
    return product(*map(range, kernel))


def seen(tap, outs, stride, dilation):
    """The slice of a frame that all windows see at one tap."""
    return (..., *(slice(t * d, t * d + (o - 1) * s + 1, s)
                   for t, o, s, d in zip(tap, outs, stride, dilation, strict=True)))


def windows(frame: np.ndarray, outs, kernel, stride, dilation) -> np.ndarray:
    """(..., *kernel, *outs): every window of a contiguous frame, sharing its memory."""
    n = len(outs)
    steps = frame.strides[-n:]
    return np.ndarray(
        (*frame.shape[:-n], *kernel, *outs), frame.dtype, frame, 0,
        (*frame.strides[:-n], *(d * s for d, s in zip(dilation, steps, strict=True)),
         *(s * t for s, t in zip(stride, steps, strict=True))))
