"""Images and volumes read at points of a grid, and grids made by affine maps.

Sampling is a sum over the taps around each point: an element of the input times a weight along each
dimension. Its gradient is put together from ops that have gradients, so it has them of any order.
"""

from __future__ import annotations

from itertools import product

from ..core import dtype as dt
from .conv import tensor_argument
from .declare import T, composite, engine, registry
from .pool import gather_planes, scatter_planes
from .reduce import sum
from .refusal import no_kernel, spoken

FUNCTIONAL = "nn.functional"
_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _where(condition, x, y):
    return registry["where"](condition, x, y)


# -- coordinates, along one dimension, each with how fast it moves with the grid's ----------------


def _in_pixels(x, size: int, align: bool):
    """From -1 ... 1 to 0 ... size - 1, or with pixels that have extent."""
    if align:
        return (x + 1) * ((size - 1) / 2), (size - 1) / 2
    return ((x + 1) * size - 1) / 2, size / 2


def _clipped(x, speed, size: int):
    """Held inside; what lies at or past the edge no longer moves. What is no number is at 0."""
    last = float(size - 1)
    moving = (x > 0) & (x < last)
    return (_where(x > 0, _where(x < last, x, last), 0.0),
            engine.cast(moving, x.dtype) * speed)


def _reflected(x, speed, size: int, align: bool):
    """Folded back inside at the edges, as often as needed."""
    low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
    if span == 0:
        return engine.zeros_like(x), 0.0
    away = registry["abs"](x - low)
    flips = registry["floor"](away.detach() / span)
    rest = away - flips * span
    even = registry["remainder"](flips, 2) == 0
    forward = even == (x >= low)
    return _clipped(_where(even, rest + low, span - rest + low),
                    _where(forward, 1.0, -1.0).to(x.dtype) * speed, size)


_PLACED = {
    "zeros":      lambda x, speed, size, align: (x, speed),
    "border":     lambda x, speed, size, align: _clipped(x, speed, size),
    "reflection": _reflected,
}


# -- taps along one dimension: (index, weight, how fast the weight moves) -------------------------


def _nearest_taps(x, size, align, padding):
    at, _ = _PLACED[padding](*_in_pixels(x, size, align), size, align)
    return [(registry["round"](at), None, None)]


def _linear_taps(x, size, align, padding):
    at, speed = _PLACED[padding](*_in_pixels(x, size, align), size, align)
    low = registry["floor"](at.detach())
    share = at - low
    return [(low, 1 - share, -speed), (low + 1, share, speed)]


def _cubic_taps(x, size, align, padding):
    at, speed = _in_pixels(x, size, align)
    low = registry["floor"](at.detach())
    t, a = at - low, -0.75
    taps = []
    for k in range(-1, 3):
        away = k - t if k > 0 else t - k
        turn = -speed if k > 0 else speed
        if k in (0, 1):
            weight = ((a + 2) * away - (a + 3)) * away * away + 1
            slope = (3 * (a + 2) * away - 2 * (a + 3)) * away
        else:
            weight = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
            slope = (3 * a * away - 10 * a) * away + 8 * a
        place, _ = _PLACED[padding](low + k, 1.0, size, align)
        taps.append((registry["round"](place), weight, slope * turn))
    return taps


_TAPS = {"nearest": _nearest_taps, "bilinear": _linear_taps, "bicubic": _cubic_taps}


def _taps(input, grid, mode: str, padding: str, align: bool):
    """The taps along each dimension; the grid has its coordinates in the opposite order."""
    sizes = tuple(input.shape[2:])
    n = len(sizes)
    return [_TAPS[mode](grid.select(-1, n - 1 - d), sizes[d], align, padding) for d in range(n)]


def _place(chosen, sizes):
    """Which element a choice of taps means, and whether it lies inside."""
    place, inside = None, None
    for (index, _, _), size in zip(chosen, sizes, strict=True):
        within = (index >= 0) & (index < size)
        inside = within if inside is None else inside & within
        index = engine.cast(_where(within, index, 0.0), dt.int64)
        place = index if place is None else place * size + index
    return place.unsqueeze(1), inside


def _weight(factors, inside, dtype):
    """The product of the weights, zero outside; of none, one. What is no number stays so."""
    total = None
    for factor in factors:
        total = factor if total is None else total * factor
    if total is None:
        return engine.cast(inside, dtype).unsqueeze(1)
    return _where(inside, total, total * 0).unsqueeze(1)


def _sampled(input, grid, mode: str, padding: str, align: bool):
    """Sums over the taps around each point; taps outside are zero."""
    sizes, total = tuple(input.shape[2:]), None
    for chosen in product(*_taps(input, grid, mode, padding, align)):
        place, inside = _place(chosen, sizes)
        weight = _weight([w for _, w, _ in chosen if w is not None], inside, input.dtype)
        part = gather_planes(input, place, len(sizes)) * weight
        total = part if total is None else total + part
    return total


# -- the ways back ---------------------------------------------------------------------------------


@composite(method=False, function_form=False)
def grid_sampler_input_gradient(g, input, grid, interpolation_mode, padding_mode, align_corners):
    """What the input gets of a gradient: at each tap its weight's share."""
    mode, padding = _MODES[interpolation_mode], _PADDINGS[padding_mode]
    sizes, total = tuple(input.shape[2:]), None
    for chosen in product(*_taps(input, grid, mode, padding, align_corners)):
        place, inside = _place(chosen, sizes)
        weight = _weight([w for _, w, _ in chosen if w is not None], inside, input.dtype)
        part = scatter_planes(g * weight, place, sizes)
        total = part if total is None else total + part
    return total


