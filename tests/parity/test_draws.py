"""Draws with parameters of tensors, or into memory that lies turned: torch's numbers."""

import numpy as np
import pytest
import torch

import flambeau


def draws_by_tensors(lib, n):
    """Draws whose parameters are tensors, or whose results lie otherwise in memory."""
    lib.manual_seed(3)
    mean, std = lib.arange(n).float() - 2, lib.linspace(0, 2, n)
    turned = lib.empty(n, 4, 3).permute(2, 0, 1)
    found = [
        lib.normal(mean, std), lib.normal(mean.double(), std.double()), lib.normal(1.5, std),
        lib.normal(2, std), lib.normal(mean, 0.3), lib.normal(mean[:, None], std),
        lib.normal(mean.expand(2, n), std.expand(2, n)), lib.normal(mean.double(), std),
        lib.normal(mean, std, generator=lib.Generator().manual_seed(1)),
        lib.bernoulli(std / 2), lib.bernoulli((std / 2).expand(3, n).t()),
        turned.clone().normal_(), turned.clone().uniform_(), lib.rand_like(turned),
        lib.nn.functional.dropout(lib.ones(4, n).t(), 0.3), lib.empty(4, n).t().random_(0, 9),
        lib.empty(6, n)[::2, 1:].normal_(), lib.empty(n, 1, 4).transpose(0, 2).bernoulli_(0.4),
        lib.rand(2)]
    return [x.detach().numpy() for x in found]


@pytest.mark.parametrize("n", [3, 15, 16, 40])
def test_draws_by_tensors(n):
    for ours, theirs in zip(draws_by_tensors(flambeau, n), draws_by_tensors(torch, n), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6)


def test_steps_of_normal_have_torchs_names():
    for lib in (torch, flambeau):
        x = lib.ones(3, requires_grad=True)
        assert [lib.normal(*given).grad_fn.name() for given in ((x, 1.0), (1.0, x), (x, x))] == [
            "NormalBackward1", "NormalBackward2", "NormalBackward3"]
