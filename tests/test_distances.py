"""Distances of rows by kernels of their own are those of differences and norms."""

import math

import pytest

import flambeau as torch
from flambeau.nn import functional as F


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, 2.5, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_are_norms_of_differences(p, dtype):
    torch.manual_seed(0)
    x, y = torch.randn(60, 70).to(dtype), torch.randn(40, 70).to(dtype)
    x[3, 5] = x[4, 5]
    turned = x.T.contiguous().T
    pairs = torch.linalg.vector_norm(x[:, None] - y[None], p, -1)
    mode = "donot_use_mm_for_euclid_dist"
    for given in (x, turned):
        assert torch.allclose(torch.cdist(given, y, p, mode), pairs, rtol=1e-5)
        first, second = torch.triu_indices(60, 60, 1)
        wanted = torch.linalg.vector_norm(x[first] - x[second], p, -1)
        assert torch.allclose(F.pdist(given, p), wanted, rtol=1e-5)


def test_numbers_that_are_none_stay():
    x = torch.zeros(80, 64)
    x[2, 3] = math.nan
    for p in (1.0, 2.0, math.inf):
        found = F.pdist(x, p)
        assert found.isnan().sum() == 79 and (found[~found.isnan()] == 0).all()


def test_recorded_distances_have_gradients():
    x = torch.randn(70, 64, dtype=torch.float64, requires_grad=True)
    near = F.pdist(x)
    assert torch.allclose(near, F.pdist(x.detach()))
    near.sum().backward()
    assert torch.isfinite(x.grad).all() and x.grad.abs().max() > 0


def test_no_difference_is_stored():
    """Of 90,000 pairs of rows of 64 elements, the differences would take 23 MB."""
    from flambeau.engine import storage

    taken = []
    storage.takers.append(lambda mem, nbytes: taken.append(nbytes))
    try:
        torch.cdist(torch.randn(300, 64), torch.randn(300, 64), 1.0)
        F.pdist(torch.randn(300, 64))
    finally:
        storage.takers.pop()
    assert max(taken) <= 300 * 300 * 4
