"""Slopes and areas of sampled functions."""

import numpy as np
import pytest

import flambeau as torch

SQUARES = [[0.0, 1, 4, 9, 16], [1, 3, 7, 13, 21]]


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("spacing", [1, 0.5, -2])
def test_even_samples_have_the_slopes_of_numpy(spacing, edge_order):
    x = torch.tensor(SQUARES)
    got, = torch.gradient(x, spacing=spacing, dim=1, edge_order=edge_order)
    want = np.gradient(np.array(SQUARES), spacing, axis=1, edge_order=edge_order)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_uneven_samples_have_the_slopes_of_numpy(edge_order):
    at = [0.0, 1, 3, 3.5, 7]
    x = torch.tensor(SQUARES, dtype=torch.float64)
    got = torch.gradient(x, spacing=[torch.tensor(at)], dim=-1, edge_order=edge_order)
    want = np.gradient(np.array(SQUARES), at, axis=1, edge_order=edge_order)
    assert len(got) == 1
    np.testing.assert_allclose(got[0].numpy(), want, rtol=1e-6)


def test_every_dimension_has_a_spacing_of_its_own():
    x = torch.tensor([[1, 2, 4], [10, 20, 40], [9, 9, 9]])
    rows, columns = torch.gradient(x, spacing=[2.0, 4.0])
    np.testing.assert_allclose(rows.numpy(), np.gradient(x.numpy(), 2.0, axis=0))
    np.testing.assert_allclose(columns.numpy(), np.gradient(x.numpy(), 4.0, axis=1))
    assert [t.tolist() for t in torch.gradient(x, spacing=torch.tensor(2.0), dim=(0,))] == [
        rows.tolist()]


def test_slopes_are_differentiable_in_samples_and_places():
    x = torch.tensor([1.0, 2, 5, 4, 3], dtype=torch.float64, requires_grad=True)
    at = torch.tensor([0.0, 1, 1.5, 4, 5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, at: torch.gradient(x, spacing=(at,), edge_order=2)[0], (x, at))


@pytest.mark.parametrize("options, error, words", [
    ({"edge_order": 3},               RuntimeError, "only supports edge_order=1 and edge_order=2"),
    ({"spacing": [1.0]},              RuntimeError, "a spacing argument of length 1 and a dim"),
    ({"dim": (1, 1)},                 RuntimeError, "dim 1 appears multiple times"),
    ({"dim": 2},                      IndexError,   "Dimension out of range"),
    ({"dim": 0, "edge_order": 2},     RuntimeError, "at least edge_order\\+1"),
    ({"dim": 1, "spacing": [torch.ones(2, 5)]}, RuntimeError, "2 dimensions"),
    ({"dim": 1, "spacing": [torch.ones(4)]},    RuntimeError, "got 4 for 5"),
    ({"spacing": "wide"},             TypeError,    "not str"),
])
def test_refusals(options, error, words):
    with pytest.raises(error, match=words):
        torch.gradient(torch.tensor(SQUARES), **options)


def test_trapz_is_the_trapezoidal_rule():
    y = torch.tensor([1.0, 3, 2])
    assert torch.trapz(y).item() == 4.5
    assert torch.trapz(y, torch.tensor([0.0, 2, 3])).item() == 6.5


def test_helpers_that_suspend_what_is_never_under_way():
    with torch.utils._mode_utils.no_dispatch(), torch._C._DisableFuncTorch():
        state = torch.get_rng_state()
    torch.rand(3)
    assert not torch.equal(state, torch.get_rng_state())
    assert torch._C._get_tracing_state() is None


def test_torchs_own_form_of_logit_entropy_does_not_reduce():
    x = torch.tensor([0.0, 1, -2])
    losses = torch.binary_cross_entropy_with_logits(x, torch.ones(3))
    np.testing.assert_allclose(losses.numpy(), np.log1p(np.exp(-x.numpy())), rtol=1e-6)
    whole = torch.binary_cross_entropy_with_logits(x, torch.ones(3), reduction=2)
    assert whole.item() == pytest.approx(losses.sum().item())
