"""Generated kernels of convolution, pooling and resampling, against numpy and each other.

Shapes are chosen for the ways there are to compute one: tiles, squares of two by two, few rows at a
time, frames of single planes, and lines shorter or longer than a vector.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau.devices.cpu import conv_windows
from flambeau.nn import functional as F
from flambeau.ops.declare import registry

#: data, weights, options; the way it is computed
CONVOLUTIONS = {
    "tiles":        ((2, 5, 9, 11), (13, 5, 3, 2), {"stride": 2, "padding": 1}),
    "deep tiles":   ((1, 70, 6, 7), (20, 70, 3, 3), {}),
    "squares":      ((2, 16, 8, 10), (19, 16, 3, 3), {"padding": 1}),
    "long squares": ((1, 17, 4, 36), (16, 17, 3, 3), {"padding": 1}),
    "one row":      ((2, 4, 6, 19), (1, 4, 3, 3), {"padding": 1}),
    "three rows":   ((2, 3, 12, 37), (7, 3, 5, 5), {"stride": 2, "padding": 2}),
    "depthwise":    ((2, 6, 9, 21), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "narrow":       ((2, 6, 5, 5), (12, 1, 3, 3), {"padding": 1, "groups": 6, "stride": 2}),
    "dilated":      ((1, 8, 11, 12), (10, 4, 3, 3), {"dilation": 2, "padding": 2, "groups": 2}),
    "pointwise":    ((2, 9, 5, 6), (8, 9, 1, 1), {}),
    "line":         ((2, 3, 50), (4, 3, 5), {"padding": 2}),
    "volume":       ((1, 3, 5, 6, 7), (8, 3, 2, 3, 3), {"stride": (1, 2, 1), "padding": 1}),
}  # fmt: skip


def sample(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def each(value, n):
    return value if isinstance(value, tuple) else (value,) * n


def columns_of(x, kernel, stride, padding, dilation):
    """(N, C, *kernel, *outs)"""
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    outs = [(size - d * (k - 1) - 1) // s + 1
            for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    found = np.empty((*x.shape[:2], *kernel, *outs))
    for tap in np.ndindex(*kernel):
        part = tuple(slice(t * d, t * d + (o - 1) * s + 1, s)
                     for t, d, o, s in zip(tap, dilation, outs, stride, strict=True))
        found[(slice(None), slice(None), *tap)] = x[(slice(None), slice(None), *part)]
    return found.reshape(*x.shape[:2], -1, *outs), n


def convolved(x, w, b, stride=1, padding=0, dilation=1, groups=1):
    n = x.ndim - 2
    seen, _ = columns_of(x, w.shape[2:], each(stride, n), each(padding, n), each(dilation, n))
    seen = seen.reshape(x.shape[0], groups, x.shape[1] // groups, *seen.shape[2:])
    weights = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    out = np.einsum("ngck...,gmck->ngm...", seen, weights)
    return out.reshape(x.shape[0], w.shape[0], *out.shape[3:]) + b.reshape(-1, *[1] * n)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_of_every_kind(case, dtype):
    data, weights, options = CONVOLUTIONS[case]
    arrays = [sample(s, k) for k, s in enumerate((data, weights, weights[:1]))]
    x, w, b = (torch.from_numpy(a.astype(dtype)).requires_grad_() for a in arrays)
    conv = getattr(F, f"conv{len(data) - 2}d")
    out = conv(x, w, b, **options)
    tolerance = 3e-5 if dtype == "float32" else 1e-11
    expected = convolved(*arrays, **options)
    np.testing.assert_allclose(out.detach().numpy(), expected, atol=tolerance, rtol=tolerance)
    # <g, conv> is linear in data and weights; moving either shows the gradient of the other.
    g = sample(out.shape, 7)
    out.backward(torch.from_numpy(g.astype(dtype)))
    for k, t in enumerate((x, w, b)):
        moved = [a if i == k or (k < 2 and i == 1 - k) else np.zeros_like(a)
                 for i, a in enumerate(arrays)]
        moved[k] = direction = sample(arrays[k].shape, 11 + k)
        along = float((g * convolved(*moved, **options)).sum())
        found = float((t.grad.numpy().astype(float) * direction).sum())
        assert found == pytest.approx(along, abs=tolerance * 1000, rel=tolerance * 10)


@pytest.mark.parametrize("case", ["tiles", "squares", "three rows", "depthwise", "narrow"])
def test_threads_do_not_change_a_bit(case):
    data, weights, options = CONVOLUTIONS[case]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            x, w, b = (torch.from_numpy(sample((s[0] * 8, *s[1:]) if k == 0 else s, k).astype("f4"))
                       .requires_grad_() for k, s in enumerate((data, weights, weights[:1])))
            out = F.conv2d(x, w, b, **options)
            (out * out).sum().backward()
            found.append([t.detach().numpy().tobytes() for t in (out, x.grad, w.grad, b.grad)])
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_squares_are_used_where_they_are_said_to_be():
    line = conv_windows.straight(8, 3, 1, 1, 1)
    one = conv_windows.straight(1, 1, 1, 0, 1)
    assert conv_windows.by_squares([one, line, line], 1, 16, 16, "float")
    assert not conv_windows.by_squares([one, line, line], 1, 16, 15, "float")
    assert not conv_windows.by_squares([one, line, conv_windows.straight(7, 3, 1, 1, 1)], 1, 16, 16,
                                  "float")


def test_data_that_does_not_lie_side_by_side():
    x, w = sample((2, 6, 9, 8), 1), sample((5, 6, 3, 3), 2)
    expected = convolved(x, w, np.zeros(5), padding=1)
    last = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
    found = F.conv2d(last, torch.from_numpy(w), padding=1)
    assert found.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    turned = torch.from_numpy(x.transpose(0, 1, 3, 2).copy()).transpose(2, 3)
    np.testing.assert_allclose(F.conv2d(turned, torch.from_numpy(w), padding=1).numpy(), expected,
                               atol=1e-12)
    g = torch.from_numpy(w).requires_grad_()
    F.conv2d(torch.from_numpy(x), g, padding=1).sum().backward()  # its gradient is one repeated
    np.testing.assert_allclose(g.grad.numpy()[0, :, 1, 1], x.sum((0, 2, 3)), atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_single(dtype):
    x, w = sample((1, 40, 5, 5), 1) / 8, sample((4, 40, 3, 3), 2) / 8
    ours = [torch.from_numpy(a).to(dtype) for a in (x, w)]
    expected = convolved(*(t.double().numpy() for t in ours), np.zeros(4))
    found = F.conv2d(*ours)
    assert found.dtype is dtype
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=1e-2, atol=1e-2)


#: data and weights of which a vector of windows has ends that seem to lie side by side
APART = [((1, 4, 3, 4, 5), (5, 4, 3, 3, 3)), ((2, 3, 2, 2), (15, 3, 2, 2)),
         ((2, 3, 2, 2), (31, 3, 2, 2)), ((2, 2, 1), (15, 2, 1)), ((1, 16, 8, 8), (16, 16, 3, 3))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("data, weights", APART)
def test_windows_at_the_end_of_a_line_are_not_taken_for_its_middle(data, weights, dtype):
    x, w = sample(data, 1), sample(weights, 2)
    conv = getattr(F, f"conv{len(data) - 2}d")
    found = conv(torch.from_numpy(x.astype(dtype)), torch.from_numpy(w.astype(dtype)))
    np.testing.assert_allclose(found.numpy(), convolved(x, w, np.zeros(len(w))), atol=1e-4)


def drawn(seed):
    """Data, weights and options of a small convolution, drawn at random."""
    draw = np.random.default_rng(seed)
    n, groups = int(draw.integers(1, 4)), int(draw.choice([1, 1, 2, 3]))
    few, many = (int(draw.choice([1, 2, 3, 4, 7, 16])) for _ in range(2))
    kernel, stride, dilation = (tuple(draw.integers(1, top, n).tolist()) for top in (4, 3, 3))
    padding = tuple(draw.integers(0, 3, n).tolist())
    sizes = [max(1, d * (k - 1) + 1 - 2 * p) + int(draw.integers(0, 7))
             for k, d, p in zip(kernel, dilation, padding, strict=True)]
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    batch = int(draw.choice([1, 1, 2, 3]))
    return (batch, groups * few, *sizes), (groups * many, few, *kernel), options


@pytest.mark.parametrize("seed", range(60))
def test_convolutions_at_random(seed):
    """Forward against numpy; gradients and the transposed form are its adjoints, exactly."""
    data, weights, options = drawn(seed)
    n = len(data) - 2
    x, w = sample(data, seed + 1), sample(weights, seed + 2)
    # Weights that do not lie side by side are copied for each use.
    turned = torch.from_numpy(np.ascontiguousarray(w.swapaxes(0, -1))).transpose(0, -1)
    ours, theirs = torch.from_numpy(x).requires_grad_(), turned.requires_grad_()
    out = getattr(F, f"conv{n}d")(ours, theirs, **options)
    expected = convolved(x, w, np.zeros(len(w)), **options)
    np.testing.assert_allclose(out.detach().numpy(), expected, atol=1e-11)
    g = sample(expected.shape, seed + 3)
    out.backward(torch.from_numpy(g))
    for grad, other in ((ours.grad, x), (theirs.grad, w)):
        direction = sample(other.shape, seed + 4)
        moved = (direction, w) if other is x else (x, direction)
        along = (g * convolved(*moved, np.zeros(len(w)), **options)).sum()
        assert (grad.numpy() * direction).sum() == pytest.approx(along, abs=1e-9)
    steps = zip(data[2:], expected.shape[2:], w.shape[2:], *(options[k] for k in (
        "stride", "padding", "dilation")), strict=True)
    more = tuple(size - ((outs - 1) * s - 2 * p + d * (k - 1) + 1)
                 for size, outs, k, s, p, d in steps)
    if all(m < max(s, d) for m, s, d in zip(more, options["stride"], options["dilation"],
                                            strict=True)):
        back = getattr(F, f"conv_transpose{n}d")(torch.from_numpy(g), torch.from_numpy(w),
                                                 output_padding=more, **options)
        np.testing.assert_allclose(back.numpy(), ours.grad.numpy(), atol=1e-10)


# -- pooling ---------------------------------------------------------------------------------------

POOLS = [((2, 3, 8, 37), 2, {}), ((2, 3, 9, 37), 3, {"stride": 2, "padding": 1}),
         ((1, 2, 6, 5), 3, {"stride": 1, "padding": 1}), ((3, 7, 40), 2, {"ceil_mode": True}),
         ((2, 2, 5, 6, 20), 2, {}), ((1, 2, 9, 30), 3, {"dilation": 2, "stride": 1})]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape, kernel, options", POOLS)
def test_the_largest_has_its_place_and_gets_the_gradient(shape, kernel, options, dtype):
    n = len(shape) - 2
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)
    ours = torch.from_numpy(x).requires_grad_()
    pool = getattr(F, f"max_pool{n}d")
    values, places = pool(ours, kernel, return_indices=True, **options)
    flat = x.reshape(*shape[:2], -1)
    taken = np.take_along_axis(flat, places.numpy().reshape(*shape[:2], -1), 2)
    assert (taken.reshape(values.shape) == values.detach().numpy()).all()
    found = pool(ours, kernel, **options)
    assert torch.equal(found, values)
    assert torch.equal(pool(ours.detach(), kernel, **options), values)
    g = sample(values.shape, 3).astype(dtype)
    (by_places,) = torch.autograd.grad(values, ours, torch.from_numpy(g))
    (by_taps,) = torch.autograd.grad(found, ours, torch.from_numpy(g))
    wanted = np.zeros((*shape[:2], flat.shape[2]), dtype)
    at = np.indices((*shape[:2], places[0, 0].numel()))
    np.add.at(wanted, (at[0], at[1], places.numpy().reshape(*shape[:2], -1)),
              g.reshape(*shape[:2], -1))
    np.testing.assert_allclose(by_taps.numpy(), wanted.reshape(shape), atol=1e-6)
    np.testing.assert_allclose(by_places.numpy(), wanted.reshape(shape), atol=1e-6)


def test_the_first_of_equals_but_the_last_nan():
    x = torch.tensor([[[1.0, 1.0, float("nan"), 2.0, float("nan"), 0.0, -1.0, -1.0]]])
    values, places = F.max_pool1d(x, 2, return_indices=True)
    assert places.tolist() == [[[0, 2, 4, 6]]]
    values, places = F.max_pool1d(x, 5, stride=1, return_indices=True)
    assert places.tolist() == [[[4, 4, 4, 4]]] and values.isnan().all()
    lowest = torch.full((1, 1, 4, 20), -float("inf"))
    assert F.max_pool2d(lowest, 3, 2, 1, return_indices=True)[1][0, 0, :, 1].tolist() == [1, 21]


def test_pooling_twice_differentiated():
    x = torch.from_numpy(sample((1, 2, 6, 6))).requires_grad_()
    (slope,) = torch.autograd.grad((F.max_pool2d(x, 2) ** 3).sum(), x, create_graph=True)
    slope.sum().backward()
    kept = (slope != 0).numpy()
    np.testing.assert_allclose(x.grad.numpy(), np.where(kept, 6 * x.detach().numpy(), 0))


@pytest.mark.parametrize("size", [7, 3, (2, 5)])
def test_windows_that_share_a_plane_out(size):
    x = sample((2, 3, 14, 14))
    rows, columns = each(size, 2)
    edges = [[(i * 14 // n, -(-(i + 1) * 14 // n)) for i in range(n)] for n in (rows, columns)]
    windows = [[x[:, :, a:b, c:d] for c, d in edges[1]] for a, b in edges[0]]
    means = np.array([[w.mean((2, 3)) for w in row] for row in windows]).transpose(2, 3, 0, 1)
    largest = np.array([[w.max((2, 3)) for w in row] for row in windows]).transpose(2, 3, 0, 1)
    ours = torch.from_numpy(x)
    np.testing.assert_allclose(F.adaptive_avg_pool2d(ours, size).numpy(), means, atol=1e-12)
    np.testing.assert_allclose(F.adaptive_max_pool2d(ours, size).numpy(), largest)


@pytest.mark.parametrize("seed", range(30))
def test_pools_at_random(seed):
    data, weights, options = drawn(seed)
    n, kernel = len(data) - 2, weights[2:]
    padding = tuple(min(p, k // 2) for p, k in zip(options["padding"], kernel, strict=True))
    x = sample((*data[:2], *(s + 4 for s in data[2:])), seed)
    ours = torch.from_numpy(x).requires_grad_()
    inside, _ = columns_of(np.ones_like(x), kernel, options["stride"], padding, (1,) * n)
    seen, _ = columns_of(x, kernel, options["stride"], padding, (1,) * n)
    means = getattr(F, f"avg_pool{n}d")(ours, kernel, options["stride"], padding,
                                        count_include_pad=False)
    np.testing.assert_allclose(means.detach().numpy(), seen.sum(2) / inside.sum(2), atol=1e-12)
    largest = getattr(F, f"max_pool{n}d")(ours, kernel, options["stride"], padding)
    highest = np.where(inside > 0, seen, -np.inf)
    assert (largest.detach().numpy() == highest.max(2)).all()
    g = sample(means.shape, seed + 1)
    direction, _ = columns_of(sample(x.shape, seed + 2), kernel, options["stride"], padding,
                              (1,) * n)
    taken = np.take_along_axis(direction, highest.argmax(2)[:, :, None], 2)[:, :, 0]
    for out, along in ((means, direction.sum(2) / inside.sum(2)), (largest, taken)):
        (slope,) = torch.autograd.grad(out, ours, torch.from_numpy(g))
        found = (slope.numpy() * sample(x.shape, seed + 2)).sum()
        assert found == pytest.approx((g * along).sum(), abs=1e-10)


def test_a_mean_of_volumes_refuses_windows_larger_than_they_are():
    with pytest.raises(RuntimeError, match="smaller than kernel size"):
        F.avg_pool3d(torch.ones(1, 1, 1, 4, 4), 2, padding=1)


# -- resampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(10, 26), (3, 5), (5, 13), (9, 40)])
def test_resampling_and_its_transpose(mode, size):
    x = torch.from_numpy(sample((2, 3, 5, 13))).requires_grad_()
    out = F.interpolate(x, size=size, mode=mode)
    ones = F.interpolate(torch.ones(1, 1, 5, 13), size=size, mode=mode)
    np.testing.assert_allclose(ones.numpy(), 1, atol=1e-6)
    g = torch.from_numpy(sample(tuple(out.shape), 4))
    out.backward(g)
    pairing = float((g * out.detach()).sum())
    assert float((x.grad * x.detach()).sum()) == pytest.approx(pairing)


def test_doubling_repeats_each_element():
    x = sample((2, 3, 4, 11))
    found = F.interpolate(torch.from_numpy(x), scale_factor=2)
    assert (found.numpy() == x.repeat(2, 2).repeat(2, 3)).all()


def test_what_is_not_finite_stays_where_it_is():
    x = np.zeros((1, 1, 4, 12))
    x[0, 0, 0, 0] = np.inf
    ours = torch.from_numpy(x).requires_grad_()
    out = F.interpolate(ours, size=(4, 24), mode="nearest")
    g = np.zeros(out.shape)
    g[0, 0, 0, 0] = np.inf
    out.backward(torch.from_numpy(g))
    assert np.isinf(ours.grad.numpy()).sum() == 1 and not np.isnan(ours.grad.numpy()).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("way", [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1),
                                 (2, 2)])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(("shape", "points"), [
    ((2, 3, 9, 6), (5, 7)), ((1, 2, 1, 1), (3, 3)), ((3, 1, 4, 5), (1, 301)),
    ((1, 2, 7, 1), (2, 4))])
def test_images_read_at_points(dtype, way, align, shape, points):
    """Native code against sums over taps; points past the edges, at them, and no numbers."""
    x = torch.randn(shape, dtype=dtype)
    grid = torch.rand(shape[0], *points, 2, dtype=dtype) * 3.2 - 1.6
    grid[0, 0, :3] = torch.tensor([[1.0, -1.0], [math.nan, 0.0], [0.0, -1.0]], dtype=dtype)
    op = registry["grid_sampler_2d"]
    with torch.no_grad():
        want = op.body(x, grid, *way, align)
        found = torch.grid_sampler_2d(x, grid, *way, align)
    assert torch.allclose(found, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    names = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    by_name = torch.nn.functional.grid_sample(x, grid, names[0][way[0]], names[1][way[1]], align)
    turned = x.transpose(2, 3).contiguous().transpose(2, 3)  # not contiguous: no native code
    assert torch.equal(by_name.isnan(), found.isnan())
    assert torch.allclose(op(turned, grid, *way, align), found, rtol=1e-4, atol=1e-5,
                          equal_nan=True)


def test_gradients_of_images_read_at_points():
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    grid = (torch.rand(1, 3, 3, 2, dtype=torch.float64) * 1.8 - 0.9).requires_grad_()
    for padding in ("zeros", "border"):
        assert torch.autograd.gradcheck(lambda x, grid, p=padding: (
            torch.nn.functional.grid_sample(x, grid, "bilinear", p, False)), (x, grid))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("way", list(itertools.product((0, 1, 2), (0, 1, 2), (False, True))))
@pytest.mark.parametrize(("shape", "points"), [
    ((2, 9, 5, 6), (5, 17)), ((2, 3, 3, 4, 5), (3, 2, 40)), ((1, 2, 1, 1), (2, 3))])
def test_ways_back_of_what_is_read_at_points(dtype, way, shape, points):
    """Native code against ops put together."""
    n = len(points)
    if n == 3 and way[0] == 2:
        pytest.skip("volumes have no cubic taps")
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    grid = (torch.rand(shape[0], *points, n, dtype=dtype) * 3.2 - 1.6).requires_grad_()
    out = registry[f"grid_sampler_{n}d"](x, grid, *way)
    g = torch.randn_like(out)
    out.backward(g.mT.contiguous().mT)
    with torch.no_grad():
        value = registry[f"grid_sampler_{n}d"].body(x, grid, *way)
        want = registry["grid_sampler_input_gradient"].body(g, x, grid, *way)
        moved = registry["grid_sampler_grid_gradient"].body(g, x, grid, *way)
    for found, wanted in ((out, value), (x.grad, want), (grid.grad, moved)):
        assert torch.allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_a_gradient_past_the_edge_goes_nowhere():
    x = torch.zeros(1, 1, 3, 3, requires_grad=True)
    grid = torch.full((1, 1, 1, 2), 5.0)
    torch.nn.functional.grid_sample(x, grid, align_corners=False).backward(
        torch.full((1, 1, 1, 1), math.inf))
    assert not x.grad.any()


def test_what_is_read_at_points_has_a_second_gradient():
    x = torch.randn(1, 1, 4, 5, dtype=torch.float64, requires_grad=True)
    grid = (torch.rand(1, 2, 2, 2, dtype=torch.float64) * 1.6 - 0.8).requires_grad_()
    for mode in ("bilinear", "bicubic"):
        assert torch.autograd.gradgradcheck(lambda x, grid, mode=mode: (
            torch.nn.functional.grid_sample(x, grid, mode, "zeros", False)), (x, grid))
