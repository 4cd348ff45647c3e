"""Pooling, interpolation and sampling: against windows written out, and against each other."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import flambeau as torch
from flambeau.ops.declare import registry


def call(name, *args, **kwargs):
    return registry.get(f"nn.functional.{name}", registry.get(name))(*args, **kwargs)


def sample(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def tensor(shape, seed=0):
    return torch.from_numpy(sample(shape, seed)).requires_grad_()


def numerically(function, x, g, step=1e-6):
    """The gradient of <g, function(x)> by small steps."""
    found = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        for sign in (1, -1):
            moved = x.detach().numpy().copy()
            moved[at] += sign * step
            found[at] += sign * (function(torch.from_numpy(moved)) * g).sum().item() / (2 * step)
    return found


def check_gradient(function, x):
    out = function(x)
    g = torch.from_numpy(sample(tuple(out.shape), 7))
    out.backward(g)
    np.testing.assert_allclose(x.grad.numpy(), numerically(function, x, g), atol=1e-6)


OPTIONS = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": (1, 2)},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
]


def pools(x, kernel_size, stride=None, padding=0, ceil_mode=False):
    """Per output element, the positions inside the input that its window covers."""
    pairs = [v if isinstance(v, tuple) else (v, v) for v in (kernel_size, stride or kernel_size,
                                                             padding)]
    spans = []
    for size, k, s, p in zip(x.shape[-2:], *pairs, strict=True):
        count = int(np.ceil((size + 2 * p - k) / s) if ceil_mode else (size + 2 * p - k) // s) + 1
        if ceil_mode and (count - 1) * s >= size + p:
            count -= 1
        spans.append([range(max(i * s - p, 0), min(i * s - p + k, size)) for i in range(count)])
    return spans


@pytest.mark.parametrize("options", OPTIONS)
def test_max_pool_and_its_places(options):
    x = sample((2, 3, 7, 6))
    values, places = call("max_pool2d", torch.from_numpy(x), return_indices=True, **options)
    rows, columns = pools(x, **options)
    assert values.shape == (2, 3, len(rows), len(columns))
    for (i, down), (j, across) in product(enumerate(rows), enumerate(columns)):
        window = x[:, :, down.start:down.stop, across.start:across.stop]
        assert (values[:, :, i, j].numpy() == window.max((2, 3))).all()
    taken = np.take_along_axis(x.reshape(2, 3, -1), places.numpy().reshape(2, 3, -1), 2)
    assert (taken.reshape(values.shape) == values.numpy()).all()


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count_include_pad", [False, True])
def test_avg_pool_without_padding_is_the_mean(options, count_include_pad):
    x = sample((1, 2, 7, 6))
    out = call("avg_pool2d", torch.from_numpy(x), count_include_pad=count_include_pad, **options)
    rows, columns = pools(x, **options)
    for (i, down), (j, across) in product(enumerate(rows), enumerate(columns)):
        window = x[:, :, down.start:down.stop, across.start:across.stop]
        if not count_include_pad or not options.get("padding"):
            np.testing.assert_allclose(out[:, :, i, j].numpy(), window.mean((2, 3)))
    if count_include_pad and options.get("padding"):
        corner = x[:, :, :2, :2].sum((2, 3)) / 9
        np.testing.assert_allclose(out[:, :, 0, 0].numpy(), corner)


@pytest.mark.parametrize(("name", "arguments"), [
    ("max_pool2d", (3, 2, 1)),
    ("avg_pool2d", (3, 2, 1, True, False)),
    ("avg_pool2d", (2, 1, 0, False, True, 3)),
    ("adaptive_avg_pool2d", ((3, 2),)),
    ("adaptive_max_pool2d", ((2, 3),)),
    ("lp_pool2d", (2, 2)),
])
def test_gradients_match_small_steps(name, arguments):
    x = tensor((1, 2, 5, 4))
    check_gradient(lambda x: call(name, x, *arguments), x)


def test_the_last_nan_is_the_largest_and_infinity_starts_its_window():
    x = torch.tensor([[[1.0, float("nan"), float("nan"), 2.0, -float("inf"), -float("inf")]]])
    values, places = call("max_pool1d", x, 2, return_indices=True)
    assert places.tolist() == [[[1, 2, 4]]]
    assert values.isnan().tolist() == [[[True, True, False]]]


def test_unpooling_puts_back():
    x = tensor((1, 2, 6, 6))
    values, places = call("max_pool2d", x, 2, return_indices=True)
    back = call("max_unpool2d", values, places, 2)
    assert torch.equal(call("max_pool2d", back.clamp(min=0), 2), values.clamp(min=0))
    assert (back != 0).sum().item() == 18
    with pytest.raises(RuntimeError, match="invalid max index: 99"):
        call("max_unpool2d", values, torch.full_like(places, 99), 2)
    with pytest.raises(ValueError, match="output_size"):
        call("max_unpool2d", values, places, 2, output_size=(20, 20))


def test_few_large_adaptive_windows_equal_many_small_ones():
    x = torch.from_numpy(sample((2, 2, 33, 20)))
    values, places = call("adaptive_max_pool2d", x, (1, 2), return_indices=True)
    halves = x.numpy().reshape(2, 2, 33, 2, 10).max((2, 4))
    assert (values.numpy() == halves[:, :, None]).all()
    assert torch.equal(x.reshape(2, 2, -1).gather(2, places.reshape(2, 2, -1)).reshape(2, 2, 1, 2),
                       values)


@pytest.mark.parametrize(("arguments", "error"), [
    ({"kernel_size": 0}, RuntimeError),
    ({"kernel_size": 2, "stride": 0}, RuntimeError),
    ({"kernel_size": 2, "padding": 2}, RuntimeError),
    ({"kernel_size": 9}, RuntimeError),
    ({"kernel_size": (2, 2, 2)}, RuntimeError),
    ({"kernel_size": 1.5}, TypeError),
])
def test_what_is_refused(arguments, error):
    for name in ("max_pool2d", "avg_pool2d"):
        with pytest.raises(error, match="pool2d"):
            call(name, torch.ones(1, 2, 6, 6), **arguments)


# -- interpolation --------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "options"), [
    ("nearest", {}), ("nearest-exact", {}), ("area", {}), ("bilinear", {}), ("bicubic", {}),
    ("bilinear", {"align_corners": True}), ("bicubic", {"align_corners": True}),
    ("bilinear", {"antialias": True}), ("bicubic", {"antialias": True}),
    ("lanczos", {"antialias": True}),
])
@pytest.mark.parametrize("size", [(3, 9), (8, 4)])
def test_interpolation_keeps_constants_and_is_linear(mode, options, size):
    def resized(x):
        return call("interpolate", x, size, mode=mode, **options)

    np.testing.assert_allclose(resized(torch.full((1, 1, 5, 6), 3.0)).numpy(), 3.0, rtol=1e-6)
    x = tensor((1, 2, 5, 6))
    out = resized(x)
    g = torch.from_numpy(sample(tuple(out.shape), 3))
    (slope,) = torch.autograd.grad(out, x, g, create_graph=True)
    assert (slope * x).sum().item() == pytest.approx((out * g).sum().item())


def test_linear_interpolation_of_a_ramp_is_a_ramp():
    ramp = torch.arange(5.0, dtype=torch.float64).reshape(1, 1, 5)
    out = call("interpolate", ramp, 9, mode="linear", align_corners=True)
    np.testing.assert_allclose(out.numpy()[0, 0], np.linspace(0, 4, 9))
    assert call("interpolate", ramp, scale_factor=2).tolist() == [[[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]]]


@pytest.mark.parametrize(("arguments", "error"), [
    ({}, ValueError),
    ({"size": 3, "scale_factor": 2}, ValueError),
    ({"size": (3, 3, 3)}, ValueError),
    ({"size": 3, "align_corners": True}, ValueError),
    ({"size": 3, "mode": "trilinear"}, NotImplementedError),
    ({"size": 3, "mode": "sharp"}, NotImplementedError),
    ({"size": 0}, RuntimeError),
])
def test_what_interpolation_refuses(arguments, error):
    with pytest.raises(error):
        call("interpolate", torch.ones(1, 1, 4, 4), **arguments)


# -- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_the_identity_map_samples_the_image_itself(mode, align_corners):
    x = torch.from_numpy(sample((2, 3, 4, 5)))
    theta = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]] * 2, dtype=torch.float64)
    grid = call("affine_grid", theta, (2, 3, 4, 5), align_corners)
    out = call("grid_sample", x, grid, mode, "zeros", align_corners)
    np.testing.assert_allclose(out.numpy(), x.numpy(), atol=1e-12)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sampling_gradients_match_small_steps(mode, padding):
    x = tensor((1, 2, 4, 3))
    grid = torch.from_numpy(np.random.default_rng(4).uniform(-1.4, 1.4, (1, 3, 2, 2)))
    check_gradient(lambda x: call("grid_sample", x, grid, mode, padding, False), x)
    points = grid.clone().requires_grad_()
    check_gradient(lambda grid: call("grid_sample", x.detach(), grid, mode, padding, False), points)


def test_sampling_nowhere_is_zero_and_backward_survives_it():
    grid = torch.tensor([[[[float("inf"), 0.0], [5.0, 5.0]]]], requires_grad=True)
    x = torch.ones(1, 1, 3, 3, requires_grad=True)
    out = call("grid_sample", x, grid, "nearest", "zeros", False)
    assert out.tolist() == [[[[0.0, 0.0]]]]
    out.sum().backward()
    assert not grid.grad.any() and not x.grad.any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "outs"), [
    ((2, 3, 64, 64), (4, 4)), ((1, 2, 33, 70), (5, 3)), ((2, 1, 7, 40), (1, 1)), ((3, 4, 90), (4,)),
    ((1, 1, 5, 200), (2, 7))])
def test_largest_of_large_windows(dtype, shape, outs):
    """The first of equals, the last NaN, and minus infinity everywhere."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, shape).astype(dtype)
    x[0, 0, ..., 3] = x[-1, -1, ..., -1] = x[0, -1, ..., 20:24] = np.nan
    x[-1, 0] = -np.inf
    n = len(outs)
    pool = getattr(torch.nn.functional, f"adaptive_max_pool{n}d")
    values, places = pool(torch.tensor(x), outs, return_indices=True)
    flat = x.reshape(*shape[:-n], -1)
    for at in np.ndindex(*values.shape):
        box = [slice(i * size // o, -(-(i + 1) * size // o))
               for i, size, o in zip(at[-n:], shape[-n:], outs, strict=True)]
        window = x[at[:-n]][tuple(box)]
        numbers = np.arange(flat.shape[-1]).reshape(shape[-n:])[tuple(box)].ravel()
        lost = np.flatnonzero(np.isnan(window.ravel()))
        want = numbers[lost[-1]] if len(lost) else numbers[window.argmax()]
        assert places[at].item() == want
        assert np.array_equal(values[at].item(), flat[at[:-n]][want], equal_nan=True)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_adaptive_maxima_alone_are_those_with_places(n, size, dtype):
    pool = getattr(torch.nn.functional, f"adaptive_max_pool{n}d")
    for seed, batch in ((0, (2, 3)), (1, (3,))):
        a = np.random.default_rng(seed).standard_normal((*batch, 9, 7, 8)[-n - len(batch):])
        a = a.astype(dtype)
        a.flat[3] = np.nan
        x = torch.from_numpy(a)
        for given in (x, x.transpose(-1, 0).contiguous().transpose(-1, 0)):
            wanted = pool(given, size, True)[0]
            for _ in range(3):
                found = pool(given, size)
                assert found.dtype is x.dtype and found.stride() == wanted.stride()
                assert np.array_equal(found.numpy(), wanted.numpy(), equal_nan=True)
        leaf = torch.from_numpy(np.nan_to_num(a)).requires_grad_()
        pool(leaf, size).sum().backward()
        assert leaf.grad.sum() == pool(leaf, size).numel()
    compiled = torch.compile(lambda x: pool(x * 2, size) + 1)
    for _ in range(4):
        x = torch.randn(2, 3, *(6,) * n)
        assert torch.equal(compiled(x), pool(x * 2, size) + 1)


def test_adaptive_maxima_refuse():
    pool = torch.nn.functional.adaptive_max_pool2d
    for _ in range(2):
        pool(torch.ones(1, 2, 2), 1)
        with pytest.raises(RuntimeError, match="3D or 4D"):
            pool(torch.ones(2, 2), 1)
        with pytest.raises(RuntimeError, match="negative dimension -1"):
            pool(torch.ones(1, 2, 2), -1)
        assert pool(torch.ones(1, 2, 2), 0).shape == (1, 0, 0)
        assert pool(torch.empty(1, 2, 2, device="meta"), 1).is_meta
        values, places = pool(torch.ones(1, 2, 2), 1, return_indices=True)
        assert values.tolist() == [[[1]]] and places.tolist() == [[[0]]]
