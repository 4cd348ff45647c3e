"""Images and volumes read at points of a grid, and grids made by affine maps.

Everything is put together from ops that have gradients, so these have them too, of any order.
"""

from __future__ import annotations

from itertools import product

from ..core import dtype as dt
from .conv import tensor_argument
from .declare import composite, engine, registry
from .pool import gather_planes
from .refusal import no_kernel, spoken

FUNCTIONAL = "nn.functional"
_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _where(condition, x, y):
    return registry["where"](condition, x, y)


# -- coordinates, along one dimension ------------------------------------------------------------------


def _to_pixels(x, size: int, align: bool):
    """From -1 ... 1 to 0 ... size - 1, or with pixels that have extent."""
    return (x + 1) * ((size - 1) / 2) if align else ((x + 1) * size - 1) / 2


def _clipped(x, size: int):
    """Held inside; what lies at or past the edge no longer moves."""
    return _where(x <= 0, 0.0, _where(x >= size - 1, float(size - 1), x))


def _reflected(x, size: int, align: bool):
    """Folded back inside at the edges, as often as needed."""
    low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
    if span == 0:
        return x * 0
    away = registry["abs"](x - low)
    flips = registry["floor"](away.detach() / span)
    rest = away - flips * span
    return _clipped(_where(registry["remainder"](flips, 2) == 0, rest + low, span - rest + low), size)


def _finite(x):
    """What is no place at all is put far outside."""
    return _where(registry["abs"](x) < 2.0**31, x, -100.0)


_PLACED = {
    "zeros":      lambda x, size, align: x,
    "border":     lambda x, size, align: _clipped(x, size),
    "reflection": _reflected,
}


def _placed(x, size: int, align: bool, padding: str):
    return _finite(_PLACED[padding](x, size, align))


# -- taps: (index, weight) pairs along one dimension --------------------------------------------------------


def _nearest_taps(x, size, align, padding):
    at = _placed(_to_pixels(x, size, align), size, align, padding)
    return [(registry["round"](at.detach()), None)]


def _linear_taps(x, size, align, padding):
    at = _placed(_to_pixels(x, size, align), size, align, padding)
    low = registry["floor"](at.detach())
    share = at - low
    return [(low, 1 - share), (low + 1, share)]


def _cubic_taps(x, size, align, padding):
    at = _to_pixels(x, size, align)
    low = registry["floor"](at.detach())
    t, a = at - low, -0.75

    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = (far(t + 1), near(t), near(1 - t), far(2 - t))
    return [(registry["round"](_placed(low + k, size, align, padding)), weight)
            for k, weight in enumerate(weights, -1)]


_TAPS = {"nearest": _nearest_taps, "bilinear": _linear_taps, "bicubic": _cubic_taps}


def _sampled(input, grid, mode: str, padding: str, align: bool):
    """Sums over the taps around each point; taps outside are zero."""
    sizes = tuple(input.shape[2:])
    n = len(sizes)
    taps = [_TAPS[mode](grid.select(-1, n - 1 - d), sizes[d], align, padding) for d in range(n)]
    total = None
    for chosen in product(*taps):
        place, weight, inside = None, None, None
        for (index, share), size in zip(chosen, sizes, strict=True):
            within = (index >= 0) & (index < size)
            inside = within if inside is None else inside & within
            index = engine.cast(registry["clamp"](index, 0, size - 1), dt.int64)
            place = index if place is None else place * size + index
            if share is not None:
                weight = share if weight is None else weight * share
        weight = engine.cast(inside, input.dtype) if weight is None else _where(inside, weight, 0.0)
        part = gather_planes(input, place.unsqueeze(1), n) * weight.unsqueeze(1)
        total = part if total is None else total + part
    return total


# -- the functions -------------------------------------------------------------------------------------------


def _check_sampling(input, grid, mode: str) -> None:
    tensor_argument("grid_sampler", "input", input)
    tensor_argument("grid_sampler", "grid", grid)
    shapes = f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
    if input.dim() not in (4, 5) or input.dim() != grid.dim():
        raise RuntimeError("grid_sampler(): expected 4D or 5D input and grid with same number of "
                           f"dimensions, but got {shapes}")
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError("grid_sampler(): expected grid and input to have same batch size, but got "
                           f"{shapes}")
    if grid.shape[-1] != input.dim() - 2:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {input.dim() - 2} in last "
                           f"dimension, but got grid with sizes {list(grid.shape)}")
    if 0 in input.shape[2:]:
        raise RuntimeError("grid_sampler(): expected input to have non-empty spatial dimensions, but "
                           f"input has sizes {list(input.shape)}")
    if mode == "bicubic" and input.dim() == 5:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if input.dtype is not grid.dtype:
        raise RuntimeError(f"grid_sampler(): expected input and grid to have the same dtype, but "
                           f"input has {spoken(input.dtype)} and grid has {spoken(grid.dtype)}")
    if input.dtype.kind != "f":
        raise no_kernel("grid_sampler", input.dtype)


@composite(where=FUNCTIONAL)
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """The input read at the points of a grid, whose coordinates run from -1 to 1."""
    if mode not in _MODES:
        raise ValueError("nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or "
                         f"'bicubic', but got: '{mode}'")
    if padding_mode not in _PADDINGS:
        raise ValueError("nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', "
                         f"or 'reflection', but got: '{padding_mode}'")
    _check_sampling(input, grid, mode)
    return _sampled(input, grid, mode, padding_mode, bool(align_corners))


def _numbered(input, grid, interpolation_mode, padding_mode, align_corners):
    return grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode],
                       align_corners)


@composite(method=False)
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """`grid_sample`, its modes given as numbers."""
    return _numbered(input, grid, interpolation_mode, padding_mode, align_corners)


@composite(method=False)
def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    """`grid_sample` of images, its modes given as numbers."""
    return _numbered(input, grid, interpolation_mode, padding_mode, align_corners)


@composite(method=False)
def grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners):
    """`grid_sample` of volumes, its modes given as numbers."""
    return _numbered(input, grid, interpolation_mode, padding_mode, align_corners)


# -- affine grids ----------------------------------------------------------------------------------------------


def _steps(size: int, align: bool) -> list[float]:
    """Coordinates of pixels from -1 to 1: of their centres, unless the corners are the ends."""
    if size <= 1:
        return [0.0] * size
    steps = [2 * i / (size - 1) - 1 for i in range(size)]
    return steps if align else [s * (size - 1) / size for s in steps]


@composite(method=False)
def affine_grid_generator(theta, size, align_corners):
    """The grid of points that affine maps send the pixels of images of this size to."""
    batch, sizes = size[0], tuple(size[2:])
    n = len(sizes)
    axes = []
    for d in range(n - 1, -1, -1):
        axis = engine.tensor(_steps(sizes[d], align_corners), theta.dtype)
        axes.append(axis.reshape([-1 if k == d else 1 for k in range(n)]).expand(sizes))
    axes.append(engine.full(sizes, 1, theta.dtype))
    base = registry["stack"](axes, -1).reshape(1, -1, n + 1)
    points = registry["matmul"](base, theta.transpose(1, 2))
    return points.reshape(batch, *sizes, n)


@composite(where=FUNCTIONAL)
def affine_grid(theta, size, align_corners=None):
    """The grid of points that affine maps send the pixels of images of this size to."""
    tensor_argument("affine_grid", "theta", theta)
    if theta.dtype.kind != "f":
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine "
                                  f"transforms, respectively. Got size {size}.")
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise ValueError(f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size "
                         f"{size}. Got {tuple(theta.shape)}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return affine_grid_generator(theta, size, bool(align_corners))
