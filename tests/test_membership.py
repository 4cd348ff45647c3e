"""Membership among few and draws by chances: what a first call plans has to give the same as the
usual way, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("sizes", [(1, 1), (16, 8), (40, 77), (700, 30)])
def test_isin(dtype, sizes):
    rng = np.random.default_rng(5)
    x, y = (rng.integers(0, 90, n).astype(dtype) for n in sizes)
    if dtype.startswith("f"):
        x[0], y[0] = np.nan, np.nan
        x[-1], y[-1] = 0.0, -0.0
    for a in (x, x.reshape(-1, 1)):
        for _ in range(3):
            found = torch.isin(torch.from_numpy(a), torch.from_numpy(y))
            assert found.dtype is torch.bool and np.array_equal(found.numpy(), np.isin(a, y))
    away = torch.isin(torch.from_numpy(x), torch.from_numpy(y), invert=True)
    assert np.array_equal(away.numpy(), ~np.isin(x, y))
    for _ in range(3):
        halves = torch.isin(torch.from_numpy(x)[::2], torch.from_numpy(y))
        assert np.array_equal(halves.numpy(), np.isin(x[::2], y))


def test_isin_of_other_kinds():
    x = torch.arange(3)
    for _ in range(3):
        assert torch.isin(x, torch.tensor([1.0, 5.0])).tolist() == [False, True, False]
        assert torch.isin(x, 2).tolist() == [False, False, True]
        assert torch.isin(x, x[:0]).tolist() == [False] * 3
        out = torch.empty(3, dtype=torch.bool)
        assert torch.isin(x, x[1:], out=out) is out and out.tolist() == [False, True, True]
        with pytest.raises(RuntimeError, match="Unsupported"):
            torch.isin(x > 0, x > 0)
    compiled = torch.compile(lambda a, b: torch.isin(a + 1, b))
    for k in range(5):
        b = torch.arange(k, k + 3)
        assert torch.equal(compiled(x, b), torch.isin(x + 1, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_bernoulli_draws_one_stream_however_chances_lie(dtype):
    chances = torch.rand(7, 11).to(dtype)
    turned = chances.T.contiguous().T
    for p in (chances, turned, chances.clone().requires_grad_()):
        torch.manual_seed(3)
        found = [torch.bernoulli(p).detach(), torch.bernoulli(p).detach()]
        torch.manual_seed(3)
        assert torch.equal(found[0], torch.bernoulli(turned)) and found[0].dtype is dtype
        assert torch.equal(found[1], torch.bernoulli(turned))
    own = [torch.bernoulli(p, generator=torch.Generator().manual_seed(5))
           for p in (chances, turned)]
    assert torch.equal(*own)
    sure = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=dtype)
    assert torch.equal(torch.bernoulli(sure), sure)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_bernoulli_refuses_what_is_no_chance(wrong):
    chances = torch.full((20,), 0.5)
    chances[13] = wrong
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="p_in >= 0"):
        torch.bernoulli(chances)
    assert torch.equal(torch.get_rng_state(), before)
