"""Signals, images and volumes resized."""

from __future__ import annotations

from .conv import tensor_argument
from .declare import composite
from .pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .resample import UPSAMPLING

FUNCTIONAL = "nn.functional"

# -- interpolation --------------------------------------------------------------------------------

_MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"
_UNALIGNED = ("nearest", "area", "nearest-exact")
_ANTIALIASED = ("bilinear", "bicubic", "lanczos")
_AREAS = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
_NEEDED = {"linear": 3, "bilinear": 4, "bicubic": 4, "lanczos": 4, "trilinear": 5}


def _per_dimension(what: str, value, n: int, shape) -> tuple:
    if not isinstance(value, (list, tuple)):
        return (value,) * n
    if len(value) != n:
        raise ValueError(f"interpolate: Input and {what} must have the same number of spatial "
                         f"dimensions, but got input with spatial dimensions of {list(shape)} and "
                         f"{what} of {value}")
    return tuple(value)


def _sizes_and_scales(input, size, scale_factor, recompute: bool):
    """The output's sizes, and the factors asked for unless they are to be worked out again."""
    n, shape = input.dim() - 2, input.shape[2:]
    if size is not None and scale_factor is not None:
        raise ValueError("interpolate: only one of size or scale_factor should be defined")
    if size is not None:
        sizes = _per_dimension("output size", size, n, shape)
        if not all(hasattr(s, "__index__") for s in sizes):
            raise TypeError("interpolate: expected size to be one of int or Tuple[int] or "
                            "Tuple[int, int] or Tuple[int, int, int], but got size with types "
                            f"{[type(s) for s in sizes]}")
        return tuple(int(s) for s in sizes), None
    if scale_factor is None:
        raise ValueError("interpolate: either size or scale_factor should be defined")
    scales = tuple(float(s) for s in _per_dimension("scale_factor", scale_factor, n, shape))
    sizes = tuple(int(have * scale) for have, scale in zip(shape, scales, strict=True))
    return sizes, None if recompute else scales


def _check_mode(input, mode: str, align_corners, antialias: bool) -> None:
    if mode in _UNALIGNED and align_corners is not None:
        raise ValueError("interpolate: align_corners option can only be set with the interpolating "
                         f"modes: linear | bilinear | bicubic | trilinear, not {mode}")
    if antialias and not (mode in _ANTIALIASED and input.dim() == 4):
        raise ValueError("interpolate: Anti-alias option is restricted to bilinear, bicubic, and "
                         "lanczos modes and requires a 4-D tensor as input")
    if mode == "lanczos" and input.dim() == 4 and (align_corners or not antialias):
        raise ValueError("interpolate: lanczos mode requires antialias=True and does not support "
                         "align_corners=True")
    if mode in _NEEDED and input.dim() in (3, 4, 5) and input.dim() != _NEEDED[mode]:
        raise NotImplementedError(f"interpolate: Got {input.dim()}D input, but {mode} mode needs "
                                  f"{_NEEDED[mode]}D input")


@composite(where=FUNCTIONAL)
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None,
                recompute_scale_factor=None, antialias=False):
    """The dimensions after the channels resized, to `size` or by `scale_factor`."""
    tensor_argument("interpolate", "input", input)
    if recompute_scale_factor and size is not None:
        raise ValueError("interpolate: recompute_scale_factor is not meaningful with an explicit "
                         "size.")
    sizes, scales = _sizes_and_scales(input, size, scale_factor,
                                      bool(recompute_scale_factor) or mode == "area")
    _check_mode(input, mode, align_corners, antialias)
    n = input.dim() - 2
    if mode == "area" and n in _AREAS:
        return _AREAS[n](input, sizes)
    op = UPSAMPLING.get((mode + "-aa" if antialias else mode, n))
    if op is None:
        raise NotImplementedError("Input Error: Only 3D, 4D and 5D input Tensors supported (got "
                                  f"{input.dim()}D) for the modes: {_MODES} (got {mode})")
    if 0 in sizes or 0 in input.shape[2:] or 0 in input.shape[1:2]:
        raise RuntimeError("interpolate: Input and output sizes should be greater than 0, but got "
                           f"input {list(input.shape)} and output size {list(sizes)}")
    return op(input, sizes, bool(align_corners), scales)


@composite(where=FUNCTIONAL)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """`interpolate`, under its old name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(where=FUNCTIONAL)
def upsample_nearest(input, size=None, scale_factor=None):
    """Resized by taking the nearest element."""
    return interpolate(input, size, scale_factor, "nearest")


@composite(where=FUNCTIONAL)
def upsample_bilinear(input, size=None, scale_factor=None):
    """Images resized by weighing the four nearest pixels, corners aligned."""
    return interpolate(input, size, scale_factor, "bilinear", True)
