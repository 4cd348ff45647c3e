"""Convolution, pooling and images against torch, where its own samples do not go."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau  # noqa: E402


def compare(name, *arrays, tolerance=1e-9, **options):
    """The same function of both libraries: results, gradients, and the name of the step."""
    ours, theirs = [], []
    for library, inputs in ((flambeau, ours), (torch, theirs)):
        tensors = [library.from_numpy(a.copy()) for a in arrays]
        for t in tensors:
            t.requires_grad_(t.dtype in (library.float64, library.complex128))
        out = getattr(library.nn.functional, name)(*tensors, **options)
        outs = out if isinstance(out, tuple) else (out,)
        inputs.append([o.detach().numpy() for o in outs])
        inputs.append(None if outs[0].grad_fn is None else outs[0].grad_fn.name())
        if outs[0].grad_fn is not None:
            g = np.random.default_rng(5).standard_normal(tuple(outs[0].shape))
            outs[0].backward(library.from_numpy(np.asarray(g, outs[0].detach().numpy().dtype)))
            inputs.append([t.grad.numpy() for t in tensors if t.requires_grad])
        else:
            inputs.append([])
    for k in (0, 2):
        for mine, its in zip(ours[k], theirs[k], strict=True):
            assert mine.dtype == its.dtype and mine.shape == its.shape
            np.testing.assert_allclose(mine, its, atol=tolerance, rtol=tolerance)
    return ours[1], theirs[1]


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("size", [(3, 9), (13, 4), (1, 1), (6, 10)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialiased(mode, size):
    mine, its = compare("interpolate", sample(2, 3, 6, 10), size=size, mode=mode, antialias=True)
    assert mine == its


@pytest.mark.parametrize("scale", [0.5, 0.3, 1.7, 3.0, (1.5, 2.2)])
@pytest.mark.parametrize("recompute", [None, True])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_scale_factors(mode, scale, recompute):
    mine, its = compare("interpolate", sample(2, 3, 6, 10), scale_factor=scale, mode=mode,
                        recompute_scale_factor=recompute)
    assert mine == its


@pytest.mark.parametrize("options", [
    {"mode": "nearest"}, {"mode": "bilinear"}, {"mode": "bicubic"},
    {"mode": "bilinear", "antialias": True}, {"mode": "bicubic", "antialias": True},
])
def test_bytes_are_images(options):
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, 9, 8), dtype=np.uint8)
    compare("interpolate", pixels, size=(5, 13), tolerance=0, **options)


@pytest.mark.parametrize("norm", [1, 2, 3.5])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_norms_of_windows(n, norm):
    x = np.abs(sample(2, 3, *[7] * n)) + 0.1
    compare(f"lp_pool{n}d", x, norm_type=norm, kernel_size=3, stride=2, ceil_mode=True)


@pytest.mark.parametrize("shape", [(2, 18, 4), (18, 4)])
def test_fold(shape):
    mine, its = compare("fold", sample(*shape), output_size=(7, 7), kernel_size=(3, 2), stride=2,
                        dilation=(2, 3))
    assert mine == its


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 1, 4, 5), (2, 1, 4, 1, 5)])
def test_affine_grid(size, align_corners):
    n = len(size) - 2
    mine, its = compare("affine_grid", sample(2, n, n + 1), size=size, align_corners=align_corners)
    assert mine == its


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_far_outside(mode, padding_mode):
    grid = np.random.default_rng(2).uniform(-6, 6, (2, 4, 3, 2))
    mine, its = compare("grid_sample", sample(2, 3, 6, 5), grid, mode=mode,
                        padding_mode=padding_mode, align_corners=False)
    assert mine == its


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "n"), [
    ("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)])
def test_grid_sample_goes_back(mode, n, padding_mode, align_corners):
    sizes, points = (6, 5, 4)[:n], (4, 3, 9)[:n]
    x, grid = sample(2, 3, *sizes), np.random.default_rng(2).uniform(-2, 2, (2, *points, n))
    g, found = sample(2, 3, *points), []
    for library in (flambeau, torch):
        leaves = [library.from_numpy(a.copy()).requires_grad_() for a in (x, grid)]
        out = library.nn.functional.grid_sample(*leaves, mode, padding_mode, align_corners)
        out.backward(library.from_numpy(g))
        found.append([out.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)])
    for mine, its in zip(*found, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-6)


def test_windows_at_random_are_the_same_ones():
    x = sample(2, 3, 9, 8).astype(np.float32)
    found = []
    for library in (flambeau, torch):
        library.manual_seed(3)
        out = library.nn.functional.fractional_max_pool2d(library.from_numpy(x), 2, (4, 3),
                                                          return_indices=True)
        found.append([o.numpy() for o in out])
    for mine, its in zip(*found, strict=True):
        assert (mine == its).all()


@pytest.mark.parametrize("options", [
    {"kernel_size": 3}, {"kernel_size": 3, "padding": 1, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3}, {"kernel_size": 3, "stride": 1, "dilation": 2, "padding": 1},
])
def test_max_pool_of_nan_and_infinity(options):
    x = sample(2, 3, 6, 6)
    x[0, 0, 2:4, 2:4] = np.nan
    x[1] = -np.inf
    mine, its = compare("max_pool2d", x, return_indices=True, **options)
    assert mine == its


def test_complex_convolution():
    def numbers(*shape):
        return sample(*shape) + 1j * sample(*shape, seed=1)

    compare("conv2d", numbers(2, 4, 6, 6), numbers(6, 2, 3, 3), groups=2, stride=2)
    compare("conv_transpose2d", numbers(2, 4, 6, 6), numbers(4, 2, 3, 3), groups=2, stride=2,
            output_padding=1)