@composite(method=False, function_form=False)
def grid_sampler_grid_gradient(g, input, grid, interpolation_mode, padding_mode, align_corners):
    """What the grid gets: the taps, by how fast their weights move."""
    mode, padding = _MODES[interpolation_mode], _PADDINGS[padding_mode]
    if mode == "nearest":
        return engine.zeros_like(grid)
    sizes = tuple(input.shape[2:])
    n = len(sizes)
    moved = [None] * n
    for chosen in product(*_taps(input, grid, mode, padding, align_corners)):
        place, inside = _place(chosen, sizes)
        pull = sum(g * gather_planes(input, place, n), 1)
        for d in range(n):
            factors = [slope if k == d else w for k, (_, w, slope) in enumerate(chosen)]
            part = pull * _weight(factors, inside, input.dtype).squeeze(1)
            moved[d] = part if moved[d] is None else moved[d] + part
    return registry["stack"](moved[::-1], -1)


# -- the functions --------------------------------------------------------------------------------


def _check_sampling(input, grid, mode: str) -> None:
    tensor_argument("grid_sampler", "input", input)
    tensor_argument("grid_sampler", "grid", grid)
    shapes = f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
    if input.dim() not in (4, 5) or input.dim() != grid.dim():
        raise RuntimeError("grid_sampler(): expected 4D or 5D input and grid with same number of "
                           f"dimensions, but got {shapes}")
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError("grid_sampler(): expected grid and input to have same batch size, but "
                           f"got {shapes}")
    if grid.shape[-1] != input.dim() - 2:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {input.dim() - 2} in last "
                           f"dimension, but got grid with sizes {list(grid.shape)}")
    if 0 in input.shape[2:]:
        raise RuntimeError("grid_sampler(): expected input to have non-empty spatial dimensions, "
                           f"but input has sizes {list(input.shape)}")
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
        raise ValueError("nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' "
                         f"or 'bicubic', but got: '{mode}'")
    if padding_mode not in _PADDINGS:
        raise ValueError("nn.functional.grid_sample(): expected padding_mode to be 'zeros', "
                         f"'border', or 'reflection', but got: '{padding_mode}'")
    return grid_sampler(input, grid, _MODES.index(mode), _PADDINGS.index(padding_mode),
                        bool(align_corners))


@composite(method=False)
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """`grid_sample`, its modes given as numbers."""
    _check_sampling(input, grid, _MODES[interpolation_mode])
    sampler = grid_sampler_2d if input.dim() == 4 else grid_sampler_3d
    return sampler(input, grid, interpolation_mode, padding_mode, align_corners)


@composite(method=False, backward="GridSampler2DBackward0")
def grid_sampler_2d(input: T, grid: T, interpolation_mode, padding_mode, align_corners):
    """`grid_sample` of images, its modes given as numbers."""
    _check_sampling(input, grid, _MODES[interpolation_mode])
    return _sampled(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


@composite(method=False, backward="GridSampler3DBackward0")
def grid_sampler_3d(input: T, grid: T, interpolation_mode, padding_mode, align_corners):
    """`grid_sample` of volumes, its modes given as numbers."""
    _check_sampling(input, grid, _MODES[interpolation_mode])
    return _sampled(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


def _sampler_gradient(g, input, grid, interpolation_mode, padding_mode, align_corners):
    how = (interpolation_mode, padding_mode, align_corners)
    return (lambda: grid_sampler_input_gradient(g, input, grid, *how),
            lambda: grid_sampler_grid_gradient(g, input, grid, *how))


grid_sampler_2d.gradient(_sampler_gradient)
grid_sampler_3d.gradient(_sampler_gradient)


# -- affine grids ---------------------------------------------------------------------------------


def _steps(size: int, align: bool) -> list[float]:
    """Coordinates of pixels from -1 to 1: of their centres, unless the corners are the ends."""
    if size <= 1:
        return [0.0] * size
    steps = [2 * i / (size - 1) - 1 for i in range(size)]
    return steps if align else [s * (size - 1) / size for s in steps]


def _pixels(sizes, align: bool, dtype):
    """(pixels, dimensions + 1): the coordinates of every pixel, and 1."""
    n, axes = len(sizes), []
    for d in range(n - 1, -1, -1):
        axis = engine.tensor(_steps(sizes[d], align), dtype)
        axes.append(axis.reshape([-1 if k == d else 1 for k in range(n)]).expand(sizes))
    axes.append(engine.full(sizes, 1, dtype))
    return registry["stack"](axes, -1).reshape(-1, n + 1)


@composite(method=False)
def affine_grid_generator(theta: T, size, align_corners):
    """The grid of points that affine maps send the pixels of images of this size to."""
    sizes = tuple(size[2:])
    points = registry["matmul"](_pixels(sizes, align_corners, theta.dtype), theta.transpose(1, 2))
    return points.reshape(size[0], *sizes, len(sizes))


@affine_grid_generator.gradient
def affine_grid_generator(g, size, align_corners):
    sizes = tuple(size[2:])
    points = _pixels(sizes, align_corners, g.dtype)
    return registry["matmul"](g.reshape(size[0], -1, len(sizes)).transpose(1, 2), points)


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
        raise ValueError(f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for "
                         f"size {size}. Got {tuple(theta.shape)}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return affine_grid_generator(theta, size, bool(align_corners))
