"""Resampling: along each of the last dimensions, elements weighed into others, separately.

Nearest, linear and cubic interpolation, with and without antialiasing, and means over as many
windows as wanted are one op with different weights; `resample_back` is its transpose, and the
gradient of each is the other.
"""

from __future__ import annotations

from ..core import formats as fm
from ..core import spatial as sp
from .declare import T, composite, library
from .refusal import no_kernel

#: dtypes each mode takes, by kind; bytes are images
_TAKEN = {"nearest": "fu", "nearest-exact": "fu", "linear": "fu", "cubic": "fu", "area": "f",
          "linear-aa": "fu", "cubic-aa": "fu", "lanczos-aa": "fu"}


@library(method=False, function_form=False)
def resample(input: T, sizes, mode, align_corners, scales):
    """The last dimensions brought to these sizes; `scales` are factors that were asked for."""
    if input.dtype.kind not in _TAKEN[mode] or (
            input.dtype.kind == "u" and input.dtype.name != "uint8"):
        raise no_kernel(f"resample ({mode})", input.dtype)
    return (*input.shape[:-len(sizes)], *sizes)


@resample.gradient
def resample(g, input_meta, sizes, mode, align_corners, scales):
    given = tuple(input_meta.shape[-len(sizes):])
    return resample_back(g, given, mode, align_corners, scales)


@library(method=False, function_form=False)
def resample_back(g: T, sizes, mode, align_corners, scales):
    """The transpose of `resample`: back to these sizes."""
    return (*g.shape[:-len(sizes)], *sizes)


@resample_back.gradient
def resample_back(g, g_meta, sizes, mode, align_corners, scales):
    return resample(g, tuple(g_meta.shape[-len(sizes):]), mode, align_corners, scales)


_CHANNELS_LAST = {4: fm.channels_last, 5: fm.channels_last_3d}


def _laid_as(input, out):
    """With channels side by side where the operand has them so."""
    form = _CHANNELS_LAST.get(input.dim())
    if form is None or input.is_contiguous() or not input.is_contiguous(memory_format=form):
        return out
    return out.contiguous(memory_format=form)


def _named(name: str, backward: str, mode: str):
    """Resampling by one mode, as a step of the graph with torch's name."""
    @composite(name=name, method=False, function_form=False, backward=backward)
    def op(input: T, sizes, align_corners=False, scales=None):
        return _laid_as(input, resample(input, sizes, mode, align_corners, scales))

    @op.gradient
    def op(g, input_meta, sizes, align_corners, scales):
        given = tuple(input_meta.shape[-len(sizes):])
        return resample_back(g, given, mode, align_corners, scales)

    return op


#: (mode of interpolate, dimensions) -> op; antialiased modes end in -aa
UPSAMPLING = {
    ("nearest", 1):       _named("upsample_nearest1d", "UpsampleNearest1DBackward0", "nearest"),
    ("nearest", 2):       _named("upsample_nearest2d", "UpsampleNearest2DBackward0", "nearest"),
    ("nearest", 3):       _named("upsample_nearest3d", "UpsampleNearest3DBackward0", "nearest"),
    ("nearest-exact", 1): _named("_upsample_nearest_exact1d", "UpsampleNearestExact1DBackward0",
                                 "nearest-exact"),
    ("nearest-exact", 2): _named("_upsample_nearest_exact2d", "UpsampleNearestExact2DBackward0",
                                 "nearest-exact"),
    ("nearest-exact", 3): _named("_upsample_nearest_exact3d", "UpsampleNearestExact3DBackward0",
                                 "nearest-exact"),
    ("linear", 1):        _named("upsample_linear1d", "UpsampleLinear1DBackward0", "linear"),
    ("bilinear", 2):      _named("upsample_bilinear2d", "UpsampleBilinear2DBackward0", "linear"),
    ("trilinear", 3):     _named("upsample_trilinear3d", "UpsampleTrilinear3DBackward0", "linear"),
    ("bicubic", 2):       _named("upsample_bicubic2d", "UpsampleBicubic2DBackward0", "cubic"),
    ("bilinear-aa", 2):   _named("_upsample_bilinear2d_aa", "UpsampleBilinear2DAaBackward0",
                                 "linear-aa"),
    ("bicubic-aa", 2):    _named("_upsample_bicubic2d_aa", "UpsampleBicubic2DAaBackward0",
                                 "cubic-aa"),
    ("lanczos-aa", 2):    _named("_upsample_lanczos2d_aa", "UpsampleLanczos2DAaBackward0",
                                 "lanczos-aa"),
}

#: dimensions -> means over windows chosen to give a size
AREAS = {
    1: _named("_adaptive_avg_pool1d", "SqueezeBackward1", "area"),
    2: _named("_adaptive_avg_pool2d", "AdaptiveAvgPool2DBackward0", "area"),
    3: _named("_adaptive_avg_pool3d", "AdaptiveAvgPool3DBackward0", "area"),
}


def adaptive_sizes(name: str, input, n: int, output_size) -> sp.Ints:
    """The sizes asked for, None standing for the input's own; torch's errors otherwise."""
    if isinstance(output_size, (list, tuple)):
        if n > 1 and input.dim() <= len(output_size):
            raise ValueError(f"Input dimension should be at least {len(output_size) + 1}, but got "
                             f"{input.dim()}")
        if len(output_size) == n:
            output_size = tuple(have if given is None else given for given, have in
                                zip(output_size, input.shape[-n:], strict=True))
        elif n == 1:
            raise RuntimeError(f"{name}() argument 'output_size' should contain one int (got "
                               f"{len(output_size)})")
        else:
            within = "(): internal error: output_size.size()" if "max" in name else ": output_size"
            raise RuntimeError(f"{name}{within} must be {n}")
    elif output_size is None and n > 1:
        output_size = tuple(input.shape[-n:])
    sizes = sp.each(name, "output_size", output_size, n)
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D tensor, but got "
                           f"{list(input.shape)}")
    if any(s < 0 for s in sizes) and "max" in name:
        made = [*input.shape[:-n], *([1] if n == 1 else []), *sizes]
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}: {made}")
    if any(s < 0 for s in sizes):
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 "
                           f"but received {list(sizes)}")
    if 0 in input.shape[-n - 1 if input.dim() == n + 2 else -n:]:
        raise RuntimeError(f"{name}: Expected input to have non-zero size for non-batch "
                           f"dimensions, but input has sizes {list(input.shape)}")
    return sizes
