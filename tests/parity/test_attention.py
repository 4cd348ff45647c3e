"""Attention against torch: results, gradients, and the numbers dropout draws."""

import numpy as np
import pytest
import torch

import flambeau as fl

SHAPES = [((12, 4, 64, 32), True), ((4, 6, 128, 64), True), ((2, 3, 130, 24), False)]


def both(shape, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape).astype(dtype) for _ in range(4)]
    return [[lib.tensor(a, requires_grad=i < 3) for i, a in enumerate(arrays)]
            for lib in (torch, fl)]


def run(lib, tensors, **options):
    q, k, v, g = tensors
    out = lib.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    out.backward(g)
    return [out.detach().numpy(), *(t.grad.numpy() for t in (q, k, v))]


def agree(found, wanted, tolerance=5e-6):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1, np.abs(b).max()))


@pytest.mark.parametrize(("shape", "causal"), SHAPES)
def test_gradients(shape, causal):
    theirs, ours = both(shape)
    agree(run(fl, ours, is_causal=causal), run(torch, theirs, is_causal=causal))


@pytest.mark.parametrize("boolean", [False, True])
def test_masks(boolean):
    theirs, ours = both((2, 3, 40, 16))
    mask = np.random.default_rng(3).standard_normal((2, 1, 40, 40)).astype("f")
    mask = mask > 0 if boolean else mask
    if boolean:
        mask[0, 0, 3] = False
    agree(run(fl, ours, attn_mask=fl.tensor(mask)),
          run(torch, theirs, attn_mask=torch.tensor(mask)))


def test_dropout_draws_the_same_numbers():
    theirs, ours = both((2, 2, 24, 8))
    torch.manual_seed(5)
    fl.manual_seed(5)
    agree(run(fl, ours, dropout_p=0.4), run(torch, theirs, dropout_p=0.4))
    assert float(fl.rand(())) == float(torch.rand(()))


@pytest.mark.parametrize("need_weights", [False, True])
def test_heads_of_a_module(need_weights):
    outs = []
    for lib in (torch, fl):
        lib.manual_seed(0)
        module = lib.nn.MultiheadAttention(24, 3, batch_first=True)
        x = lib.tensor(np.random.default_rng(1).standard_normal((2, 9, 24)).astype("f"),
                       requires_grad=True)
        out = module(x, x, x, need_weights=need_weights)[0]
        out.square().sum().backward()
        outs.append([out.detach().numpy(), x.grad.numpy(),
                     *(p.grad.numpy() for p in module.parameters())])
    agree(*outs[::-1], tolerance=1e-5)
