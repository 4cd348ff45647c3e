"""Special functions of two arguments that native code sums up."""

import math

import numpy as np
import pytest

import flambeau as torch


def lower_ratio(a, x):
    """The integral of the gamma distribution by its power series, in Python's numbers."""
    term = total = 1 / a
    k = 0
    while term > total * 1e-18:
        k += 1
        term *= x / (a + k)
        total += term
    return total * math.exp(a * math.log(x) - x - math.lgamma(a))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 8, 13, 4000])
def test_ratios_of_gamma_functions(dtype, n):
    torch.manual_seed(0)
    a = torch.rand(n, dtype=dtype) * 30 + 0.05
    x = a * (torch.rand(n, dtype=dtype) * 2 + 0.05)
    want = np.array([lower_ratio(*pair) for pair in zip(a.tolist(), x.tolist())])
    limit = 1e-7 if dtype is torch.float32 else 1e-13
    assert np.abs(torch.igamma(a, x).numpy() - want).max() < limit
    assert np.abs(torch.igammac(a, x).numpy() - (1 - want)).max() < limit


def test_ratios_far_out():
    a = torch.tensor([1.0, 0.5, 5000.0, 20000.0, 3.0], dtype=torch.float64)
    x = torch.tensor([700.0, 1e300, 4000.0, 20000.0, 1e-300], dtype=torch.float64)
    lower, upper = torch.igamma(a, x).tolist(), torch.igammac(a, x).tolist()
    assert lower[:2] == [1, 1] and upper[0] == pytest.approx(math.exp(-700)) and upper[1] == 0
    assert lower[2] < 1e-40 and upper[2] == 1 and lower[4] == 0 and upper[4] == 1
    assert lower[3] + upper[3] == pytest.approx(1) and lower[3] == pytest.approx(0.50094, abs=1e-5)


def test_operands_of_other_shapes_and_dtypes():
    a, x = torch.tensor([[1.0], [2.0]]), torch.tensor([1, 2, 3])
    want = torch.igamma(a.expand(2, 3).contiguous(), x.float().expand(2, 3).contiguous())
    assert torch.equal(torch.igamma(a, x), want)
    assert torch.igamma(a.half(), x).dtype is torch.float16
    assert torch.allclose(torch.igamma(a.bfloat16(), x).float(), want, atol=1e-2)
    assert torch.igamma(a[:0], x).shape == (0, 3)
    turned = torch.rand(3, 4).t()
    assert torch.equal(torch.igammac(turned, turned), torch.igammac(turned.contiguous(),
                                                                    turned.contiguous()))
    assert torch.igamma(torch.rand(2, device="meta"), torch.rand(2, device="meta")).shape == (2,)


def test_gradients_and_written_results():
    a = torch.tensor([1.5, 4.0], dtype=torch.float64)
    x = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: torch.igamma(a, x), (x,))
    assert torch.autograd.gradcheck(lambda x: torch.igammac(a, x), (x,))
    assert torch.autograd.gradcheck(lambda x: torch.special.zeta(a, x), (x,))
    out = torch.empty(2, dtype=torch.float64)
    with torch.no_grad():
        assert torch.igamma(a, x, out=out) is out and torch.equal(out, torch.igamma(a, x))
        assert torch.equal(a.clone().igamma_(x), out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeta(dtype):
    s = torch.tensor([2.0, 4.0, 2.0, 3.0, 2.0, 1.0, 0.5, 3.0, 2.5], dtype=dtype)
    q = torch.tensor([1.0, 1.0, 0.5, 20.0, -0.5, 2.0, 2.0, -2.0, -1.5], dtype=dtype)
    tail = sum(1 / k**3 for k in range(20, 2_000_0)) + 0.5 / 2_000_0**2
    want = [math.pi**2 / 6, math.pi**4 / 90, math.pi**2 / 2, tail, math.pi**2 / 2 + 4, math.inf,
            math.nan, math.inf, math.nan]
    found = torch.special.zeta(s, q).numpy()
    np.testing.assert_allclose(found, want, rtol=2e-7 if dtype is torch.float32 else 1e-9)
    assert torch.special.zeta(2.0, torch.tensor([1.0])).item() == pytest.approx(math.pi**2 / 6)
